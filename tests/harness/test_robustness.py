"""A kernel that misbehaves costs its own verdict: the others still run, and nothing spoils the next run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tirx_ladder import pool
from tirx_ladder.simulate import Job

SMALL_LADDER = Path(__file__).with_name("small_ladder.py").read_text()
GOOD = "s1-32x8x16-exact"


def ladder_with(version, body):
    """The small ladder and a second version whose build does something else first."""
    return (
        SMALL_LADDER + f"\n\ndef misbehave(problem, *, sm_count=148):\n    {body}\n    return build(problem)\n\n\n"
        f'LADDER.append(KernelVersion(name="{version}", adds="trouble", build=misbehave, tile=(32, 8), blk_k=16))\n'
    )


def run_job(ladder_file, version, tool="numerics"):
    workers = pool.Pool(1)
    try:
        jobs = [Job(str(ladder_file), name, 32, 8, 16, None, tool, ("exact",)) for name in (version, "s1")]
        return [future.result() for future in workers.submit_together(jobs)]
    finally:
        workers.close()


def test_memory_past_the_limit_is_a_verdict_and_the_next_kernel_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "memory_limit", lambda: 6 * 2**30)
    file = tmp_path / "ladder.py"
    file.write_text(ladder_with("hog", "hoard = [bytearray(2**30) for _ in range(16)]"))
    hog, good = run_job(file, "hog")
    assert hog.findings[0].verdict == "broken"
    assert "MemoryError" in hog.findings[0].text
    assert good.findings[0].verdict == "clean"


def test_a_disk_that_takes_no_more_is_a_verdict_and_the_next_run_is_right(tmp_path, monkeypatch):
    """A file-size limit fails the simulator's writes as a full disk does, in whichever process makes them."""
    monkeypatch.setenv("NUMSIM_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "ladder.py"
    body = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))"
    file.write_text(ladder_with("full", body))
    full, _ = run_job(file, "full")
    assert full.findings[0].verdict in ("crash", "error")
    monkeypatch.undo()
    assert run_job(file, "s1")[0].findings[0].verdict == "clean"


def matrix(folder, *words):
    (folder / "test_mine.py").write_text("def test_mine(version, case, judge):\n    judge(case)\n")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "--ladder", "ladder.py", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_version_that_crashes_fails_alone(tmp_path):
    (tmp_path / "ladder.py").write_text(ladder_with("c1", "import os; os.abort()"))
    out, _ = (run := matrix(tmp_path, "-k", "32x8x16-exact or 96x24x16-exact")).communicate()
    assert run.returncode == 1, out
    assert "SIGABRT" in out
    assert "s1               1" in out.replace("  ", " ") or "1 passed" in out


def test_a_version_whose_module_cannot_be_imported_fails_alone(tmp_path):
    package = tmp_path / "ladder"
    package.mkdir()
    (package / "__init__.py").write_text('LADDER = ("s1_small", "b1_broken")\n')
    (package / "s1_small.py").write_text(
        SMALL_LADDER.split("LADDER =")[0] + "VERSION = " + SMALL_LADDER.split("[")[-1][:-2]
    )
    (package / "b1_broken.py").write_text("raise RuntimeError('half written')\n")
    (tmp_path / "test_mine.py").write_text("def test_mine(version, case, judge):\n    judge(case)\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        "/dev/null",
        "--ladder",
        "ladder/",
        "-k",
        "96x24x16-exact or broken",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "b1_broken cannot be imported: RuntimeError: half written" in done.stdout
    assert "1 failed, 1 passed" in done.stdout


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_no_worker_behind(tmp_path, blow):
    marker = tmp_path / "pid"
    body = f"import os, time; open({str(marker)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    (tmp_path / "ladder.py").write_text(ladder_with("slow", body))
    run = matrix(tmp_path, "-k", "slow")
    while not (marker.exists() and marker.read_text()):
        assert run.poll() is None
        time.sleep(0.1)
    run.send_signal(blow)
    run.communicate()
    worker = Path("/proc") / marker.read_text()
    for _ in range(100):
        if not worker.exists() or "Z" in (worker / "stat").read_text().split()[2]:
            break
        time.sleep(0.1)
    else:
        os.kill(int(marker.read_text()), signal.SIGKILL)
        pytest.fail("the worker outlived its run")
