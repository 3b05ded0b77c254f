"""Samples: fresh processes, one on the GPU at a time, base and head in turn, with the marks that spoil them."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import bundle, records, results
from ..ladder import Problem, UsageError
from . import inputs, machine
from .jobs import Answer, Job, Task, Timed

PROTOCOL = 1
"""Version of the way samples are taken: raise it with any change that may move a median."""

SAMPLES, WARMUP, HEAT_S = 50, 3, 0.25
LIMIT_S = 120.0
"""Seconds that a process may take; 2 are usual, 10 with the witness."""

NULL_PAIRS = 8
"""Pairs of the same code that a null floor is made of."""

EVENTS_AGREE, EVENTS_APART_S = 0.01, 5e-6
"""How far CUDA events and NVBench may lie apart on the same launches, as a median: a fraction, or seconds if more."""


@dataclass(frozen=True)
class Options:
    """How a process measures; the defaults are the protocol."""

    samples: int = SAMPLES
    warmup: int = WARMUP
    heat_s: float = HEAT_S
    inputs: str = "normal"
    seed: int = 0
    timer: str = "nvbench"
    check: bool = False
    ordinal: int = 0
    limit_s: float = LIMIT_S


class MeasureError(Exception):
    """A measuring process did not answer: what it said last."""


class Process:
    """A measuring process: it prepares, waits for `go`, measures, and answers with a file."""

    def __init__(self, job: Job, limit_s: float) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tirx-ladder-"))
        self._limit_s = limit_s
        self._errors = (self._folder / "errors").open("w+b")
        records.write(job, self._folder / "job.json")
        words = [sys.executable, "-m", "tirx_ladder.gpu.timing", str(self._folder / "job.json"), str(self._answer)]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    @property
    def _answer(self) -> Path:
        return self._folder / "answer.json"

    def measure(self) -> Answer:
        """Let it have the GPU, and wait until it is gone from there. Raises MeasureError if it does not answer."""
        try:
            self._expect("ready")
            assert self._process.stdin is not None
            self._process.stdin.write(b"go\n")
            self._expect("done")
            self._process.wait(30.0)
            return records.from_plain(Answer, json.loads(self._answer.read_text()), "answer")
        except (OSError, ValueError, UsageError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"its answer cannot be used: {error}{self._said()}") from None
        finally:
            self.close()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        until = time.monotonic() + self._limit_s
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise MeasureError(f"it passed its limit of {self._limit_s:.0f} s before '{word}'{self._said()}")
                chunk = os.read(self._process.stdout.fileno(), 4096)
                if not chunk:
                    raise MeasureError(f"it ended before '{word}'{self._said()}")
                line += chunk
        if line.decode(errors="replace").strip() != word:
            raise MeasureError(f"it said {line!r}, '{word}' is wanted{self._said()}")

    def _said(self) -> str:
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-12:]
        return "".join(f"\n  {line}" for line in last)

    def close(self) -> None:
        """Kill it, if it is still there, and remove its files."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                self._process.wait(30.0)
            except subprocess.TimeoutExpired:  # the driver holds on to it: nothing more can be done from here
                pass
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._errors.close()
        shutil.rmtree(self._folder, ignore_errors=True)


Start = Callable[[Job, float], Any]
"""Starts a measuring process; tests put a fake in its place."""


def in_turn(
    jobs: Iterable[Job], limit_s: float, *, start: Start = Process, say: Callable[[str], None] = lambda _: None
) -> Generator[tuple[Job, Answer | MeasureError]]:
    """Do jobs one after the other; the next one's process gets ready while this one has the GPU.

    A process that fails is answered for by its error; the rest still run. Close the iterator to stop.
    """
    waiting = iter(jobs)
    first = next(waiting, None)
    following: tuple[Job, Any] | None = None if first is None else (first, start(first, limit_s))
    try:
        while following is not None:
            job, process = following
            after = next(waiting, None)
            following = None if after is None else (after, start(after, limit_s))
            try:
                answer: Answer | MeasureError = process.measure()
            except MeasureError as error:
                answer = error
                say(f"a measuring process failed: {error}")
            yield job, answer
    finally:
        if following is not None:
            following[1].close()


def job(tasks: Sequence[Task], store: Path, options: Options) -> Job:
    """The job of one process. Prepares its inputs, if they are not there, before any process may want them."""
    for task in tasks:
        inputs.prepare(store, problem_of(task.bundle), options.inputs, options.seed)
    o = options
    return Job(
        tuple(tasks), str(store), o.inputs, o.seed, o.samples, o.warmup, o.heat_s, o.timer, o.check, o.ordinal
    )  # fmt: skip


def problem_of(folder: str | Path) -> Problem:
    """The problem that a bundle is for."""
    return bundle.load_manifest(Path(folder)).problem


def marks(answer: Answer, timed: Timed, options: Options) -> tuple[str, ...]:
    """What spoils a set of samples: the machine's state, and too few, dropped or contradicted samples."""
    clocks_seen = len(timed.clock_hz) == len(timed.seconds) > 0
    found = list(machine.marks(answer.states, clocks_seen=clocks_seen, own=answer.pid))
    if timed.error:
        found.append(f"error: {timed.error}")
    if len(timed.seconds) < options.samples:
        found.append(f"too few samples: {len(timed.seconds)} of {options.samples}")
    if timed.discarded:
        found.append(f"the timer dropped {timed.discarded} samples")
    if timed.checked:
        apart = statistics.median(events - said for events, said in timed.checked)
        said = statistics.median(said for _, said in timed.checked)
        if abs(apart) > max(EVENTS_AGREE * said, EVENTS_APART_S):
            found.append(f"CUDA events say {apart / said:+.1%}")
    elif options.check and options.timer == "nvbench" and not timed.error:
        found.append("not checked by CUDA events")
    if options.inputs != "normal":
        found.append(f"inputs are {options.inputs}")
    return tuple(found)


def process_of(answer: Answer, timed: Timed, rank: int, options: Options) -> results.Process:
    """Samples of one task in one process, as results keep them."""
    clocks = timed.clock_hz if len(timed.clock_hz) == len(timed.seconds) else ()
    return results.Process(
        seconds=timed.seconds, clock_hz=clocks, rank=rank, marks=marks(answer, timed, options)
    )  # fmt: skip


def order(pairs: int, first_pair: int = 0) -> list[str]:
    """Which of base and head each process measures: ABBA, so that a drift of the machine cancels over two pairs."""
    turns = (("base", "head"), ("head", "base"))
    return [side for pair in range(first_pair, first_pair + pairs) for side in turns[pair % 2]]


@dataclass
class Comparison:
    """Base and head bundles measured in turn, on the same GPU, a fresh process each; `more` adds pairs.

    The null floor comes from a copy of base, byte for byte, measured against base in the same way.
    """

    base: Path
    head: Path
    store: Path
    options: Options = field(default_factory=Options)
    start: Start = Process
    say: Callable[[str], None] = lambda _: None
    gpu: machine.Gpu | None = None
    states: list[machine.State] = field(default_factory=list)
    complete: bool = True
    nulls: dict[str, list[results.Process]] = field(default_factory=dict)
    _sides: dict[str, list[results.Process]] = field(default_factory=lambda: {"base": [], "head": []})

    def __post_init__(self) -> None:
        found = [bundle.verify(folder) for folder in (self.base, self.head)]
        if found[0].problem != found[1].problem or found[0].arch != found[1].arch:
            raise UsageError(
                f"{self.base} is for {found[0].problem} on {found[0].arch}, {self.head} for {found[1].problem} on "
                f"{found[1].arch}: the same problem and GPU are wanted"
            )

    def more(self, pairs: int) -> None:
        """Measure that many more pairs."""
        ran = len(self._sides["base"])
        for side, process in self._run(order(pairs, ran), {"base": self.base, "head": self.head}, 2 * ran):
            self._sides[side].append(process)

    def null(self, pairs: int) -> None:
        """Measure base against a copy of itself."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "copy"
            shutil.copytree(self.base, copy)
            sides: dict[str, list[results.Process]] = {"base": [], "head": []}
            for side, process in self._run(order(pairs), {"base": self.base, "head": copy}, 0):
                sides[side].append(process)
        self.nulls = sides

    def null_of(self, other: Comparison) -> None:
        """Take over another comparison's null pairs, of the same problem on the same machine."""
        self.nulls = other.nulls

    @property
    def null_floor(self) -> float | None:
        """What the same code showed against itself (slowdown.py); None without NULL_PAIRS clean null pairs."""
        from ..compare.slowdown import null_floor  # needs scipy, which processes that only measure do without

        return null_floor(self.nulls.get("base", ()), self.nulls.get("head", ()))

    def samples(self) -> tuple[results.Samples, results.Samples]:
        """What was measured of base and of head."""
        base, head = (
            results.Samples(
                unit=results.SECONDS,
                complete=self.complete,
                protocol=PROTOCOL,
                null_floor=self.null_floor,
                processes=tuple(self._sides[side]),
            )
            for side in ("base", "head")
        )
        return base, head

    def _run(self, sides: list[str], folders: dict[str, Path], rank: int) -> Iterator[tuple[str, results.Process]]:
        jobs = [job([Task(side, str(folders[side]), witness=False)], self.store, self.options) for side in sides]
        for i, (done, answer) in enumerate(in_turn(jobs, self.options.limit_s, start=self.start, say=self.say)):
            side = done.tasks[0].label
            if isinstance(answer, MeasureError):
                self.complete = False
                yield side, results.Process(seconds=(), clock_hz=(), rank=rank + i, marks=(f"error: {answer}",))
                continue
            self.gpu = answer.gpu
            self.states.extend(answer.states)
            yield side, process_of(answer, answer.timed[0], rank + i, self.options)
