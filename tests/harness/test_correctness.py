"""The correctness record: made from the cases that really ran, read strictly, and what the gate takes of it."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tirx_ladder import commits, correctness
from tirx_ladder.correctness import CLEAN, INCOMPLETE, INCORRECT, SCHEMA, Correctness, Judged
from tirx_ladder.ladder import KernelVersion, Ladder, UsageError

HEAD = "b" * 40
SMALL_LADDER = Path(__file__).with_name("small_ladder.py").read_text()
ONE_TILE = SMALL_LADDER.replace("blk_k=BLK_K)", "blk_k=BLK_K, max_tiles=1, max_k_tiles=1)")
WRONG = ONE_TILE.replace("acc = acc + ", "acc = acc - ")


def record(*judged, **changes):
    good = Correctness(SCHEMA, "blackwell_gemm", "default", HEAD, False, judged or (Judged("v9", 4, 4, CLEAN, ""),))
    return dataclasses.replace(good, **changes)


def ladder(**broken):
    version = KernelVersion("s1", "", lambda problem, *, sm_count: None, (32, 8), 16, max_tiles=1, max_k_tiles=1)
    return Ladder("gemm", (version,), broken)


def facts(n=4, wrong=()):
    ids = [case.id for case in correctness.tier(ladder().versions[0], "default")]
    return [{"case": case, "clean": i not in wrong, "reason": f"{case} is\noff"} for i, case in enumerate(ids[:n])]


def judged(found):
    (one,) = found.versions
    return one


def collect(facts, loaded=None):
    return correctness.collect(loaded or ladder(), "default", (HEAD, False), facts)


def test_a_version_is_clean_if_every_case_of_its_tier_was_judged_clean():
    assert judged(collect(facts())) == Judged("s1", 4, 4, CLEAN, "")


@pytest.mark.parametrize("n", [0, 3])
def test_a_case_that_did_not_run_makes_a_version_incomplete(n):
    found = judged(collect(facts(n)))
    assert (found.verdict, found.run, found.wanted) == (INCOMPLETE, n, 4)


def test_a_case_that_is_not_clean_makes_a_version_incorrect_with_the_first_reason_in_one_line():
    found = judged(collect(facts(3, wrong={1, 2})))
    assert found.verdict == INCORRECT
    assert found.reason == f"{facts()[1]['case']} is off"


def test_a_case_of_another_tier_is_no_evidence():
    assert judged(collect([{"case": f"s1-{i}", "clean": True, "reason": ""} for i in range(9)])).run == 0


def test_a_version_that_the_simulator_does_not_know_says_where_it_can_be_judged():
    loaded = ladder()
    loaded = dataclasses.replace(loaded, versions=(dataclasses.replace(loaded.versions[0], simulated=False),))
    assert "--device" in judged(collect([], loaded)).reason


def test_a_version_that_cannot_be_imported_is_incorrect():
    assert collect(facts(), ladder(s2="s2 cannot be imported: E")).versions[-1].verdict == INCORRECT


def test_what_was_written_is_read(tmp_path):
    correctness.write(record(), tmp_path / "c.json")
    assert correctness.read(tmp_path / "c.json") == record()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": 2}, "schema 2"),
        ({"tier": "some"}, "tier"),
        ({"commit": "HEAD"}, "commit"),
        ({"versions": (Judged("v9", 4, 3, CLEAN, ""),)}, "3 of 4"),
        ({"versions": (Judged("v9", 0, 0, CLEAN, ""),)}, "0 of 0"),
        ({"versions": (Judged("v9", 4, 4, "fine", ""),)}, "verdict: 'fine'"),
        ({"versions": (Judged("v9", 4, 4, CLEAN, ""),) * 2}, "twice"),
    ],
)
def test_a_record_that_cannot_be_is_refused_by_name(tmp_path, change, named):
    correctness.write(record(**change), tmp_path / "c.json")
    with pytest.raises(UsageError, match=named):
        correctness.read(tmp_path / "c.json")


def test_an_unknown_key_is_refused_by_name(tmp_path):
    correctness.write(record(), tmp_path / "c.json")
    data = json.loads((tmp_path / "c.json").read_text()) | {"note": "trust me"}
    (tmp_path / "c.json").write_text(json.dumps(data))
    with pytest.raises(UsageError, match="note"):
        correctness.read(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"commit": "c" * 40}, "other-commit"),
        ({"commit": None}, "other-commit"),
        ({"dirty": True}, "dirty"),
        ({"ladder": "hopper_gemm"}, "other-ladder"),
    ],
)
def test_a_record_of_something_else_is_no_evidence(change, code):
    assert [f.code for f in commits.against(record(**change), "c.json", HEAD, "blackwell_gemm")] == [code]


def test_a_record_of_this_commit_and_ladder_is_evidence():
    assert commits.against(record(), "c.json", HEAD, "blackwell_gemm") == []


def test_a_wanted_version_that_was_not_judged_is_incomplete():
    assert commits.verdicts(record(), ["v9", "v8"])["v8"].startswith(INCOMPLETE)


def test_a_version_that_nobody_asked_about_counts_if_it_is_incorrect_and_not_if_it_is_incomplete():
    found = record(Judged("v1", 4, 4, INCORRECT, "off"), Judged("v2", 4, 1, INCOMPLETE, "1 of 4"))
    assert commits.verdicts(found, []) == {"v1": "incorrect: off"}


def test_the_quick_tier_does_not_show_that_a_version_is_right():
    assert commits.verdicts(record(tier="quick"), ["v9"])["v9"].startswith(INCOMPLETE)


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / "kernels.py").write_text(ONE_TILE)
    (tmp_path / "test_mine.py").write_text("def test_mine(version, case, judge):\n    judge(case)\n")
    (tmp_path / ".gitignore").write_text("__pycache__\nreports\n.pytest_cache\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    return tmp_path


def session(folder, *words):
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "--ladder", "kernels.py", *words]
    done = subprocess.run(
        [*command, "--correctness-report", "reports/c.json"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done, correctness.read(folder / "reports/c.json")


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_session_records_commit_and_clean_versions(repository, words):
    done, found = session(repository, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert judged(found) == Judged("s1", 4, 4, CLEAN, "")
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True)
    assert (found.ladder, found.commit, found.dirty) == ("kernels", head.stdout.strip(), False)


def test_deselected_cases_and_uncommitted_changes_are_recorded(repository):
    (repository / "kernels.py").write_text(ONE_TILE + "# changed\n")
    _, found = session(repository, "-k", "exact")
    assert judged(found).verdict == INCOMPLETE
    assert found.dirty


def test_a_new_file_beside_the_kernels_is_an_uncommitted_change(repository):
    (repository / "helper.py").touch()
    assert session(repository, "-k", "nothing")[1].dirty


@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_wrong_kernel_is_recorded_as_incorrect(repository, words):
    (repository / "kernels.py").write_text(WRONG)
    _, found = session(repository, *words)
    assert judged(found).verdict == INCORRECT
    assert "numerics wrong" in judged(found).reason


def test_a_test_that_fails_after_a_clean_case_is_not_clean(repository):
    (repository / "test_mine.py").write_text("def test_mine(version, case, judge):\n    judge(case)\n    assert 0\n")
    assert judged(session(repository)[1]).verdict == INCORRECT


def test_an_installed_copy_in_an_ignored_folder_is_of_no_commit(repository):
    (repository / "reports").mkdir()
    (repository / "reports" / "kernels.py").write_text(ONE_TILE)
    found = session(repository, "--ladder", "reports/kernels.py", "-k", "nothing")[1]
    assert (found.commit, found.dirty) == (None, True)
