"""A result set: what is known of every version and problem at one commit. JSON with a schema version, read strictly.

compare.py judges two of them. Nothing here needs tvm, CUDA or a GPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from . import records
from .ladder import Problem, UsageError

if TYPE_CHECKING:
    from .profile import Profile, ProfileSet

SCHEMA = 2
SECONDS = "s"
CLEAN = "clean"


class ResultError(UsageError):
    """A file that is there and holds no result set that can be judged: to the gate it is invalid, not a usage error."""


@dataclass(frozen=True)
class Origin:
    """Where a result set comes from.

    commit:    full hash of the commit that was built
    dirty:     the checkout had changes that are not in the commit
    machine:   which machine the samples were measured on; None where nothing was measured
    toolchain: distribution → version of all that decides what is built
    """

    commit: str
    dirty: bool
    machine: str | None
    toolchain: dict[str, str]


@dataclass(frozen=True)
class Figures:
    """Static figures of a compiled version, named with their units; `profile.SOURCES` says where each comes from.

    smem_bytes is static and dynamic shared memory of a CTA. None: there is no such loop, or it cannot be told.
    """

    registers_per_thread: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    smem_bytes: int
    tmem_columns: int
    threads: int
    ctas_per_sm: int
    ctas_limited_by: tuple[str, ...]
    instructions: int
    main_loop_instructions: int | None
    main_loop_k_tiles: int | None
    flops_per_load_byte: float | None
    bytes_in_flight_per_sm: int

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads, per thread."""
        return self.spill_store_bytes + self.spill_load_bytes

    @property
    def main_loop_instructions_per_k_tile(self) -> float | None:
        """What can be compared when ptxas unrolls otherwise."""
        if self.main_loop_instructions is None or not self.main_loop_k_tiles:
            return None
        return self.main_loop_instructions / self.main_loop_k_tiles


@dataclass(frozen=True)
class Process:
    """The timed launches of one version on one problem in one process.

    seconds:  time of each, from a cold L2
    clock_hz: SM clock while each ran; empty: not known
    rank:     place of this process in the campaign of base and head together, from 0: shows in what order they ran
    marks:    what spoils them (throttled, another process, …); empty: clean
    """

    seconds: tuple[float, ...]
    clock_hz: tuple[float, ...]
    rank: int
    marks: tuple[str, ...]

    @property
    def median_seconds(self) -> float:
        """What a process counts by: rounds inside one are not independent."""
        return median(self.seconds)

    @property
    def median_cycles(self) -> float:
        """The same in SM clocks that pass in a launch, each time by its own clock; only where clocks are known."""
        return median(seconds * clock for seconds, clock in zip(self.seconds, self.clock_hz, strict=True))


@dataclass(frozen=True)
class Samples:
    """Measured times, by process. Process i of base and process i of head are a pair.

    complete:   all processes that were planned ran to their end
    protocol:   version of the way they were measured
    null_floor: largest slowdown, as a fraction, that the same code showed against itself on that machine by that
                protocol; None: not measured
    """

    unit: str
    complete: bool
    protocol: int
    null_floor: float | None
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Entry:
    """One version on one problem: either build_error, or code_hash, figures and what else is known.

    problem:     None only with build_error: the version builds for no problem
    code_hash:   of the machine code and the launch; equal hashes mean that nothing is left to time
    correctness: "clean" or what is wrong; None: not checked
    samples:     None: not measured
    """

    version: str
    problem: Problem | None
    sm_count: int | None
    code_hash: str | None
    figures: Figures | None
    correctness: str | None
    build_error: str | None
    samples: Samples | None

    @property
    def key(self) -> tuple[str, Problem | None]:
        """Version and problem."""
        return self.version, self.problem


@dataclass(frozen=True)
class ResultSet:
    """All entries of a ladder at one commit, for one architecture."""

    schema: int
    ladder: str
    arch: str
    origin: Origin
    entries: tuple[Entry, ...]

    def versions(self) -> frozenset[str]:
        """Names of the versions that have an entry."""
        return frozenset(entry.version for entry in self.entries)


def read(path: Path) -> ResultSet:
    """Read a result set. Raises UsageError if there is no such file, ResultError, naming the key, for what is in it."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{path} is not JSON: {error}") from None
    return from_plain(data, str(path))


def from_plain(data: Any, where: str) -> ResultSet:
    """A result set from plain JSON data; where names the data in errors. Raises ResultError."""
    found = data.get("schema") if isinstance(data, dict) else None
    if isinstance(found, bool) or found != SCHEMA:
        raise ResultError(f"{where}, schema: {found!r}, and this tirx-ladder reads {SCHEMA}: make the file again")
    try:
        result = records.from_plain(ResultSet, data, where)
    except UsageError as error:
        text = str(error)
        raise ResultError(text if text.startswith(where) else f"{where}: {text}") from None
    _check(result, where)
    return result


def write(result: ResultSet, path: Path) -> None:
    """Write a result set as JSON. Raises UsageError if that cannot be done."""
    records.write(result, path)


def from_profiles(profiles: ProfileSet, origin: Origin, correctness: Mapping[str, str] | None = None) -> ResultSet:
    """The result set of a ladder's profiles. correctness: version → "clean" or what is wrong, where it was checked."""
    said = correctness or {}
    built = [
        Entry(p.version, p.problem, p.sm_count, p.code_hash, _figures(p), said.get(p.version), None, None)
        for p in profiles.profiles
    ]
    failed = [
        Entry(version, None, None, None, None, None, why or "no reason is given", None)
        for version, why in profiles.failed.items()
    ]
    return ResultSet(SCHEMA, profiles.ladder, profiles.arch, origin, (*built, *failed))


def together(problems: Sequence[Problem], sets: Sequence[ResultSet]) -> ResultSet:
    """One result set of a commit's, one for each problem that was asked for.

    A version that builds for some problems has an entry for each that it does not; one that builds for none has one.
    """
    entries: dict[tuple[str, Problem | None], Entry] = {}
    for problem, found in zip(problems, sets, strict=True):
        for entry in found.entries:
            named = replace(entry, problem=problem) if entry.problem is None else entry
            entries.setdefault(named.key, named)
    built = {entry.version for entry in entries.values() if entry.build_error is None}
    kept = [entry for entry in entries.values() if entry.version in built]
    broken = {e.version: replace(e, problem=None) for e in reversed(entries.values()) if e.version not in built}
    return replace(sets[0], entries=(*kept, *reversed(broken.values())))


def _figures(p: Profile) -> Figures:
    return Figures(
        registers_per_thread=p.registers,
        spill_store_bytes=p.spill_store_bytes,
        spill_load_bytes=p.spill_load_bytes,
        stack_bytes=p.stack_bytes,
        smem_bytes=p.static_smem_bytes + p.dynamic_smem_bytes,
        tmem_columns=p.tmem_columns,
        threads=p.threads,
        ctas_per_sm=p.ctas_per_sm,
        ctas_limited_by=p.ctas_limited_by,
        instructions=p.instructions,
        main_loop_instructions=p.main_loop.instructions if p.main_loop else None,
        main_loop_k_tiles=p.main_loop.k_tiles if p.main_loop else None,
        flops_per_load_byte=p.intensity,
        bytes_in_flight_per_sm=p.bytes_in_flight_per_sm,
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Python takes the last of two equal keys, and so would hide the first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _integer(text: str) -> float:
    """An integer of JSON; one that no figure can be is left to the check for finite numbers and integers."""
    return int(text) if len(text) < 19 else float(text)


def _check(result: ResultSet, where: str) -> None:
    """Refuse, by name, what has the right type and cannot be."""
    if not re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", result.origin.commit):
        raise ResultError(f"{where}, origin, commit: {result.origin.commit!r}, a full commit hash is wanted")
    if not result.origin.toolchain:
        raise ResultError(f"{where}, origin, toolchain: it is empty, the versions that decided the build are wanted")
    seen = set()
    for i, entry in enumerate(result.entries):
        at = f"{where}, entries, number {i} ({entry.version} on {entry.problem or 'any problem'})"
        if entry.key in seen:
            raise ResultError(f"{at}: it is there twice")
        seen.add(entry.key)
        if entry.problem is None and [other.version for other in result.entries].count(entry.version) > 1:
            raise ResultError(f"{at}: {entry.version} builds for no problem, and yet has another entry")
        if entry.build_error is None:
            _check_built(entry, at)
        elif entry.code_hash is not None or entry.figures is not None or entry.samples is not None:
            raise ResultError(f"{at}, build_error: what does not build has no code_hash, figures or samples")


def _check_built(entry: Entry, at: str) -> None:
    for name in ("problem", "sm_count", "code_hash", "figures"):
        if getattr(entry, name) is None:
            raise ResultError(f"{at}, {name}: null, which is for an entry with a build_error")
    # two empty hashes would be "the same code"
    if entry.code_hash is None or not re.fullmatch(r"[0-9a-f]{64}", entry.code_hash):
        raise ResultError(f"{at}, code_hash: {entry.code_hash!r}, a SHA-256 in 64 hexadecimal digits is wanted")
    for field in fields(Figures):
        value = getattr(entry.figures, field.name)
        if isinstance(value, (int, float)) and value < 0:
            raise ResultError(f"{at}, figures, {field.name}: {value}, 0 or more is wanted")
    if entry.samples is not None and entry.samples.unit != SECONDS:
        raise ResultError(f"{at}, samples, unit: {entry.samples.unit!r}, {SECONDS!r} (seconds) is wanted")
