"""Bundles on a real GPU: a guarded process each, D poisoned with NaN, the oracle and torch as references.

A hang, an illegal access or a crash is that bundle's verdict, with the driver's message; the next still runs.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .. import records
from ..ladder import UsageError
from . import machine, matrix, runtime
from .device_worker import CLEAN, Finding, Job, main

SCHEMA = 1
LIMIT_S = 120.0
"""Seconds that a bundle may take, from its process's start to its last verdict; 1 to 3 s are usual."""

WORKERS = 3
"""Bundles on the GPU at a time: most of a small case is host work, and verdicts do not depend on speed."""


@dataclass(frozen=True)
class Result:
    """What came of one bundle. findings has one entry for each kind of input that was asked for."""

    id: str
    version: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        """Every kind of input ran and was right."""
        return bool(self.findings) and all(finding.verdict == CLEAN for finding in self.findings)


@dataclass(frozen=True)
class Report:
    """A judged matrix, with the GPU it ran on."""

    schema: int
    ladder: str
    arch: str
    gpu: machine.Gpu
    references: tuple[str, ...]
    clean: bool
    results: tuple[Result, ...]


class Runner:
    """Runs jobs on one GPU, some at a time, each in a process of its own."""

    def __init__(
        self, *, ordinal: int = 0, workers: int = WORKERS, limit_s: float = LIMIT_S, target: Callable[..., None] = main
    ) -> None:
        self._limit_s, self._target, self._ordinal = limit_s, target, ordinal
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch", main.__module__])  # what is not installed is passed over
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="device")

    def submit(self, name: str, version: str, folder: Path, inputs: Sequence[str], *, torch: bool) -> Future[Result]:
        """Queue a bundle."""
        job = Job(str(folder), tuple(inputs), self._ordinal, 0, torch)
        return self._threads.submit(self._run, name, version, job)

    def close(self) -> None:
        """Drop what is queued; what runs is waited for, at most its limit."""
        self._threads.shutdown(cancel_futures=True)

    def _run(self, name: str, version: str, job: Job) -> Result:
        began = time.monotonic()
        with tempfile.NamedTemporaryFile(prefix="tirx-ladder-", suffix=".log") as errors:
            ours, theirs = self._context.Pipe(duplex=False)
            process = self._context.Process(target=self._target, args=(job, theirs, errors.name), daemon=True)
            process.start()
            theirs.close()
            try:
                findings, reason = _listen(ours, process, began + self._limit_s, self._limit_s)
            finally:
                if process.is_alive():
                    process.kill()
                process.join(30.0)
                ours.close()
            if reason is not None and reason[0] == "crash":
                said = Path(errors.name).read_text(errors="replace").strip().splitlines()[-8:]
                reason = reason[0], "\n".join([reason[1], *said])
        missing = [kind for kind in job.inputs if kind not in {finding.inputs for finding in findings}]
        verdict, text = reason or ("incomplete", "the process ended without a verdict on it")
        for kind in missing:
            findings.append(Finding(kind, verdict, text))
            verdict, text = "incomplete", f"not run: the process was lost on {missing[0]} inputs"
        return Result(name, version, tuple(findings), time.monotonic() - began)


def _listen(
    answers: Connection, process: Any, until: float, limit_s: float
) -> tuple[list[Finding], tuple[str, str] | None]:
    """Findings as they come, and if not all came, why: a verdict and a text."""
    findings: list[Finding] = []
    stage = "start"
    while True:
        if not answers.poll(max(0.0, until - time.monotonic())):
            return findings, ("hang", f"passed its limit of {limit_s:.0f} s in stage '{stage}' and was killed")
        try:
            answer = answers.recv()
        except EOFError:
            process.join(10.0)
            code = process.exitcode or 0
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            return findings, ("crash", f"its process ended with {how} in stage '{stage}'")
        if isinstance(answer, Finding):
            findings.append(answer)
            continue
        word, text = answer
        if word == "stage":
            stage = text
        else:
            return findings, None if word == "done" else (word, text)


def run(
    place: Path,
    *,
    ordinal: int = 0,
    torch: bool = True,
    workers: int = WORKERS,
    limit_s: float = LIMIT_S,
    say: Callable[[str], None] = print,
    target: Callable[..., None] = main,
) -> Report:
    """Judge a folder of bundles. Raises UsageError if there is none, or no GPU here that can run them."""
    with matrix.opened(place) as (index, folder):
        runtime.require(index.arch, ordinal)
        if torch:
            require_torch()
        gpu = machine.Nvml(runtime.pci_bus_id(ordinal)).gpu(runtime.attribute("MULTIPROCESSOR_COUNT", ordinal))
        runner = Runner(ordinal=ordinal, workers=workers, limit_s=limit_s, target=target)
        try:
            results = _all(index, folder, runner, torch, say)
        finally:
            runner.close()
    references = ("oracle", "torch") if torch else ("oracle",)
    return Report(SCHEMA, index.ladder, index.arch, gpu, references, all(r.clean for r in results), results)


def require_torch() -> None:
    """Raise UsageError if torch is not installed. It is not imported: that is the workers' cost."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError("torch, the second reference, is not installed: install it, or say --no-torch")


def _all(
    index: matrix.Index, folder: Path, runner: Runner, torch: bool, say: Callable[[str], None]
) -> tuple[Result, ...]:
    futures = {
        row.id: runner.submit(row.id, row.version, folder / row.folder, row.inputs, torch=torch)
        for row in index.rows
        if row.folder is not None
    }
    results = []
    for i, row in enumerate(index.rows):
        if row.id in futures:
            result = futures[row.id].result()
        else:
            broken = Finding("build", "build", row.failed or "no reason is given")
            result = Result(row.id, row.version, (broken,), 0.0)
        results.append(result)
        bad = [finding for finding in result.findings if finding.verdict != CLEAN]
        verdict = "clean" if result.clean else bad[0].verdict
        say(f"[{i + 1}/{len(index.rows)}] {row.id}: {verdict}, {result.seconds:.1f} s")
        for finding in bad:
            say(f"    {finding.inputs}: {finding.verdict}: " + finding.text.replace("\n", "\n    "))
    return tuple(results)


def write(report: Report, path: Path) -> None:
    """Write a report as JSON."""
    records.write(report, path)


def table(report: Report) -> list[str]:
    """A line for each version: clean kinds of input of all, by kind."""
    kinds = list(dict.fromkeys(f.inputs for r in report.results for f in r.findings))
    lines = ["version  bundles  " + "  ".join(f"{kind:>8}" for kind in kinds) + "       s"]
    for version in dict.fromkeys(result.version for result in report.results):
        mine = [result for result in report.results if result.version == version]
        cells = []
        for kind in kinds:
            of_kind = [f for result in mine for f in result.findings if f.inputs == kind]
            cells.append(f"{sum(f.verdict == CLEAN for f in of_kind)}/{len(of_kind)}" if of_kind else "-")
        lines.append(
            f"{version:<7}  {len(mine):>7}  " + "  ".join(f"{cell:>8}" for cell in cells)
            + f"  {sum(result.seconds for result in mine):>6.1f}"
        )  # fmt: skip
    cases = [f for result in report.results for f in result.findings]
    lines.append(
        f"{sum(f.verdict == CLEAN for f in cases)} of {len(cases)} cases clean on {report.gpu.name}, "
        f"driver {report.gpu.driver}; references: {', '.join(report.references)}"
    )
    return lines
