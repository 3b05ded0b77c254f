"""The gate's rule on simulated campaigns: false alarms, and which slowdowns it finds.

A campaign is 9 versions on 2 problems, 18 rows, judged by the default policy: looks, pairs, Holm and margin are those
of the gate (pairs.py). Noise is of whole processes, for only their medians are judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import pairs
from ..policy import Policy
from .rates import Rates

ROWS = 18
PLANTED = (0.0025, 0.005, 0.01, 0.02, 0.05)
CHUNK = 500
"""Campaigns that are held in memory at once: 500 × 18 rows × 64 processes."""


@dataclass(frozen=True)
class Noise:
    """Noise of the median of a process, relative to the time it measures.

    between: standard deviation between processes
    within:  standard deviation of one launch; a process is the median of `launches`
    heavy:   t with 3 degrees of freedom (scaled to `between`) in place of the normal distribution
    stray:   fraction of processes that are 2 to 8 % slower for no reason
    drift:   by how much the machine slows down, steadily, from the first process to the last
    alike:   correlation of a process with the one before it
    shared:  all rows of one process share its deviation
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


NOISES = (
    Noise("0.15 % between processes (H200, measured)"),
    Noise("0.25 %", 0.0025),
    Noise("0.25 %, 1 % within", 0.0025, within=0.01),
    Noise("0.25 %, t3 tail", 0.0025, heavy=True),
    Noise("0.25 %, 2 % of processes 2 to 8 % slower", 0.0025, stray=0.02),
    Noise("0.25 %, drift of 2 %", 0.0025, drift=0.02),
    Noise("0.25 %, neighbours alike (0.5)", 0.0025, alike=0.5),
    Noise("0.25 %, all rows of a process alike", 0.0025, shared=True),
    Noise("0.5 % (pessimistic)", 0.005),
)


def log_ratios(noise: Noise, slowdowns: pairs.Array, count: int, rng: np.random.Generator) -> pairs.Array:
    """Log-ratios (campaigns, rows, pairs) of rows with these slowdowns (campaigns, rows), measured in turn."""
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
    in_pairs = times.reshape(*slowdowns.shape, count, 2)
    difference: pairs.Array = in_pairs[..., 1] - in_pairs[..., 0]
    difference[..., 1::2] *= -1  # head first in every other pair
    return difference + np.log1p(slowdowns)[..., None]


@dataclass(frozen=True)
class Judged:
    """Verdicts on many campaigns, arrays (campaigns, rows). Neither slower nor not_slower: undecided to the last."""

    slower: NDArray[np.bool_]
    not_slower: NDArray[np.bool_]
    pairs: NDArray[np.int_]


def judge(ratios: pairs.Array, policy: Policy) -> Judged:
    """Judge log-ratios (campaigns, rows, pairs) as slowdown.judge does, adding pairs to undecided rows."""
    looks = pairs.looks(policy.min_processes, policy.max_processes)
    undecided = np.ones(ratios.shape[:-1], bool)
    p_slower, p_not_slower = np.ones(ratios.shape[:-1]), np.ones(ratios.shape[:-1])
    used = np.zeros(ratios.shape[:-1], int)
    for look in looks:
        estimate = pairs.estimate(ratios[..., :look])
        p_slower = np.where(undecided, estimate.p_slower(policy.max_slowdown) * len(looks), p_slower)
        p_not_slower = np.where(undecided, estimate.p_not_slower(policy.max_slowdown) * len(looks), p_not_slower)
        used = np.where(undecided, look, used)
        slower = p_slower <= pairs.holm(p_slower)
        not_slower = p_not_slower <= pairs.FALSE_PASS
        undecided = ~(slower | not_slower)
    return Judged(slower, not_slower, used)


def _campaigns(
    noise: Noise, slowdowns: Sequence[float], campaigns: int, policy: Policy, rng: np.random.Generator
) -> Iterator[Judged]:
    for start in range(0, campaigns, CHUNK):
        chunk = np.tile(np.asarray(slowdowns), (min(CHUNK, campaigns - start), 1))
        yield judge(log_ratios(noise, chunk, policy.max_processes, rng), policy)


def false_alarms(noise: Noise, slowdown: float, campaigns: int, rng: np.random.Generator) -> Rates:
    """Campaigns in which any of 18 rows with the same slowdown is called slower, passes, or is left undecided."""
    counts: Counter[str] = Counter()
    used = 0
    for part in _campaigns(noise, [slowdown] * ROWS, campaigns, Policy(), rng):
        counts["slower"] += int(part.slower.any(-1).sum())
        counts["not-slower"] += int(part.not_slower.any(-1).sum())
        counts["undecided"] += int((~(part.slower | part.not_slower)).any(-1).sum())
        used += int(part.pairs.sum())
    return Rates(noise.name, slowdown, campaigns, dict(counts), used / campaigns / ROWS)


def detection(noise: Noise, slowdown: float, campaigns: int, rng: np.random.Generator) -> Rates:
    """What becomes of one row with a slowdown among 17 that have none."""
    counts: Counter[str] = Counter()
    used = 0
    for part in _campaigns(noise, [slowdown] + [0.0] * (ROWS - 1), campaigns, Policy(), rng):
        slower, not_slower = part.slower[:, 0], part.not_slower[:, 0]
        counts["slower"] += int(slower.sum())
        counts["not-slower"] += int(not_slower.sum())
        counts["undecided"] += int((~(slower | not_slower)).sum())
        used += int(part.pairs[:, 0].sum())
    return Rates(noise.name, slowdown, campaigns, dict(counts), used / campaigns)


@dataclass(frozen=True)
class Study:
    """null: campaigns of rows without a slowdown; margin: of rows with just the margin; found: one slow row of 18."""

    null: tuple[Rates, ...]
    margin: tuple[Rates, ...]
    found: tuple[Rates, ...]


def study(campaigns: int, seed: int, say: Callable[[str], None]) -> Study:
    """All noises and slowdowns, this many campaigns each."""
    rng = np.random.default_rng(seed)
    null: list[Rates] = []
    margin: list[Rates] = []
    found: list[Rates] = []
    for noise in NOISES:
        say(f"simulating {campaigns} campaigns each: {noise.name}")
        null.append(false_alarms(noise, 0.0, campaigns, rng))
        margin.append(false_alarms(noise, Policy().max_slowdown, campaigns, rng))
        found.extend(detection(noise, slowdown, campaigns, rng) for slowdown in PLANTED)
    return Study(tuple(null), tuple(margin), tuple(found))
