"""A campaign of real processes: each measured every variant once, in a random order, on one GPU.

    {"schema": 1, "gpu": {…}, "protocol": 1, "pools": [
        {"problem": "4096x4096x4096", "variant": "base" | "null" | "slow1" | …, "planted": 0.01,
         "processes": [{"seconds": […], "clock_hz": […], "rank": 0, "marks": []}, …]}, …]}

base and null are the same code; a process has the same rank in all pools. gate_pool.py writes it, and needs neither
numpy nor scipy for what is here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from .. import records
from ..compare.measured import sound
from ..gpu import machine
from ..ladder import UsageError
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
    """A campaign. gpu: what it was measured on; protocol: version of the way it was measured."""

    schema: int
    gpu: machine.Gpu | None
    protocol: int
    pools: tuple[Pool, ...]


@dataclass(frozen=True)
class Lane:
    """The clean processes of one problem, in the order they ran; each process is there under every variant.

    clocked: every sample has its clock, so that cycles decide; if not, no process has one here, and seconds do for all
    """

    problem: str
    planted: dict[str, float]
    processes: dict[str, tuple[Process, ...]]
    disturbed: int
    clocked: bool

    def __len__(self) -> int:
        return len(self.processes[BASE])


def read(path: Path) -> Pools:
    """Read a campaign. Raises UsageError, naming what is wrong."""
    return records.read(Pools, path, SCHEMA)


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
    clocked = all(process.clock_hz for pool in pools.values() for process in pool.processes)
    processes = {variant: tuple(_typical(of[rank], clocked) for rank in clean) for variant, of in by_rank.items()}
    planted = {variant: pool.planted for variant, pool in pools.items()}
    return Lane(problem, planted, processes, len(by_rank[BASE]) - len(clean), clocked)


def _typical(process: Process, clocked: bool) -> Process:
    """The process with one sample that has its median time and cycles: all that is judged of it, and faster."""
    seconds = process.median_seconds
    if not clocked:
        return replace(process, seconds=(seconds,), clock_hz=())
    return replace(process, seconds=(seconds,), clock_hz=(process.median_cycles / seconds,))
