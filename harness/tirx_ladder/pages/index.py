"""`tirx-ladder report`: index.html and PNGs of the ladder, the roofline, the history and the last gate.

Reads what other sessions wrote under reports/; what is not there is said to be missing, and how to make it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import git, pages, records
from ..correctness import name_of
from ..git import Commit
from ..gpu import bench
from ..ladder import Problem, UsageError
from . import history, plots

SCHEMA = 1
BENCHES = "bench-history"

PUBLISHED_MS = {"v3": 53.64, "v4": 0.494, "v7": 0.2266, "v8": 0.1035, "v9": 0.0941}
PUBLISHED_CUBLAS_MS = 0.0941
"""Published times of the Blackwell ladder on a B200 at 4096x4096x4096, in milliseconds; not measured by us."""

PUBLISHED_PROBLEM = Problem(4096, 4096, 4096)


@dataclass(frozen=True)
class Changes:
    """Change points of one series: the commits where it changed, and how many values were judged."""

    name: str
    commits: tuple[str, ...]
    judged: int


@dataclass(frozen=True)
class ChangePoints:
    """What changepoints.py wrote."""

    schema: int
    series: tuple[Changes, ...]


@dataclass(frozen=True)
class Series:
    """TFLOPS of one version and problem by commit, oldest first; None where it was not measured."""

    name: str
    ladder: str
    version: str
    commits: tuple[str, ...]
    tflops: tuple[float | None, ...]


@dataclass(frozen=True)
class _AllSeries:
    schema: int
    series: tuple[Series, ...]


@dataclass(frozen=True)
class Picture:
    """A PNG, the file beside the page that has it too, and what is to be said of it."""

    file: str
    png: bytes
    words: str

    @property
    def data(self) -> str:
        """The PNG as a data: address."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


def write(folder: Path, repository: Path, benches: Sequence[Path]) -> Path:
    """Write index.html, the PNGs and series.json into a folder. Raises UsageError for a file that cannot be read."""
    found = [records.read(bench.Report, path, bench.SCHEMA) for path in benches]
    for report in found:
        keep(report, folder)
    commits = git.first_parents(repository, "HEAD")
    series = collect(folder, commits)
    records.write(_AllSeries(SCHEMA, tuple(series)), folder / "series.json")
    changes = _change_points(folder / "changepoints.json")
    pictures = {
        "ladder": [picture for report in found for picture in ladder_pictures(report)],
        "roofline": [picture for report in found for picture in roofline_pictures(report, folder, commits)],
        "history": history_pictures(series, changes or (), commits),
        "published": [published()],
    }
    for picture in (picture for kind in pictures.values() for picture in kind):
        (folder / picture.file).write_bytes(picture.png)
    page = folder / "index.html"
    page.write_text(
        pages.index_page(
            benches=found, pictures=pictures, changes=changes, gate=_gate(folder), histories=_histories(folder, commits)
        )
    )
    return page


def keep(report: bench.Report, folder: Path) -> None:
    """Keep what was measured of a clean commit, for the history."""
    if report.commit is not None and not report.dirty:
        records.write(report, folder / BENCHES / name_of(report.ladder) / f"{report.commit}.json")


def collect(folder: Path, commits: Sequence[Commit]) -> list[Series]:
    """Every series over the commits that were measured, by ladder, GPU, problem and version."""
    values: dict[tuple[str, str, str, str], dict[str, float | None]] = {}
    for path in sorted((folder / BENCHES).glob("*/*.json")):
        report = records.read(bench.Report, path, bench.SCHEMA)
        for row in report.rows:
            key = path.parent.name, report.gpu.name, str(row.problem), row.version
            values.setdefault(key, {})[path.stem] = None if row.marks else row.tflops
    series = []
    for (ladder, gpu, problem, version), known in values.items():
        order = [commit.hash for commit in commits if commit.hash in known]
        name = f"{ladder} {version}, {problem}, {gpu}"
        if any(known[commit] is not None for commit in order):
            series.append(Series(name, ladder, version, tuple(order), tuple(known[commit] for commit in order)))
    return series


def ladder_pictures(report: bench.Report) -> list[Picture]:
    """For each problem, the versions' TFLOPS beside cuBLAS and the GPU's peak."""
    pictures = []
    for problem in dict.fromkeys(row.problem for row in report.rows):
        rows = [row for row in report.rows if row.problem == problem and row.tflops]
        if rows:
            witnesses = sorted(row.cublas_seconds for row in rows if row.cublas_seconds)
            lines = {"cuBLAS": problem.flops / witnesses[len(witnesses) // 2] / 1e12} if witnesses else {}
            if report.gpu.peak_tflops is not None:
                lines["peak"] = report.gpu.peak_tflops
            title = f"{name_of(report.ladder)} on {report.gpu.name}, {problem}, fp16"
            marked = [row.version for row in rows if row.marks]
            png = plots.ladder(title, {row.version: row.tflops or 0.0 for row in rows}, lines, marked)
            words = "Hatched: the measurement was disturbed." if marked else ""
            pictures.append(Picture(f"ladder-{name_of(report.ladder)}-{problem}.png", png, words))
    return pictures


def roofline_pictures(report: bench.Report, folder: Path, commits: Sequence[Commit]) -> list[Picture]:
    """For each problem, the versions whose flops per byte are known at some commit, under the GPU's roof."""
    gpu, known = report.gpu, history.load(folder, name_of(report.ladder), commits)
    if gpu.peak_tflops is None or gpu.bandwidth_bytes_s is None:
        return []
    pictures = []
    for problem in dict.fromkeys(row.problem for row in report.rows):
        points = {}
        for row in (row for row in report.rows if row.problem == problem and row.tflops):
            values = [v for v in known.series(row.version, problem, "flops_per_load_byte") if v is not None]
            if values:
                points[row.version] = (values[-1], row.tflops or 0.0)
        if points:
            title = f"Roofline of {name_of(report.ladder)} on {gpu.name}, {problem}"
            png = plots.roofline(title, points, gpu.peak_tflops, gpu.bandwidth_bytes_s)
            absent = ", ".join(
                row.version for row in report.rows if row.problem == problem and row.version not in points
            )
            words = (
                "The slope is the bandwidth of device memory: a version above it loads some of its bytes from L2. "
                "Flops per byte are from the static profile."
                + (f" Not drawn, for want of one figure or the other: {absent}." if absent else "")
            )
            pictures.append(Picture(f"roofline-{name_of(report.ladder)}-{problem}.png", png, words))
    return pictures


def history_pictures(series: Sequence[Series], changes: Sequence[Changes], branch: Sequence[Commit]) -> list[Picture]:
    """For each ladder, problem and GPU, the TFLOPS of its versions over the commits of a branch."""
    changed = {change.name: change.commits for change in changes}
    groups: dict[str, list[Series]] = {}
    for one in series:
        groups.setdefault(one.name.replace(f"{one.ladder} {one.version}", one.ladder), []).append(one)
    pictures = []
    for i, (title, group) in enumerate(groups.items()):
        commits = [commit.hash for commit in branch if any(commit.hash in one.commits for one in group)]
        rows = {one.version: _spread(one, commits) for one in group}
        marks = {one.version: [commits.index(c) for c in changed.get(one.name, ()) if c in commits] for one in group}
        pictures.append(Picture(f"history-{i}.png", plots.history(f"TFLOPS, {title}", commits, rows, marks), ""))
    return pictures


def _spread(series: Series, commits: Sequence[str]) -> list[float | None]:
    """A series over all commits of its group."""
    known = dict(zip(series.commits, series.tflops, strict=True))
    return [known.get(commit) for commit in commits]


def published() -> Picture:
    """The published figures, apart from what was measured."""
    tflops = {version: PUBLISHED_PROBLEM.flops / ms / 1e9 for version, ms in PUBLISHED_MS.items()}
    lines = {"cuBLAS": PUBLISHED_PROBLEM.flops / PUBLISHED_CUBLAS_MS / 1e9}
    title = f"Published, not measured here: B200, {PUBLISHED_PROBLEM}"
    return Picture("published.png", plots.ladder(title, tflops, lines), "")


def _change_points(path: Path) -> tuple[Changes, ...] | None:
    return records.read(ChangePoints, path, SCHEMA).series if path.is_file() else None


def _gate(folder: Path) -> dict[str, Any] | None:
    """The last gate's report as JSON data; None if there is none."""
    path = folder / "gate.json"
    try:
        data = json.loads(path.read_text()) if path.is_file() else None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if data is not None and (not isinstance(data, dict) or data.get("schema") != 1):
        raise UsageError(f"{path}: a gate's report of schema 1 is wanted: run 'nox -s gate' again")
    return data


def _histories(folder: Path, commits: Sequence[Commit]) -> dict[str, history.History]:
    """The history of the static figures of every ladder that has one."""
    names = sorted(path.name for path in (folder / history.FOLDER).glob("*") if path.is_dir())
    return {name: history.load(folder, name, commits) for name in names}
