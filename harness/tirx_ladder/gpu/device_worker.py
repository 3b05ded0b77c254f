"""The process that runs one bundle on the GPU and says, for every kind of input, what came of it.

`device` starts it from multiprocessing's fork server, which has imported numpy and torch and has no CUDA
context: a bundle costs a context of its own, and not these imports.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from .. import oracle
from ..ladder import KernelVersion, Problem, UsageError
from ..worker import die_with_parent
from . import runtime

CLEAN = "clean"


@dataclass(frozen=True)
class Job:
    """A bundle and what to run of it. torch: also compare with torch on the same device."""

    folder: str
    inputs: tuple[str, ...]
    ordinal: int
    seed: int
    torch: bool


@dataclass(frozen=True)
class Finding:
    """What came of one kind of input: clean, wrong, nondeterministic, reference, or what kept it from running."""

    inputs: str
    verdict: str
    text: str


def main(job: Job, answers: Connection, errors: str) -> None:
    """Send ("stage", name), a Finding for each kind of input as it is known, and at last ("done", "").

    errors: file that takes what the process prints; the parent shows its end if the process dies.
    """
    die_with_parent()
    with Path(errors).open("ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        _run(job, answers)
        answers.send(("done", ""))
    except UsageError as error:
        answers.send(("unusable", str(error)))
    except runtime.DeviceError as error:
        answers.send(("error", str(error)))
    answers.close()
    os._exit(0)  # a lost context may block an orderly exit


def _run(job: Job, answers: Connection) -> None:
    answers.send(("stage", "context"))
    gpu = runtime.Gpu(job.ordinal)
    answers.send(("stage", "load"))
    kernel = gpu.open(Path(job.folder))
    problem, version = kernel.problem, kernel.manifest.kernel_version()
    d = gpu.empty((problem.m, problem.n))
    a, b = gpu.empty((problem.m, problem.k)), gpu.empty((problem.n, problem.k))
    for kind in job.inputs:
        answers.send(("stage", kind))
        host_a, host_b = oracle.make_inputs(kind, problem, version.blk_k, seed=job.seed)
        gpu.copy_in(a, host_a)
        gpu.copy_in(b, host_b)
        found = [_once(gpu, kernel, a, b, d) for _ in range(2)]
        finding = judge(kind, found, host_a, host_b, version, kernel.manifest.sm_count)
        if finding.verdict == CLEAN and job.torch:
            finding = _second_opinion(kind, found[0], host_a, host_b, job.ordinal)
        answers.send(finding)


def _once(gpu: runtime.Gpu, kernel: runtime.Kernel, a: Any, b: Any, d: Any) -> runtime.Half:
    gpu.poison(d)
    gpu.wait()
    kernel.launch(a, b, d)
    gpu.wait()
    return gpu.download(d)


def judge(
    kind: str, found: list[runtime.Half], a: oracle.Half, b: oracle.Half, version: KernelVersion, sm_count: int
) -> Finding:
    """The verdict on two runs of one kind of input, by the oracle alone."""
    problem = Problem(a.shape[0], b.shape[0], a.shape[1])
    schedule = version.schedule(problem, sm_count)
    if mismatch := oracle.compare(kind, found[0], a, b, version, schedule, None):
        return Finding(kind, "wrong", str(mismatch))
    if changed := int((found[0].view(np.uint16) != found[1].view(np.uint16)).sum()):
        return Finding(kind, "nondeterministic", f"a second run of the same inputs differs in {changed} elements of D")
    return Finding(kind, CLEAN, "")


def _second_opinion(kind: str, d: runtime.Half, a: oracle.Half, b: oracle.Half, ordinal: int) -> Finding:
    """Compare D, and the oracle, with A·Bᵀ in float64 as torch computes it on the device."""
    torch = importlib.import_module("torch")
    place = torch.device(f"cuda:{ordinal}")
    with torch.no_grad():
        wide_a, wide_b = (torch.from_numpy(x).to(place).double() for x in (a, b))
        value = (wide_a @ wide_b.T).cpu().numpy()
        magnitude = (wide_a.abs() @ wide_b.abs().T).cpu().numpy() if kind == "normal" else None
    tolerance = None if magnitude is None else oracle.tolerance(value, magnitude, a.shape[1])
    expected = oracle.Expected(value, tolerance, any_zero_sign=kind == "special")
    with np.errstate(over="ignore", invalid="ignore"):
        own = oracle.reference(kind, a, b).value.astype(np.float16)
    for name, matrix in (("the oracle", own), ("D", d)):
        if wrong := int(oracle.differs(matrix, expected).sum()):
            return Finding(
                kind,
                "reference",
                f"{name} differs from torch {torch.__version__} on the device in {wrong} elements, though D and the "
                "oracle agree: one of the two references is wrong",
            )
    return Finding(kind, CLEAN, "")
