"""Pairs of processes, one of base and one of head → how sure it is that head is slower, or that it is not.

The process is what is repeated: rounds inside one share its memory placement and its clock, so each process gives one
median, and each pair of neighbouring processes one log-ratio, log(head / base). Their order is base, head, head, base,
base, head, …: a steady drift of the machine adds to one pair what it takes from the next. Swapping base and head turns
the sign of every log-ratio, and no unit of time changes one.

    centre and error  trimmed mean and its standard error by the winsorised variance (Tukey and McLaughlin 1963),
                      with one pair in eight trimmed at either end: one process gone astray decides nothing
    p-values          Student's t against the margin, one-sided either way
    looks             pairs may be added and judged again, so each look may spend only its part of the error
    Holm              over all rows of a comparison, so that the error holds for the campaign and not for each row

All arrays have the pairs on their last axis; docs/false-alarms.md has what all this comes to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Array = NDArray[np.float64]

FALSE_ALARM = 0.01
"""Chance that a comparison calls any row slower of those whose true slowdown is within the margin, at most."""

FALSE_PASS = 0.05
"""Chance that a row whose true slowdown is the margin or more is called not slower, at most."""

FINEST = 1e-9
"""A standard error below this fraction says that the timer is too coarse: no two launches are that much alike."""


@dataclass(frozen=True)
class Estimate:
    """The log-ratio of head to base: centre and standard error, of the shape of the rows, and degrees of freedom."""

    centre: Array
    error: Array
    freedom: int

    def p_slower(self, margin: float) -> Array:
        """P-values of "the slowdown is the margin (a fraction of base's time) or less": small if head is slower."""
        return np.asarray(special.stdtr(self.freedom, -self._distance(margin)))

    def p_not_slower(self, margin: float) -> Array:
        """P-values of "the slowdown is the margin (a fraction of base's time) or more": small if head is not slower."""
        return np.asarray(special.stdtr(self.freedom, self._distance(margin)))

    def bounds(self, below: float, above: float) -> tuple[Array, Array]:
        """Confidence bounds of the slowdown as fractions of base's time; with these chances they are past the truth."""
        reach = -special.stdtrit(self.freedom, [below, above])
        return np.expm1(self.centre - reach[0] * self.error), np.expm1(self.centre + reach[1] * self.error)

    def _distance(self, margin: float) -> Array:
        """From the margin, in standard errors; NaN, which proves nothing, where the timer is too coarse."""
        error = np.where(self.error > FINEST, self.error, np.nan)
        return np.asarray((self.centre - np.log1p(margin)) / error)


def estimate(log_ratios: Array) -> Estimate:
    """The estimate from log-ratios (rows…, pairs), 8 pairs or more.

    Degrees of freedom are n − 3k − 1 for n pairs of which k are trimmed at either end. The usual n − 2k − 1 raises 1.4
    to 1.7 times as many false alarms as it should at 1e-4, the far tail that Holm needs (simulated, normal noise, 8 to
    32 pairs); this raises 0.4 to 0.95 times as many.
    """
    n = log_ratios.shape[-1]
    k = n // 8
    ordered = np.sort(log_ratios, axis=-1)
    kept = ordered[..., k : n - k]
    winsorised = np.clip(ordered, kept[..., :1], kept[..., -1:])
    error = winsorised.std(axis=-1, ddof=1) / ((1 - 2 * k / n) * np.sqrt(n))
    return Estimate(kept.mean(axis=-1), error, n - 3 * k - 1)


def looks(fewest: int, most: int) -> tuple[int, ...]:
    """Numbers of pairs at which a row is judged: 8, 12, 16, 24, 32 from 8 up to 32.

    Each is half as many again as the one before, in whole rounds of base, head, head, base where it can be. A look may
    spend an equal part of FALSE_ALARM and FALSE_PASS, so that looking again does not add to them (Bonferroni).
    """
    found = [fewest]
    while found[-1] < most:
        found.append(min(max(found[-1] * 3 // 2 // 4 * 4, found[-1] + 1), most))
    return tuple(found)


def holm(p: Array) -> Array:
    """What each p-value (…, rows) is compared with, so that FALSE_ALARM holds for all rows together (Holm 1979).

    A row is significant if its p-value is no more than that; a NaN never is, and counts as a row.
    """
    rows = p.shape[-1]
    order = np.argsort(p, axis=-1)  # NaN comes last
    steps = FALSE_ALARM / (rows - np.arange(rows))
    passed = np.logical_and.accumulate(np.take_along_axis(p, order, -1) <= steps, axis=-1)
    stopped = steps[np.minimum(passed.sum(axis=-1, keepdims=True), rows - 1)]
    limits = np.empty_like(p)
    np.put_along_axis(limits, order, np.where(passed, steps, stopped), -1)
    return limits
