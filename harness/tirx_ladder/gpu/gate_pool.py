"""Pools of measured processes, for the proof of the gate: how often it is wrong can be drawn from them again and again.

`python -m tirx_ladder.gpu.gate_pool BUNDLES OUT`: each of many fresh processes times every variant of every problem
once, in a random order: the kernel itself (base), a copy of its bundle byte for byte (null), and the kernel with spins
that make it slower by known fractions. It ends at a time limit, with what it has, and may be called again to go on.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import bundle, records, results
from ..false_alarms.pools import SCHEMA, Pool, Pools
from ..ladder import UsageError
from . import inputs, machine, measure, plant, runtime
from .jobs import Answer, Task
from .measure import MeasureError, Options

SLOWDOWNS = (0.005, 0.01, 0.02, 0.05)
SPARE = 1.25  # processes that may be started for each that is wanted, since some may be marked
CALIBRATE = 3  # processes that measure base alone, to know how many cycles a slowdown is


@dataclass(frozen=True)
class Record:
    """How it was measured, kept beside it; with the pools it is what a stopped campaign goes on from.

    wanted:      clean processes in each pool; complete: they are there
    ran:         processes that were started
    base_cycles: what base takes on each problem, by which slowdowns were planted
    states:      of the GPU, of all processes
    """

    schema: int
    wanted: int
    complete: bool
    ran: int
    samples: int
    base_cycles: dict[str, float]
    versions: dict[str, str]
    states: tuple[machine.State, ...]
    failures: tuple[str, ...]


@dataclass(frozen=True)
class Variant:
    """A bundle to be timed beside others. pool is the key of the pool that its processes go to."""

    problem: str
    name: str
    planted: float
    folder: Path

    @property
    def pool(self) -> str:
        return f"{self.problem}/{self.name}"


def pairs_in(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Base and planted bundle of each problem in a folder that holds PROBLEM/base and PROBLEM/planted.

    Raises UsageError if a bundle is damaged, or a pair is for two problems.
    """
    found = {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else ():
        base, planted = place / "base", place / "planted"
        manifests = [bundle.verify(base), bundle.verify(planted)]
        if len({(m.problem, m.arch, m.version) for m in manifests}) != 1:
            raise UsageError(f"{place}: base and planted are not one version on one problem")
        found[str(manifests[0].problem)] = base, planted
    if not found:
        raise UsageError(f"{folder} holds no PROBLEM/base and PROBLEM/planted bundles")
    return found


def variants(
    pairs: dict[str, tuple[Path, Path]], cycles: dict[str, float], slowdowns: Sequence[float], work: Path
) -> list[Variant]:
    """All variants of all problems, their bundles written below work."""
    made = []
    for problem, (base, planted) in pairs.items():
        made.append(Variant(problem, "base", 0.0, base))
        copy = work / problem / "null"
        shutil.copytree(base, copy)
        made.append(Variant(problem, "null", 0.0, copy))
        for slowdown in slowdowns:
            folder = work / problem / f"slow{100 * slowdown:g}"
            plant.set_cycles(planted, folder, round(slowdown * cycles[problem]))
            made.append(Variant(problem, folder.name, slowdown, folder))
    return made


def run(
    folder: Path,
    out: Path,
    *,
    wanted: int = 120,
    slowdowns: Sequence[float] = SLOWDOWNS,
    limit_s: float = 540.0,
    options: Options | None = None,
    start: measure.Start = measure.Process,
    say: Callable[[str], None] = print,
) -> tuple[Pools, Record]:
    """Measure until every pool has the processes wanted or the time is over; goes on from what OUT holds.

    Raises UsageError if nothing can be measured here.
    """
    began = time.monotonic()
    options = options or Options()
    pairs = pairs_in(folder)
    runtime.require(bundle.load_manifest(next(iter(pairs.values()))[0]).arch, options.ordinal)
    state = _resume(out, options)
    store = inputs.default_store()
    work = store / "bundles"
    try:
        if not state.base_cycles:
            state.base_cycles = _calibrate(pairs, store, options, start, say)
        chosen = variants(pairs, state.base_cycles, slowdowns, work)
        if set(state.pools) - {variant.pool for variant in chosen}:
            raise UsageError(f"{out} holds pools of other variants: name another file")
        jobs = _jobs(chosen, store, options, state.ran, int(wanted * SPARE) - state.ran)
        with closing(measure.in_turn(jobs, options.limit_s, start=start, say=say)) as answers:
            while state.clean() < wanted and (done := next(answers, None)) is not None:
                state.add(done[1], options)
                took = time.monotonic() - began
                say(f"[{state.clean()}/{wanted}] {took:.0f} s; {_line(state, chosen)}")
                if state.ran % 20 == 0:
                    state.write(out, chosen, wanted, options)
                if took > limit_s:
                    say(f"stopped at the limit of {limit_s:.0f} s: call again to go on")
                    break
    finally:
        shutil.rmtree(store, ignore_errors=True)
    return state.write(out, chosen, wanted, options)


class _State:
    """What was measured so far."""

    def __init__(self) -> None:
        self.ran = 0
        self.gpu: machine.Gpu | None = None
        self.base_cycles: dict[str, float] = {}
        self.versions: dict[str, str] = {}
        self.states: list[machine.State] = []
        self.failures: list[str] = []
        self.pools: dict[str, list[results.Process]] = {}

    def add(self, answer: Answer | MeasureError, options: Options) -> None:
        """Note what a process answered."""
        rank, self.ran = self.ran, self.ran + 1
        if isinstance(answer, MeasureError):
            self.failures.append(f"process {rank}: {answer}")
            return
        if self.gpu is not None and self.gpu.uuid != answer.gpu.uuid:
            raise UsageError(f"this is {answer.gpu.uuid}, and the file holds processes of {self.gpu.uuid}")
        self.gpu, self.versions = answer.gpu, answer.versions
        self.states.extend(answer.states)
        failed = [f"process {rank}, {timed.label}: {timed.error}" for timed in answer.timed if timed.error]
        self.failures.extend(failed)
        for timed in () if failed else answer.timed:  # every process that counts is in all pools
            self.pools.setdefault(timed.label, []).append(measure.process_of(answer, timed, rank, options))

    def clean(self) -> int:
        """Processes that have a mark in no pool."""
        all_of = [process for several in self.pools.values() for process in several]
        return len({process.rank for process in all_of} - {process.rank for process in all_of if process.marks})

    def write(self, out: Path, chosen: Sequence[Variant], wanted: int, options: Options) -> tuple[Pools, Record]:
        """Write both files."""
        pools = tuple(Pool(v.problem, v.name, v.planted, tuple(self.pools.get(v.pool, ()))) for v in chosen)
        found = Pools(SCHEMA, self.gpu, measure.PROTOCOL, pools)
        record = Record(
            SCHEMA,
            wanted,
            self.clean() >= wanted,
            self.ran,
            options.samples,
            self.base_cycles,
            self.versions,
            tuple(self.states),
            tuple(self.failures),
        )
        records.write(found, out)
        records.write(record, record_file(out))
        return found, record


def record_file(out: Path) -> Path:
    """Where the record of a campaign lies: beside its pools."""
    return out.with_suffix(".record.json")


def _resume(out: Path, options: Options) -> _State:
    state = _State()
    if not out.exists():
        return state
    found, record = records.read(Pools, out, SCHEMA), records.read(Record, record_file(out), SCHEMA)
    if (found.protocol, record.samples) != (measure.PROTOCOL, options.samples):
        raise UsageError(f"{out} was measured by another protocol or with other samples: name another file")
    state.gpu, state.base_cycles, state.versions = found.gpu, record.base_cycles, record.versions
    state.states, state.failures, state.ran = list(record.states), list(record.failures), record.ran
    state.pools = {f"{pool.problem}/{pool.variant}": list(pool.processes) for pool in found.pools}
    return state


def _calibrate(
    pairs: dict[str, tuple[Path, Path]], store: Path, options: Options, start: measure.Start, say: Callable[[str], None]
) -> dict[str, float]:
    """Cycles that base takes, for each problem: the median of a few processes."""
    tasks = [Task(problem, str(base), witness=False) for problem, (base, _) in pairs.items()]
    jobs = [measure.job(tasks, store, options) for _ in range(CALIBRATE)]
    cycles: dict[str, list[float]] = {problem: [] for problem in pairs}
    for _, answer in measure.in_turn(jobs, options.limit_s, start=start, say=say):
        if isinstance(answer, MeasureError):
            continue
        for timed in answer.timed:
            if timed.error:
                say(f"{timed.label}: {timed.error}")
            if timed.clock_hz:
                ran = [s * hz for s, hz in zip(timed.seconds, timed.clock_hz, strict=True)]
                cycles[timed.label].append(statistics.median(ran))
            elif timed.seconds:  # no clock: what NVML read while it ran
                clocks = [state.sm_mhz for state in answer.states if state.when != "before" and state.sm_mhz]
                if clocks:
                    cycles[timed.label].append(statistics.median(timed.seconds) * 1e6 * statistics.median(clocks))
    if missing := [problem for problem, found in cycles.items() if not found]:
        raise UsageError(f"base could not be timed on {', '.join(missing)}: no slowdown can be planted")
    found = {problem: statistics.median(several) for problem, several in cycles.items()}
    say("base takes " + ", ".join(f"{count:.0f} cycles on {problem}" for problem, count in found.items()))
    return found


def _jobs(chosen: Sequence[Variant], store: Path, options: Options, first: int, count: int) -> Iterator[Any]:
    for i in range(first, first + count):
        shuffled = list(chosen)
        random.Random(i).shuffle(shuffled)  # noqa: S311 (an order, no secret)
        yield measure.job([Task(v.pool, str(v.folder), witness=False) for v in shuffled], store, options)


def _line(state: _State, chosen: Sequence[Variant]) -> str:
    """The last process's medians in ms, and how many processes have marks."""
    cells = []
    for variant in chosen:
        processes = state.pools.get(variant.pool)
        if processes and processes[-1].seconds:
            cells.append(f"{variant.name} {1e3 * processes[-1].median_seconds:.4f}")
    marked = sum(bool(process.marks) for several in state.pools.values() for process in several)
    return " ".join(cells) + (f"; {marked} sets of samples marked" if marked else "")


def summary(found: Pools) -> list[str]:
    """A line for each pool: processes, median of medians, their spread, and how much slower than base that is."""
    lines = ["problem          variant   planted  processes  marked     median ms   sd      against base"]
    base: dict[str, float] = {}
    for pool in found.pools:
        medians = [process.median_seconds for process in pool.processes if process.seconds]
        if not medians:
            lines.append(f"{pool.problem:<16} {pool.variant:<9} nothing was measured")
            continue
        middle = statistics.median(medians)
        base.setdefault(pool.problem, middle)
        spread = statistics.stdev(medians) / middle if len(medians) > 1 else 0.0
        marked = sum(bool(process.marks) for process in pool.processes)
        lines.append(
            f"{pool.problem:<16} {pool.variant:<9} {pool.planted:>7.1%}  {len(medians):>9}  {marked:>6}  "
            f"{1e3 * middle:>12.5f}  {spread:>6.2%}  {middle / base[pool.problem] - 1:>+7.2%}"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit codes as tirx-ladder's: 0 all there, 1 not all, 2 usage."""
    parser = argparse.ArgumentParser(prog="python -m tirx_ladder.gpu.gate_pool", description=__doc__)
    parser.add_argument("bundles", type=Path, help="folder with PROBLEM/base and PROBLEM/planted")
    parser.add_argument("out", type=Path, help="JSON file, gone on with if it is there")
    parser.add_argument("--processes", type=int, default=120, help="of each pool (%(default)s)")
    parser.add_argument("--limit", type=float, default=540.0, metavar="SECONDS", help="(%(default)s)")
    parser.add_argument("--samples", type=int, default=measure.SAMPLES, help="of a variant in a process (%(default)s)")
    parser.add_argument("--timer", choices=("nvbench", "events"), default="nvbench")
    parser.add_argument("--slowdowns", type=json.loads, default=list(SLOWDOWNS), help="JSON list (%(default)s)")
    chosen = parser.parse_args(arguments)
    options = Options(samples=chosen.samples, timer=chosen.timer)
    try:
        found, record = run(
            chosen.bundles,
            chosen.out,
            wanted=chosen.processes,
            slowdowns=chosen.slowdowns,
            limit_s=chosen.limit,
            options=options,
        )
    except UsageError as error:
        print(f"tirx-ladder: {error}", file=sys.stderr)
        return 2
    print("\n".join(summary(found)))
    for failure in record.failures[:10]:
        print(failure)
    return 0 if record.complete else 1


if __name__ == "__main__":
    sys.exit(main())
