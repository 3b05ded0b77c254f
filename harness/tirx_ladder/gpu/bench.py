"""TFLOPS of a ladder's versions on this GPU, beside cuBLAS in the same processes: `tirx-ladder bench`."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from .. import build, bundle, records, results
from ..ladder import Ladder, Problem, UsageError
from . import inputs, machine, matrix, measure, runtime
from .jobs import Answer, Job, Task
from .measure import MeasureError, Options

SCHEMA = 1
PROCESSES = 3
"""Processes that measure all versions; a version's time is the median of its medians."""

CUBLAS = "cuBLAS"


@dataclass(frozen=True)
class Row:
    """One version on one problem. samples: how many its time rests on. seconds None: marks say why."""

    version: str
    problem: Problem
    seconds: float | None
    tflops: float | None
    cublas_seconds: float | None
    samples: int
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """What was measured of a ladder."""

    schema: int
    ladder: str
    arch: str
    commit: str | None
    dirty: bool
    gpu: machine.Gpu
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Series:
    """All samples of one version, or of cuBLAS, on one problem, by process."""

    version: str
    problem: Problem
    processes: tuple[results.Process, ...]
    checked: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class Evidence:
    """All samples behind a report, and the machine's record."""

    schema: int
    protocol: int
    options: Options
    power_capped: bool
    versions: dict[str, str]
    toolchains: dict[str, dict[str, str]]
    states: tuple[machine.State, ...]
    host_s: tuple[dict[str, float], ...]
    failures: tuple[str, ...]
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Item:
    """A bundle to be timed."""

    version: str
    problem: Problem
    folder: Path


def from_folder(folder: Path) -> tuple[str, list[Item]]:
    """The bundles in a folder, and the name of their ladder: one bundle, a matrix, or a folder of bundles."""
    if (folder / bundle.MANIFEST).is_file() or (folder / matrix.INDEX).is_file():
        with matrix.opened(folder) as (index, place):
            places = [place / row.folder for row in index.rows if row.folder is not None]
    elif folder.is_dir():
        places = sorted(path.parent for path in folder.glob(f"*/{bundle.MANIFEST}"))
    else:
        places = []
    if not places:
        raise UsageError(f"no bundles in {folder}: build some with 'tirx-ladder bundle'")
    found = [(bundle.verify(place), place) for place in places]
    ladders = {manifest.source.ladder for manifest, _ in found}
    if len(ladders) > 1:
        raise UsageError(f"{folder} holds bundles of {' and '.join(sorted(ladders))}: those of one ladder are wanted")
    return ladders.pop(), [Item(manifest.version, manifest.problem, place) for manifest, place in found]


def from_ladder(ladder: Ladder, problem: Problem, folder: Path, say: Callable[[str], None]) -> list[Item]:
    """Bundles of the versions that accept a problem, built into a folder; what does not build is passed over, said."""
    items = []
    for version in ladder.versions:
        try:
            version.check(problem)
            say(f"building {version.name} on {problem}")
            bundle.export(build.build(version, problem), folder / version.name)
        except (UsageError, build.BuildError) as error:
            say(f"{version.name} is not measured: {error}")
            continue
        items.append(Item(version.name, problem, folder / version.name))
    if not items:
        raise UsageError(f"no version of {ladder.spec} can be measured on {problem}")
    return items


def run(
    items: Sequence[Item],
    *,
    ladder: str = "",
    processes: int = PROCESSES,
    witness: bool = True,
    options: Options | None = None,
    start: measure.Start = measure.Process,
    say: Callable[[str], None] = print,
) -> tuple[Report, Evidence]:
    """Measure bundles for one GPU. Raises UsageError if that is not here, or nothing could be measured."""
    options = options or Options(check=True)
    manifests = [bundle.load_manifest(item.folder) for item in items]
    arches = sorted({manifest.arch for manifest in manifests})
    if len(arches) != 1:
        raise UsageError(f"the bundles are for {' and '.join(arches)}: those of one are wanted")
    runtime.require(arches[0], options.ordinal)
    if witness:
        from .device import require_torch

        require_torch()
    store = inputs.default_store()
    try:
        say(f"preparing {options.inputs} inputs")
        jobs = [measure.job(_tasks(items, witness, i), store, options) for i in range(processes)]
        answers = _answers(jobs, options, start, say, "all versions")
        if not all(isinstance(answer, Answer) and not any(t.error for t in answer.timed) for answer in answers):
            say("something failed: each version once more, in processes of its own")
            answers = []
            for i in range(len(items)):
                own = [measure.job(_tasks(items[i : i + 1], witness, 0, i), store, options) for _ in range(processes)]
                answers += _answers(own, options, start, say, items[i].version)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    return _report(items, manifests, ladder, arches[0], answers, options)


def _tasks(items: Sequence[Item], witness: bool, turn: int, first: int = 0) -> list[Task]:
    """The versions, in another order in every process, and between them cuBLAS once for each problem."""
    tasks = [Task(str(first + i), str(item.folder), witness=False) for i, item in enumerate(items)]
    tasks = tasks[turn % len(tasks) :] + tasks[: turn % len(tasks)]
    if witness:
        problems = {item.problem: item for item in items}
        half = len(tasks) // 2
        tasks[half:half] = [Task(f"{CUBLAS} {p}", str(item.folder), witness=True) for p, item in problems.items()]
    return tasks


def _answers(
    jobs: Sequence[Job], options: Options, start: measure.Start, say: Callable[[str], None], what: str
) -> list[Answer | MeasureError]:
    found = []
    for i, (_, answer) in enumerate(measure.in_turn(jobs, options.limit_s, start=start, say=say)):
        found.append(answer)
        if isinstance(answer, Answer):
            spent = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in answer.host_s.items() if seconds >= 0.05)
            say(f"{what}: process {i + 1} of {len(jobs)} measured ({spent} s)")
    return found


def _report(
    items: Sequence[Item],
    manifests: Sequence[bundle.Manifest],
    ladder: str,
    arch: str,
    answers: Sequence[Answer | MeasureError],
    options: Options,
) -> tuple[Report, Evidence]:
    good = [answer for answer in answers if isinstance(answer, Answer)]
    failures = [str(answer) for answer in answers if isinstance(answer, MeasureError)]
    if not good:
        raise UsageError("no measuring process answered: " + "; ".join(failures)[:2000])
    labels = {str(i): item for i, item in enumerate(items)}
    labels |= {f"{CUBLAS} {item.problem}": Item(CUBLAS, item.problem, item.folder) for item in items}
    taken: dict[str, list[results.Process]] = {label: [] for label in labels}
    checked: dict[str, list[tuple[tuple[float, float], ...]]] = {label: [] for label in labels}
    for rank, answer in enumerate(good):
        for timed in answer.timed:
            taken[timed.label].append(measure.process_of(answer, timed, rank, options))
            checked[timed.label].append(timed.checked)
    rows = []
    for label, item in labels.items():
        if item.version == CUBLAS:
            continue
        seconds = middle(taken[label])
        beside = middle(taken.get(f"{CUBLAS} {item.problem}", []))
        marks = tuple(dict.fromkeys(mark for process in taken[label] for mark in process.marks))
        if not taken[label]:
            marks = ("error: the process that measured it did not answer",)
        count = sum(len(process.seconds) for process in taken[label])
        tflops = None if seconds is None else item.problem.flops / seconds / 1e12
        rows.append(Row(item.version, item.problem, seconds, tflops, beside, count, marks))
    source = manifests[0].source
    report = Report(SCHEMA, ladder, arch, source.commit, source.dirty, good[0].gpu, tuple(rows))
    evidence = Evidence(
        SCHEMA,
        measure.PROTOCOL,
        options,
        machine.capped([state for answer in good for state in answer.states]),
        good[0].versions,
        {item.version: manifest.toolchain for item, manifest in zip(items, manifests, strict=True)},
        tuple(state for answer in good for state in answer.states),
        tuple(answer.host_s for answer in good),
        tuple(failures),
        tuple(
            Series(item.version, item.problem, tuple(taken[label]), tuple(checked[label]))
            for label, item in labels.items()
        ),
    )
    return report, evidence


def middle(processes: Sequence[results.Process]) -> float | None:
    """The median, over processes, of their median seconds; None without samples."""
    medians = [process.median_seconds for process in processes if process.seconds]
    return statistics.median(medians) if medians else None


def cycles(evidence: Evidence, version: str, problem: Problem) -> float | None:
    """The median, over processes, of their median cycles: seconds by the clock of each sample. None without clocks."""
    (series,) = (s for s in evidence.series if (s.version, s.problem) == (version, problem))
    medians = [process.median_cycles for process in series.processes if process.clock_hz]
    return statistics.median(medians) if medians else None


def table(report: Report, evidence: Evidence) -> Table:
    """The report for people."""
    gpu = report.gpu
    cap = "; power cap reached" if evidence.power_capped else ""
    made = Table(title=f"{gpu.name}, driver {gpu.driver}{cap}", box=None, pad_edge=False, title_justify="left")
    for heading in ("version", "problem", "ms", "TFLOPS", "of cuBLAS", "in cycles", "of peak", "marks"):
        made.add_column(heading, justify="left" if heading in ("version", "problem", "marks") else "right")
    rows = [(row.version, row.problem, row.seconds, row.cublas_seconds, "; ".join(row.marks)) for row in report.rows]
    for problem in dict.fromkeys(row.problem for row in report.rows):
        beside = next(row.cublas_seconds for row in report.rows if row.problem == problem)
        if beside is not None:
            rows.append((CUBLAS, problem, beside, beside, ""))
    for version, problem, seconds, beside, marks in rows:
        tflops = None if seconds is None else problem.flops / seconds / 1e12
        clocks = cycles(evidence, version, problem), None if beside is None else cycles(evidence, CUBLAS, problem)
        made.add_row(
            version,
            str(problem),
            "-" if seconds is None else f"{1e3 * seconds:.4f}",
            "-" if tflops is None else f"{tflops:.1f}",
            "-" if seconds is None or beside is None else f"{beside / seconds:.1%}",
            "-" if clocks[0] is None or clocks[1] is None else f"{clocks[1] / clocks[0]:.1%}",
            "-" if tflops is None or gpu.peak_tflops is None else f"{tflops / gpu.peak_tflops:.1%}",
            marks,
        )
    return made


def write(report: Report, evidence: Evidence, folder: Path) -> None:
    """Write bench.json and bench-samples.json."""
    records.write(report, folder / "bench.json")
    records.write(evidence, folder / "bench-samples.json")


def workspace() -> tempfile.TemporaryDirectory[str]:
    """A folder for bundles that are built only to be measured."""
    return tempfile.TemporaryDirectory(prefix="tirx-ladder-bundles-")
