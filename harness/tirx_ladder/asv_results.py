"""Measured times → asv's result files, for runs that were made elsewhere; and the facets of this machine.

`python -m tirx_ladder.asv_results FILE...` takes result sets and bench.json files; without a file it tells asv which
GPU and driver this machine has. Both go by the asv.conf.json of the current folder. Needs asv.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from . import records, results
from .gpu import bench, machine
from .ladder import Problem, UsageError

SAMPLES = 7
"""Processes that a time must rest on: with fewer on both sides asv's test can never find a difference."""


@dataclass(frozen=True)
class Run:
    """Times of a ladder at a commit. times: seconds of each clean process; left_out: what has too few, and why."""

    commit: str
    ladder: str
    facets: dict[str, str]
    times: dict[tuple[str, Problem], tuple[float, ...]]
    left_out: tuple[str, ...]


def read(path: Path) -> Run:
    """A result set, or bench.json with the bench-samples.json beside it. Raises UsageError for anything else."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    return _of_bench(path) if isinstance(data, dict) and "rows" in data else _of_result_set(path)


def _of_result_set(path: Path) -> Run:
    found = results.read(path)
    origin = found.origin
    if origin.dirty or origin.machine is None:
        why = "uncommitted changes were measured" if origin.dirty else "it says of no machine that it was measured on"
        raise UsageError(f"{path}: {why}: asv keeps what a commit did on a machine")
    taken = {
        (entry.version, entry.problem): entry.samples.processes if entry.samples.complete else ()
        for entry in found.entries
        if entry.samples is not None and entry.problem is not None
    }
    facets = {"machine": origin.machine, **origin.toolchain}
    return _run(path, origin.commit, found.ladder, facets, taken)


def _of_bench(path: Path) -> Run:
    report = records.read(bench.Report, path, bench.SCHEMA)
    samples = records.read(bench.Evidence, path.with_name("bench-samples.json"), bench.SCHEMA)
    if report.dirty or report.commit is None:
        raise UsageError(f"{path}: not of a commit alone: measure bundles that were built from a clean checkout")
    if not report.ladder:
        raise UsageError(f"{path}: it does not say of which ladder it is: measure a ladder or a matrix of bundles")
    toolchains = {tuple(sorted(found.items())) for found in samples.toolchains.values()}
    if len(toolchains) != 1:
        raise UsageError(f"{path}: {len(toolchains)} toolchains in one run, one is wanted")
    rows = {(row.version, row.problem) for row in report.rows}
    gpu = report.gpu
    facets = {"machine": f"{gpu.name} {gpu.uuid}", "gpu": gpu.name, "driver": gpu.driver, **dict(toolchains.pop())}
    taken = {
        (series.version, series.problem): series.processes
        for series in samples.series
        if (series.version, series.problem) in rows  # cuBLAS is not
    }
    return _run(path, report.commit, report.ladder, facets, taken)


def _run(
    path: Path,
    commit: str,
    ladder: str,
    facets: dict[str, str],
    taken: dict[tuple[str, Problem], tuple[results.Process, ...]],
) -> Run:
    times, left_out = {}, []
    for (version, problem), processes in taken.items():
        clean = tuple(process.median_seconds for process in processes if process.seconds and not process.marks)
        if len(clean) >= SAMPLES:
            times[version, problem] = clean
        else:
            marks = dict.fromkeys(mark for process in processes for mark in process.marks)
            why = f"{len(clean)} clean processes, {SAMPLES} are wanted"
            left_out.append(f"{path}: {version} on {problem}: {'; '.join([why, *marks])}")
    return Run(commit, ladder, facets, times, tuple(left_out))


def add(run: Run) -> Path:
    """Write times and TFLOPS of a run as an asv result file, by the asv.conf.json of the current folder; returns it.

    Each process is a sample, since launches of one process are no replicates. A version that was not measured has no
    value (NaN). Raises UsageError if nothing was measured, or suite or repository do not know ladder or commit.
    """
    from asv import config, repo, results, util
    from asv.benchmarks import Benchmarks
    from asv.machine import Machine
    from asv.runner import BenchmarkResult

    if not run.times:
        raise UsageError(f"{run.commit[:12]}: nothing was measured in {SAMPLES} clean processes")
    try:
        conf = config.Config.load()
        date = repo.get_repo(conf).get_date(run.commit)
    except (util.UserError, util.ProcessError) as error:
        raise UsageError(f"commit {run.commit[:12]} cannot be filed: {error}") from None
    suite = discover(Path(conf.benchmark_dir))
    name = re.sub(r"[^\w.-]+", "-", run.facets["machine"])
    facets = run.facets | {"machine": name}
    source = "import-" + hashlib.sha256(json.dumps(facets, sort_keys=True).encode()).hexdigest()[:8]
    made = results.Results(facets, {}, run.commit, date, "", source, {})
    for figure in ("time", "tflops"):
        benchmark = suite.get(f"{run.ladder}.track_{figure}")
        if benchmark is None:
            raise UsageError(f"{conf.benchmark_dir} has no track_{figure} of the ladder {run.ladder!r}")
        rows = [_of(run, version.strip("'"), asked.strip("'")) for version, asked in product(*benchmark["params"])]
        found = BenchmarkResult(
            result=[math.nan if row is None else True if figure == "time" else row[1] for row in rows],
            samples=[None if row is None or figure != "time" else list(row[0]) for row in rows],
            number=[None if row is None or figure != "time" else 1 for row in rows],
            errcode=0,
            stderr="",
            profile=None,
        )
        made.add_result(benchmark, found, record_samples=True)
    place = Path(conf.results_dir)
    util.write_json(str(place / "benchmarks.json"), suite, Benchmarks.api_version)
    util.write_json(str(place / name / "machine.json"), facets, Machine.api_version)
    made.save(str(place))
    return place / str(results.get_filename(name, run.commit, source))


def _of(run: Run, version: str, problem: str) -> tuple[tuple[float, ...], float] | None:
    """Seconds by process, and TFLOPS, of a version on just that problem."""
    for (name, measured), seconds in run.times.items():
        if (name, str(measured)) == (version, problem):
            return seconds, measured.flops / median(seconds) / 1e12
    return None


@cache
def discover(suite: Path) -> dict[str, dict[str, Any]]:
    """The benchmarks of a suite, by name, as asv finds them; in a process of its own, for it imports them."""
    from asv import runner

    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = [sys.executable, runner.BENCHMARK_RUN_SCRIPT, "discover", str(suite.resolve()), str(found)]
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder, check=False)
        if done.returncode:
            raise UsageError(f"asv cannot read the suite {suite}: {' '.join(done.stderr.split())[-500:]}")
        return {benchmark["name"]: benchmark for benchmark in json.loads(found.read_text())}


def register() -> dict[str, str]:
    """Tell asv of this machine (in ~/.asv-machine.json), with GPU and driver, which become facets of its graphs."""
    from asv.machine import Machine, MachineCollection

    try:
        gpu = machine.Nvml().gpu()
        facets = {"gpu": gpu.name, "driver": gpu.driver}
    except UsageError:
        facets = {"gpu": "none", "driver": "none"}
    known = {**Machine.get_defaults(), **facets}
    MachineCollection.save(known["machine"], known)
    return known


def main(arguments: Sequence[str]) -> int:
    """Import files, or register this machine; 1 if something in a file was left out, 2 if a file cannot be used."""
    left_out: list[str] = []
    try:
        if not arguments:
            print("asv: " + ", ".join(f"{name} {value}" for name, value in register().items()))
        for argument in arguments:
            run = read(Path(argument))
            left_out += run.left_out
            print(f"{argument} → {add(run)}")
    except UsageError as error:
        print(f"tirx-ladder: {error}", file=sys.stderr)
        return 2
    for line in left_out:
        print(line)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
