"""Planted faults: what people get wrong in such kernels, put into the real ones to show that it is found."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from ..cases import Specialisation
from ..ladder import KernelVersion, Ladder


class StaleFaultError(Exception):
    """The place where a fault is to be planted is not in the kernel any more: the catalogue must follow it."""


@dataclass(frozen=True)
class Edit:
    """A change of a kernel's source: the one place where old stands becomes new.

    A one-line old is any part of a line. A longer one is whole lines, without their indentation, so that it
    stands for the same lines at any depth. Lines of new that are also in old stay as they are in the kernel; the
    others are indented from old's first line on.
    """

    old: str
    new: str


def drop(line: str, *, after: str = "", before: str = "") -> Edit:
    """The edit that removes a line which stands between two others."""
    kept = [part for part in (after, before) if part]
    return Edit("\n".join([*kept[: bool(after)], line, *kept[bool(after) :]]), "\n".join(kept))


@dataclass(frozen=True)
class Fault:
    """One fault: what a person did wrong, how to plant it, and on what problem it must be found.

    kind:    the class of faults it belongs to
    caught:  the tools that must object, each of them
    place:   text of a kernel line that the message must show
    launch:  rows and columns of output tiles, K_TILES, clusters (ignored if the version is not persistent)
    edits:   the changes, by version
    """

    name: str
    kind: str
    did: str
    caught: tuple[str, ...]
    place: str
    launch: tuple[int, int, int, int]
    edits: dict[str, tuple[Edit, ...]]

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(self.edits)


def plant(fault: Fault, version: str, ladder: Ladder, folder: Path) -> Path:
    """Copy the ladder's package into a folder with the fault in one version; returns the copy.

    Raises StaleFaultError if the kernel is not what the fault was written for.
    """
    source = ladder[version].source
    copy = folder / source.parent.name
    shutil.copytree(source.parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    lines = source.read_text().splitlines()
    for edit in fault.edits[version]:
        lines = _apply(edit, lines, f"fault {fault.name!r} does not fit {version} ({source.name})")
    (copy / source.name).write_text("\n".join(lines) + "\n")
    return copy


def _apply(edit: Edit, lines: list[str], complaint: str) -> list[str]:
    old = edit.old.splitlines()
    if len(old) == 1:
        places = [i for i, line in enumerate(lines) if edit.old in line]
    else:
        bare = [line.strip() for line in old]
        places = [i for i in range(len(lines)) if [line.strip() for line in lines[i : i + len(old)]] == bare]
    if len(places) != 1 or edit.old == edit.new:
        raise StaleFaultError(f"{complaint}: found {len(places)} times, once is wanted: {edit.old!r}")
    at = places[0]
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    first, *rest = edit.new.splitlines() or [""]
    if len(old) == 1:
        changed = [lines[at].replace(edit.old, first), *(indent + line for line in rest)]
    else:
        kept = {line.strip(): line for line in lines[at : at + len(old)]}
        changed = [kept.get(line.strip(), indent + line) for line in (first, *rest)]
    return [*lines[:at], *changed, *lines[at + len(old) :]]


def specialisation(fault: Fault, version: KernelVersion) -> Specialisation:
    """The problem and launch on which a fault must be found in a version."""
    tiles_m, tiles_n, k_tiles, clusters = fault.launch
    sm_count = clusters * version.cluster if version.persistent else None
    return Specialisation(version.name, version.problem(tiles_m, tiles_n, k_tiles), sm_count, frozenset())
