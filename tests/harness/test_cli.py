"""The command line: exit codes, and one line for whatever cannot be done as asked."""

import shlex
from concurrent.futures import Future

import pytest

from tirx_ladder import cli, pool, toolchain
from tirx_ladder.cases import INPUTS, Case, Specialisation
from tirx_ladder.check import command
from tirx_ladder.ladder import Problem
from tirx_ladder.simulate import TOOLS, Finding, Outcome

HEAD = "from tirx_ladder.ladder import KernelVersion\n"
RECORD = "KernelVersion('v1', 'what it adds', print, (128, 128), 64)"


@pytest.fixture(autouse=True)
def no_toolchain(tmp_path, monkeypatch, store):
    """A machine without Rust: what is refused is refused before it is missed, and nothing can be built."""
    for variable in ("NUMSIM_CARGO", "NUMSIM_RUSTC"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "no-home"))


def refusal(capsys, words):
    """The one line that a command that cannot be done leaves on standard error, after exit code 2."""
    assert cli.main(shlex.split(words)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("tirx-ladder: ")
    assert len(err.splitlines()) == 1
    return err


def size(m, n, k):
    return f" --m {m} --n {n} --k {k} "


GOOD = size(256, 256, 64)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("check v7" + size(0, 128, 64), "M = 0: a positive integer is wanted"),
        ("check v7" + size(-128, 128, 64), "M = -128: a positive integer is wanted"),
        ("check v7" + size(128, -1, 64), "N = -1: a positive integer is wanted"),
        ("check v7" + size(128, 128, 0), "K = 0: a positive integer is wanted"),
        ("check v7" + size(100, 128, 64), "v7: M = 100 is not a multiple of 128"),
        ("check v7" + size(128, 100, 64), "v7: N = 100 is not a multiple of 128"),
        ("check v7" + size(128, 128, 100), "v7: K = 100 is not a multiple of 64"),
        ("check v9" + size(256, 256, 64), "v9: M = 256 is not a multiple of 512"),
        ("check v1" + size(128, 128, 128), "v1: K = 128 is 2 K tiles"),
        ("check v2" + size(256, 128, 128), "v2: 256 x 128 is 2 output tiles"),
        ("check v3" + size(128, 65_536 * 128, 64), "v3: N = 8388608 makes a grid of 65536"),
        ("check v7" + size(2**16, 2**16, 64), f"D has 65536 x 65536 = {2**32} elements"),
        ("check v8 --sm-count 3" + GOOD, "sm_count = 3 is not a positive multiple of the cluster size 2"),
        ("check v8 --sm-count 0" + GOOD, "sm_count = 0 is not"),
        ("check v7 --sm-count -1" + GOOD, "sm_count = -1 is not"),
        ("check v10" + GOOD, "unknown version 'v10'"),
        ("check v1 --ladder no_such_ladder" + GOOD, "no ladder 'no_such_ladder'"),
        ("check v1 --ladder /no/such/ladder" + GOOD, "no ladder at /no/such/ladder"),
        ("list --ladder no_such_ladder", "no ladder 'no_such_ladder'"),
        ("list --ladder json", "has no LADDER"),
        ("check v7 --sm-count 2 --clusters 0,2" + GOOD, "the launch has clusters 0 to 1"),
        ("check v7 --sm-count 2 --clusters=-1" + GOOD, "the launch has clusters 0 to 1"),
        ("check v7" + GOOD, "cargo is not there"),
    ],
)
def test_what_cannot_be_done_is_refused_with_exit_code_2_and_one_line(capsys, words, wanted):
    assert wanted in refusal(capsys, words)


@pytest.mark.parametrize("text", ["raise ValueError('two\\nlines')", "LADDER = (", "import no_such_dependency", ""])
def test_a_ladder_file_that_does_not_load_is_refused_with_one_line(capsys, tmp_path, text):
    (tmp_path / "bad.py").write_text(text)
    assert "bad.py" in refusal(capsys, f"list --ladder {tmp_path / 'bad.py'}")


def rust(tmp_path, version="rustc 1.95.0 (x)"):
    """Put a Rust toolchain that only tells its version on PATH."""
    folder = tmp_path / "no-bin"
    folder.mkdir()
    for tool in ("cargo", "rustc"):
        (folder / tool).write_text(f"#!/bin/sh\necho '{version}'\n")
        (folder / tool).chmod(0o755)


def test_a_rustc_too_old_is_refused_with_one_line(capsys, tmp_path):
    rust(tmp_path, "rustc 1.70.0 (x)")
    assert "rustc 1.70 is too old" in refusal(capsys, "check v7" + GOOD)


def test_a_cache_that_cannot_be_written_is_refused_with_one_line(capsys, tmp_path, monkeypatch):
    rust(tmp_path)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMSIM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert "cannot be written" in refusal(capsys, "check v7" + GOOD)


@pytest.mark.parametrize(
    "words",
    ["", "no-such-command", "check v7", "check v7 --m x --n 1 --k 1", "check v7 --inputs random" + GOOD,
     "cache --prune much", "cache --prune 1GiB --clear"],
)  # fmt: skip
def test_words_that_are_no_command_end_with_exit_code_2_and_the_usage(capsys, words):
    with pytest.raises(SystemExit) as left:
        cli.main(shlex.split(words))
    assert left.value.code == 2
    assert "usage: tirx-ladder" in capsys.readouterr().err


def test_an_interrupt_ends_with_exit_code_130_and_one_line(capsys, monkeypatch):
    def interrupted(spec):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.ladder, "load", interrupted)
    assert cli.main(["list"]) == 130
    assert capsys.readouterr().err == "tirx-ladder: interrupted\n"


# --- list


def test_list_shows_the_nine_versions_and_what_each_adds(capsys):
    assert cli.main(["list"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert [line.split()[0] for line in out.splitlines() if line.startswith("v")] == [
        "version",
        *(f"v{i}" for i in range(1, 10)),
    ]
    assert "256x256x64" in out
    assert "persistent" in out


@pytest.fixture
def half_broken(tmp_path):
    package = tmp_path / "half_broken"
    package.mkdir()
    (package / "__init__.py").write_text("LADDER = ('v1_good', 'v2_bad')")
    (package / "v1_good.py").write_text(f"{HEAD}VERSION = {RECORD}")
    (package / "v2_bad.py").write_text("raise ValueError('no such layout')")
    return package


def test_list_of_a_ladder_with_a_broken_version_shows_all_with_the_reason_and_exit_code_1(capsys, half_broken):
    assert cli.main(["list", "--ladder", str(half_broken)]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "what it adds" in out
    assert "v2_bad cannot be imported" in out


def test_check_of_a_broken_version_is_a_finding_with_exit_code_1_and_the_reason(capsys, half_broken):
    assert cli.main(shlex.split(f"check v2 --ladder {half_broken}" + GOOD)) == 1
    assert "no such layout" in capsys.readouterr().out


# --- check, with a pool that needs no simulator


class Says:
    """A pool whose jobs find the given, or else clean."""

    def __init__(self, **found):
        self.found = found
        self.jobs = []
        self.closed = False

    def submit(self, job):
        self.jobs.append(job)
        future = Future()
        future.set_result(Outcome(job.tool, self.found.get(job.tool, (Finding("clean"),))))
        return future

    def submit_together(self, jobs):
        return [self.submit(job) for job in jobs]

    def activities(self):
        return []

    def close(self):
        self.closed = True


@pytest.fixture
def check(capsys, monkeypatch):
    """Run `check` with a pool that says as told: exit code, standard output, pool."""

    def run(words, **found):
        says = Says(**found)
        monkeypatch.setattr(toolchain, "require", lambda: None)
        monkeypatch.setattr(pool, "Pool", lambda: says)
        code = cli.main(shlex.split("check " + words))
        return code, capsys.readouterr().out, says

    return run


def test_check_of_a_clean_version_ends_with_exit_code_0_and_says_what_was_judged(check):
    code, out, says = check("v7 --sm-count 2" + GOOD)
    assert code == 0
    assert out == "v7-256x256x64-sm2: 4 of 4 kinds of input clean (lint, numerics, synccheck, racecheck)\n"
    assert [(job.tool, job.inputs, job.sm_count) for job in says.jobs] == [(tool, INPUTS, 2) for tool in TOOLS]
    assert says.closed


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("verdict", ["wrong", "review", "incomplete", "crash", "timeout"])
def test_check_ends_with_exit_code_1_if_any_tool_says_anything_but_clean(check, tool, verdict):
    code, out, says = check("v7" + GOOD, **{tool: (Finding(verdict, "why"),)})
    assert code == 1
    assert f"{tool}: {verdict}\n  why\nagain: tirx-ladder check v7 " in out
    assert "0 of 4 kinds of input clean" in out
    assert says.closed


@pytest.mark.parametrize("tool", TOOLS)
def test_check_ends_with_exit_code_1_if_a_tool_found_nothing_out(check, tool):
    code, out, _ = check("v7" + GOOD, **{tool: ()})
    assert (code, f"{tool}: incomplete" in out) == (1, True)


def test_check_takes_the_kinds_of_input_and_clusters_asked_for(check):
    code, _, says = check("v8 --sm-count 4 --inputs marked --inputs exact --clusters 1" + GOOD)
    assert code == 0
    kinds = ("marked", "exact")
    assert [(job.tool, job.inputs, job.clusters) for job in says.jobs] == [
        ("lint", kinds, (1,)),
        ("numerics", kinds, (1,)),
    ]


@pytest.mark.parametrize(("version", "sm_count"), [("v5", None), ("v7", 148), ("v8", 148)])
def test_check_without_a_launch_takes_a_b200s(check, version, sm_count):
    assert {job.sm_count for job in check(version + GOOD)[2].jobs} == {sm_count}


# --- the command that runs a case again


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize(
    ("version", "sm_count", "clusters", "ladder"),
    [
        ("v3", None, None, "blackwell_gemm"),
        ("v3", None, (0, 512, 1023), "blackwell_gemm"),
        ("v8", 148, None, "my_gemm"),
        ("v8", 148, (0,), "/my/gemm.py"),
        ("v8", 2, (0,), "/my kernels/gemm's.py"),
    ],
)
def test_the_command_of_a_case_asks_for_just_that_case(kind, version, sm_count, clusters, ladder):
    spec = Specialisation(version, Problem(256, 512, 192), sm_count, frozenset(), clusters)
    program, *words = shlex.split(command(Case(spec, kind), ladder))
    options = cli._parser().parse_args(words)
    assert program == "tirx-ladder"
    assert (options.version, options.m, options.n, options.k) == (version, 256, 512, 192)
    assert (options.sm_count, options.clusters, options.inputs) == (sm_count, clusters, [kind])
    assert options.ladder == ladder
    assert options.run is cli._check


# --- cache


def test_cache_of_an_empty_folder_shows_where_it_is_and_that_it_is_empty(capsys, store):
    assert cli.main(["cache"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"simulator cache {store}: 0.0 MiB\n")
    assert "engines 0.0 MiB; 0 entries of kernels 0.0 MiB" in out
    assert err == ""


def test_cache_where_there_is_none_shows_that_and_makes_none(capsys, store):
    store.rmdir()
    assert cli.main(["cache"]) == 0
    assert "0 entries" in capsys.readouterr().out
    assert not store.exists()


@pytest.mark.parametrize(
    ("words", "left"),
    [("", 2), ("--prune 1GiB", 2), ("--prune 3MiB", 1), ("--prune 2.05M", 1), ("--prune 1024k", 0), ("--clear", 0)],
)
def test_cache_drops_what_it_is_told_to_and_no_more(capsys, store, words, left):
    for name in ("a", "b"):
        (store / "artifacts" / name).mkdir(parents=True)
        (store / "artifacts" / name / "kernel.so").write_bytes(b"x" * 2**21)
    assert cli.main(["cache", *words.split()]) == 0
    assert f"{left} entries of kernels" in capsys.readouterr().out
    assert len(list(store.glob("artifacts/*"))) == left


@pytest.mark.parametrize("words", ["--prune 1KiB", "--clear"])
def test_cache_in_use_is_refused_with_one_line(capsys, store, words):
    with toolchain.in_use(store):
        assert "a run is using" in refusal(capsys, f"cache {words}")


def test_cache_clear_of_a_folder_with_other_files_is_refused_with_one_line(capsys, store):
    (store / "thesis.tex").write_text("years of work")
    assert "thesis.tex" in refusal(capsys, "cache --clear")
    assert (store / "thesis.tex").exists()
