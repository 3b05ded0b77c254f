"""The gate's rule on simulated campaigns: false alarms, which slowdowns it finds, and what the clock does to it.

A campaign is 9 versions on 2 problems, 18 rows, judged by the default policy: looks, pairs, Holm, margin and witness
are those of the gate (slowdown.py). Noise is of whole processes, for only their medians are judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..compare import pairs
from ..compare.slowdown import ACCUSATION, SUSPICION
from ..policy import Policy
from .rates import Rates

ROWS = 18
PLANTED = (0.0025, 0.005, 0.01, 0.02, 0.05)
POWER = (0.0, 0.02, 0.05)
"""Slowdowns by a lower clock alone: as many cycles, in more seconds."""

CHUNK = 500
"""Campaigns that are held in memory at once: 500 × 18 rows × 64 processes, twice."""


@dataclass(frozen=True)
class Noise:
    """Noise of the median of a process, relative to what it measures. The first six are of its cycles.

    between: standard deviation between processes
    within:  standard deviation of one launch; a process is the median of `launches`
    heavy:   t with 3 degrees of freedom (scaled to `between`) in place of the normal distribution
    stray:   fraction of processes that are 2 to 8 % slower for no reason
    drift:   by how much the machine slows down, steadily, from the first process to the last
    alike:   correlation of a process with the one before it
    shared:  all rows of one process share its deviation
    seconds: standard deviation of seconds between processes, `between` or more; None: no clock is known, and all of
             the above is of seconds
    """

    name: str
    between: float = 0.0015
    within: float = 0.005
    launches: int = 100
    heavy: bool = False
    stray: float = 0.0
    drift: float = 0.0
    alike: float = 0.0
    shared: bool = False
    seconds: float | None = 0.02


NOISES = (
    Noise("0.15 %, seconds 0.5 %", seconds=0.005),
    Noise("0.25 %, seconds 2 %", 0.0025),
    Noise("0.15 %, seconds 6 %", seconds=0.06),
    Noise("0.25 %, seconds 6 % (H200 under its power cap)", 0.0025, seconds=0.06),
    Noise("0.25 %, no clock known", 0.0025, seconds=None),
    Noise("0.25 %, 1 % within", 0.0025, within=0.01),
    Noise("0.25 %, t3 tail", 0.0025, heavy=True),
    Noise("0.25 %, 2 % of processes 2 to 8 % slower", 0.0025, stray=0.02),
    Noise("0.25 %, drift of 2 %", 0.0025, drift=0.02),
    Noise("0.25 %, neighbours alike (0.5)", 0.0025, alike=0.5),
    Noise("0.25 %, all rows of a process alike", 0.0025, shared=True),
    Noise("0.5 %, seconds 6 % (pessimistic)", 0.005, seconds=0.06),
)
"""Of cycles, and with seconds' 2 % if nothing else is said."""

CLOCKS = tuple(
    Noise(f"{100 * cycles:g} %, seconds {100 * seconds:g} %", cycles, seconds=seconds)
    for cycles in (0.0015, 0.0025, 0.005)
    for seconds in (0.005, 0.02, 0.06)
)


@dataclass(frozen=True)
class Ratios:
    """Log-ratios, arrays (campaigns, rows, pairs), of the unit that decides, and of seconds where that is cycles."""

    deciding: pairs.Array
    seconds: pairs.Array | None


def log_ratios(
    noise: Noise, slowdowns: pairs.Array, count: int, rng: np.random.Generator, clocks: pairs.Array | None = None
) -> Ratios:
    """What rows with these slowdowns (campaigns, rows) show, measured in turn.

    clocks: by what fraction head's seconds are more than its cycles say, as slowdowns; None: by nothing
    """
    shape = (*slowdowns.shape, 2 * count)
    deviations = shape if not noise.shared else (shape[0], 1, shape[2])
    each = rng.standard_t(3, deviations) / np.sqrt(3) if noise.heavy else rng.standard_normal(deviations)
    if noise.alike:
        fresh = np.sqrt(1 - noise.alike**2)
        for i in range(1, shape[-1]):
            each[..., i] = noise.alike * each[..., i - 1] + fresh * each[..., i]
    # the median of n normal values has 1.2533 times the standard error of their mean
    medians = noise.within * 1.2533 / np.sqrt(noise.launches) * rng.standard_normal(shape)
    times = noise.between * each + medians + noise.drift * np.linspace(0, 1, shape[-1])
    if noise.stray:
        times += (rng.random(shape) < noise.stray) * rng.uniform(0.02, 0.08, shape)
    deciding = _in_pairs(times) + np.log1p(slowdowns)[..., None]
    if noise.seconds is None:
        return Ratios(deciding, None)
    clock = np.sqrt(noise.seconds**2 - noise.between**2) * rng.standard_normal(shape)
    moved = 0.0 if clocks is None else np.log1p(clocks)[..., None]
    return Ratios(deciding, deciding + _in_pairs(clock) + moved)


def _in_pairs(times: pairs.Array) -> pairs.Array:
    """Differences head - base (…, pairs) of what processes in turn show (…, 2 × pairs)."""
    in_pairs = times.reshape(*times.shape[:-1], -1, 2)
    difference: pairs.Array = in_pairs[..., 1] - in_pairs[..., 0]
    difference[..., 1::2] *= -1  # head first in every other pair
    return difference


@dataclass(frozen=True)
class Judged:
    """Verdicts on many campaigns, arrays (campaigns, rows). None of the three: undecided to the last."""

    slower: NDArray[np.bool_]
    not_slower: NDArray[np.bool_]
    clock_change: NDArray[np.bool_]
    pairs: NDArray[np.int_]

    def counts(self) -> dict[str, NDArray[np.bool_]]:
        """Reason → the rows that ended in it."""
        undecided = ~(self.slower | self.not_slower | self.clock_change)
        return {
            "slower": self.slower,
            "not-slower": self.not_slower,
            "clock-change": self.clock_change,
            "undecided": undecided,
        }


def judge(ratios: Ratios, policy: Policy) -> Judged:
    """Judge campaigns as slowdown.judge does, adding pairs to the rows that want them."""
    looks = pairs.looks(policy.min_processes, policy.max_processes)
    shape = ratios.deciding.shape[:-1]
    wanting = np.ones(shape, bool)
    p = np.ones((4, *shape))
    used = np.zeros(shape, int)
    for look in looks:
        fresh = _p_values(ratios.deciding[..., :look], policy)
        # seconds that say what decides can say nothing against it
        fresh += fresh if ratios.seconds is None else _p_values(ratios.seconds[..., :look], policy)
        p = np.where(wanting, fresh, p)
        used = np.where(wanting, look, used)
        slower, loud = (p[i] * len(looks) <= pairs.holm(p[i] * len(looks)) for i in (0, 2))
        not_slower, quiet = (p[i] * len(looks) <= pairs.FALSE_PASS for i in (1, 3))
        doubt = p[2] <= np.where(used == looks[-1], ACCUSATION, SUSPICION)
        if ratios.seconds is None:
            loud = quiet = doubt = np.zeros(shape, bool)
        wanting = ~((slower & ~quiet) | (not_slower & (loud | ~doubt)))
    clock_change = np.where(slower, quiet, loud | (not_slower & doubt))
    return Judged(slower & ~clock_change, not_slower & ~clock_change, clock_change, used)


def _p_values(ratios: pairs.Array, policy: Policy) -> list[pairs.Array]:
    found = pairs.estimate(ratios)
    return [found.p_slower(policy.max_slowdown), found.p_not_slower(policy.max_slowdown)]


def _campaigns(
    noise: Noise, slowdowns: Sequence[float], clock: float, campaigns: int, rng: np.random.Generator
) -> Iterator[Judged]:
    """Campaigns of rows with these slowdowns; clock is that of the first row's seconds alone."""
    policy = Policy()
    for start in range(0, campaigns, CHUNK):
        chunk = np.tile(np.asarray(slowdowns), (min(CHUNK, campaigns - start), 1))
        clocks = np.zeros_like(chunk)
        clocks[:, 0] = clock
        yield judge(log_ratios(noise, chunk, policy.max_processes, rng, clocks), policy)


def false_alarms(noise: Noise, slowdown: float, campaigns: int, rng: np.random.Generator) -> Rates:
    """Campaigns in which any of 18 rows with the same slowdown is called slower, passes, or is left undecided."""
    counts: Counter[str] = Counter()
    used = 0
    for part in _campaigns(noise, [slowdown] * ROWS, 0.0, campaigns, rng):
        counts.update({reason: int(rows.any(-1).sum()) for reason, rows in part.counts().items()})
        used += int(part.pairs.sum())
    return Rates(noise.name, slowdown, campaigns, dict(counts), used / campaigns / ROWS)


def detection(noise: Noise, slowdown: float, campaigns: int, rng: np.random.Generator, *, clock: float = 0.0) -> Rates:
    """What becomes of one row with a slowdown in cycles, or by its clock alone, among 17 that have none."""
    counts: Counter[str] = Counter()
    used = 0
    for part in _campaigns(noise, [slowdown] + [0.0] * (ROWS - 1), clock, campaigns, rng):
        counts.update({reason: int(rows[:, 0].sum()) for reason, rows in part.counts().items()})
        used += int(part.pairs[:, 0].sum())
    return Rates(noise.name, slowdown + clock, campaigns, dict(counts), used / campaigns)


@dataclass(frozen=True)
class Study:
    """What was simulated.

    null:   campaigns of rows without a slowdown; margin: of rows with just the margin
    found:  one slow row of 18; power: one row of 18 that is slower by its clock alone
    """

    null: tuple[Rates, ...]
    margin: tuple[Rates, ...]
    found: tuple[Rates, ...]
    power: tuple[Rates, ...]


def study(campaigns: int, seed: int, say: Callable[[str], None]) -> Study:
    """All noises and slowdowns, this many campaigns each."""
    rng = np.random.default_rng(seed)
    null: list[Rates] = []
    margin: list[Rates] = []
    found: list[Rates] = []
    power: list[Rates] = []
    for noise in NOISES:
        say(f"simulating {campaigns} campaigns each: {noise.name}")
        null.append(false_alarms(noise, 0.0, campaigns, rng))
        margin.append(false_alarms(noise, Policy().max_slowdown, campaigns, rng))
        found.extend(detection(noise, slowdown, campaigns, rng) for slowdown in PLANTED)
    for noise in CLOCKS:
        say(f"simulating {campaigns} campaigns each, another clock: {noise.name}")
        power.extend(detection(noise, 0.0, campaigns, rng, clock=clock) for clock in POWER)
    return Study(tuple(null), tuple(margin), tuple(found), tuple(power))
