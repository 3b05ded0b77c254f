"""A campaign: every fault planted, every tool asked, and the good kernels judged beside them for false alarms."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path

from ..cases import INPUTS, Case, Specialisation
from ..check import Judge, Verdict
from ..ladder import Ladder
from ..pool import Pool
from ..simulate import CLEAN, TOOLS, Finding, Outcome
from . import Fault, plant, specialisation

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """What became of one fault in one version: the tools that objected, and the first thing that was said."""

    fault: str
    kind: str
    version: str
    did: str
    expected: tuple[str, ...]
    caught: tuple[str, ...]
    message: str

    @property
    def ok(self) -> bool:
        """Every tool that the catalogue expects to object did."""
        return bool(self.expected) and set(self.expected) <= set(self.caught)


class Campaign:
    """Plants faults in copies of a ladder and judges them on a pool of workers."""

    def __init__(self, ladder: Ladder, pool: Pool, folder: Path) -> None:
        self._ladder = ladder
        self.pool = pool
        self._folder = folder
        self._good = Judge(ladder.spec, pool)
        self._judges: dict[tuple[str, str], Judge] = {}
        self._controls: set[Case] = set()
        self.rows: list[Row] = []
        self.alarms: dict[str, str] = {}
        self.controls = 0

    def plan(self, planted: Iterable[tuple[Fault, str]]) -> None:
        """Plant faults and queue them; the same problem on the good version is its control."""
        for fault, version in planted:
            copy = plant(fault, version, self._ladder, self._folder / fault.name / version)
            judge = self._judges[fault.name, version] = Judge(str(copy), self.pool)
            spec = specialisation(fault, self._ladder[version])
            judge.plan(_cases(fault, spec))
            self._controls.update(_cases(fault, spec))
        self._good.plan(sorted(self._controls, key=lambda case: case.id))

    def futures(self, fault: Fault, version: str) -> list[Future[Outcome]]:
        """The jobs that a planned fault waits for."""
        case = _cases(fault, specialisation(fault, self._ladder[version]))[0]
        return list(self._judges[fault.name, version].futures(case).values())

    def judge(self, fault: Fault, version: str) -> tuple[Row, str]:
        """What became of a planted fault, and the report of its first case that is not clean."""
        judge = self._judges[fault.name, version]
        verdicts = [judge.verdict(case) for case in _cases(fault, specialisation(fault, self._ladder[version]))]
        caught = tuple(tool for tool in TOOLS if any(catches(verdict.findings[tool]) for verdict in verdicts))
        report = "\n".join(verdict.report(judge.ladder) for verdict in verdicts if not verdict.clean)
        row = Row(fault.name, fault.kind, version, fault.did, fault.caught, caught, _first(verdicts, caught))
        self.rows.append(row)
        return row, report

    def judge_controls(self) -> dict[str, str]:
        """Wait for the good versions; what the tools object to in them, by case: every entry is a false alarm."""
        for case in sorted(self._controls, key=lambda case: case.id):
            verdict = self._good.verdict(case)
            self.controls += 1
            if not verdict.clean:
                self.alarms[case.id] = verdict.report(self._ladder.spec)
        return self.alarms

    def control_futures(self) -> list[Future[Outcome]]:
        """The jobs on good versions."""
        return [future for case in self._controls for future in self._good.futures(case).values()]

    def summary(self) -> str:
        """The one line at the end."""
        caught = sum(row.ok for row in self.rows)
        return (
            f"caught {caught} of {len(self.rows)} planted faults, "
            f"false alarms {len(self.alarms)} of {self.controls} good cases"
        )

    def write(self, folder: Path) -> None:
        """Write faults.json and faults.md, each whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        data = {
            "schema": SCHEMA,
            "summary": self.summary(),
            "faults": [asdict(row) | {"ok": row.ok} for row in self.rows],
            "controls": self.controls,
            "false_alarms": self.alarms,
        }
        texts = {"faults.json": json.dumps(data, indent=1) + "\n", "faults.md": self.markdown()}
        for name, text in texts.items():
            part = folder / f".{name}.part"
            part.write_text(text)
            part.replace(folder / name)

    def lines(self) -> list[str]:
        """The table for a terminal: fault, version, the tools that objected, the first message."""
        shown = [f"{'fault':<44} version  " + "  ".join(f"{tool:<9}" for tool in TOOLS) + "  first message"]
        for row in sorted(self.rows, key=lambda row: (row.ok, row.kind, row.fault, row.version)):
            marks = "  ".join(f"{_mark(tool in row.caught, tool in row.expected):<9}" for tool in TOOLS)
            shown.append(f"{row.kind + ': ' + row.fault:<44} {row.version:<7}  {marks}  {row.message[:80]}")
        return [*shown, self.summary()]

    def markdown(self) -> str:
        """The table as Markdown; a fault that was not caught as expected comes first."""
        lines = ["# Planted faults", "", self.summary(), ""]
        lines += ["| fault | version | " + " | ".join(TOOLS) + " | first message |"]
        lines += ["| --- | --- |" + " --- |" * len(TOOLS) + " --- |"]
        for row in sorted(self.rows, key=lambda row: (row.ok, row.kind, row.fault, row.version)):
            marks = " | ".join(_mark(tool in row.caught, tool in row.expected) for tool in TOOLS)
            message = row.message.replace("|", "\\|")
            lines.append(f"| {row.kind}: {row.fault} | {row.version} | {marks} | {message} |")
        for case, report in self.alarms.items():
            lines += ["", f"False alarm: {case}", "", "```", report, "```"]
        return "\n".join(
            [*lines, "", "x: objected, as expected; +: objected as well; MISSED: expected, and silent", ""]
        )


def catches(finding: Finding) -> bool:
    """Whether a finding shows the fault: what did not build, crashed or was not judged to its end shows nothing."""
    return finding.verdict not in (CLEAN, "broken", "timeout", "crash", "incomplete")


def _mark(caught: bool, expected: bool) -> str:
    return {(True, True): "x", (True, False): "+", (False, True): "MISSED"}.get((caught, expected), "")


def _cases(fault: Fault, spec: Specialisation) -> list[Case]:
    """Every kind of input where numbers must show the fault; one where they need not."""
    return [Case(spec, kind) for kind in (INPUTS if "numerics" in fault.caught else INPUTS[:1])]


def _first(verdicts: list[Verdict], caught: tuple[str, ...]) -> str:
    """The first thing that a tool said, on one line."""
    for tool in caught:
        for verdict in verdicts:
            finding = verdict.findings[tool]
            if catches(finding):
                lines = [line.strip() for line in finding.text.splitlines() if line.strip()]
                told = [line for line in lines if line.startswith(("by its signatures", "first at", "at ", "warp "))]
                text = f"{tool}: {'; '.join([*lines[:1], *told[:1]])}"
                return re.sub(r"at \S*/([^/\s]+:\d+)", r"at \1", text)[:300]  # the copy's folder is of no interest
    return ""
