"""The two studies as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from .drawn import Measured, Variant
from .pools import Pools
from .rates import Rates, interval, table
from .simulated import CLOCKS, NOISES, PLANTED, POWER, ROWS, Noise, Study

NULL_WANTED = 60
"""Null comparisons that the issue asks for, at least."""

UNDECIDED = ("near-margin", "too-noisy", "clock-change", "timer-too-coarse")


def simulated(found: Study) -> str:
    """The tables of the simulated study."""
    of = f"Campaigns of {ROWS} rows"
    return "\n".join(
        (
            f"{of} that are no slower, in which any row is:\n",
            table(found.null, "noise", ("slower", "clock-change", "undecided")),
            f"{of} that are slower by just the margin, in which any row is:\n",
            table(found.margin, "noise", ("slower",)),
            f"One row that is slower among {ROWS - 1} that are not: called slower, passed, pairs:\n",
            _by_slowdown(found.found, NOISES, PLANTED, ("slower", "not-slower")),
            f"One row that is slower by its clock alone, in as many cycles, among {ROWS - 1} that are not: "
            "clock-change, passed, pairs:\n",
            _by_slowdown(found.power, CLOCKS, POWER, ("clock-change", "not-slower")),
        )
    )


def _by_slowdown(
    rates: Sequence[Rates], noises: Sequence[Noise], slowdowns: Sequence[float], reasons: Sequence[str]
) -> str:
    """A line for each noise, a column for each slowdown, and in each cell the rates of the reasons and the pairs."""
    lines = [
        f"| noise | {' | '.join(f'{100 * slowdown:g} %' for slowdown in slowdowns)} |",
        f"| {' | '.join(['---'] * (len(slowdowns) + 1))} |",
    ]
    for noise in noises:
        mine = {one.planted: one for one in rates if one.kind == noise.name}
        cells = []
        for one in (mine[slowdown] for slowdown in slowdowns):
            counts = [f"{100 * one.count(reason) / one.trials:.1f} %" for reason in reasons]
            cells.append(", ".join([*counts, f"{one.pairs:.1f}"]))
        lines.append(f"| {noise.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def measured(found: Measured, pools: Pools) -> str:
    """The tables of the measured study."""
    gpu = "GPU unknown" if pools.gpu is None else f"{pools.gpu.name}, driver {pools.gpu.driver}"
    units = "; ".join(f"{problem} is judged in {unit}" for problem, unit in found.units.items())
    sections = (
        ("Null comparisons, each judged alone, that end in", found.null, ("slower", "not-slower", *UNDECIDED)),
        ("Campaigns of null rows with any row that ends in", found.campaigns, ("slower", *UNDECIDED)),
        (f"A slower row among {ROWS - 1} null ones ends in", found.found, ("slower", "not-slower", *UNDECIDED)),
    )
    tables = "\n".join(f"{title}:\n\n{table(rates, 'comparisons', reasons)}" for title, rates, reasons in sections)
    head = f"{gpu}; protocol {pools.protocol}; {units}; null floor {found.floor:.3%}."
    return f"{head}\n\n{_null(found)}\n\n{_variants(found)}\n{tables}"


def _null(found: Measured) -> str:
    """How many null comparisons there are that share no measurement, and how many were false alarms."""
    apart = found.null[-1]
    false, missing = apart.count("slower"), max(NULL_WANTED - apart.trials, 0)
    low, high = interval(false, apart.trials)
    enough = f"{missing} fewer than wanted: measure more processes" if missing else f"{NULL_WANTED} are wanted"
    return (
        f"{apart.trials} null comparisons share no measurement ({enough}). False alarms: {false}, exact 95 % interval "
        f"of their rate {low:.2%} to {high:.2%}."
    )


def _variants(found: Measured) -> str:
    of_pools = ("problem", "variant", "planted", "slowdown", "spread", "in seconds", "processes", "disturbed")
    headings = (*of_pools, "median", "cycles", "clock")
    lines = [f"| {' | '.join(headings)} |", f"| {' | '.join(['---'] * len(headings))} |"]
    return "\n".join([*lines, *map(_variant, found.variants)]) + "\n"


def _variant(one: Variant) -> str:
    cells = [
        one.problem,
        one.variant,
        f"{100 * one.planted:g} %",
        f"{one.slowdown:+.2%}",
        f"{one.spread:.2%}",
        f"{one.seconds_spread:.2%}",
        str(one.processes),
        str(one.disturbed),
        f"{one.seconds * 1e6:.2f} µs",
        "-" if one.cycles is None else f"{one.cycles:.0f}",
        "-" if one.clock_hz is None else f"{one.clock_hz / 1e6:.0f} MHz",
    ]
    return f"| {' | '.join(cells)} |"
