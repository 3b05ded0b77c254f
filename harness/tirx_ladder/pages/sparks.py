"""Small line charts: a series of figures as coordinates, which a template draws as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, MARGIN = 110.0, 30.0, 4.0
"""Size of a chart in CSS pixels, and the room around its points."""


@dataclass(frozen=True)
class Dot:
    """A known value: which of the series it is, where, and whether it is "better", "worse" or "same" as the last."""

    index: int
    x: float
    y: float
    value: float
    change: str


@dataclass(frozen=True)
class Spark:
    """A chart: its dots, and its lines as the points attribute of SVG polylines. A line ends where a value lacks."""

    dots: tuple[Dot, ...]
    lines: tuple[str, ...]


def spark(values: Sequence[float | None], *, larger_is_worse: bool | None = None) -> Spark:
    """The chart of a series, first value left. NaN and infinity are as unknown as None.

    larger_is_worse: None for a figure of which neither more nor less is worse; its changes are "other".
    """
    known = [(i, value) for i, value in enumerate(values) if value is not None and math.isfinite(value)]
    low, high = min((v for _, v in known), default=0.0), max((v for _, v in known), default=0.0)
    dots: list[Dot] = []
    for i, value in known:
        x = MARGIN + (WIDTH - 2 * MARGIN) * (i / (len(values) - 1) if len(values) > 1 else 0.5)
        # halves first: the difference of two finite numbers may be infinite
        share = (value / 2 - low / 2) / (high / 2 - low / 2) if high / 2 > low / 2 else 0.5
        y = HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share
        dots.append(
            Dot(i, round(x, 1), round(y, 1), value, _change(dots[-1].value if dots else value, value, larger_is_worse))
        )
    lines: list[list[Dot]] = []
    for dot in dots:
        if lines and lines[-1][-1].index == dot.index - 1:
            lines[-1].append(dot)
        else:
            lines.append([dot])
    return Spark(tuple(dots), tuple(" ".join(f"{d.x},{d.y}" for d in line) for line in lines if len(line) > 1))


def _change(before: float, after: float, larger_is_worse: bool | None) -> str:
    if math.isclose(before, after, rel_tol=1e-9):
        return "same"
    if larger_is_worse is None:
        return "other"
    return "worse" if (after > before) == larger_is_worse else "better"
