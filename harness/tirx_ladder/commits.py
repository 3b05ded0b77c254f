"""The gate between two commits of a repository: profile both, see to head's correctness, judge, keep the history."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from . import checkout, correctness, gate, git, packed, policy, results
from .checkout import Say
from .compare import Finding
from .correctness import CLEAN, INCOMPLETE, Correctness, Judged
from .gate import GateReport
from .ladder import Problem, UsageError
from .pages import history
from .results import ResultSet


@dataclass(frozen=True)
class Question:
    """What is to be judged.

    base, head:  full hashes of commits in repository
    kernels:     where both have the ladder
    correctness: a file that the correctness matrix wrote at head; None: the matrix runs here where it is needed
    folder:      for the two result sets, the log of the matrix and the history
    """

    repository: Path
    base: str
    head: str
    kernels: str
    problems: tuple[Problem, ...]
    arch: str | None
    correctness: Path | None
    folder: Path


def judge(asked: Question, say: Say) -> GateReport:
    """Profile base and head, learn whether head is right where its code is new, and compare.

    Raises UsageError for what cannot be done as asked; evidence that cannot be trusted makes the report invalid.
    """
    base, head = _profiled(asked, say)
    verdicts, refused = _correctness(asked, changed(base, head), say)
    head = _with(head, verdicts)
    files = {side: asked.folder / f"gate-{side}.json" for side in ("base", "head")}
    for side, found in (("base", base), ("head", head)):
        results.write(found, files[side])
        history.keep(found, asked.folder)
    return gate.run(
        files["base"],
        files["head"],
        _policy(asked),
        git.messages(asked.repository, asked.base, asked.head),
        base_commit=asked.base,
        head_commit=asked.head,
        refused=refused,
    )


def pack(asked: Question, folder: Path, say: Say) -> list[packed.Pair]:
    """What `judge` needs, and bundles of the changed code, for a GPU machine to measure and judge (packed.py).

    Raises UsageError if the folder is there already, and as judge does.
    """
    if folder.exists():
        raise UsageError(f"{folder} is there already: name a new folder to pack the gate into")
    base, head = _profiled(asked, say)
    folder.mkdir(parents=True)
    new = changed(base, head)
    where = (asked.repository, asked.head, asked.kernels)
    on_gpu = checkout.pack_matrix(*where, new, folder / packed.MATRIX, say=say) if new else ()
    verdicts, refused = _correctness(asked, [name for name in new if name not in on_gpu], say)
    both = packed.changed(base, head)
    pairs = [packed.Pair(h.version, h.problem, f"{h.version}-{h.problem}") for _, h in both if h.problem is not None]
    for i, (side, commit) in enumerate(zip(packed.SIDES, (asked.base, asked.head), strict=True)):
        bundles = {folder / pair.folder / side: entries[i] for pair, entries in zip(pairs, both, strict=True)}
        if bundles:
            checkout.pack(asked.repository, commit, asked.kernels, bundles, arch=asked.arch, say=say)
    messages = tuple(git.messages(asked.repository, asked.base, asked.head))
    found = packed.Asked(
        packed.SCHEMA, asked.base, asked.head, _policy(asked), messages, packed.refusals(refused), tuple(pairs), on_gpu
    )
    packed.write(found, base, _with(head, verdicts), folder)
    return pairs


def _with(head: ResultSet, verdicts: dict[str, str]) -> ResultSet:
    entries = tuple(replace(entry, correctness=verdicts.get(entry.version)) for entry in head.entries)
    return replace(head, entries=entries)


def _policy(asked: Question) -> policy.Policy:
    """The base's: a change cannot loosen the gate that judges it."""
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "pyproject.toml"
        rules.write_text(git.file_at(asked.repository, asked.base, "pyproject.toml") or "")
        return policy.read(rules)


def _profiled(asked: Question, say: Say) -> tuple[ResultSet, ResultSet]:
    """Base's and head's result sets."""
    if asked.correctness is not None and not asked.correctness.is_file():
        raise UsageError(f"no file {asked.correctness}: one that the correctness session wrote at head is wanted")
    asked.folder.mkdir(parents=True, exist_ok=True)
    head, base = (
        checkout.result_set(
            asked.repository,
            commit,
            asked.kernels,
            asked.problems,
            arch=asked.arch,
            say=lambda text, side=side, commit=commit: say(f"{side} {commit[:12]}: {text}"),  # type: ignore[misc]
        )
        for side, commit in (("head", asked.head), ("base", asked.base))
    )
    return base, head


def changed(base: ResultSet, head: ResultSet) -> list[str]:
    """The versions that head builds, and not to the very code that base has."""
    before = {entry.key: entry.code_hash for entry in base.entries}
    return list(
        dict.fromkeys(
            entry.version
            for entry in head.entries
            if entry.build_error is None and (entry.code_hash is None or before.get(entry.key) != entry.code_hash)
        )
    )


def _correctness(asked: Question, wanted: list[str], say: Say) -> tuple[dict[str, str], list[Finding]]:
    """What is known of head's versions, and what stands against the file that says so."""
    if asked.correctness is not None:
        try:
            found = correctness.read(asked.correctness)
        except UsageError as error:
            return {}, [Finding("unreadable", detail=str(error))]
        refused = against(found, str(asked.correctness), asked.head, Path(asked.kernels).stem)
        return ({}, refused) if refused else (verdicts(found, wanted), [])
    if not wanted:
        return {}, []
    say(f"the correctness matrix of {', '.join(wanted)}")
    log = asked.folder / "gate-correctness.log"
    return verdicts(checkout.judge(asked.repository, asked.head, asked.kernels, wanted, log, say=say), wanted), []


def against(found: Correctness, name: str, commit: str, ladder: str) -> list[Finding]:
    """Why a correctness record is no evidence on a ladder at a commit."""
    refused = []
    if found.commit != commit:
        told = found.commit or "no commit of a repository"
        refused.append(Finding("other-commit", detail=f"{name} is of {told}, asked for is {commit}"))
    if found.dirty:
        refused.append(Finding("dirty", detail=f"{name}: uncommitted changes were judged, or it changed meanwhile"))
    if found.ladder != ladder:
        refused.append(Finding("other-ladder", detail=f"{name} is of {found.ladder}, asked for is {ladder}"))
    return refused


def verdicts(found: Correctness, wanted: Collection[str]) -> dict[str, str]:
    """Version → "clean" or what is wrong: of the wanted, which must be there, and whatever else is incorrect."""
    said = {judged.version: judged for judged in found.versions}
    if found.tier == "quick":  # wrong remains wrong, but one problem and one tool do not show that a kernel is right
        why = "the quick tier was judged, and the default tier is wanted"
        said = {
            version: replace(judged, verdict=INCOMPLETE, reason=why) if judged.clean else judged
            for version, judged in said.items()
        }
    missing = Judged("", 0, 0, INCOMPLETE, "the correctness matrix was not run on it")
    known = {version: said.get(version, missing) for version in wanted}
    known |= {version: judged for version, judged in said.items() if judged.verdict not in (CLEAN, INCOMPLETE)}
    return {version: str(judged) for version, judged in known.items()}
