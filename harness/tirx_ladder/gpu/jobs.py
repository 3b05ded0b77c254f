"""What a measuring process is asked and what it answers: plain records, that travel as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from . import machine


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


def brief(error: BaseException) -> str:
    """An error in a line, without the CUDA source that TVM adds to it."""
    return " ".join(str(error).split("// CUDA Source")[0].split())[:500] or type(error).__name__
