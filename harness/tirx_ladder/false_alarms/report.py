"""The two studies as Markdown."""

from __future__ import annotations

from .drawn import Measured, Variant
from .pools import Pools
from .rates import Rates, table
from .simulated import NOISES, PLANTED, ROWS, Study

UNDECIDED = ("near-margin", "too-noisy", "clock-change", "timer-too-coarse")


def simulated(found: Study) -> str:
    """The tables of the simulated study."""
    of = f"Campaigns of {ROWS} rows"
    return "\n".join(
        (
            f"{of} that are no slower, in which any row is:\n",
            table(found.null, "noise", ("slower", "undecided")),
            f"{of} that are slower by just the margin, in which any row is:\n",
            table(found.margin, "noise", ("slower",)),
            f"One row that is slower among {ROWS - 1} that are not: called slower, passed, pairs:\n",
            _by_slowdown(found),
        )
    )


def _by_slowdown(found: Study) -> str:
    """A line for each noise, a column for each slowdown."""
    lines = [
        f"| noise | {' | '.join(f'{100 * slowdown:g} %' for slowdown in PLANTED)} |",
        f"| {' | '.join(['---'] * (len(PLANTED) + 1))} |",
    ]
    for noise in NOISES:
        mine = {one.planted: one for one in found.found if one.kind == noise.name}
        lines.append(f"| {noise.name} | {' | '.join(_short(mine[slowdown]) for slowdown in PLANTED)} |")
    return "\n".join(lines) + "\n"


def _short(one: Rates) -> str:
    slower, passed = (100 * one.count(reason) / one.trials for reason in ("slower", "not-slower"))
    return f"{slower:.1f} %, {passed:.1f} %, {one.pairs:.1f}"


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
