"""One kernel: lint, and on the CPU simulator numerics, synccheck and racecheck, with every doubt a finding.

Runs inside a guarded process (`pool`): a wrong kernel may hang or crash the simulator's native code.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from . import ladder, lint, oracle, tir, toolchain

TOOLS = ("lint", "numerics", "synccheck", "racecheck")

CLEAN = "clean"
"""The one verdict that is a pass. Others: wrong, error, review, incomplete, crash, timeout, broken."""

MAX_FINDINGS = 3

Stage = Callable[[str], None]
"""Called with "engine", "build" or "run" when that begins; a limit applies to each."""


@dataclass(frozen=True)
class Job:
    """One tool on one specialisation. The checkers take the first kind of input, numerics each of them."""

    ladder: str
    version: str
    m: int
    n: int
    k: int
    sm_count: int | None
    tool: str
    inputs: tuple[str, ...]
    clusters: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Finding:
    """What one tool says of one kind of input (of all kinds, for the checkers: inputs is None)."""

    verdict: str
    text: str = ""
    inputs: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one job found. A job without findings has found nothing out, which is not a pass."""

    tool: str
    findings: tuple[Finding, ...]
    build_s: float = 0.0
    run_s: float = 0.0
    built: bool = False

    def of(self, inputs: str) -> Finding:
        """The finding that applies to a kind of input; `incomplete` where there is none."""
        for finding in self.findings:
            if finding.inputs in (None, inputs):
                return finding
        return Finding("incomplete", f"{self.tool} came to no result for {inputs} inputs", inputs)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        return cls(**{**data, "findings": tuple(Finding(**finding) for finding in data["findings"])})


def run(job: Job, stage: Stage) -> Outcome:
    """Build and run one job in this process."""
    started = time.monotonic()
    version = _load(job.ladder)[job.version]
    problem = ladder.Problem(job.m, job.n, job.k)
    sm_count = job.sm_count or version.default_sm_count
    version.check(problem, sm_count)
    try:
        kernel = _kernel(version, problem, sm_count)
    except Exception as error:  # whatever a builder raises is a verdict on its version
        return Outcome(job.tool, (Finding("broken", f"the kernel does not build: {_brief(error)}"),))
    if job.tool == "lint":
        stage("run")
        return Outcome(job.tool, tuple(_lint(kernel)), run_s=time.monotonic() - started)
    from tirx_harness.numsim import NumSimError

    try:
        module, built = _transpile(kernel, job.tool, stage)
        build_s = time.monotonic() - started
        stage("run")
        started = time.monotonic()
        tool = _numerics if job.tool == "numerics" else _check
        findings = tuple(tool(job, kernel, module, version, problem, sm_count))
    except NumSimError as error:
        return Outcome(job.tool, (Finding("error", _brief(error)),), time.monotonic() - started)
    return Outcome(job.tool, findings, build_s, time.monotonic() - started, built)


@lru_cache(maxsize=4)
def _kernel(version: ladder.KernelVersion, problem: ladder.Problem, sm_count: int) -> Any:
    """Build a kernel; the tools' jobs on it come one after the other, and parsing it takes up to a second."""
    return version.build(problem, sm_count=sm_count)


@lru_cache
def _load(spec: str) -> ladder.Ladder:
    return ladder.load(spec)


def _lint(kernel: Any) -> Iterator[Finding]:
    found = lint.lint(kernel)
    yield Finding("error" if found else CLEAN, "\n".join(map(str, found[:MAX_FINDINGS])))


def _numerics(
    job: Job, kernel: Any, module: Any, version: ladder.KernelVersion, problem: ladder.Problem, sm_count: int
) -> Iterator[Finding]:
    from tirx_harness.numsim import Engine, NumSimError
    from tirx_harness.numsim.api import ExecutionSubset

    schedule = version.schedule(problem, sm_count)
    subset = None if job.clusters is None else ExecutionSubset(cluster_ids=job.clusters)
    for kind in job.inputs:
        a, b = oracle.make_inputs(kind, problem, version.blk_k)
        d = np.full((problem.m, problem.n), np.nan, np.float16)
        try:
            result = Engine(max_workers=1).run(module, {"A": a, "B": b, "D": d}, subset=subset)
        except NumSimError as error:
            deadlock = "deadlock" in str(error)
            yield Finding("error", tir.explain_deadlock(str(error), kernel) if deadlock else _brief(error), kind)
            continue
        mismatch = oracle.compare(kind, result.outputs["D"], a, b, version, schedule, job.clusters)
        if mismatch is not None:
            yield Finding("wrong", str(mismatch), kind)
        elif result.verdict != CLEAN:
            yield Finding(result.verdict, "; ".join(map(_diagnostic, result.diagnostics[:MAX_FINDINGS])), kind)
        else:
            yield Finding(CLEAN, inputs=kind)


def _check(
    job: Job, kernel: Any, module: Any, version: ladder.KernelVersion, problem: ladder.Problem, sm_count: int
) -> Iterator[Finding]:
    from tirx_harness.numsim import checkers

    a, b = oracle.make_inputs(job.inputs[0], problem, version.blk_k)
    d = np.full((problem.m, problem.n), np.nan, np.float16)
    report = getattr(checkers, job.tool)(kernel, {"A": a, "B": b, "D": d})
    # a synccheck limit that was reached, an unmodelled operation: the report says incomplete, and so do we
    lines = [_render(finding) for finding in report.findings[:MAX_FINDINGS]]
    if len(report.findings) > MAX_FINDINGS:
        lines.append(f"and {len(report.findings) - MAX_FINDINGS} more findings")
    verdict = report.verdict if not report.findings or report.verdict != CLEAN else "review"
    yield Finding(verdict, "\n".join(lines))


def _transpile(kernel: Any, tool: str, stage: Stage) -> tuple[Any, bool]:
    """Build a kernel for a tool, or take it from the cache. Says whether it was built."""
    from tirx_harness.numsim import api
    from tirx_harness.numsim.transpiler import build

    _identify_compiler_by_content(build)
    checker: Any = None if tool == "numerics" else tool
    prepared = build.prepare_generated_artifact(kernel, analysis_capable=checker is not None, analysis_checker=checker)
    engine = prepared.build_root / "dependencies" / build._dependency_key(prepared.build_identity)
    built = not (prepared.artifact_dir / "manifest.json").is_file()
    stage("cached" if not built else "build" if engine.is_dir() else "engine")
    module = api.transpile(kernel, _analysis_checker=checker)
    toolchain.touch(prepared.artifact_dir)
    return module, built


def _identify_compiler_by_content(build: Any) -> None:
    """Let two checkouts with the same wheels share built kernels.

    The simulator names TVM in its cache key by path and modification time, so that a fresh virtual
    environment would build everything again. The wheels' own lists of file hashes identify it as surely.
    """

    def identity() -> dict[str, str]:
        return {name: _record_hash(name) for name in ("apache-tvm", "apache-tvm-ffi")}

    if build._compiler_identity.__name__ != identity.__name__:
        build._compiler_identity = identity


def _record_hash(package: str) -> str:
    """Hash of what a wheel installed, less what the installer writes by itself: its notes, and scripts in bin/."""
    record = distribution(package).read_text("RECORD") or ""
    lines = sorted(
        line
        for line in record.splitlines()
        if ",sha256=" in line and ".dist-info/" not in line and not line.startswith("../")
    )
    if not lines:
        return f"no record of {package}: {os.urandom(16).hex()}"  # then share with no one
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _brief(error: BaseException, limit: int = 1500) -> str:
    """An exception as text of bounded length."""
    text = f"{type(error).__name__}: {error}"
    return text if len(text) <= limit else f"{text[: limit * 2 // 3]} ... {text[-limit // 3 :]}"


def _diagnostic(diagnostic: dict[str, Any]) -> str:
    return str(diagnostic.get("message") or json.dumps(diagnostic, default=str))[:500]


def _render(finding: Any) -> str:
    """A checker's finding in a few lines: what it is, then each place in the kernel that takes part."""
    headline = str(finding.message).split("; warp ")[0]
    lines = [f"{finding.kind}: {headline[:600]}"]
    places: dict[str, list[int]] = {}
    for label, operation in _operations(finding.details):
        place = _place(operation["source"].get("source_span"))
        if place:
            places.setdefault(f"{label}{place}", []).append(int(operation.get("global_warp_id", -1)))
    for text, warps in places.items():
        known = [warp for warp in warps if warp >= 0]
        lines.append(f"  {'warp ' + tir.ranges(known) + ' ' if known else ''}{text}")
    hint = finding.details.get("hint")
    return "\n".join(lines + ([f"  hint: {hint}"] if hint else []))


def _operations(details: Any, label: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every operation with a source that a finding mentions, and the role it is mentioned in."""
    if isinstance(details, dict):
        if isinstance(details.get("source"), dict):
            yield label, details
        state = ""
        if "awaited_operation" in details:
            counts = str(details.get("description", "")).partition("; ")[2]
            state = f"waits ({details['awaited_operation']}, {counts or 'nothing arrived'}) "
        for key, value in details.items():
            if key not in ("source", "source_anchor"):
                role = state or (label if key in ("operation", "blocked_operations") else f"{key.replace('_', ' ')} ")
                yield from _operations(value, role)
    elif isinstance(details, list):
        for value in details:
            yield from _operations(value, label)


def _place(span: Any) -> tir.Place | None:
    """The kernel's line that a serialised span begins on."""
    while isinstance(span, dict) and span.get("kind") == "sequential" and span.get("spans"):
        span = span["spans"][0]
    if not isinstance(span, dict) or "line" not in span:
        return None
    return tir.Place(Path(span["source_name"]), int(span["line"]))
