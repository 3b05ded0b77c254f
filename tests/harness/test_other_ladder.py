"""Another repository's ladder gets the same matrix over its own kernels with one short test file."""

import subprocess
import sys
from pathlib import Path

import pytest

SMALL_LADDER = Path(__file__).with_name("small_ladder.py")
ONE_SHORT_TEST = "def test_mine(version, case, judge):\n    judge(case)\n"


def run_matrix(folder, ladder_text, *words):
    (folder / "ladder.py").write_text(ladder_text)
    (folder / "test_mine.py").write_text(ONE_SHORT_TEST)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "--ladder", "ladder.py", "-k", "96x24x16", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return run_matrix(tmp_path_factory.mktemp("good"), SMALL_LADDER.read_text())


def test_a_right_kernel_of_another_ladder_passes_with_every_kind_of_input(good):
    assert good.returncode == 0, good.stdout
    assert "4 of 4 cases clean" in good.stdout


def test_progress_and_a_summary_by_column_are_shown(good):
    assert "[0:00] 4 cases on " in good.stdout
    assert "K_TILES" in good.stdout


def test_a_wrong_kernel_fails_with_index_tile_and_the_command_to_run_it_again(tmp_path):
    wrong = SMALL_LADDER.read_text().replace("for k in T.serial(K)", "for k in T.serial(K - 1)")
    done = run_matrix(tmp_path, wrong, "-k", "96x24x16 and exact")
    assert done.returncode == 1
    assert "numerics: wrong" in done.stdout
    assert "first at D[" in done.stdout
    assert "again: tirx-ladder check s1 --m 96 --n 24 --k 16 --inputs exact --ladder" in done.stdout


def test_it_runs_under_xdist(tmp_path):
    done = run_matrix(tmp_path, SMALL_LADDER.read_text(), "-n", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 cases clean" in done.stdout


def test_a_ladder_that_is_not_there_ends_in_one_line_and_exit_code_2(tmp_path):
    (tmp_path / "test_mine.py").write_text(ONE_SHORT_TEST)
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--ladder", "no_such_ladder"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no ladder 'no_such_ladder'" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
