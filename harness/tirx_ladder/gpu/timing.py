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
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import records
from ..worker import die_with_parent
from . import inputs, machine, nvbench, runtime
from .jobs import Answer, Job, Prepared, Task, Timed, brief

FLUSH_BYTES = 512 * 2**20
"""Written before each launch timed by events: many times the L2, and so long (0.1 ms or more) that the host has
enqueued the launch by the time the GPU gets there."""


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
    timer = nvbench.measure if job.timer == "nvbench" else _events_only
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
            prepared.failed(brief(error))
        yield prepared


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
        each.failed(brief(error))
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
