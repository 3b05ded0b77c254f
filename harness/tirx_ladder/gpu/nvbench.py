"""Kernels timed by NVBench (cuda-bench): cold L2, a blocking kernel before each launch, the clock read around it."""

from __future__ import annotations

import importlib
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import runtime
from .jobs import Job, Prepared, Timed, brief

NO_DISCARD = 0.01
"""NVBench drops samples whose clock is below this fraction of the nominal one, 0.75 by default: a GEMM under the
power cap would lose them all. At 1 % none is dropped, and the clock is still read in every sample (at 0 it is not)."""

ROUNDS = 5
"""Tasks of one process take turns, in another order each round: what power one draws lowers the clock of the next."""

CHECKED = 10  # launches that CUDA events are put around


def measure(job: Job, gpu: runtime.Gpu, prepared: list[Prepared], note: Callable[[], None]) -> None:
    """Time tasks with NVBench: cold L2, a blocking kernel before each launch, the clock read around it."""
    if not prepared:
        return
    bench = importlib.import_module("cuda.bench")
    results = importlib.import_module("cuda.bench.results")
    names = {f"task{i}": each for i, each in enumerate(prepared)}
    rounds = _rounds(job.samples, len(prepared))
    turns: dict[str, list[str]] = {name: [] for name in names}
    for number, samples in enumerate(rounds):
        for name in _turn(list(names), number):
            turns[name].append(f"{name}, round {number}")
            noting = note if number == len(rounds) // 2 else None
            _register(bench, turns[name][-1], _benchmark(names[name], job.warmup, samples, noting), samples, job.warmup)
    if job.check:
        for name, each in names.items():
            _register(bench, f"check of {name}", _check(each, gpu), CHECKED, 1)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "nvbench.json")
        bench.run_all_benchmarks(["tirx-ladder", "--devices", str(job.ordinal), "--quiet", "--jsonbin", file])
        found = results.BenchmarkResult.from_json(file)
        for name, each in names.items():
            each.timed = _of_nvbench(each, gpu, found, turns[name], f"check of {name}", job.warmup)


def _rounds(samples: int, tasks: int) -> list[int]:
    """Samples of each round; a single task has no turns to take."""
    rounds = ROUNDS if tasks > 1 and samples >= ROUNDS else 1
    return [samples * (i + 1) // rounds - samples * i // rounds for i in range(rounds)]


def _turn(names: list[str], number: int) -> list[str]:
    """The order of a round: rotated, so that each task comes early and late, and every other time backwards."""
    start = number * len(names) // ROUNDS
    turned = names[start:] + names[:start]
    return turned[::-1] if number % 2 else turned


def _benchmark(each: Prepared, warmup: int, samples: int, note: Callable[[], None] | None) -> Callable[[Any], None]:
    """Times a task: so many launches to warm up, so many samples, and a note half-way."""
    calls = 0

    def launcher(launch: Any) -> None:
        nonlocal calls
        with each.stream(launch.get_stream().addressof()):
            each.launch()
        each.calls += 1
        calls += 1
        if note and calls == warmup + samples // 2 + 1:
            note()  # the launch waits behind the blocking kernel: its time is not touched

    return _guarded(each, launcher)


def _guarded(each: Prepared, launcher: Callable[[Any], None]) -> Callable[[Any], None]:
    """The function that NVBench calls for a task; it must not raise, or the tasks after it would be lost."""

    def run(state: Any) -> None:
        try:
            state.exec(launcher, batched=False)
        except Exception as error:
            each.notes.append(brief(error))
            traceback.print_exc()

    return run


def _register(bench: Any, name: str, run: Callable[[Any], None], samples: int, warmup: int) -> None:
    benchmark = bench.register(run)
    benchmark.set_name(name)
    benchmark.set_throttle_threshold(NO_DISCARD)
    benchmark.set_stopping_criterion("sample-count")
    benchmark.set_criterion_param_int64("target-samples", samples)
    benchmark.set_min_samples(samples)
    benchmark.set_cold_warmup_runs(warmup)
    benchmark.set_timeout(60.0)


def _check(each: Prepared, gpu: runtime.Gpu) -> Callable[[Any], None]:
    """Times some launches of a task with CUDA events around them."""

    def launcher(launch: Any) -> None:
        stream = launch.get_stream().addressof()
        start, stop = (runtime.call(gpu.api.cuEventCreate(0)) for _ in range(2))
        runtime.call(gpu.api.cuEventRecord(start, stream))
        with each.stream(stream):
            each.launch()
        runtime.call(gpu.api.cuEventRecord(stop, stream))
        each.events.append((start, stop))

    return _guarded(each, launcher)


def _checked(each: Prepared, gpu: runtime.Gpu, state: Any) -> tuple[tuple[float, float], ...]:
    """Seconds by events and by NVBench of the same launches; the first of the events are the warm-up's."""
    timed = tuple(map(_short, state.samples or ())) if state is not None else ()
    said = [float(runtime.call(gpu.api.cuEventElapsedTime(*pair))) * 1e-3 for pair in each.events[-len(timed) :]]
    return tuple(zip(map(_short, said), timed, strict=True)) if len(said) == len(timed) else ()


def _state_of(found: Any, name: str) -> Any:
    states = found[name].states if name in found else []
    return states[0] if states else None


def _of_nvbench(each: Prepared, gpu: runtime.Gpu, found: Any, turns: list[str], check: str, warmup: int) -> Timed:
    checked: tuple[tuple[float, float], ...] = ()
    seconds: tuple[float, ...] = ()
    clocks: tuple[float, ...] = ()
    errors = list(each.notes)
    try:
        for state in (_state_of(found, turn) for turn in turns):
            seconds += tuple(map(_short, state.samples or ())) if state is not None else ()
            clocks += tuple(map(_short, state.frequencies or ())) if state is not None else ()
            if state is not None and state.is_skipped:
                errors.append(str(state.skip_reason))
        checked = _checked(each, gpu, _state_of(found, check)) if each.events else ()
    except (KeyError, ValueError, AttributeError) as error:
        errors.append(f"NVBench's answer cannot be read: {error}")
        seconds = clocks = ()
    if not seconds and not errors:
        errors.append("NVBench gave no samples")
    if not all(1e8 < hertz < 1e10 for hertz in clocks):
        clocks = ()  # no SM runs at such a clock: then it was not read
    discarded = max(0, each.calls - warmup * len(turns) - len(seconds))
    return Timed(each.task.label, seconds, clocks, checked, discarded, "; ".join(errors) or None)


def _short(value: float) -> float:
    """A float32 by the nine digits that tell it from all others, and not the seventeen of a double."""
    return float(f"{value:.9g}")
