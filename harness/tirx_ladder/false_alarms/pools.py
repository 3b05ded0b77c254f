"""A campaign of real processes: each measured every variant once, in a random order, on one GPU.

    {"schema": 1, "gpu": {…}, "protocol": 1, "pools": [
        {"problem": "4096x4096x4096", "variant": "base" | "null" | "slow1" | …, "planted": 0.01,
         "processes": [{"seconds": […], "clock_hz": […], "rank": 0, "marks": []}, …]}, …]}

base and null are the same code; a process has the same rank in all pools.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from .. import records
from ..ladder import UsageError
from ..measured import sound
from ..results import Process

SCHEMA = 1
BASE, NULL = "base", "null"
FEWEST = 120
"""Processes that a campaign must have, by the issue that asked for it."""


@dataclass(frozen=True)
class Pool:
    """One variant on one problem. planted: the slowdown that was built into it, a fraction; 0 for base and null."""

    problem: str
    variant: str
    planted: float
    processes: tuple[Process, ...]


@dataclass(frozen=True)
class Pools:
    """A campaign. gpu: what is known of the machine; protocol: version of the way it was measured."""

    schema: int
    gpu: dict[str, str]
    protocol: int
    pools: tuple[Pool, ...]


@dataclass(frozen=True)
class Lane:
    """The clean processes of one problem, in the order they ran; each process is there under every variant."""

    problem: str
    planted: dict[str, float]
    processes: dict[str, tuple[Process, ...]]
    disturbed: int

    def __len__(self) -> int:
        return len(self.processes[BASE])


def read(path: Path) -> Pools:
    """Read a campaign. Raises UsageError, naming what is wrong."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or not isinstance(data.get("gpu"), dict):
        raise UsageError(f"{path}: a campaign of schema {SCHEMA} with a table gpu is wanted: measure it again")
    said = {str(name): value if isinstance(value, str) else json.dumps(value) for name, value in data["gpu"].items()}
    return records.from_plain(Pools, {**data, "gpu": said}, str(path))


def lanes(found: Pools) -> tuple[Lane, ...]:
    """The problems of a campaign. Raises UsageError for a variant or a process that is missing, or for too few."""
    by_problem: dict[str, dict[str, Pool]] = {}
    for pool in found.pools:
        if by_problem.setdefault(pool.problem, {}).setdefault(pool.variant, pool) is not pool:
            raise UsageError(f"{pool.problem}, {pool.variant}: it is there twice")
    if not by_problem:
        raise UsageError("the campaign has no pool: measure base, null and slowed variants")
    return tuple(_lane(problem, pools) for problem, pools in by_problem.items())


def _lane(problem: str, pools: dict[str, Pool]) -> Lane:
    for variant in (BASE, NULL):
        if variant not in pools:
            raise UsageError(f"{problem}: variant {variant!r} is missing; there are {', '.join(pools)}")
    by_rank = {variant: {process.rank: process for process in pool.processes} for variant, pool in pools.items()}
    for variant, pool in pools.items():
        if len(by_rank[variant]) < len(pool.processes) or by_rank[variant].keys() != by_rank[BASE].keys():
            raise UsageError(f"{problem}, {variant}: each process of the campaign once is wanted, as of {BASE}")
        if not all(map(sound, pool.processes)):
            wanted = "positive, finite times, and a clock for each or none"
            raise UsageError(f"{problem}, {variant}: {wanted} are wanted of every process")
    clean = [rank for rank in sorted(by_rank[BASE]) if not any(of[rank].marks for of in by_rank.values())]
    if len(clean) < FEWEST:
        raise UsageError(f"{problem}: {len(clean)} clean processes, {FEWEST} or more are wanted: measure more")
    processes = {variant: tuple(_typical(of[rank]) for rank in clean) for variant, of in by_rank.items()}
    planted = {variant: pool.planted for variant, pool in pools.items()}
    return Lane(problem, planted, processes, len(by_rank[BASE]) - len(clean))


def _typical(process: Process) -> Process:
    """The process with one sample that has its median time and cycles: all that is judged of it, and faster."""
    seconds = median(process.seconds)
    if not process.clock_hz:
        return replace(process, seconds=(seconds,))
    cycles = median(s * c for s, c in zip(process.seconds, process.clock_hz, strict=True))
    return replace(process, seconds=(seconds,), clock_hz=(cycles / seconds,))
