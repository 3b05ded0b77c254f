"""The correctness matrix under pytest: on the GPU with --device, and what the CPU simulator cannot judge."""

import json
import os
import subprocess
import sys
import textwrap

import gpu
import pytest

TEST = "def test_matrix(version, case, judge):\n    judge(case)\n"

LADDER = textwrap.dedent("""
    import dataclasses, sys
    sys.path.insert(0, {here!r})
    import small_ladder
    from tirx_ladder.ladder import KernelVersion
    small = small_ladder.LADDER[0]
    LADDER = [dataclasses.replace(small, **changed) for changed in {changes!r}]
""")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    gpu.compile_into(folder)
    return folder


@pytest.fixture
def ladder(tmp_path):
    """Writes a ladder of small versions with changed fields, and a test over it; returns the ladder's file."""

    def write(*changes):
        file = tmp_path / "some_ladder.py"
        file.write_text(LADDER.format(here=str(gpu.HERE), changes=changes))
        (tmp_path / "test_matrix.py").write_text(TEST)
        return file

    return write


def matrix_run(libraries, file, *words, **how):
    words = ("-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", file.parent, "--ladder", file, *words)
    return gpu.run(libraries, *words, file.parent / "test_matrix.py", module="pytest", **how)


HOPPER = {"name": "h1", "arch": "sm_90a", "simulated": False}
BLACKWELL = {"name": "b1", "arch": "sm_100a", "simulated": False}


def test_the_versions_that_the_gpu_can_run_are_judged_there_and_the_others_named(libraries, ladder, tmp_path):
    file, report = ladder(HOPPER, BLACKWELL), tmp_path / "correctness.json"
    words = ("--device", "--no-torch", "--correctness-report", report, "-k", "exact or normal")
    done = matrix_run(libraries, file, "--quick", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 of 2 cases clean" in done.stdout
    assert "not judged here: b1: for sm_100a, and this GPU is not" in done.stdout
    versions = {v["version"]: v["verdict"] for v in json.loads(report.read_text())["versions"]}
    assert versions == {"h1": "incomplete", "b1": "incomplete"}  # two of four kinds of input, and none


def test_a_wrong_kernel_fails_its_cases_with_the_reason(libraries, ladder):
    done = matrix_run(libraries, ladder(HOPPER), "--quick", "--device", "--no-torch", gpu="wrong")
    assert done.returncode == 1
    assert "elements of D differ" in done.stdout
    assert "0 of 4 cases clean" in done.stdout


def test_a_kernel_that_does_not_build_fails_its_cases(libraries, ladder):
    file = ladder(HOPPER)
    file.write_text(file.read_text() + "def fails(problem, *, sm_count=1):\n    raise ValueError('no such tile')\n\n"
                    "LADDER = [dataclasses.replace(LADDER[0], build=fails)]\n")  # fmt: skip
    done = matrix_run(libraries, file, "--quick", "--device", "--no-torch")
    assert done.returncode == 1
    assert "ValueError: no such tile" in done.stdout


def last_line(done):
    assert done.returncode == 2, done.stdout + done.stderr
    said = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("Exit: ")]
    assert len(said) == 1
    assert "Traceback" not in done.stdout + done.stderr
    return said[0]


def test_no_gpu_ends_the_run_with_one_line(libraries, ladder):
    done = matrix_run(libraries, ladder(HOPPER), "--device", "--no-torch", gpu="no device")
    assert "no usable GPU here" in last_line(done)


def test_a_ladder_for_another_gpu_ends_the_run_with_one_line(libraries, ladder):
    done = matrix_run(libraries, ladder(BLACKWELL), "--device", "--no-torch")
    assert "compute capability 9.0" in last_line(done)
    assert "is for sm_100a" in last_line(done)


def on_the_cpu(file, *words):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--ladder", str(file)]
    command += ["--rootdir", str(file.parent), "--collect-only", *words, str(file.parent / "test_matrix.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_what_the_simulator_does_not_know_gives_no_case_on_the_cpu_and_is_named(ladder):
    done = on_the_cpu(ladder({"name": "s1"}, HOPPER))
    assert done.returncode == 0
    assert "[s1-" in done.stdout
    assert "[h1-" not in done.stdout
    wanted = "not judged here: h1: the CPU simulator does not know their instructions; on a GPU of sm_90a: "
    assert wanted + "nox -s correctness -- --device --ladder" in done.stdout


@pytest.mark.parametrize("words", [(), ("-k", "h1")])
def test_a_cpu_run_of_nothing_else_is_a_usage_error(ladder, words):
    file = ladder(HOPPER) if not words else ladder({"name": "s1"}, HOPPER)
    done = on_the_cpu(file, *words)
    assert done.returncode == 2
    assert "--device" in done.stdout + done.stderr
