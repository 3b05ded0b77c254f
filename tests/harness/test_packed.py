"""The measured gate in two steps: what is packed, and what measuring it comes to, by faked measuring processes."""

import dataclasses

import gpu
import pytest
from result_sets import entry, result

from tirx_ladder import bundle, commits, packed, policy, results
from tirx_ladder.gpu import device, jobs, machine, measure
from tirx_ladder.ladder import UsageError

H200 = machine.Gpu("NVIDIA H200", "GPU-fake", "580.1", 132, 989.4, 4.8e12)
STATE = machine.State("before", 1980, 3201, 90.0, 700.0, 35, ("power cap",), (), 0)
OPTIONS = measure.Options(samples=4, heat_s=0.0)
BASE, HEAD = "a" * 40, "b" * 40


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return gpu.small_bundle(tmp_path_factory.mktemp("bundles") / "small")


@pytest.fixture(autouse=True)
def here(monkeypatch):
    monkeypatch.setattr("tirx_ladder.gpu.runtime.require", lambda arch, ordinal=0: None)


class Machine:
    """Stands for measuring processes: head takes slower times base's cycles, and a process may fail."""

    def __init__(self, slower=0.0, fails=None):
        self.slower, self.fails, self.jobs = slower, fails, []

    def __call__(self, job, limit_s):
        self.jobs.append(job)
        number, owner = len(self.jobs), self

        class Process:
            def measure(self):
                (task,) = job.tasks
                if number == owner.fails:
                    raise measure.MeasureError("it ended before 'done'")
                own = 1e-3 * (1 + 1e-4 * (number * 7 % 5))
                seconds = own * (1 + owner.slower * (task.bundle.endswith("head")))
                timed = jobs.Timed(task.label, (seconds,) * 4, (1.5e9,) * 4, (), 0, None)
                return jobs.Answer(H200, (STATE,), 1, (timed,), {}, {})

            def close(self):
                pass

        return Process()


@pytest.fixture
def asked(small, tmp_path):
    """A packed gate of one changed version, two if wanted, and one whose code is the same."""

    def make(versions=("s1",), messages=(), refused=(), on_gpu=()):
        problem = bundle.load_manifest(small).problem
        folder = tmp_path / "packed"
        pairs = []
        for version in versions:
            for side in packed.SIDES:
                (folder / f"{version}-{problem}").mkdir(parents=True, exist_ok=True)
                packed.shutil.copytree(small, folder / f"{version}-{problem}" / side)
            pairs.append(packed.Pair(version, problem, f"{version}-{problem}"))
        same = entry("same", problem=problem)
        sides = {}
        for side, commit in (("base", BASE), ("head", HEAD)):
            entries = [entry(version, code=side, problem=problem) for version in versions]
            sides[side] = result(*entries, same, commit=commit, machine=None, arch="sm_90a")
        found = packed.Asked(
            packed.SCHEMA, BASE, HEAD, policy.Policy(), tuple(messages), tuple(refused), tuple(pairs), tuple(on_gpu)
        )
        packed.write(found, sides["base"], sides["head"], folder)
        return folder

    return make


def reasons(report):
    return {row.version: row.reasons[0] for row in report.rows}


def run(folder, machine):
    said = []
    return packed.run(folder, options=OPTIONS, start=machine, say=said.append), said


@pytest.mark.parametrize(("slower", "reason", "code"), [(0.0, "not-slower", 0), (0.03, "slower", 1)])
def test_changed_code_is_timed_and_judged_and_the_same_code_is_not(asked, slower, reason, code):
    folder, machine = asked(), Machine(slower)
    report, said = run(folder, machine)
    assert report.exit_code == code
    assert reasons(report)["same"] == "same-code"
    assert reason in next(row.reasons for row in report.rows if row.version == "s1")
    assert said[0] == "s1 on 64x16x32: 8 pairs of base against itself"
    timed = results.read(folder / "measured-head.json")
    assert timed.origin.machine == "NVIDIA H200 GPU-fake, driver 580.1"
    (of_s1,) = (e.samples for e in timed.entries if e.version == "s1")
    assert len(of_s1.processes) >= 8
    assert of_s1.null_floor is not None


def test_what_a_machine_shows_against_itself_is_measured_once_a_problem(asked):
    _, said = run(asked(versions=("s1", "s2")), Machine())
    assert sum("against itself" in line for line in said) == 1


def test_a_small_slowdown_gets_more_pairs_up_to_the_policys_most(asked):
    machine = Machine(0.005)
    report, _ = run(asked(), machine)
    assert report.exit_code == 3
    assert len(machine.jobs) == 2 * (measure.NULL_PAIRS + policy.Policy().max_processes)


@pytest.mark.parametrize(("fails", "code"), [(3, 3), (20, 4)])  # a null pair; a pair of base and head
def test_a_process_that_fails_lets_nothing_pass_and_ends_the_measuring(asked, fails, code):
    machine = Machine(fails=fails)
    report, _ = run(asked(), machine)
    assert report.exit_code == code
    assert len(machine.jobs) == 2 * (measure.NULL_PAIRS + 8)


def test_a_trade_accepts_a_measured_slowdown(asked):
    report, _ = run(asked(messages=["x\n\nAccept-regression: s1 seconds: more work is done"]), Machine(0.03))
    assert (report.exit_code, len(report.accepted)) == (0, 1)


def test_what_stood_against_the_evidence_when_it_was_packed_still_does(asked):
    report, _ = run(asked(refused=[packed.Refused("dirty", "correctness.json")]), Machine())
    assert report.exit_code == 4


@pytest.mark.parametrize(
    ("judged", "verdict"),
    [
        ([[device.Finding("exact", "clean", "")]], 0),
        ([[device.Finding("exact", "clean", ""), device.Finding("normal", "wrong", "D[0, 0] is 1")]], 4),
        ([[device.Finding("exact", "hang", "passed its limit")]], 4),
        ([[device.Finding("exact", "clean", "")], []], 4),
        ([], 4),
    ],
)
def test_versions_that_the_simulator_does_not_know_are_judged_on_the_gpu_first(asked, monkeypatch, judged, verdict):
    results = tuple(device.Result("s1-case", "s1", tuple(findings), 1.0) for findings in judged)
    report = device.Report(1, "l", "sm_90a", H200, ("oracle",), False, results)
    monkeypatch.setattr("tirx_ladder.gpu.device.run", lambda *args, **kwargs: report)
    found, _ = run(asked(on_gpu=["s1"]), Machine())
    assert found.exit_code == verdict


def test_a_damaged_bundle_is_refused_before_anything_runs(asked):
    folder, machine = asked(), Machine()
    (folder / "s1-64x16x32" / "head" / bundle.CUBIN).write_bytes(b"not a cubin")
    with pytest.raises(UsageError, match=r"kernel\.cubin has 11 bytes"):
        run(folder, machine)
    assert machine.jobs == []


def test_a_folder_that_was_not_packed_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"gate\.json"):
        run(tmp_path, Machine())


def test_a_gate_is_not_packed_over_something(tmp_path):
    question = commits.Question(tmp_path, BASE, HEAD, "k", (gpu.PROBLEM,), None, None, tmp_path)
    with pytest.raises(UsageError, match="is there already"):
        commits.pack(question, tmp_path, print)


def test_only_what_both_sides_build_and_differently_is_timed():
    built, changed_, broken = entry("v1"), entry("v1", code="new"), entry("v2", code="new")
    base = result(built, dataclasses.replace(broken, code_hash=None, figures=None, build_error="why"), entry("v3"))
    head = result(changed_, broken, entry("v3"), entry("v4"), side="b")
    assert packed.changed(base, head) == [(built, changed_)]
