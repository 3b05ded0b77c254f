"""The gate between commits of a scratch repository, each built from a clean checkout of its own."""

import dataclasses
import importlib.util
import subprocess
from pathlib import Path

import pytest

from tirx_ladder import checkout, cli, correctness, results
from tirx_ladder.correctness import Correctness, Judged
from tirx_ladder.git import commit_of
from tirx_ladder.ladder import Problem, UsageError

SMALL_LADDER = Path(__file__).with_name("small_ladder.py").read_text()
SECOND = 'LADDER.append(KernelVersion(name="s2", adds="the same", build=build, tile=(32, 8), blk_k=16))\n'


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


@pytest.fixture
def commit(tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet")
    monkeypatch.chdir(tmp_path)

    def make(message, **files):
        for name, text in files.items():
            (tmp_path / name).with_suffix(".py").write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", message)

    make("first", kernels=SMALL_LADDER + SECOND)
    return make


def gate(*words):
    return cli.main(["gate", "--base", "HEAD~1", "--kernels", "kernels.py", "--problem", "64x64x64", *words])


def test_a_change_of_words_alone_passes_as_the_same_code(commit, capsys):
    commit("docs", kernels="# a remark\n" + SMALL_LADDER + SECOND)
    assert gate() == 0
    assert "same-code" in Path("reports/gate.md").read_text()


def test_a_version_that_is_gone_is_invalid(commit):
    commit("drop s2", kernels=SMALL_LADDER)
    assert gate() == 4
    assert "s2" in Path("reports/gate.md").read_text()


def test_a_version_that_no_longer_builds_is_invalid(commit):
    broken = SMALL_LADDER.replace("acc = T.float32(0)", "acc = no_such_name")
    commit("break s1", kernels=broken + SECOND)
    assert gate() == 4


def test_no_checkout_is_left_behind(commit):
    commit("docs")
    gate()
    listed = subprocess.run(["git", "worktree", "list"], check=True, capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1


def test_a_base_that_is_not_there_is_one_line_and_exit_code_2(commit, capsys):
    assert cli.main(["gate", "--base", "no-such-branch", "--kernels", "kernels.py"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_commit_without_the_ladder_is_refused(commit):
    with pytest.raises(UsageError, match="has no kernels/none"):
        checkout.result_set(Path.cwd(), commit_of(Path.cwd(), "HEAD"), "kernels/none", ())


ONE_TILE = SMALL_LADDER.replace("blk_k=BLK_K)", "blk_k=BLK_K, max_tiles=1, max_k_tiles=1)")
FASTER = ONE_TILE.replace("acc = T.float32(0)", "acc = T.float32(-0.0)")
WRONG = ONE_TILE.replace("acc = acc + ", "acc = acc - ")


def judged(verdict="clean", commit=None, **changes):
    """A file that the correctness session might have written."""
    one = Judged("s1", 4, 4, verdict, "" if verdict == "clean" else "off")
    good = Correctness(correctness.SCHEMA, "kernels", "default", commit or commit_of(Path(), "HEAD"), False, (one,))
    correctness.write(dataclasses.replace(good, **changes), Path("judged.json"))
    return "--correctness", "judged.json"


@pytest.fixture
def no_simulator(monkeypatch):
    monkeypatch.setattr(checkout, "judge", lambda *_, **__: pytest.fail("the matrix ran"))


def test_changed_code_goes_through_the_matrix_and_passes_if_it_is_clean(commit):
    commit("one tile", kernels=ONE_TILE)
    commit("faster", kernels=FASTER)
    assert gate() == 0
    assert "s1" in Path("reports/gate-correctness.log").read_text()
    assert "the correctness matrix is clean at head for s1" in Path("reports/gate.md").read_text()
    assert results.read(Path("reports/gate-head.json")).entries[0].correctness == "clean"


def test_changed_code_that_is_wrong_is_invalid_however_fast_it_is(commit):
    commit("one tile", kernels=ONE_TILE)
    commit("wrong", kernels=WRONG)
    assert gate() == 4
    text = Path("reports/gate.md").read_text()
    assert "incorrect" in text
    assert "numerics wrong" in text


def test_a_change_of_words_alone_needs_no_matrix(commit, no_simulator):
    commit("docs", kernels="# a remark\n" + SMALL_LADDER + SECOND)
    assert gate() == 0


def test_a_record_of_head_stands_for_the_matrix(commit, no_simulator):
    commit("one tile", kernels=ONE_TILE)
    commit("faster", kernels=FASTER)
    assert gate(*judged()) == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"verdict": "incorrect"}, "incorrect: off"),
        ({"verdict": "incomplete"}, "incomplete: off"),
        ({"versions": ()}, "not run on it"),
        ({"tier": "quick"}, "quick tier"),
        ({"commit": "c" * 40}, "other-commit: the result set is of another"),
        ({"dirty": True}, "dirty"),
        ({"ladder": "other"}, "other-ladder"),
        ({"schema": 7}, "schema 7"),
    ],
)
def test_a_record_that_proves_nothing_is_invalid_and_says_why(commit, no_simulator, changes, named):
    commit("one tile", kernels=ONE_TILE)
    commit("faster", kernels=FASTER)
    assert gate(*judged(**changes)) == 4
    assert named in Path("reports/gate.md").read_text()


def test_a_stale_record_is_refused_even_where_the_code_is_the_same(commit, no_simulator):
    commit("docs")
    assert gate(*judged(commit="c" * 40)) == 4


def test_a_record_that_is_not_there_is_one_line_and_exit_code_2(commit, capsys):
    commit("docs")
    assert gate("--correctness", "none.json") == 2
    assert "none.json" in capsys.readouterr().err


def test_without_the_simulator_changed_code_is_one_line_and_exit_code_2(commit, monkeypatch, capsys):
    commit("one tile", kernels=ONE_TILE)
    commit("faster", kernels=FASTER)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tirx_harness" else found(name))
    assert gate() == 2
    assert "tirx_harness is not installed" in capsys.readouterr().err.splitlines()[-1]


def test_both_result_sets_are_kept_by_commit(commit):
    commit("docs")
    assert gate() == 0
    kept = {path.stem for path in Path("reports/history/kernels").iterdir()}
    assert kept == {commit_of(Path(), "HEAD"), commit_of(Path(), "HEAD~1")}


def test_a_change_that_shows_on_one_problem_alone_is_seen_where_that_is_asked_for(commit):
    commit("s1", kernels=SMALL_LADDER.replace("T.float32(0)", "T.float32(problem.k // 128)") + SECOND)
    both = (Problem(64, 64, 64), Problem(64, 64, 128))
    before, after = (
        checkout.result_set(Path.cwd(), commit_of(Path.cwd(), revision), "kernels.py", both)
        for revision in ("HEAD~1", "HEAD")
    )
    known = {e.key: e.code_hash for e in before.entries}
    same = {str(e.problem): known[e.key] == e.code_hash for e in after.entries if e.version == "s1"}
    assert same == {"64x64x64": True, "64x64x128": False}
    assert gate() == 0


@pytest.mark.parametrize("text", ["4096", "4096x4096", "4096x4096x0", "4096x4096x-1", "axbxc"])
def test_a_problem_that_is_none_is_refused(commit, text):
    with pytest.raises(SystemExit, match="2"):
        gate("--problem", text)
