"""Pictures of what was measured, by matplotlib: the ladder, a roofline, the history. Each function returns a PNG."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BAR, ACCENT, SOFT, CHANGE = "#3b78c3", "#c8501e", "#7a8490", "#cf222e"


def ladder(title: str, tflops: Mapping[str, float], lines: Mapping[str, float], marked: Sequence[str] = ()) -> bytes:
    """TFLOPS by version as bars, and lines across by name, such as cuBLAS and the peak. Marked bars are hatched."""
    figure = _figure(max(6.0, 1.1 + 0.8 * len(tflops)), 4.2)
    axes = figure.add_subplot()
    bars = axes.bar(list(tflops), list(tflops.values()), color=BAR, width=0.65)
    for bar, name in zip(bars, tflops, strict=True):
        if name in marked:
            bar.set(hatch="//", edgecolor="white")
    plate = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}  # a line may pass behind the number
    axes.bar_label(bars, labels=[f"{value:.4g}" for value in tflops.values()], fontsize=9, padding=3, bbox=plate)
    top = max([*tflops.values(), *lines.values()])
    if min(tflops.values()) * 50 < top:
        axes.set_yscale("log")
        axes.set_ylim(min(tflops.values()) / 2, top * 2)
    else:
        axes.set_ylim(0, top * 1.12)
    for (name, value), style in zip(lines.items(), ("-", "--", ":", "-."), strict=False):
        axes.axhline(value, color=ACCENT if style == "-" else SOFT, linestyle=style, linewidth=1.3)
        axes.annotate(
            f"{name} {value:.4g}", (1, value), xycoords=("axes fraction", "data"), xytext=(4, 0),
            textcoords="offset points", fontsize=9, va="center",
        )  # fmt: skip
    axes.set_ylabel("TFLOPS" + (" (log scale)" if axes.get_yscale() == "log" else ""))
    axes.set_title(title, fontsize=11, loc="left")
    return _png(figure)


def roofline(title: str, points: Mapping[str, tuple[float, float]], peak: float, bandwidth: float) -> bytes:
    """Versions at (flops per byte loaded into SMEM, TFLOPS), under a peak in TFLOPS and a bandwidth in bytes/s."""
    from matplotlib.ticker import LogLocator

    figure = _figure(7.0, 4.6)
    axes = figure.add_subplot()
    ridge = peak * 1e12 / bandwidth
    low = min([ridge, *(x for x, _ in points.values())]) / 2
    high = max([ridge, *(x for x, _ in points.values())]) * 4
    axes.plot([low, ridge, high], [low * bandwidth / 1e12, peak, peak], color=SOFT, linewidth=1.5)
    axes.annotate(f"peak {peak:.4g} TFLOPS", (high, peak), fontsize=9, ha="right", va="bottom")
    axes.annotate(
        f"{bandwidth / 1e12:.3g} TB/s", (low * 1.1, low * 1.1 * bandwidth / 1e12), fontsize=9, ha="left", va="top",
        xytext=(6, -4), textcoords="offset points",
    )  # fmt: skip
    shown: list[tuple[float, float]] = []
    for name, (x, y) in points.items():
        axes.plot([x], [y], "o", color=BAR)
        crowd = sum(math.isclose(x, a, rel_tol=0.2) and math.isclose(y, b, rel_tol=0.15) for a, b in shown)
        side = 1 if crowd % 2 == 0 else -1  # neighbours' names go to both sides
        axes.annotate(
            name, (x, y), xytext=(side * (7 + 16 * (crowd // 2)), 0), textcoords="offset points", fontsize=9,
            ha="left" if side == 1 else "right", va="center",
        )  # fmt: skip
        shown.append((x, y))
    axes.set(xscale="log", yscale="log", xlabel="flops per byte loaded into SMEM", ylabel="TFLOPS")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_title(title, fontsize=11, loc="left")
    return _png(figure)


def history(
    title: str,
    commits: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    changes: Mapping[str, Sequence[int]],
) -> bytes:
    """TFLOPS of each version over the commits, one row a version, with the indices of change points marked."""
    figure = _figure(8.0, 0.9 + 1.15 * len(series))
    rows = figure.subplots(len(series), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (name, values) in zip(rows, series.items(), strict=True):
        axes.plot(range(len(values)), [math.nan if v is None else v for v in values], ".-", color=BAR, linewidth=1)
        for index in changes.get(name, ()):
            axes.axvline(index, color=CHANGE, linewidth=1.2, alpha=0.7)
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        axes.margins(y=0.25)
        axes.tick_params(labelsize=8)
    rows[0].set_title(title, fontsize=11, loc="left")
    step = math.ceil(len(commits) / 16)
    rows[-1].set_xticks(range(0, len(commits), step), [c[:8] for c in commits[::step]], rotation=45, ha="right")
    return _png(figure)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure  # not pyplot: no display, nothing global

    return Figure(figsize=(width, height), layout="constrained")


def _png(figure: Figure) -> bytes:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    target = io.BytesIO()
    figure.savefig(target, format="png", dpi=150, metadata={"Software": None})
    return target.getvalue()
