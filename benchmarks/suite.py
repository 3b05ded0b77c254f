"""The tracks of a ladder: each is a row of a table here, and reads what the setup_cache of its group has found.

The figures come from the harness that the commit installs. A commit that lacks a ladder, a version, a figure or
the module that gives it has no value (NaN, which asv shows as n/a); a version that is there and does not build
raises, which asv shows as failed.
"""

import importlib.util
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LADDERS = {
    "blackwell_gemm": ("v9", "v8", "v7", "v6", "v5", "v4", "v3", "v2", "v1"),
    "hopper_gemm": ("v7", "v6", "v5", "v4", "v3", "v2", "v1"),
}
"""Every version that a ladder has or ever had, newest first, since the site shows eight lines at first. Of one that is
taken off this list no history is shown."""

PROBLEMS = ("4096x4096x4096",)
"""What is asked for; a version that does not accept it is given the nearest problem that it does."""

SAMPLES = 7
"""Of a host cost. In asv's test (Mann-Whitney, p < .002) 6 against 6 differ never, however far they are apart."""

Figures = dict[str, Any]
Found = dict[tuple[str, str, str], Figures | str]
"""Ladder, version, problem asked for → what each track reads, by its name; a text says why there is none."""


class LacksError(Exception):
    """The commit has no such ladder, version or module."""


@dataclass(frozen=True)
class Track:
    """A benchmark.

    version: raised by hand when the figure's meaning changes; asv then drops what it has of it
    larger:  more is better, which asv cannot know: it must not judge this one (regressions_first_commits)
    """

    name: str
    pretty: str
    unit: str
    version: str = "1"
    larger: bool = False


STATIC = (
    Track("registers", "Registers per thread", "registers"),
    Track("spill_bytes", "Spilled per thread", "bytes"),
    Track("smem_bytes", "SMEM per CTA", "bytes"),
    Track("ctas_per_sm", "CTAs per SM", "CTAs", larger=True),
    Track("loop_instructions", "Loop instructions per K tile", "instructions"),
    Track("instructions", "Instructions in all", "instructions"),
    Track("bytes_in_flight", "Bytes in flight per SM", "bytes", larger=True),
    Track("flop_per_byte", "Flop per byte loaded into SMEM", "flop/byte", larger=True),
    Track("cubin_bytes", "Size of the cubin", "bytes"),
)

HOST = (
    Track("host_tir", "Host: TIRx build", "seconds"),
    Track("host_codegen", "Host: CUDA code generation", "seconds"),
    Track("host_cubin", "Host: cubin compile, cold", "seconds"),
)

DEVICE = (Track("time", "GPU time", "seconds"), Track("tflops", "TFLOPS, not judged", "TFLOPS", larger=True))


def static_cache() -> Found:
    """The static profile of every version: one compile each, or none where the cubin cache has its source."""
    return _each(_static)


def host_cache() -> Found:
    """What the host spends on every version, in seconds: SAMPLES builds each, with an empty cubin cache."""
    return _each(_host)


def device_cache() -> Found:
    """Median seconds of SAMPLES processes on this machine's GPU, for the versions that are written for it."""
    found: Found = {key: {} for key in _listed()}
    for ladder in LADDERS:
        try:
            measured = _measured(ladder)
        except LacksError:
            continue
        except Exception as error:  # a GPU that is there and cannot be measured on: its versions have failed
            measured = dict.fromkeys(LADDERS[ladder], f"{type(error).__name__}: {error}")
        for version, figures in measured.items():
            found.update({(ladder, version, problem): figures for problem in PROBLEMS if version in LADDERS[ladder]})
    return found


def tracks(ladder: str) -> dict[str, Callable[..., Any]]:
    """The benchmarks of a ladder, by the names that asv finds them under."""
    groups = ((static_cache, STATIC), (host_cache, HOST), (device_cache, DEVICE))
    return {f"track_{track.name}": _benchmark(ladder, track, cache) for cache, group in groups for track in group}


def _benchmark(ladder: str, track: Track, cache: Callable[[], Found]) -> Callable[..., Any]:
    def benchmark(found: Found, version: str, problem: str) -> Any:
        figures = found[ladder, version, problem]
        if isinstance(figures, str):
            raise RuntimeError(figures)  # it is there and has no figure: asv's "failed"
        return figures.get(track.name, math.nan)

    benchmark.__name__ = f"track_{track.name}"
    for name, value in {
        "setup_cache": cache,
        "pretty_name": track.pretty,
        "pretty_source": f"{track.pretty}, in {track.unit}; {cache.__doc__}",
        "unit": track.unit,
        "version": track.version,
        "params": (list(LADDERS[ladder]), list(PROBLEMS)),
        "param_names": ("version", "problem"),
    }.items():
        setattr(benchmark, name, value)
    return benchmark


def _each(work: Callable[[Any, Any], Figures]) -> Found:
    """What work finds of every version of every ladder on every problem."""
    found: Found = {}
    for ladder, version, problem in _listed():
        try:
            found[ladder, version, problem] = work(*_version(ladder, version, problem))
        except LacksError:
            found[ladder, version, problem] = {}
        except Exception as error:
            found[ladder, version, problem] = f"{ladder} {version} on {problem}: {type(error).__name__}: {error}"
    return found


def _listed() -> Iterator[tuple[str, str, str]]:
    for ladder, versions in LADDERS.items():
        for version in versions:
            for problem in PROBLEMS:
                yield ladder, version, problem


def _module(name: str) -> Any:
    """A module of the commit's harness. Raises LacksError if it has none of that name."""
    try:
        return importlib.import_module(f"tirx_ladder.{name}")
    except ModuleNotFoundError as error:
        if f"tirx_ladder.{name}.".startswith(f"{error.name}."):
            raise LacksError from None
        raise


def _version(ladder: str, name: str, problem: str) -> tuple[Any, Any]:
    """A version and the problem to take for it. Raises LacksError if the commit has none, or cannot profile."""
    try:
        vocabulary, profile = _module("ladder"), _module("profile")
        if importlib.util.find_spec(ladder) is None:
            raise LacksError
        loaded = vocabulary.load(ladder)
        if name not in [version.name for version in loaded.versions] and name not in loaded.broken:
            raise LacksError
        version = loaded[name]  # raises what is wrong with a broken one
        asked = vocabulary.Problem(*map(int, problem.split("x")))
        return version, profile.nearest_problem(version, asked)
    except AttributeError:  # an older vocabulary
        raise LacksError from None


def _static(version: Any, problem: Any) -> Figures:
    build, profile = _module("build"), _module("profile")
    known = profile.profile(build.build(version, problem))
    figures = {
        "registers": lambda: known.registers,
        "spill_bytes": lambda: known.spill_store_bytes + known.spill_load_bytes,
        "smem_bytes": lambda: known.static_smem_bytes + known.dynamic_smem_bytes,
        "ctas_per_sm": lambda: known.ctas_per_sm,
        "loop_instructions": lambda: known.main_loop.instructions / known.main_loop.k_tiles,
        "instructions": lambda: known.instructions,
        "bytes_in_flight": lambda: known.bytes_in_flight_per_sm,
        "flop_per_byte": lambda: known.intensity,
        "cubin_bytes": lambda: known.cubin_bytes,
    }
    return {name: value for name, figure in figures.items() if (value := _known(figure)) is not None}


def _known(figure: Callable[[], Any]) -> Any:
    """A figure; None if the version has no such thing (no main loop), or the commit's profile does not know it."""
    try:
        return figure()
    except (AttributeError, TypeError):
        return None


def _host(version: Any, problem: Any) -> Figures:
    build = _module("build")
    build.build(version, problem)  # imports, and NVRTC's own first time, are no cost of the version
    spent = []
    for _ in range(SAMPLES):
        with tempfile.TemporaryDirectory() as empty:
            os.environ["TIRX_LADDER_CUBIN_CACHE"] = empty
            try:
                built = build.build(version, problem)
            finally:
                del os.environ["TIRX_LADDER_CUBIN_CACHE"]
        if built.cubin.cached:  # a commit that keeps its cache elsewhere: what it says is of another time
            raise LacksError
        spent.append(built.seconds)
    return {
        f"host_{step}": {"samples": [getattr(seconds, step) for seconds in spent], "number": 1}
        for step in ("tir", "codegen", "cubin")
    }


def _measured(ladder: str) -> dict[str, Figures | str]:
    """The times of a ladder's versions. Raises LacksError without a GPU of its architecture, or a commit's bench."""
    bench, vocabulary, runtime = _module("gpu.bench"), _module("ladder"), _module("gpu.runtime")
    if importlib.util.find_spec(ladder) is None:
        raise LacksError
    loaded = vocabulary.load(ladder)
    try:
        runtime.require(loaded.arch)
    except vocabulary.UsageError:
        raise LacksError from None
    found: dict[str, Figures | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        (problem,) = (vocabulary.Problem(*map(int, text.split("x"))) for text in PROBLEMS)
        items = bench.from_ladder(loaded, problem, Path(folder), print)
        report, evidence = bench.run(items, ladder=ladder, processes=SAMPLES, witness=False, say=print)
        flops = {row.version: row.problem.flops for row in report.rows}
        for series in evidence.series:
            marks = {mark: None for process in series.processes for mark in process.marks}
            seconds = [statistics.median(process.seconds) for process in series.processes if not process.marks]
            if series.version in flops and len(seconds) < SAMPLES:
                found[series.version] = f"{len(seconds)} of {SAMPLES} processes are clean: {'; '.join(marks)}"
            elif series.version in flops:
                tflops = flops[series.version] / statistics.median(seconds) / 1e12
                found[series.version] = {"time": {"samples": seconds, "number": 1}, "tflops": tflops}
    return found


for _cache in (static_cache, host_cache, device_cache):
    _cache.timeout = 3600  # seconds; asv reads it here and nowhere else, and gives 60
