"""Counts of verdicts over many comparisons, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Rates:
    """What became of many comparisons of one kind.

    kind:       what was compared, and under which noise or from which processes
    planted:    true or planted slowdown, a fraction
    trials:     comparisons, or whole campaigns of rows, that were judged
    reasons:    reason code → trials that ended in it; of a campaign, in any of its rows
    pairs:      mean number of pairs of processes that a row took
    apart:      no two trials share a measurement, so that the rate has an interval
    """

    kind: str
    planted: float
    trials: int
    reasons: dict[str, int]
    pairs: float
    apart: bool = True

    def count(self, reason: str) -> int:
        """Trials that ended in a reason."""
        return self.reasons.get(reason, 0)


def interval(count: int, of: int) -> tuple[float, float]:
    """Exact 95 % interval of a rate (Clopper and Pearson 1934); nought to one if there was no trial."""
    if not of:
        return 0.0, 1.0
    low, high = stats.binomtest(count, of).proportion_ci(0.95, method="exact")
    return float(low), float(high)


def table(rates: Iterable[Rates], heading: str, reasons: Sequence[str]) -> str:
    """Markdown: a line for each kind, the rate of the first reason with its interval, then the rates of the others."""
    headings = [heading, "slowdown", "trials", reasons[0], "exact 95 %", *reasons[1:], "pairs"]
    lines = [f"| {' | '.join(headings)} |", f"| {' | '.join(['---'] * len(headings))} |"]
    for one in rates:
        first, *others = (one.count(reason) for reason in reasons)
        low, high = interval(first, one.trials)
        cells = [
            one.kind,
            f"{100 * one.planted:g} %",
            str(one.trials),
            _percent(first, one.trials),
            f"{100 * low:.2f} to {100 * high:.2f} %" if one.apart else "-",
            *(_percent(count, one.trials) for count in others),
            f"{one.pairs:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _percent(count: int, of: int) -> str:
    return f"{100 * count / of:.1f} %" if of else "-"
