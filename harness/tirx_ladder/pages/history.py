"""Result sets by commit, kept under reports/history/LADDER/COMMIT.json, and the figures over a branch's commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from .. import compare, results
from ..git import Commit
from ..ladder import Problem, UsageError
from ..results import Entry, ResultSet

FOLDER = "history"


@dataclass(frozen=True)
class Point:
    """What is known of a commit."""

    commit: Commit
    result: ResultSet


@dataclass(frozen=True)
class History:
    """The commits whose result set is known, oldest first, and why files could not be read."""

    points: tuple[Point, ...]
    unreadable: tuple[str, ...]

    @property
    def keys(self) -> tuple[tuple[str, Problem], ...]:
        """Every version and problem, in the order in which they came."""
        entries = (entry for point in self.points for entry in point.result.entries)
        return tuple(dict.fromkeys((entry.version, entry.problem) for entry in entries if entry.problem is not None))

    def series(self, version: str, problem: Problem, figure: str) -> list[float | None]:
        """A figure at each point; None where it is not known."""
        return [
            next((_value(entry, figure) for entry in point.result.entries if entry.key == (version, problem)), None)
            for point in self.points
        ]


def keep(found: ResultSet, folder: Path) -> None:
    """Keep a result set. What was known of the same build stays: its other problems, and samples of the same code."""
    path = folder / FOLDER / found.ladder / f"{found.origin.commit}.json"
    try:
        known = results.read(path)
    except UsageError:  # none yet, or one of an older schema
        known = replace(found, entries=())
    machines = {side.origin.machine for side in (known, found)} - {None}
    if len(machines) <= 1 and _build(known) == _build(found):
        before = {entry.key: entry for entry in known.entries if entry.problem is not None}
        entries = [_with_samples(entry, before.pop(entry.key, None)) for entry in found.entries]
        origin = replace(found.origin, machine=next(iter(machines), None))
        found = replace(found, origin=origin, entries=(*entries, *before.values()))
    results.write(found, path)


def _build(found: ResultSet) -> tuple[str, str, dict[str, str]]:
    return found.origin.commit, found.arch, found.origin.toolchain


def _with_samples(entry: Entry, known: Entry | None) -> Entry:
    if entry.samples is None and known is not None and known.code_hash == entry.code_hash:
        return replace(entry, samples=known.samples)
    return entry


def load(folder: Path, ladder: str, commits: Sequence[Commit]) -> History:
    """The history of a ladder over some commits, oldest first. A file that cannot be read is named, and left out."""
    points, unreadable = [], []
    for commit in commits:
        path = folder / FOLDER / ladder / f"{commit.hash}.json"
        if path.is_file():
            try:
                points.append(Point(commit, results.read(path)))
            except UsageError as error:
                unreadable.append(str(error))
    return History(tuple(points), tuple(unreadable))


def _value(entry: Entry, figure: str) -> float | None:
    if figure == compare.SECONDS:
        processes = entry.samples.processes if entry.samples else ()
        times = [process.median_seconds for process in processes if process.seconds]
        return median(times) if times else None
    value = getattr(entry.figures, figure) if entry.figures is not None else None
    return None if value is None else float(value)
