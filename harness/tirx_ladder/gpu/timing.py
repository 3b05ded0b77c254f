"""The measuring process: `python -m tirx_ladder.gpu.timing JOB OUT` times kernels once each and writes what it saw.

A fresh process for each set of samples is what makes sets independent, so its start is kept cheap: no torch
unless cuBLAS is asked for as a witness, inputs from files that every process of a campaign shares. It prepares
what needs no GPU, says "ready", and makes its context once it is told "go": only one process uses the GPU at a time.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .. import records
from ..worker import die_with_parent
from . import inputs, machine, runtime

FLUSH_BYTES = 512 * 2**20
"""Written before each launch timed by events: many times the L2, and so long (0.1 ms or more) that the host has
enqueued the launch by the time the GPU gets there."""

NO_DISCARD = 0.01
"""NVBench drops samples whose clock is below this fraction of the nominal one, 0.75 by default: a GEMM under the
power cap would lose them all. At 1 % none is dropped, and the clock is still read in every sample (at 0 it is not)."""

ROUNDS = 5
"""Tasks of one process take turns, in another order each round: what power one draws lowers the clock of the next."""

CHECKED = 10  # launches that CUDA events are put around


@dataclass(frozen=True)
class Task:
    """One bundle to time; label names it in the answer. witness: cuBLAS on the bundle's problem, in its place."""

    label: str
    bundle: str
    witness: bool


@dataclass(frozen=True)
class Job:
    """What one process does: its tasks in this order, each with samples timed launches.

    store:  folder of prepared inputs (`inputs`)
    heat_s: how long the kernels run in turn before any is timed: clock and power are then those of work
    timer:  "nvbench", or "events" where NVBench cannot run
    check:  also put CUDA events around some of NVBench's launches, as a cross-check
    """

    tasks: tuple[Task, ...]
    store: str
    inputs: str
    seed: int
    samples: int
    warmup: int
    heat_s: float
    timer: str
    check: bool
    ordinal: int


@dataclass(frozen=True)
class Timed:
    """What was seen of a task.

    clock_hz: the SM clock of each sample, or empty
    checked:  for some further launches, what CUDA events around them said and what the timer said, both in seconds
    error:    why there are no samples
    """

    label: str
    seconds: tuple[float, ...]
    clock_hz: tuple[float, ...]
    checked: tuple[tuple[float, float], ...]
    discarded: int
    error: str | None


@dataclass(frozen=True)
class Answer:
    """What a process says: the GPU, its states, and what was timed. host_s: where the wall time went, by stage."""

    gpu: machine.Gpu
    states: tuple[machine.State, ...]
    pid: int
    timed: tuple[Timed, ...]
    host_s: dict[str, float]
    versions: dict[str, str]


@dataclass
class Prepared:
    """A task with what it needs on the device: launch starts it on the current stream, stream directs that."""

    task: Task
    launch: Callable[[], Any]
    stream: Callable[[int], Any]
    timed: Timed | None = None
    events: list[tuple[Any, Any]] = field(default_factory=list)
    calls: int = 0
    notes: list[str] = field(default_factory=list)

    def failed(self, error: str) -> None:
        """Note why it is not timed."""
        self.timed = Timed(self.task.label, (), (), (), 0, error)


def main(arguments: list[str]) -> int:
    """Do the job in a file; say ready and wait for go on standard input and output."""
    clock = _Clock()
    die_with_parent()
    job = records.from_plain(Job, json.loads(Path(arguments[0]).read_text()), arguments[0])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what NVBench prints is no answer
    if not any(task.witness for task in job.tasks):
        os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # nothing is loaded between samples; torch has too much
    held = {bundle: inputs.load(Path(job.store), _problem(bundle), job.inputs, job.seed) for bundle in _bundles(job)}
    if job.timer == "nvbench":
        importlib.import_module("cuda.bench.results")
    runtime.load()
    if any(task.witness for task in job.tasks):
        importlib.import_module("torch")
    clock.lap("prepare")
    print("ready", file=answers)
    if sys.stdin.readline().strip() != "go":
        return 1
    clock.lap("wait")
    nvml = machine.Nvml(runtime.pci_bus_id(job.ordinal))
    states = [nvml.state("before")]
    clock.lap("nvml")
    gpu = runtime.Gpu(job.ordinal)
    clock.lap("context")
    prepared = list(_prepared(job, gpu, held))
    clock.lap("check")
    _heat(gpu, [each for each in prepared if each.timed is None], job.heat_s)
    clock.lap("heat")
    good = [each for each in prepared if each.timed is None]
    timer = _nvbench if job.timer == "nvbench" else _events_only
    timer(job, gpu, good, lambda: states.append(nvml.state("during", processes=False)))
    states.append(nvml.state("measured"))  # the context is still there, and so is whoever else is
    clock.lap("time")
    answer = Answer(
        nvml.gpu(runtime.attribute("MULTIPROCESSOR_COUNT", job.ordinal)),
        tuple(states),
        os.getpid(),
        tuple(each.timed or Timed(each.task.label, (), (), (), 0, "the timer did not run it") for each in prepared),
        clock.laps,
        _versions(),
    )
    records.write(answer, Path(arguments[1]))
    print("done", file=answers)
    answers.flush()
    os._exit(0)  # the driver frees what is left; an orderly exit takes longer


class _Clock:
    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.laps[stage] = now - self._last
        self._last = now


def _bundles(job: Job) -> list[str]:
    return list(dict.fromkeys(task.bundle for task in job.tasks))


def _problem(folder: str) -> Any:
    from ..bundle import load_manifest

    return load_manifest(Path(folder)).problem


def _versions() -> dict[str, str]:
    from importlib import metadata

    found = {"python": sys.version.split()[0]}
    for name in ("apache-tvm", "apache-tvm-ffi", "cuda-bench", "cuda-bindings", "nvidia-ml-py", "torch", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _prepared(job: Job, gpu: runtime.Gpu, held: dict[str, inputs.Inputs]) -> Iterator[Prepared]:
    """Each task loaded and, on its own inputs, right; what is not right has an error and is not timed.

    Tasks on one problem share A, B and D: what differs between their times is then not where these lie.
    """
    tensors: dict[Any, tuple[Any, Any, Any]] = {}
    for task in job.tasks:
        each = held[task.bundle]
        problem = each.problem
        if problem not in tensors:
            tensors[problem] = gpu.upload(each.a), gpu.upload(each.b), gpu.empty((problem.m, problem.n))
        a, b, d = tensors[problem]
        try:
            prepared = _cublas(task, each, gpu) if task.witness else _kernel(task, gpu, a, b, d)
            if not task.witness:
                gpu.poison(d)
                gpu.wait()
                prepared.launch()
                gpu.wait()
                if wrong := inputs.wrong(each, gpu.download(d)):
                    prepared.failed(f"wrong result: {wrong}")
        except Exception as error:  # whatever a launch raises, here or in torch, is that task's error
            prepared = Prepared(task, lambda: None, lambda _: None)
            prepared.failed(_brief(error))
        yield prepared


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split("// CUDA Source")[0].split())[:500] or type(error).__name__


def _kernel(task: Task, gpu: runtime.Gpu, a: Any, b: Any, d: Any) -> Prepared:
    kernel = gpu.open(Path(task.bundle))
    return Prepared(task, kernel.launcher(a, b, d), kernel.stream)


def _cublas(task: Task, each: inputs.Inputs, gpu: runtime.Gpu) -> Prepared:
    """torch.matmul on the same values: A·Bᵀ in fp16, which cuBLAS does, accumulated in fp32 as the versions do."""
    torch = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    place = torch.device(f"cuda:{gpu.ordinal}")
    a, b = (torch.from_numpy(np.array(x)).to(place) for x in (each.a, each.b))
    d = torch.empty((each.problem.m, each.problem.n), dtype=torch.float16, device=place)
    transposed = b.T
    torch.matmul(a, transposed, out=d)
    torch.cuda.synchronize()
    prepared = Prepared(
        task,
        lambda: torch.matmul(a, transposed, out=d),
        lambda handle: torch.cuda.stream(torch.cuda.ExternalStream(handle, device=place)),
    )
    if wrong := inputs.wrong(each, d.cpu().numpy()):
        prepared.failed(f"wrong result: {wrong}")
    return prepared


def _heat(gpu: runtime.Gpu, prepared: list[Prepared], seconds: float) -> None:
    until = time.perf_counter() + seconds
    while prepared and time.perf_counter() < until:
        for each in prepared:
            each.launch()
        gpu.wait()


def _nvbench(job: Job, gpu: runtime.Gpu, prepared: list[Prepared], note: Callable[[], None]) -> None:
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
    """The function that NVBench calls for a task; it must not raise, or the tasks after it would be lost."""
    calls = 0

    def launcher(launch: Any) -> None:
        nonlocal calls
        with each.stream(launch.get_stream().addressof()):
            each.launch()
        each.calls += 1
        calls += 1
        if (
            note and calls == warmup + samples // 2 + 1
        ):  # the launch waits behind the blocking kernel: its time is not touched
            note()

    def run(state: Any) -> None:
        try:
            state.exec(launcher, batched=False)
        except Exception as error:
            each.notes.append(_brief(error))
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
    """The function that NVBench calls to time launches with CUDA events around them."""

    def launcher(launch: Any) -> None:
        stream = launch.get_stream().addressof()
        start, stop = (runtime.call(gpu.api.cuEventCreate(0)) for _ in range(2))
        runtime.call(gpu.api.cuEventRecord(start, stream))
        with each.stream(stream):
            each.launch()
        runtime.call(gpu.api.cuEventRecord(stop, stream))
        each.events.append((start, stop))

    def run(state: Any) -> None:
        try:
            state.exec(launcher, batched=False)
        except Exception as error:
            each.notes.append(_brief(error))
            traceback.print_exc()

    return run


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


def _events_only(job: Job, gpu: runtime.Gpu, prepared: list[Prepared], note: Callable[[], None]) -> None:
    """Time tasks with CUDA events, where NVBench cannot be used; no clocks then."""
    for each in prepared:
        seconds = _guarded(gpu, each, job)
        note()
        if each.timed is None:
            each.timed = Timed(each.task.label, seconds, (), (), 0, None)


def _guarded(gpu: runtime.Gpu, each: Prepared, job: Job) -> tuple[float, ...]:
    try:
        return _by_events(gpu, each, job.samples, job.warmup)
    except Exception as error:
        each.failed(_brief(error))
        return ()


def _by_events(gpu: runtime.Gpu, each: Prepared, samples: int, warmup: int) -> tuple[float, ...]:
    """Seconds between CUDA events around launches on the default stream, L2 flushed before each."""
    api = gpu.api
    flush = _flush_buffer(gpu)
    start, stop = runtime.call(api.cuEventCreate(0)), runtime.call(api.cuEventCreate(0))
    found = []
    for i in range(warmup + samples):
        runtime.call(api.cuMemsetD8Async(flush, 0, FLUSH_BYTES, 0))
        runtime.call(api.cuEventRecord(start, 0))
        each.launch()
        runtime.call(api.cuEventRecord(stop, 0))
        runtime.call(api.cuEventSynchronize(stop))
        if i >= warmup:
            found.append(float(runtime.call(api.cuEventElapsedTime(start, stop))) * 1e-3)
    return tuple(found)


_flush: list[Any] = []


def _flush_buffer(gpu: runtime.Gpu) -> Any:
    if not _flush:
        _flush.append(runtime.call(gpu.api.cuMemAlloc(FLUSH_BYTES)))
    return _flush[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
