"""Guarded worker processes: a kernel that hangs, crashes or eats memory costs its own verdict and no other.

A stuck run of native code does not answer to signals handlers or alarms of its own process, so each worker
is a process with a limit for every stage, killed with all its children when it passes one.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from queue import SimpleQueue

from . import toolchain
from .simulate import Finding, Job, Outcome
from .worker import MEMORY

LIMITS = {"start": 120.0, "engine": 3600.0, "cached": 120.0, "build": 900.0, "run": 600.0}
"""Seconds that a worker may spend in a stage before it is killed. Generous: a machine may be ten times slower
than the ones measured (engine 80 to 230 s, build 4 to 24 s, run of a matrix case below 10 s)."""

USUAL = {"engine": "2 to 4 minutes, once a machine", "build": "4 to 10 s"}
"""How long a stage usually takes, for people who wait; measured on two cores."""


def memory_limit() -> int:
    """Bytes of address space for a worker: most of the machine's memory, for the workers' needs rarely coincide."""
    return int(0.8 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def default_workers() -> int:
    """Worker processes that this machine is good for: one a core, each needs up to 2 GiB."""
    return max(1, min(len(os.sched_getaffinity(0)), 8))


@dataclass
class Activity:
    """What a worker is doing now."""

    job: Job
    stage: str
    since: float


class Worker:
    """One guarded process, started when first needed and again after it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (lives as long as the worker)
        self.activity: Activity | None = None

    def run(self, job: Job) -> Outcome:
        """Run one job; whatever happens to the process, an outcome comes back."""
        self.activity = Activity(job, "start", time.monotonic())
        try:
            return self._run(job, self.activity)
        finally:
            self.activity = None

    def _run(self, job: Job, activity: Activity) -> Outcome:
        process = self._started()
        if process is None:
            return Outcome(job.tool, (Finding("incomplete", "the pool was closed before the job ran"),))
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        except BrokenPipeError:
            return self._lost(job, activity)
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            rest = b""
            while True:
                left = activity.since + LIMITS[activity.stage] - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.close()
                    text = f"{job.tool} passed its limit of {LIMITS[activity.stage]:.0f} s in stage '{activity.stage}'"
                    return Outcome(job.tool, (Finding("timeout", f"{text} and was killed"),))
                chunk = os.read(process.stdout.fileno(), 65536)
                if not chunk:
                    return self._lost(job, activity)
                *lines, rest = (rest + chunk).split(b"\n")
                for answer in map(json.loads, lines):
                    if "outcome" in answer:
                        return Outcome.from_json(answer["outcome"])
                    activity.stage, activity.since = answer["stage"], time.monotonic()

    def _started(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            return None if self._closed else self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._errors.seek(0)
            self._errors.truncate()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tirx_ladder.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,
                env={
                    **os.environ,
                    **toolchain.worker_environment(),
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    MEMORY: str(memory_limit()),
                },
            )
        return self._process

    def _lost(self, job: Job, activity: Activity) -> Outcome:
        """The process ended in the middle of a job."""
        process = self._process
        code = process.wait() if process is not None else 0
        self.close()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._errors.seek(0)
        last = "\n".join(self._errors.read().strip().splitlines()[-8:])
        text = f"the process that ran {job.tool} ended with {how} in stage '{activity.stage}'"
        return Outcome(job.tool, (Finding("crash", f"{text}\n{last}".strip()),))

    def kill(self) -> None:
        with self._lock:
            self._closed = True
            if self._process is not None and self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process and its children."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    pass


class Pool:
    """Some workers and a queue of jobs, done in the order submitted."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = [Worker() for _ in range(workers or default_workers())]
        self._threads = ThreadPoolExecutor(len(self.workers), thread_name_prefix="ladder")
        self._queued: set[Future[Outcome]] = set()
        self._idle: SimpleQueue[Worker] = SimpleQueue()
        for worker in self.workers:
            self._idle.put(worker)

    def submit(self, job: Job) -> Future[Outcome]:
        """Queue a job."""
        return self.submit_together([job])[0]

    def submit_together(self, jobs: Sequence[Job]) -> list[Future[Outcome]]:
        """Queue jobs that one worker does in turn, such as the tools on one kernel, which is then parsed once."""
        futures: list[Future[Outcome]] = [Future() for _ in jobs]
        self._queued.update(futures)
        self._threads.submit(self._run, list(zip(jobs, futures, strict=True)))
        return futures

    def _run(self, jobs: list[tuple[Job, Future[Outcome]]]) -> None:
        worker = self._idle.get()
        try:
            for job, future in jobs:
                self._queued.discard(future)
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    future.set_result(worker.run(job))
                except BaseException as error:  # whoever waits for it must hear of it
                    future.set_exception(error)
        finally:
            self._idle.put(worker)

    def activities(self) -> list[Activity]:
        """What the workers are doing now."""
        return [activity for worker in self.workers if (activity := worker.activity) is not None]

    def close(self) -> None:
        """Drop what is queued and kill what runs."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for future in list(self._queued):
            future.cancel()
        for worker in self.workers:
            worker.kill()
        self._threads.shutdown(wait=True)
        for worker in self.workers:
            worker.close()
            worker._errors.close()


def pending(futures: Iterable[Future[Outcome]], timeout_s: float) -> set[Future[Outcome]]:
    """Wait a while for all of some jobs; those that are not done by then."""
    return wait(futures, timeout=timeout_s).not_done


def describe(activity: Activity) -> str:
    """What a worker is doing, and how long that takes, for people who wait."""
    job, stage = activity.job, activity.stage
    what = f"{job.version} {job.m}x{job.n}x{job.k}"
    for_s = time.monotonic() - activity.since
    if stage == "engine":
        return f"building the simulator's {job.tool} engine ({USUAL['engine']}; {for_s:.0f} s so far)"
    if stage == "build":
        return f"building {what} for {job.tool} ({USUAL['build']})"
    return f"{job.tool} of {what} ({for_s:.0f} s so far)"
