"""Whether the samples of changed code are fit to be judged; slowdown.py judges those that are."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ..ladder import Problem
from ..policy import Policy
from ..results import Process, Samples
from .reasons import Finding

SECONDS, CYCLES = "seconds", "cycles"
"""Figures of a row: which of the two was judged (slowdown.py)."""


@dataclass(frozen=True)
class Timed:
    """The samples of changed code on both sides, fit to be judged."""

    version: str
    problem: Problem | None
    base: Samples
    head: Samples


def unfit(
    base: Samples | None, head: Samples | None, policy: Policy, machines: tuple[str | None, str | None]
) -> tuple[Finding, ...]:
    """Why the samples of changed code cannot be judged; empty if they can. machines are base's and head's."""
    if base is None and head is None:
        code = "measurement-required" if policy.require_measured else "not-measured"
        return (Finding(code, more_pairs=policy.min_processes),)
    return tuple(_unfit(base, head, policy, machines))


def _unfit(
    base: Samples | None, head: Samples | None, policy: Policy, machines: tuple[str | None, str | None]
) -> Iterator[Finding]:
    for side, samples in (("base", base), ("head", head)):
        if samples is None:
            yield Finding("half-measured", detail=f"not at {side}")
        else:
            yield from _unfit_side(samples, side, policy)
    if machines[0] is None or machines[0] != machines[1]:
        yield Finding("other-machine", detail=f"{machines[0] or 'unknown'} and {machines[1] or 'unknown'}")
    if base is None or head is None:
        return
    if base.protocol != head.protocol:
        yield Finding("other-protocol", detail=f"{base.protocol} at base, {head.protocol} at head")
    if not _in_turn(base, head):
        yield Finding("not-paired", detail=f"{len(base.processes)} at base, {len(head.processes)} at head")


def _unfit_side(samples: Samples, side: str, policy: Policy) -> Iterator[Finding]:
    floor = samples.null_floor or 0.0
    if not all(map(sound, samples.processes)) or not (math.isfinite(floor) and floor >= 0):
        yield Finding("samples-broken", SECONDS, detail=side)
    if not samples.complete:
        yield Finding("samples-incomplete", detail=side)
    marks = sorted({mark for process in samples.processes for mark in process.marks})
    if marks:
        yield Finding("samples-unclean", detail=f"{side}: {', '.join(marks)}")
    if samples.null_floor is None:
        yield Finding("no-null-pair", detail=side)
    count = len(samples.processes)
    if count < policy.min_processes:
        told = f"{count} at {side}, {policy.min_processes} are wanted"
        yield Finding("few-processes", detail=told, more_pairs=policy.min_processes - count)


def sound(process: Process) -> bool:
    """Whether there are times, clocks for all of them or none, and all are positive, finite numbers."""
    lengths = len(process.seconds), len(process.clock_hz)
    return lengths[0] > 0 and lengths[1] in (0, lengths[0]) and all(map(_positive, process.seconds + process.clock_hz))


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _in_turn(base: Samples, head: Samples) -> bool:
    """Whether processes ran as base, head, head, base, base, head, …, as far as both sides go.

    Ranks may leave some out: of processes that measured something else, or were disturbed and are repeated in their
    place. One side may be longer only while the measurement is not complete.
    """
    both = list(zip(base.processes, head.processes, strict=False))
    ranks = [p.rank for i, pair in enumerate(both) for p in (pair if i % 2 == 0 else reversed(pair))]
    even = len(base.processes) == len(head.processes) or not (base.complete and head.complete)
    return even and all(before < after for before, after in pairwise(ranks))
