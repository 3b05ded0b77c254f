"""The two studies as Markdown."""

from __future__ import annotations

from .drawn import Measured, Variant
from .pools import Pools
from .rates import table
from .simulated import ROWS, Study

UNDECIDED = ("near-margin", "too-noisy", "clock-change", "timer-too-coarse")


def simulated(found: Study) -> str:
    """The tables of the simulated study."""
    sections = (
        (f"Campaigns of {ROWS} rows that are no slower, in which any row is", found.null, ("slower", "undecided")),
        (
            f"Campaigns of {ROWS} rows that are slower by just the margin, in which any row is",
            found.margin,
            ("slower",),
        ),
        (f"One row among {ROWS - 1} that are no slower is", found.found, ("slower", "not-slower", "undecided")),
    )
    return "\n".join(f"{title}:\n\n{table(rates, 'noise', reasons)}" for title, rates, reasons in sections)


def measured(found: Measured, pools: Pools) -> str:
    """The tables of the measured study."""
    machine = ", ".join(f"{name} {value}" for name, value in sorted(pools.gpu.items()))
    sections = (
        ("Null comparisons, each judged alone, that end in", found.null, ("slower", "not-slower", *UNDECIDED)),
        ("Campaigns of null rows with any row that ends in", found.campaigns, ("slower", *UNDECIDED)),
        (f"A slower row among {ROWS - 1} null ones ends in", found.found, ("slower", "not-slower", *UNDECIDED)),
    )
    tables = "\n".join(f"{title}:\n\n{table(rates, 'comparisons', reasons)}" for title, rates, reasons in sections)
    return f"GPU: {machine}; protocol {pools.protocol}; null floor {found.floor:.3%}.\n\n{_variants(found)}\n{tables}"


def _variants(found: Measured) -> str:
    lines = [
        "| problem | variant | planted | slowdown by median | processes | disturbed | median | clock | spread |",
        f"| {' | '.join(['---'] * 9)} |",
    ]
    return "\n".join([*lines, *map(_variant, found.variants)]) + "\n"


def _variant(one: Variant) -> str:
    clock = "-" if one.clock_hz is None else f"{one.clock_hz / 1e6:.0f} MHz"
    cells = [
        one.problem,
        one.variant,
        f"{100 * one.planted:g} %",
        f"{one.slowdown:+.2%}",
        str(one.processes),
        str(one.disturbed),
        f"{one.seconds * 1e6:.2f} µs",
        clock,
        f"{one.spread:.2%}",
    ]
    return f"| {' | '.join(cells)} |"
