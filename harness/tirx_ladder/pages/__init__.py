"""HTML pages, self-contained: what the gate found, with the figures' history.

Everything is escaped by the templates: commit titles and compiler messages are other people's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jinja2

from .. import compare, gate
from ..gate import GateReport
from .history import History
from .sparks import HEIGHT, WIDTH, spark

_COLUMNS: dict[str, tuple[str, bool | None]] = {
    "spill_bytes": ("spills, bytes", True),
    "ctas_per_sm": ("CTAs per SM", False),
    "registers_per_thread": ("registers per thread", True),
    "main_loop_instructions_per_k_tile": ("main-loop instructions per K tile", True),
    "bytes_in_flight_per_sm": ("bytes in flight per SM", False),
    "flops_per_load_byte": ("flops per byte loaded", False),
    "smem_bytes": ("SMEM, bytes", None),
    "seconds": ("time, µs", True),
}
"""Figure → heading of its column, and whether more of it is worse (None: neither more nor less is)."""

_SCALE = {"seconds": 1e6}


def environment() -> jinja2.Environment:
    """The templates of this package, with escaping on and unknown names refused."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("tirx_ladder.pages"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def gate_page(report: GateReport, history: History) -> str:
    """The gate's report as one HTML page, all rows worst first, then the history."""
    return (
        environment()
        .get_template("gate.html")
        .render(
            report=report,
            conclusion=gate.conclusion(report),
            remarks=list(gate.remarks(report)),
            told=gate.told,
            number=gate.number,
            meaning={code: words for code, (_, words) in compare.REASONS.items()},
            **history_table(history),
        )
    )


def index_page(*, histories: Mapping[str, History], **parts: Any) -> str:
    """The page of `tirx-ladder report`; parts are what its template names."""
    tables = {name: history_table(known) for name, known in histories.items()}
    return environment().get_template("index.html").render(number=gate.number, histories=tables, **parts)


def history_table(history: History) -> dict[str, Any]:
    """What the template of the history needs: figures by version and problem, drawn over the commits."""
    rows = []
    for version, problem in history.keys:
        cells = {}
        for figure in compare.FIGURES:
            scale = _SCALE.get(figure, 1.0)
            values = [None if v is None else v * scale for v in history.series(version, problem, figure)]
            cells[figure] = spark(values, larger_is_worse=_COLUMNS.get(figure, ("", None))[1])
        rows.append((version, problem, cells))
    figures = [figure for figure in compare.FIGURES if any(cells[figure].dots for _, _, cells in rows)]
    return {
        "history": history,
        "history_rows": rows,
        "figures": {figure: _COLUMNS.get(figure, (figure,))[0] for figure in figures},
        "size": (WIDTH, HEIGHT),
    }
