"""The measured gate in two steps: packed where the compiler is, measured and judged where the GPU is.

FOLDER/gate.json                  what was asked: commits, policy, their messages, what stands against the evidence
FOLDER/base.json, head.json       the result sets of both commits, without samples
FOLDER/VERSION-PROBLEM/base,head  bundles of each version and problem whose code both sides build, and differs
FOLDER/matrix.tar.xz              the correctness matrix of those at head that the simulator cannot judge
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from . import compare, correctness, gate, records, results
from .compare import Key
from .compare.reasons import Finding
from .gate import GateReport
from .gpu import device, inputs, measure, runtime
from .gpu.measure import Options
from .ladder import Problem, UsageError
from .policy import Policy
from .results import Entry, ResultSet, Samples
from .trades import trades

SCHEMA = 1
ASKED, MATRIX = "gate.json", "matrix.tar.xz"
SIDES = ("base", "head")


@dataclass(frozen=True)
class Refused:
    """A finding against evidence that was given: its reason code, and what the code alone does not say."""

    code: str
    detail: str


@dataclass(frozen=True)
class Pair:
    """Base's and head's bundle of one version on one problem, in a folder of that name."""

    version: str
    problem: Problem
    folder: str


@dataclass(frozen=True)
class Asked:
    """What is to be judged. on_gpu: versions whose correctness at head the matrix on the GPU is to show."""

    schema: int
    base: str
    head: str
    policy: Policy
    messages: tuple[str, ...]
    refused: tuple[Refused, ...]
    pairs: tuple[Pair, ...]
    on_gpu: tuple[str, ...]


def changed(base: ResultSet, head: ResultSet) -> list[tuple[Entry, Entry]]:
    """Base's and head's entries of each version and problem that both build, and not to the same code."""
    before = {entry.key: entry for entry in base.entries}
    both = ((before.get(entry.key), entry) for entry in head.entries)
    return [(b, h) for b, h in both if b is not None and b.code_hash and h.code_hash and b.code_hash != h.code_hash]


def write(asked: Asked, base: ResultSet, head: ResultSet, folder: Path) -> None:
    """Write what is not a bundle."""
    records.write(asked, folder / ASKED)
    for side, found in zip(SIDES, (base, head), strict=True):
        results.write(found, folder / f"{side}.json")


def refusals(findings: Iterable[Finding]) -> tuple[Refused, ...]:
    """Findings as they are packed."""
    return tuple(Refused(finding.code, finding.detail) for finding in findings)


def run(
    folder: Path,
    *,
    options: Options | None = None,
    start: measure.Start = measure.Process,
    say: Callable[[str], None] = print,
) -> GateReport:
    """Measure what a packed gate asks for, on the GPU here, and judge it. measured-base.json and -head.json keep it.

    Pairs of processes are added while more could change a verdict, up to the policy's max_processes. Raises
    UsageError if the folder is none of pack's, a bundle is damaged, or no GPU here runs them.
    """
    options = options or Options()
    asked = records.read(Asked, folder / ASKED, SCHEMA)
    sets = {side: results.read(folder / f"{side}.json") for side in SIDES}
    runtime.require(sets["head"].arch, options.ordinal)
    if asked.on_gpu:
        sets["head"] = _judged(sets["head"], asked.on_gpu, folder / MATRIX, options.ordinal, say)
    store = inputs.default_store()
    try:
        measured = [_Measured(pair, folder, store, options, start, say) for pair in asked.pairs]
        while wanted := _wanted(asked, sets, measured):
            for each in measured:
                if count := wanted.get(each.key, 0):
                    each.add(count, measured)
            sets = _with_samples(sets, measured)
    finally:
        shutil.rmtree(store, ignore_errors=True)
    files = {side: folder / f"measured-{side}.json" for side in SIDES}
    for side, found in sets.items():
        results.write(found, files[side])
    return gate.run(
        files["base"],
        files["head"],
        asked.policy,
        asked.messages,
        base_commit=asked.base,
        head_commit=asked.head,
        refused=[Finding(refused.code, detail=refused.detail) for refused in asked.refused],
    )


class _Measured:
    """A pair of bundles and its samples so far."""

    def __init__(
        self, pair: Pair, folder: Path, store: Path, options: Options, start: measure.Start, say: Callable[[str], None]
    ) -> None:
        base, head = (folder / pair.folder / side for side in SIDES)
        self.key: Key = (pair.version, pair.problem)
        self.comparison = measure.Comparison(base, head, store, options, start=start, say=say)
        self._say = say

    def add(self, pairs: int, others: list[_Measured]) -> None:
        """Measure more pairs; before the first, what the same code shows against itself on that problem."""
        if self.comparison.null_floor is None:
            known = [o.comparison for o in others if o.key[1] == self.key[1] and o.comparison.null_floor is not None]
            if known:
                self.comparison.null_of(known[0])
            else:
                self._say(f"{self.name}: {measure.NULL_PAIRS} pairs of base against itself")
                self.comparison.null(measure.NULL_PAIRS)
        self._say(f"{self.name}: {pairs} pairs of base and head")
        self.comparison.more(pairs)

    @property
    def name(self) -> str:
        return f"{self.key[0]} on {self.key[1]}"

    @property
    def machine(self) -> str | None:
        """The GPU and its driver, as result sets name a machine."""
        gpu = self.comparison.gpu
        return None if gpu is None else f"{gpu.name} {gpu.uuid}, driver {gpu.driver}"


def _wanted(asked: Asked, sets: dict[str, ResultSet], measured: list[_Measured]) -> dict[Key, int]:
    """How many pairs each measured row still wants; nothing once a process has failed, for that stays undecided."""
    accepted, _ = trades(asked.messages)
    found = compare.compare(sets["base"], sets["head"], asked.policy, accepted)
    more = compare.more_pairs(found)
    return {each.key: more[each.key] for each in measured if each.key in more and each.comparison.complete}


def _with_samples(sets: dict[str, ResultSet], measured: list[_Measured]) -> dict[str, ResultSet]:
    samples: dict[str, dict[Key, Samples]] = {side: {} for side in SIDES}
    for each in measured:
        for side, taken in zip(SIDES, each.comparison.samples(), strict=True):
            if taken.processes:
                samples[side][each.key] = taken
    machines = {each.machine for each in measured if each.machine}
    machine = machines.pop() if len(machines) == 1 else None  # two GPUs, or none: the gate says so
    return {
        side: replace(
            found,
            origin=replace(found.origin, machine=machine),
            entries=tuple(replace(e, samples=samples[side].get(e.key, e.samples)) for e in found.entries),
        )
        for side, found in sets.items()
    }


def _judged(
    head: ResultSet, versions: tuple[str, ...], matrix: Path, ordinal: int, say: Callable[[str], None]
) -> ResultSet:
    """Head with what the matrix on this GPU says of some versions; torch, if it is installed, is a second reference."""
    say(f"the correctness matrix of {', '.join(versions)} on the GPU")
    report = device.run(matrix, ordinal=ordinal, torch=importlib.util.find_spec("torch") is not None, say=say)
    said = {}
    for version in versions:
        mine = [result for result in report.results if result.version == version]
        wrong = [f for result in mine for f in result.findings if f.verdict != correctness.CLEAN]
        if wrong:
            said[version] = f"{wrong[0].verdict} on the GPU: {wrong[0].text}"
        elif mine and all(result.clean for result in mine):
            said[version] = correctness.CLEAN
        else:
            said[version] = f"{correctness.INCOMPLETE}: a bundle was not judged on any input"
    if unknown := set(versions) - {entry.version for entry in head.entries}:
        raise UsageError(f"{matrix} is of {', '.join(sorted(unknown))}, which head does not have")
    entries = tuple(replace(e, correctness=said.get(e.version, e.correctness)) for e in head.entries)
    return replace(head, entries=entries)
