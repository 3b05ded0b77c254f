"""Samples of changed code → one finding a row, by pairs of processes (pairs.py).

    slower            the lower bound of the slowdown is above the margin: the policy's max_slowdown, or what the same
                      code showed against itself on that machine (null_floor), whichever is more
    not-slower        the upper bound is under max_slowdown: a noisy machine lets no slowdown pass
    clock-change      one of the two in seconds, and the other in cycles. The sides ran at two clocks, and that may
                      have been the machine's doing: measure again
    near-margin       neither, and a plain 95 % interval lies within nought and twice the margin
    too-noisy         neither, and the interval is wider than that
    timer-too-coarse  the pairs do not differ at all

Over all rows and looks the chance of a false "slower" is FALSE_ALARM at most, of a false "not-slower" FALSE_PASS a row.
Looks are at fixed numbers of pairs; pairs beyond the last one reached wait for the next, for whoever may look after
every pair finds what he hopes for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from . import pairs
from .measured import SECONDS, Timed, sound
from .policy import Policy
from .reasons import Finding
from .results import Process

PLAIN = 0.025
"""Either end of a plain 95 % interval: not what a row is judged by, but what tells a small change from noise."""


@dataclass(frozen=True)
class _Said:
    """What one unit, seconds or cycles, says of a row. lower and upper are the bounds that decide, as fractions."""

    estimate: pairs.Estimate
    slower: bool
    not_slower: bool
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{np.expm1(self.estimate.centre):+.2%}, bounds {self.lower:+.2%} and {self.upper:+.2%}"


def judge(rows: Sequence[Timed], policy: Policy) -> tuple[Finding, ...]:
    """One finding for each row of fit samples, in their order. All rows of a comparison go in together, for Holm."""
    if not rows:
        return ()
    looks = pairs.looks(policy.min_processes, policy.max_processes)
    margins = [max(policy.max_slowdown, row.base.null_floor or 0.0, row.head.null_floor or 0.0) for row in rows]
    used = [max(look for look in looks if look <= len(row.base.processes)) for row in rows]
    each = list(zip(rows, used, strict=True))
    seconds = _said([_estimate(row, n, _seconds) for row, n in each], margins, policy, len(looks))
    cycles = _said([_estimate(row, n, _cycles) for row, n in each], margins, policy, len(looks))
    return tuple(
        Finding("samples-broken", SECONDS) if said is None else _finding(row, n, margin, said, in_cycles, looks)
        for row, n, margin, said, in_cycles in zip(rows, used, margins, seconds, cycles, strict=True)
    )


def null_floor(rows: Sequence[Timed]) -> float | None:
    """What Samples.null_floor wants: the largest slowdown, of either side, of rows of the same code on both sides.

    None, by which nothing is judged, if there is no row or one is disturbed or broken. A row wants 8 pairs or more.
    """
    if not rows or not all(sound(p) and not p.marks for row in rows for p in row.base.processes + row.head.processes):
        return None
    estimates = [_estimate(row, len(row.base.processes), _seconds) for row in rows]
    return max(float(np.expm1(abs(estimate.centre))) for estimate in estimates if estimate is not None)


def _seconds(process: Process) -> float:
    return median(process.seconds)


def _cycles(process: Process) -> float:
    """SM clocks that pass in a launch; NaN where the clock is not known."""
    each = [seconds * clock for seconds, clock in zip(process.seconds, process.clock_hz, strict=False)]
    return median(each) if each else float("nan")


def _estimate(row: Timed, count: int, measure: Callable[[Process], float]) -> pairs.Estimate | None:
    """The estimate by the first pairs of a row; None where one of them was not measured that way."""
    sides = np.array([[measure(process) for process in side.processes[:count]] for side in (row.base, row.head)])
    return pairs.estimate(np.log(sides[1] / sides[0])) if np.isfinite(sides).all() else None


def _said(
    estimates: Sequence[pairs.Estimate | None], margins: Sequence[float], policy: Policy, looks: int
) -> list[_Said | None]:
    """What a unit says of each row; None where there is no estimate in it."""
    p = np.array([np.nan if e is None else e.p_slower(m) for e, m in zip(estimates, margins, strict=True)])
    limits = pairs.holm(p * looks) / looks
    passes = pairs.FALSE_PASS / looks
    found: list[_Said | None] = []
    for estimate, value, limit in zip(estimates, p, limits, strict=True):
        if estimate is None:
            found.append(None)
            continue
        not_slower = bool(estimate.p_not_slower(policy.max_slowdown) <= passes)
        lower, upper = estimate.bounds(limit, passes)
        found.append(_Said(estimate, bool(value <= limit), not_slower, float(lower), float(upper)))
    return found


def _finding(
    row: Timed, used: int, margin: float, seconds: _Said, cycles: _Said | None, looks: tuple[int, ...]
) -> Finding:
    code = _code(seconds, cycles, margin)
    measured = len(row.base.processes)
    told = [f"{seconds} by {used} pairs, margin {margin:.2%}"]
    told.append("clock not known" if cycles is None else f"in cycles {cycles}")
    more = 0
    if code in ("too-noisy", "near-margin"):
        more = next((look - measured for look in looks if look > measured), 0)
    if code == "too-noisy" and not more:
        told.append(f"about {_enough(seconds, used, margin)} pairs would tell")
    before, after = (median(map(_seconds, side.processes)) for side in (row.base, row.head))
    return Finding(code, SECONDS, before, after, before * (1 + margin), "; ".join(told), more_pairs=more)


def _code(seconds: _Said, cycles: _Said | None, margin: float) -> str:
    if seconds.estimate.error <= pairs.FINEST:
        return "timer-too-coarse"
    if cycles is not None and ((seconds.slower and cycles.not_slower) or (seconds.not_slower and cycles.slower)):
        return "clock-change"
    if seconds.slower:
        return "slower"
    if seconds.not_slower:
        return "not-slower"
    low, high = seconds.estimate.bounds(PLAIN, PLAIN)
    return "near-margin" if low >= 0 and high <= 2 * margin else "too-noisy"


def _enough(said: _Said, used: int, margin: float) -> str:
    """How many pairs would bring the bound to the margin, if centre and spread stayed as they are."""
    centre = float(np.expm1(said.estimate.centre))
    reach = centre - said.lower if centre > margin else said.upper - centre
    count = used * (reach / max(abs(centre - margin), 1e-9)) ** 2
    return f"{math.ceil(count)}" if count < 1000 else "1000 or more"
