"""What the correctness matrix said of the versions at one commit: the pytest plugin writes it, the gate reads it.

It is made from the cases that really ran. A version with a case that was deselected, lost or not judged is
incomplete, which is as little clean as incorrect is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from . import cases, records
from .cases import Case
from .git import git, state
from .ladder import KernelVersion, Ladder, UsageError

SCHEMA = 1
CLEAN, INCORRECT, INCOMPLETE = "clean", "incorrect", "incomplete"

TIERS = ("quick", "default", "production")
"""How much of the matrix was wanted: one problem a version; all of it; also the kernels that are timed."""


@dataclass(frozen=True)
class Judged:
    """One version: how many cases its tier has, how many were judged, and clean or why it is not (one line)."""

    version: str
    wanted: int
    run: int
    verdict: str
    reason: str

    @property
    def clean(self) -> bool:
        return self.verdict == CLEAN

    def __str__(self) -> str:
        return self.verdict if self.clean else f"{self.verdict}: {self.reason}"


@dataclass(frozen=True)
class Correctness:
    """The versions of a ladder at one commit. commit is None outside a repository; dirty: with uncommitted changes."""

    schema: int
    ladder: str
    tier: str
    commit: str | None
    dirty: bool
    versions: tuple[Judged, ...]


def tier(version: KernelVersion, name: str) -> list[Case]:
    """The cases that a tier wants of a version."""
    specs = (cases.quick_tier if name == "quick" else cases.default_tier)(version)
    if name == "production":
        specs += cases.production_tier(version)
    return [
        Case(spec, kind) for spec in specs for kind in (cases.INPUTS if spec.clusters is None else ("exact", "marked"))
    ]


def checked_out(ladder: Ladder) -> tuple[str | None, bool]:
    """Commit and dirty flag of the checkout that a ladder was loaded from; None and dirty where there is none."""
    sources = [version.source.resolve() for version in ladder.versions]
    try:
        for source in sources:  # an installed copy in an ignored folder is no checkout
            git(source.parent, "ls-files", "--error-unmatch", source.name)
        found = {state(folder) for folder in {source.parent for source in sources}}
    except UsageError:
        return None, True
    commits = {commit for commit, _ in found}
    return (commits.pop(), any(dirty for _, dirty in found)) if len(commits) == 1 else (None, True)


def name_of(spec: str) -> str:
    """A ladder's name, whether it was loaded from a package, a folder or a file."""
    return Path(spec).stem if "/" in spec else spec.rpartition(".")[2]


def collect(
    ladder: Ladder, tier_name: str, where: tuple[str | None, bool], facts: Iterable[Mapping[str, Any]]
) -> Correctness:
    """The record of a run. facts, one a judged case: its id under "case", "clean", and "reason" if it is not."""
    judged = {fact["case"]: fact for fact in facts}
    versions = []
    for version in ladder.versions:
        wanted = [case.id for case in tier(version, tier_name)]
        found = _judged(version.name, wanted, judged)
        if not found.run and not version.simulated:
            found = replace(found, reason=f"{found.reason}: it takes a GPU, 'nox -s correctness -- --device'")
        versions.append(found)
    versions += [Judged(name, 0, 0, INCORRECT, " ".join(why.split())) for name, why in ladder.broken.items()]
    return Correctness(SCHEMA, name_of(ladder.spec), tier_name, *where, tuple(versions))


def _judged(name: str, wanted: list[str], judged: Mapping[str, Mapping[str, Any]]) -> Judged:
    run = [judged[case] for case in wanted if case in judged]
    wrong = [fact for fact in run if not fact["clean"]]
    if wrong:
        return Judged(name, len(wanted), len(run), INCORRECT, " ".join(str(wrong[0]["reason"]).split()))
    if not wanted or len(run) < len(wanted):
        return Judged(name, len(wanted), len(run), INCOMPLETE, f"{len(run)} of {len(wanted)} cases were judged")
    return Judged(name, len(wanted), len(run), CLEAN, "")


def write(found: Correctness, path: Path) -> None:
    """Write the record as JSON. Raises UsageError if that cannot be done."""
    records.write(found, path)


def read(path: Path) -> Correctness:
    """Read a record, strictly. Raises UsageError, naming the file and what is wrong with it."""
    found = records.read(Correctness, path, SCHEMA)
    if found.tier not in TIERS:
        raise UsageError(f"{path}, tier: {found.tier!r}, one of {', '.join(TIERS)} is wanted")
    if found.commit is not None and not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", found.commit):
        raise UsageError(f"{path}, commit: {found.commit!r}, a full commit hash is wanted")
    names = [judged.version for judged in found.versions]
    for judged in found.versions:
        at = f"{path}, {judged.version}"
        if names.count(judged.version) > 1:
            raise UsageError(f"{at}: it is there twice")
        if judged.verdict not in (CLEAN, INCORRECT, INCOMPLETE):
            raise UsageError(f"{at}, verdict: {judged.verdict!r}, clean, incorrect or incomplete is wanted")
        if judged.clean and not 0 < judged.wanted == judged.run:
            raise UsageError(f"{at}: called clean with {judged.run} of {judged.wanted} cases judged")
    return found
