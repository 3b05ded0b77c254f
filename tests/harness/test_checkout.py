"""The gate between commits of a scratch repository, each built from a clean checkout of its own."""

import subprocess
from pathlib import Path

import pytest

from tirx_ladder import checkout, cli
from tirx_ladder.ladder import UsageError

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
    return cli.main(
        ["gate", "--base", "HEAD~1", "--kernels", "kernels.py", "--m", "64", "--n", "64", "--k", "64", *words]
    )


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
        checkout.result_set(Path.cwd(), checkout.commit_of(Path.cwd(), "HEAD"), "kernels/none", None)
