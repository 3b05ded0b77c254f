"""The gate's rule on comparisons drawn from a campaign of real processes (pools.py): null ones and planted slowdowns.

A comparison takes base and variant from neighbouring processes, base first in one pair and second in the next, and
never both from one process. The first processes give the machine's null floor and are in no comparison. What is drawn:

    apart       one window of processes after the other, each as long as its row took: no process is in two windows
    resampled   any pairs of neighbours, in their order: more comparisons, which share processes

A null window gives several comparisons of the same code: base with null, null with base, and each slowed variant with
itself, from the first process on, for none of these gives a floor. They share processes but no measurement. So do
the two comparisons that a window gives of a slowed variant: with base, and, by other processes of it, with null.
A planted row is judged among 17 null ones, as in a campaign of 9 versions on 2 problems; a null one alone, which
raises an alarm the soonest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import median, stdev

import numpy as np

from ..compare import slowdown
from ..compare.measured import CYCLES, Timed
from ..compare.measured import SECONDS as IN_SECONDS
from ..compare.reasons import Finding
from ..ladder import UsageError
from ..policy import Policy
from ..results import SECONDS, Samples
from .pools import BASE, NULL, Lane, Pools, lanes
from .rates import Rates
from .simulated import ROWS

FOR_THE_FLOOR = 16
"""Processes that give the null floor: 8 pairs."""


@dataclass(frozen=True)
class Draw:
    """A row to be: two variants of a lane, and places in it, two for each pair, in the order they ran."""

    lane: Lane
    base: str
    head: str
    places: tuple[int, ...]

    def timed(self, count: int, protocol: int, floor: float) -> Timed:
        """The row of the first pairs."""
        sides = []
        for variant, second in ((self.base, False), (self.head, True)):
            chosen = [self.places[2 * i + ((i % 2 == 1) != second)] for i in range(count)]
            processes = tuple(self.lane.processes[variant][place] for place in chosen)
            sides.append(Samples(SECONDS, True, protocol, floor, processes))
        return Timed(f"{self.head} {self.lane.problem}", None, *sides)


def judge(draws: Sequence[Draw], protocol: int, floor: float) -> tuple[tuple[Finding, int], ...]:
    """Judge rows together, adding pairs where the findings ask for them; with each finding, the pairs it took."""
    policy = Policy()
    counts = [policy.min_processes] * len(draws)
    while True:
        rows = [draw.timed(count, protocol, floor) for draw, count in zip(draws, counts, strict=True)]
        found = slowdown.judge(rows, policy)
        wanted = [count + finding.more_pairs for count, finding in zip(counts, found, strict=True)]
        enough = [min(want, len(draw.places) // 2) for want, draw in zip(wanted, draws, strict=True)]
        if enough == counts:
            return tuple(zip(found, counts, strict=True))
        counts = enough


@dataclass(frozen=True)
class Measured:
    """The study of one campaign.

    floor: what base and null differed by in the first processes, a fraction; it is the margin where it is more
    units: which unit decided, by problem: cycles where every sample has its clock
    null:  null comparisons, apart and resampled; campaigns: of 18 null rows, resampled
    found: planted slowdowns, apart and resampled
    """

    floor: float
    units: dict[str, str]
    variants: tuple[Variant, ...]
    null: tuple[Rates, ...]
    campaigns: tuple[Rates, ...]
    found: tuple[Rates, ...]


@dataclass(frozen=True)
class Variant:
    """What a pool looks like: clean and disturbed processes, median time, cycles and clock (None: not known).

    slowdown: median over processes of the ratio to base in the same process, less one, in the unit that decides
    spread:   standard deviation of a process's median, a fraction, in that unit; seconds_spread in seconds
    """

    problem: str
    variant: str
    planted: float
    slowdown: float
    processes: int
    disturbed: int
    seconds: float
    cycles: float | None
    clock_hz: float | None
    spread: float
    seconds_spread: float


def study(found: Pools, resampled: int, seed: int, say: Callable[[str], None]) -> Measured:
    """Null and planted comparisons, apart and so many resampled ones of each kind."""
    rng = np.random.default_rng(seed)
    all_lanes = lanes(found)
    first = [Draw(lane, *way, tuple(range(FOR_THE_FLOOR))) for lane in all_lanes for way in _ways()]
    rows = [draw.timed(FOR_THE_FLOOR // 2, found.protocol, 0.0) for draw in first]
    floors = [slowdown.null_floor(row.base.processes, row.head.processes) for row in rows]
    known = [floor for floor in floors if floor is not None]
    if len(known) < len(floors):
        raise UsageError("the first processes of the campaign give no null floor: measure it again")
    floor = max(known)
    rated = _Rated(found.protocol, floor, all_lanes, rng)
    null, planted = [], []
    for lane in all_lanes:
        say(f"comparing {lane.problem}: {len(lane)} processes")
        null += [rated.null(lane), rated.null(lane, resampled)]
        for variant in lane.planted:
            if variant not in (BASE, NULL):
                planted += [rated.planted(lane, variant), rated.planted(lane, variant, resampled)]
    null.append(_sum("all problems, apart", 0.0, [one for one in null if one.apart]))
    for fraction in sorted({one.planted for one in planted}):
        each = [one for one in planted if one.apart and one.planted == fraction]
        planted.append(_sum("all problems, apart", fraction, each))
    variants = [_variant(lane, variant) for lane in all_lanes for variant in lane.planted]
    units = {lane.problem: CYCLES if lane.clocked else IN_SECONDS for lane in all_lanes}
    return Measured(floor, units, tuple(variants), tuple(null), (rated.campaigns(resampled),), tuple(planted))


def _ways() -> tuple[tuple[str, str], tuple[str, str]]:
    return (BASE, NULL), (NULL, BASE)


@dataclass(frozen=True)
class _Rated:
    """Draws comparisons and counts what becomes of them."""

    protocol: int
    floor: float
    lanes: tuple[Lane, ...]
    rng: np.random.Generator

    def null(self, lane: Lane, resampled: int = 0) -> Rates:
        if resampled:
            draws = [self._any(lane, *_ways()[i % 2]) for i in range(resampled)]
            outcomes = [self._judge([draw])[0] for draw in draws]
        else:
            itself = [(variant, variant) for variant in lane.planted if variant not in (BASE, NULL)]
            outcomes = [o for way in _ways() for o in self._windows(lane, *way, list)]
            outcomes += [o for way in itself for o in self._windows(lane, *way, list, 0)]
        return _count(f"{lane.problem}, {'resampled' if resampled else 'apart'}", 0.0, outcomes, not resampled)

    def planted(self, lane: Lane, variant: str, resampled: int = 0) -> Rates:
        if resampled:
            rows = [[self._any(lane, BASE, variant), *self._others()] for _ in range(resampled)]
            outcomes = [self._judge(row)[0] for row in rows]
        else:
            # two places on, the variant is measured by the processes that it is not in the first time
            outcomes = self._windows(lane, BASE, variant, self._others)
            outcomes += self._windows(lane, NULL, variant, self._others, FOR_THE_FLOOR + 2)
        kind = f"{lane.problem}, {'resampled' if resampled else 'apart'}"
        return _count(kind, lane.planted[variant], outcomes, not resampled)

    def campaigns(self, count: int) -> Rates:
        counts: Counter[str] = Counter()
        used = 0
        for _ in range(count):
            found = self._judge([*self._others(), self._any(self.lanes[0], BASE, NULL)])
            counts.update({finding.code for finding, _ in found})
            used += sum(pairs for _, pairs in found)
        return Rates(f"{ROWS} null rows, resampled", 0.0, count, dict(counts), used / max(count, 1) / ROWS, False)

    def _judge(self, draws: Sequence[Draw]) -> tuple[tuple[Finding, int], ...]:
        return judge(draws, self.protocol, self.floor)

    def _others(self) -> list[Draw]:
        """17 null rows, over all problems in turn."""
        return [self._any(self.lanes[i % len(self.lanes)], *_ways()[i // 2 % 2]) for i in range(1, ROWS)]

    def _any(self, lane: Lane, base: str, head: str) -> Draw:
        """Any pairs of neighbours, as many as the budget or half of what there is."""
        start = FOR_THE_FLOOR + int(self.rng.integers(2))
        neighbours = (len(lane) - start) // 2
        count = min(Policy().max_processes, neighbours)
        chosen = np.sort(self.rng.choice(neighbours, count, replace=False))
        return Draw(lane, base, head, tuple(int(start + 2 * i + j) for i in chosen for j in (0, 1)))

    def _windows(
        self, lane: Lane, base: str, head: str, others: Callable[[], list[Draw]], start: int = FOR_THE_FLOOR
    ) -> list[tuple[Finding, int]]:
        """One window after the other, until too few processes are left for a row of all looks."""
        outcomes = []
        while start + 2 * Policy().min_processes <= len(lane):
            places = range(start, min(start + 2 * Policy().max_processes, len(lane)))
            finding, used = self._judge([Draw(lane, base, head, tuple(places)), *others()])[0]
            start += 2 * used
            if finding.more_pairs:  # the campaign ended before the row was decided: that says nothing of the rule
                break
            outcomes.append((finding, used))
        return outcomes


def _count(kind: str, planted: float, outcomes: Sequence[tuple[Finding, int]], apart: bool) -> Rates:
    counts = Counter(finding.code for finding, _ in outcomes)
    mean = sum(used for _, used in outcomes) / len(outcomes) if outcomes else 0.0
    return Rates(kind, planted, len(outcomes), dict(counts), mean, apart)


def _sum(kind: str, planted: float, each: Sequence[Rates]) -> Rates:
    trials = sum(one.trials for one in each)
    counts: Counter[str] = Counter()
    for one in each:
        counts.update(one.reasons)
    return Rates(kind, planted, trials, dict(counts), sum(one.pairs * one.trials for one in each) / max(trials, 1))


def _variant(lane: Lane, variant: str) -> Variant:
    mine, base = (lane.processes[of] for of in (variant, BASE))
    measure = attrgetter("median_cycles" if lane.clocked else "median_seconds")
    clocks = [p.clock_hz[0] for p in mine if p.clock_hz]
    return Variant(
        lane.problem,
        variant,
        lane.planted[variant],
        median(measure(a) / measure(b) for a, b in zip(mine, base, strict=True)) - 1,
        len(lane),
        lane.disturbed,
        median(p.median_seconds for p in mine),
        median(p.median_cycles for p in mine) if lane.clocked else None,
        median(clocks) if clocks else None,
        stdev(np.log([measure(p) for p in mine])),
        stdev(np.log([p.median_seconds for p in mine])),
    )
