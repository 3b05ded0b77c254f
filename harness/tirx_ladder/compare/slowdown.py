"""Samples of changed code → one finding a row, by pairs of processes (pairs.py).

A row is decided in cycles where every sample of both sides has its clock, and otherwise in seconds. On a GPU at its
power cap the clock differs by up to a third from one process to the next, and seconds with it; cycles hardly do. With
the estimate and the bounds of the unit that decides:

    slower            the lower bound of the slowdown is above the margin: the policy's max_slowdown, or what the same
                      code showed against itself on that machine (null_floor), whichever is more
    not-slower        the upper bound is under max_slowdown: a noisy machine lets no slowdown pass
    near-margin       neither, and a plain 95 % interval lies within nought and twice the margin
    too-noisy         neither, and the interval is wider than that
    timer-too-coarse  the pairs do not differ at all

Where cycles decide, seconds are the witness, since a kernel that draws more power lowers the clock, and takes longer in
as many cycles. What it says against cycles makes the row a `clock-change`: measure again. That is

    cycles slower, and the upper bound in seconds under max_slowdown
    cycles not slower, and seconds suspicious (SUSPICION) before the last look: pairs are added; or accused (ACCUSATION)
    at the last one
    cycles anything but slower, and the lower bound in seconds above the margin

Over all rows and looks the chance of a false "slower" is FALSE_ALARM at most, of a false "not-slower" FALSE_PASS a row.
Looks are at fixed numbers of pairs; pairs beyond the last one reached wait for the next, for whoever may look after
every pair finds what he hopes for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median

import numpy as np

from ..policy import FEWEST_PROCESSES, Policy
from ..results import Process
from . import pairs
from .measured import CYCLES, SECONDS, Timed, sound
from .reasons import Finding

PLAIN = 0.025
"""Either end of a plain 95 % interval: not what a row is judged by, but what tells a small change from noise."""

SUSPICION = 0.5
"""At a p-value in seconds up to this one, more pairs are added to a row that is not slower in cycles: its centre in
seconds is above max_slowdown."""

ACCUSATION = 0.05
"""At a p-value in seconds up to this one, a row that is not slower in cycles does not pass after the last look. It is
of a row alone: with Holm a kernel that only draws more power would pass more often (docs/false-alarms.md)."""

ANOTHER_CLOCK = 0.005
"""Either end of the 99 % interval of the clocks' ratio; without nought in it, the clocks are said to differ."""


@dataclass(frozen=True)
class _Said:
    """What one unit, seconds or cycles, says of a row. lower and upper are the bounds that decide, as fractions.

    p: p-value of a slowdown of max_slowdown or less
    """

    estimate: pairs.Estimate
    p: float
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
    in_seconds = [_estimate(row, n, _seconds) for row, n in zip(rows, used, strict=True)]
    in_cycles = [_estimate(row, n, _cycles) if _clocked(row) else None for row, n in zip(rows, used, strict=True)]
    deciding = [seconds if cycles is None else cycles for seconds, cycles in zip(in_seconds, in_cycles, strict=True)]
    decided = _said(deciding, margins, policy, len(looks))
    witness = _said(in_seconds, margins, policy, len(looks))
    found = []
    for i, row in enumerate(rows):
        said, seconds = decided[i], witness[i]
        if said is None or seconds is None:
            found.append(Finding("samples-broken", SECONDS))
        elif in_cycles[i] is None:
            found.append(_finding(row, used[i], margins[i], said, None, looks))
        else:
            found.append(_finding(row, used[i], margins[i], said, seconds, looks))
    return tuple(found)


def null_floor(base: Sequence[Process], null: Sequence[Process]) -> float | None:
    """What Samples.null_floor wants: by what fraction the same code differed from itself, the slower by the faster.

    base and null are the processes of two copies of it, process i of each a pair, 8 pairs or more. In cycles if every
    sample has its clock, otherwise in seconds. None, by which nothing is judged, if there are fewer pairs or a process
    is marked or broken.
    """
    both = (*base, *null)
    if len(base) != len(null) or len(base) < FEWEST_PROCESSES or not all(sound(p) and not p.marks for p in both):
        return None
    measure = _cycles if all(process.clock_hz for process in both) else _seconds
    ratios = np.log([measure(after) / measure(before) for before, after in zip(base, null, strict=True)])
    return float(np.expm1(abs(pairs.estimate(ratios).centre)))


_seconds = attrgetter("median_seconds")
_cycles = attrgetter("median_cycles")


def _clock(process: Process) -> float:
    """Hz, as it is between the medians of cycles and seconds."""
    return process.median_cycles / process.median_seconds


def _clocked(row: Timed) -> bool:
    """Whether every sample of both sides has its clock: also those of processes past the last look."""
    return all(len(p.clock_hz) == len(p.seconds) > 0 for side in (row.base, row.head) for p in side.processes)


def _estimate(row: Timed, count: int, measure: Callable[[Process], float]) -> pairs.Estimate | None:
    """The estimate by the first pairs of a row; None where a figure is no finite number."""
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
        alone = float(estimate.p_slower(policy.max_slowdown))
        found.append(_Said(estimate, alone, bool(value <= limit), not_slower, float(lower), float(upper)))
    return found


def _finding(
    row: Timed, used: int, margin: float, said: _Said, witness: _Said | None, looks: tuple[int, ...]
) -> Finding:
    """The finding by what the unit that decides says, and by the witness, which is None where seconds decide."""
    code = _code(said, witness, margin, used == looks[-1])
    measured = len(row.base.processes)
    more = 0
    if code in ("too-noisy", "near-margin") or (code == "clock-change" and not _settled(said, witness)):
        more = next((look - measured for look in looks if look > measured), 0)
    told = [f"{said} by {used} pairs, margin {margin:.2%}"]
    if code == "too-noisy" and not more:
        told.append(f"about {_enough(said, used, margin)} pairs would tell")
    told += ["clock not known"] if witness is None else _of_seconds(row, used, code, witness)
    measure, figure = (_seconds, SECONDS) if witness is None else (_cycles, CYCLES)
    before, after = (median(map(measure, side.processes)) for side in (row.base, row.head))
    limit = before * (1 + margin)
    if figure == CYCLES:  # whole ones, as people write them
        before, after, limit = (float(np.round(value)) for value in (before, after, limit))
    return Finding(code, figure, before, after, limit, "; ".join(told), more_pairs=more)


def _code(said: _Said, witness: _Said | None, margin: float, last: bool) -> str:
    if any(unit is not None and unit.estimate.error <= pairs.FINEST for unit in (said, witness)):
        return "timer-too-coarse"
    if said.slower:
        return "clock-change" if witness is not None and witness.not_slower else "slower"
    if witness is not None and witness.slower:
        return "clock-change"
    if said.not_slower:
        doubt = ACCUSATION if last else SUSPICION
        return "clock-change" if witness is not None and witness.p <= doubt else "not-slower"
    low, high = said.estimate.bounds(PLAIN, PLAIN)
    return "near-margin" if low >= 0 and high <= 2 * margin else "too-noisy"


def _settled(said: _Said, witness: _Said | None) -> bool:
    """Whether it is sure that head takes as many cycles in more seconds, so that more pairs change nothing.

    Slower in cycles and not in seconds is not that sure: seconds may be under max_slowdown by chance.
    """
    return said.not_slower and witness is not None and witness.slower


def _of_seconds(row: Timed, used: int, code: str, witness: _Said) -> list[str]:
    """What there is to be told of seconds and clocks where cycles decide."""
    before, after = (1e6 * median(map(_seconds, side.processes)) for side in (row.base, row.head))
    told = [f"in seconds {witness}, {before:.2f} → {after:.2f} µs"]
    if code == "not-slower" and not witness.not_slower:
        told.append("seconds are too noisy to confirm it")
    clocks = _estimate(row, used, _clock)
    if clocks is not None:
        low, high = clocks.bounds(ANOTHER_CLOCK, ANOTHER_CLOCK)
        by = float(np.expm1(clocks.centre))
        if (low > 0 or high < 0) and abs(by) >= 0.001:
            told.append(f"head's clock is {abs(by):.1%} {'higher' if by > 0 else 'lower'}")
    return told


def _enough(said: _Said, used: int, margin: float) -> str:
    """How many pairs would bring the bound to the margin, if centre and spread stayed as they are."""
    centre = float(np.expm1(said.estimate.centre))
    reach = centre - said.lower if centre > margin else said.upper - centre
    count = used * (reach / max(abs(centre - margin), 1e-9)) ** 2
    return f"{math.ceil(count)}" if count < 1000 else "1000 or more"
