"""Guarded workers and the verdicts made of what they say: whatever a kernel does costs its own verdict and no other."""

import os
import sys
import time
from concurrent.futures import Future

import pytest

from tirx_ladder import pool
from tirx_ladder.cases import INPUTS, Case, Specialisation
from tirx_ladder.check import Judge, Verdict
from tirx_ladder.ladder import Problem
from tirx_ladder.simulate import TOOLS, Finding, Job, Outcome

KERNELS = """
import os, pathlib, sys, time
from tirx_ladder.ladder import KernelVersion

def raises(problem, *, sm_count):
    raise ValueError("no such layout")

def aborts(problem, *, sm_count):
    print("the engine's last words", file=sys.stderr, flush=True)
    os.abort()

def leaves(problem, *, sm_count):
    os._exit(3)

def sleeps(problem, *, sm_count):
    pathlib.Path(__file__).with_name("sleeper").write_text(f"{os.getpid()}\\n")
    time.sleep(3600)

def prints(problem, *, sm_count):
    print('{"stage": "run"}\\nnot JSON')
    raise ValueError("printed")

BUILDERS = raises, aborts, leaves, sleeps, prints
LADDER = [KernelVersion(build.__name__, "", build, (128, 128), 64) for build in BUILDERS]
"""


@pytest.fixture
def ladder_file(tmp_path, store):
    """A ladder whose versions do what their names say, and an empty cache that the workers can hold."""
    file = tmp_path / "misbehaving.py"
    file.write_text(KERNELS)
    return file


@pytest.fixture
def workers():
    """A pool of one worker: what runs next runs where the last job ran."""
    one = pool.Pool(1)
    yield one
    one.close()


def a_job(ladder_file, version, tool="numerics"):
    return Job(str(ladder_file), version, 128, 128, 64, None, tool, ("exact",))


def finding(workers, job):
    (found,) = workers.submit(job).result().findings
    return found


def assert_still_serves(workers, ladder_file):
    found = finding(workers, a_job(ladder_file, "raises"))
    assert (found.verdict, "no such layout" in found.text) == ("broken", True)


# --- what a kernel may do to its process


def test_a_build_that_raises_is_broken_and_says_what_was_raised(workers, ladder_file):
    found = finding(workers, a_job(ladder_file, "raises"))
    assert found.verdict == "broken"
    assert "ValueError: no such layout" in found.text
    assert_still_serves(workers, ladder_file)


def test_a_process_that_aborts_is_a_crash_with_signal_stage_and_last_words(workers, ladder_file):
    found = finding(workers, a_job(ladder_file, "aborts"))
    assert found.verdict == "crash"
    assert "SIGABRT" in found.text
    assert "numerics" in found.text
    assert "stage 'start'" in found.text
    assert "the engine's last words" in found.text
    assert_still_serves(workers, ladder_file)


def test_a_process_that_leaves_is_a_crash_with_its_exit_code(workers, ladder_file):
    found = finding(workers, a_job(ladder_file, "leaves"))
    assert found.verdict == "crash"
    assert "exit code 3" in found.text
    assert_still_serves(workers, ladder_file)


def test_a_build_that_never_ends_is_a_timeout_that_names_stage_and_limit(workers, ladder_file, monkeypatch):
    assert_still_serves(workers, ladder_file)  # the worker is up: what follows is spent in the build
    with monkeypatch.context() as patch:
        patch.setitem(pool.LIMITS, "start", 1.0)
        found = finding(workers, a_job(ladder_file, "sleeps"))
    assert found.verdict == "timeout"
    assert "1 s in stage 'start'" in found.text
    assert_still_serves(workers, ladder_file)


def test_what_a_kernel_prints_is_not_taken_for_an_answer(workers, ladder_file):
    found = finding(workers, a_job(ladder_file, "prints"))
    assert (found.verdict, "printed" in found.text) == ("broken", True)
    assert_still_serves(workers, ladder_file)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [({"version": "nameless"}, "unknown version 'nameless'"), ({"m": 100}, "M = 100"), ({"k": 0}, "K = 0")],
)
def test_a_job_that_cannot_be_done_as_asked_is_an_error_that_says_why(workers, ladder_file, change, wanted):
    found = finding(workers, Job(**{**vars(a_job(ladder_file, "raises")), **change}))
    assert found.verdict == "error"
    assert wanted in found.text
    assert_still_serves(workers, ladder_file)


def test_a_version_that_cannot_be_imported_is_broken(workers, tmp_path, store):
    package = tmp_path / "half_a_ladder"
    package.mkdir()
    (package / "__init__.py").write_text("LADDER = ('v1_bad',)")
    (package / "v1_bad.py").write_text("raise ValueError('no such layout')")
    found = finding(workers, a_job(package, "v1"))
    assert (found.verdict, "no such layout" in found.text) == ("broken", True)


# --- closing


def wait_for(file, writer):
    """The number in a file that a job writes while it runs."""
    while not (file.is_file() and file.read_text().endswith("\n")):
        assert not writer.done()
        time.sleep(0.01)
    return int(file.read_text())


def test_close_kills_a_worker_in_the_middle_of_a_job_and_drops_what_is_queued(ladder_file):
    workers = pool.Pool(1)
    running, queued = (workers.submit(a_job(ladder_file, "sleeps")) for _ in range(2))
    sleeper = wait_for(ladder_file.with_name("sleeper"), running)
    workers.close()
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
    assert running.done()
    assert queued.cancelled()


def test_close_kills_a_worker_that_was_only_just_being_started(ladder_file, monkeypatch):
    monkeypatch.setitem(pool.LIMITS, "start", 5.0)
    workers = pool.Pool(1)
    running = workers.submit(a_job(ladder_file, "sleeps"))
    workers.close()
    assert running.done()
    assert running.cancelled() or running.result().findings[0].verdict != "timeout"


def test_a_pool_that_was_never_used_closes():
    pool.Pool(2).close()


# --- what the worker's answers look like on the wire


def answers_with(monkeypatch, tmp_path, text):
    """Put a shell script in the place of the workers' Python: it reads a job, then does as told."""
    file = tmp_path / "worker.sh"
    file.write_text(f"#!/bin/sh\nread job\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(file))


OUTCOME = '{"outcome": {"tool": "numerics", "findings": [{"verdict": "clean", "text": "", "inputs": "exact"}]}}'


def test_stages_and_an_outcome_that_arrive_together_are_all_heard(workers, ladder_file, monkeypatch, tmp_path):
    for stage in pool.LIMITS:
        monkeypatch.setitem(pool.LIMITS, stage, 5.0)
    answers_with(
        monkeypatch, tmp_path, f"""printf '{{"stage": "cached"}}\\n{{"stage": "run"}}\\n{OUTCOME}\\n'; read next"""
    )
    assert finding(workers, a_job(ladder_file, "raises")).verdict == "clean"


@pytest.mark.parametrize("stage", ["engine", "build", "cached", "run"])
def test_a_crash_names_the_stage_that_it_happened_in(workers, ladder_file, monkeypatch, tmp_path, stage):
    answers_with(monkeypatch, tmp_path, f"""echo '{{"stage": "{stage}"}}'; kill -SEGV $$""")
    found = finding(workers, a_job(ladder_file, "raises"))
    assert (found.verdict, "SIGSEGV" in found.text, f"stage '{stage}'" in found.text) == ("crash", True, True)


@pytest.mark.parametrize("stage", ["engine", "build", "cached", "run"])
def test_each_stage_has_its_own_limit(workers, ladder_file, monkeypatch, tmp_path, stage):
    monkeypatch.setitem(pool.LIMITS, stage, 0.1)
    answers_with(monkeypatch, tmp_path, f"""echo '{{"stage": "{stage}"}}'; sleep 3600""")
    found = finding(workers, a_job(ladder_file, "raises"))
    assert (found.verdict, f"stage '{stage}'" in found.text) == ("timeout", True)


@pytest.mark.parametrize("half", ['{"outc', '{"stage": "run"}\\n{"outcome": {"tool"', "Segmentation fault"])
def test_an_answer_cut_short_is_a_crash_and_never_an_exception(workers, ladder_file, monkeypatch, tmp_path, half):
    answers_with(monkeypatch, tmp_path, f"printf '{half}'; kill -KILL $$")
    assert finding(workers, a_job(ladder_file, "raises")).verdict == "crash"


def test_a_worker_that_ends_before_it_reads_its_job_is_a_crash(workers, ladder_file, monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert finding(workers, a_job(ladder_file, "raises")).verdict == "crash"


def test_a_worker_that_died_between_two_jobs_costs_neither(workers, ladder_file, monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    answers_with(monkeypatch, tmp_path, f"echo $$ > '{pid}'; echo '{OUTCOME}'")
    for _ in range(2):
        assert finding(workers, a_job(ladder_file, "raises")).verdict == "clean"
        os.waitid(os.P_PID, int(pid.read_text()), os.WEXITED | os.WNOWAIT)


# --- outcomes and verdicts


@pytest.mark.parametrize("findings", [(), (Finding("clean", inputs="normal"),)])
def test_an_outcome_without_a_finding_for_the_inputs_is_incomplete(findings):
    assert Outcome("numerics", findings).of("exact").verdict == "incomplete"


def test_a_finding_for_no_inputs_in_particular_applies_to_all_and_one_for_some_to_those():
    assert Outcome("racecheck", (Finding("review"),)).of("marked").verdict == "review"
    of_two = Outcome("numerics", (Finding("clean", inputs="exact"), Finding("wrong", inputs="marked")))
    assert [of_two.of(kind).verdict for kind in ("exact", "marked")] == ["clean", "wrong"]


def test_an_outcome_crosses_the_wire_as_it_is():
    outcome = Outcome("numerics", (Finding("wrong", "D[0, 0]", "exact"), Finding("clean")), 1.5, 2.5, True)
    assert Outcome.from_json(outcome.to_json()) == outcome


SPEC = Specialisation("v7", Problem(128, 128, 64), 2, frozenset())
CASE = Case(SPEC, "exact")
ALL_CLEAN = {tool: Finding("clean") for tool in TOOLS}


def test_a_verdict_is_clean_if_every_tool_that_was_asked_said_so():
    assert Verdict(CASE, ALL_CLEAN, TOOLS).clean


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("said", ["wrong", "error", "review", "incomplete", "crash", "timeout", "broken", "Clean", ""])
def test_a_verdict_is_not_clean_if_any_tool_said_anything_else(tool, said):
    verdict = Verdict(CASE, {**ALL_CLEAN, tool: Finding(said, "why\nat length")}, TOOLS)
    assert not verdict.clean
    lines = verdict.report("blackwell_gemm").splitlines()
    assert lines[0] == f"case {CASE.id}"
    assert lines[1:4] == [f"{tool}: {said}", "  why", "  at length"]
    assert lines[-1].startswith("again: tirx-ladder check v7 ")


def test_a_verdict_without_a_tool_that_was_asked_is_not_clean_and_says_so():
    verdict = Verdict(CASE, {tool: Finding("clean") for tool in TOOLS[1:]}, TOOLS)
    assert not verdict.clean
    assert f"{TOOLS[0]}: incomplete" in verdict.report("blackwell_gemm")


def test_a_verdict_for_which_no_tool_was_asked_is_not_clean():
    assert not Verdict(CASE, ALL_CLEAN, ()).clean


class Heard:
    """A pool that notes its jobs and finds every kind of input that it was given clean."""

    def __init__(self):
        self.jobs = []

    def submit(self, job):
        self.jobs.append(job)
        future = Future()
        kinds = job.inputs if job.tool == "numerics" else [None]
        future.set_result(Outcome(job.tool, tuple(Finding("clean", inputs=kind) for kind in kinds)))
        return future

    def submit_together(self, jobs):
        return [self.submit(job) for job in jobs]


ALL_CASES = [Case(SPEC, kind) for kind in INPUTS]


def test_cases_planned_together_cost_one_job_a_tool():
    heard = Heard()
    judge = Judge("blackwell_gemm", heard)
    judge.plan(ALL_CASES)
    judge.plan(ALL_CASES)
    assert [job.tool for job in heard.jobs] == list(TOOLS)
    assert all(job.inputs == INPUTS for job in heard.jobs)
    assert all(judge.verdict(case).clean for case in ALL_CASES)


def test_cases_planned_one_by_one_are_each_judged():
    judge = Judge("blackwell_gemm", Heard())
    for case in ALL_CASES:
        judge.plan([case])
        assert judge.verdict(case).clean


def test_a_case_of_part_of_a_launch_is_judged_without_the_checkers():
    heard = Heard()
    judge = Judge("blackwell_gemm", heard)
    part = Case(Specialisation("v7", SPEC.problem, 2, frozenset(), clusters=(0,)), "exact")
    judge.plan([part])
    assert [(job.tool, job.clusters) for job in heard.jobs] == [("lint", (0,)), ("numerics", (0,))]
    assert judge.verdict(part).clean


def test_only_the_tools_that_are_asked_are_run_and_wanted():
    heard = Heard()
    judge = Judge("blackwell_gemm", heard)
    judge.plan([CASE], ("numerics",))
    assert [job.tool for job in heard.jobs] == ["numerics"]
    assert judge.verdict(CASE, ("numerics",)).clean
    assert not judge.verdict(CASE, TOOLS).clean


@pytest.mark.parametrize(
    ("stage", "wanted"), [("engine", "racecheck engine"), ("build", "v7 128x128x64"), ("run", "v7 128x128x64")]
)
def test_who_waits_is_told_what_is_being_done(stage, wanted):
    job = Job("blackwell_gemm", "v7", 128, 128, 64, 2, "racecheck", ("exact",))
    text = pool.describe(pool.Activity(job, stage, time.monotonic()))
    assert wanted in text
    assert "racecheck" in text
