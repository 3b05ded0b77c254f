"""The gate: head's result file against base's → one verdict, one exit code, and the report of it.

The verdict is the worst that was found: invalid, regression, undecided, pass. Exit codes are fixed and never a count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from . import compare, records, results
from .compare import INVALID, PASS, REASONS, REGRESSION, UNDECIDED, Comparison, Finding, Row, Verdict
from .policy import Policy
from .results import CLEAN, Origin, ResultSet
from .trades import KEY, Trade, Unused, trades

SCHEMA = 1

USAGE = 2
EXIT_CODES: dict[Verdict, int] = {PASS: 0, REGRESSION: 1, UNDECIDED: 3, INVALID: 4}
"""Exit code of each verdict. USAGE (2) is for a UsageError: a missing file, a wrong policy, an unknown version."""

_WORST_FIRST = (INVALID, REGRESSION, UNDECIDED, PASS)
_STYLES = {PASS: "green", UNDECIDED: "yellow", REGRESSION: "red", INVALID: "bold red"}


@dataclass(frozen=True)
class GateReport:
    """What the gate found. base and head are None where a file could not be read; clean: known right at head."""

    base: Origin | None
    head: Origin | None
    policy: Policy
    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    unused: tuple[Unused, ...]
    clean: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings; invalid if nothing was judged."""
        return Comparison(self.findings, self.rows, self.unused).verdict

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 3 undecided, 4 invalid."""
        return EXIT_CODES[self.verdict]

    @property
    def worst_first(self) -> tuple[Row, ...]:
        """All rows, worst first, otherwise in their order."""
        return tuple(sorted(self.rows, key=lambda row: _WORST_FIRST.index(row.verdict)))

    @property
    def accepted(self) -> tuple[tuple[Row, Finding], ...]:
        """The regressions that a trade accepts."""
        return tuple((row, f) for row in self.rows for f in row.findings if f.accepted_by is not None)


def run(
    base: Path,
    head: Path,
    policy: Policy,
    messages: Iterable[str] = (),
    *,
    base_commit: str | None = None,
    head_commit: str | None = None,
    versions: Collection[str] | None = None,
    judge: compare.Judge = compare.judge_samples,
    refused: Iterable[Finding] = (),
) -> GateReport:
    """Judge two result files. messages are those of the commits from base to head; the rest is as for compare.

    refused is what stands against other evidence that was given, such as a correctness record of another commit.

    A file that holds no result set of this schema makes the report invalid. Raises UsageError for a file that
    cannot be opened and for an unknown version.
    """
    accepted, malformed = trades(messages)
    read: list[ResultSet | None] = []
    unreadable = []
    for path in (base, head):
        try:
            read.append(results.read(path))
        except results.ResultError as error:
            read.append(None)
            unreadable.append(Finding("unreadable", detail=str(error)))
    before, after = read
    if before is None or after is None:
        unjudged = (Unused(str(trade), "nothing could be compared") for trade in accepted)
        found = Comparison(tuple(unreadable), (), tuple(unjudged))
    else:
        found = compare.compare(
            before,
            after,
            policy,
            accepted,
            base_commit=base_commit,
            head_commit=head_commit,
            versions=versions,
            judge=judge,
        )
    origins = [side.origin if side is not None else None for side in read]
    findings = (*refused, *found.findings)
    clean = dict.fromkeys(e.version for e in after.entries if e.correctness == CLEAN) if after is not None else ()
    return GateReport(origins[0], origins[1], policy, findings, found.rows, (*found.unused, *malformed), tuple(clean))


def to_json(report: GateReport) -> str:
    """The whole report as JSON with a schema version."""
    data = {
        "schema": SCHEMA,
        "verdict": report.verdict,
        "exit_code": report.exit_code,
        "base": records.to_plain(report.base),
        "head": records.to_plain(report.head),
        "policy": records.to_plain(report.policy),
        "findings": [_plain(finding) for finding in report.findings],
        "rows": [
            {
                "version": row.version,
                "problem": records.to_plain(row.problem),
                "verdict": row.verdict,
                "reasons": row.reasons,
                "findings": [_plain(finding) for finding in row.findings],
            }
            for row in report.worst_first
        ],
        "clean": list(report.clean),
        "unused_trailers": records.to_plain(report.unused),
    }
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(finding: Finding) -> dict[str, Any]:
    plain: dict[str, Any] = {"verdict": finding.verdict} | records.to_plain(finding)
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


def show(report: GateReport, console: Console) -> None:
    """The report on a terminal: a table of all rows, worst first, then what belongs to no row, then the verdict."""
    if report.rows:
        table = Table(box=None, pad_edge=False)
        for heading in ("verdict", "version", "problem"):
            table.add_column(heading, no_wrap=True)
        table.add_column("why", overflow="fold")
        for row in report.worst_first:
            why = "\n".join(say(finding) for finding in told(row))
            # Text: what compilers and people write may look like rich's markup
            table.add_row(Text(row.verdict, _STYLES[row.verdict]), Text(row.version), _problem(row), Text(why))
        console.print(table)
    for line in remarks(report):
        console.print(Text(line))
    console.print(Text(conclusion(report), _STYLES[report.verdict]))


def markdown(report: GateReport) -> str:
    """The report for a job summary: the verdict, then all rows, worst first."""
    lines = [f"## Gate: {report.verdict}", "", _escaped(conclusion(report)), ""]
    lines += [f"- {_escaped(line)}" for line in remarks(report)]
    if report.rows:
        lines += ["", "| verdict | version | problem | reasons | why |", "| --- | --- | --- | --- | --- |"]
    for row in report.worst_first:
        why = "<br>".join(_escaped(say(finding)) for finding in told(row))
        cells = [f"**{row.verdict}**", _escaped(row.version), _problem(row), ", ".join(row.reasons), why]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def told(row: Row) -> list[Finding]:
    """A row's findings, worst first."""
    return sorted(row.findings, key=lambda finding: _WORST_FIRST.index(finding.verdict))


def say(finding: Finding) -> str:
    """A finding in one line: code, figures, detail, and the trade that accepts it."""
    words = f"{finding.code}: {REASONS[finding.code][1]}"
    if finding.figure is not None:
        words = f"{finding.code}: {finding.figure}"
        if finding.base is not None or finding.head is not None:
            words += f" {number(finding.base)} → {number(finding.head)}"
        if finding.limit is not None and finding.verdict is not PASS:
            words += f", the limit is {number(finding.limit)}"
    if finding.detail:
        words += f" ({' '.join(finding.detail.split())})"
    if finding.accepted_by is not None:
        words = f"accepted {words} ({finding.accepted_by.reason})"
    return words


def number(value: float | None) -> str:
    """A figure for people: whole, or with four digits."""
    if value is None:
        return "unknown"
    return f"{value:.0f}" if math.isfinite(value) and value == int(value) else f"{value:.4g}"


def remarks(report: GateReport) -> Iterator[str]:
    """What belongs to no row, or to be done about one."""
    for finding in report.findings:
        yield f"{finding.verdict}: {say(finding)}"
    if report.clean:
        yield f"the correctness matrix is clean at head for {', '.join(report.clean)}"
    for trailer in report.unused:
        yield f"unused trailer '{KEY}: {trailer.text}': {trailer.why}"
    wanted = {
        (row.version, f.figure): None
        for row in report.rows
        for f in row.findings
        if f.verdict is REGRESSION and f.figure
    }
    for version, figure in wanted:
        trade = Trade(version, figure, "REASON")
        yield f"meant? a trailer in the commit message accepts it: '{KEY}: {trade}'"


def conclusion(report: GateReport) -> str:
    """The verdict in one line, with the commits and how many rows came to what."""
    counts = [(v, sum(row.verdict is v for row in report.rows)) for v in _WORST_FIRST]
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts if count) or "no row was judged"
    sides = [origin.commit[:12] if origin is not None else "unreadable" for origin in (report.base, report.head)]
    accepted = f"; {len(report.accepted)} accepted by trailers" if report.accepted else ""
    return f"{report.verdict}: head {sides[1]} against base {sides[0]}: {told}{accepted} (exit code {report.exit_code})"


def _problem(row: Row) -> str:
    return "-" if row.problem is None else str(row.problem)


def _escaped(text: str) -> str:
    """Text that cannot end a cell, start markup or mention people in GitHub's Markdown."""
    text = " ".join(text.split())
    for character in "\\`*_[]|#~":
        text = text.replace(character, f"\\{character}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")
