"""asv: each way in which it misleads is a test here, beside the import of what was measured elsewhere."""

import dataclasses
import importlib.util
import json
import math
import re
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path

import asv_history
import pytest
from asv._stats import is_different
from asv.config import Config
from asv.util import load_json
from asv_history import HERE, asv, filed, measured, result_set
from result_sets import P

from tirx_ladder import asv_results
from tirx_ladder.gpu import bench, machine, measure
from tirx_ladder.ladder import UsageError

CONFIGURATION = load_json(str(HERE / "asv.conf.json"), js_comments=True)
TRACKS = ("registers", "spill_bytes", "smem_bytes", "ctas_per_sm", "loop_instructions", "instructions")
TRACKS += (
    "bytes_in_flight",
    "flop_per_byte",
    "cubin_bytes",
    "host_tir",
    "host_codegen",
    "host_cubin",
    "time",
    "tflops",
)
MORE_IS_BETTER = ("ctas_per_sm", "bytes_in_flight", "flop_per_byte", "tflops")


def load_suite():
    spec = importlib.util.spec_from_file_location("suite_under_test", HERE / "benchmarks" / "suite.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SUITE = load_suite()


@pytest.fixture(scope="module")
def discovered():
    return asv_results.discover(HERE / "benchmarks")


@pytest.fixture
def commits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return asv_history.repository(tmp_path, 12)


def regressions():
    done = asv("publish")
    assert done.returncode == 0, done.stdout
    return [row[0] for row in json.loads(Path(".asv/html/regressions.json").read_text())["regressions"]]


# smaller is always better to asv


def test_a_longer_time_is_a_regression_and_fewer_tflops_are_none(commits):
    for i, commit in enumerate(commits):
        filed(commit, measured(1e-4 if i < 6 else 2e-4))
    found = regressions()
    assert "blackwell_gemm.track_time(v9, 4096x4096x4096)" in "\n".join(found).replace("'", "")
    assert "tflops" not in "\n".join(found)


def test_more_tflops_are_not_shown_as_a_regression_which_they_are_to_asv_itself(commits):
    for i, commit in enumerate(commits):
        filed(commit, measured(2e-4 if i < 6 else 1e-4))
    assert regressions() == []
    text = Path("asv.conf.json").read_text()
    Path("asv.conf.json").write_text(text.replace("regressions_first_commits", "regressions_first_commit"))
    assert "tflops" in "\n".join(regressions())


def test_asv_looks_for_regressions_in_just_the_figures_of_which_less_is_better(discovered):
    (pattern,) = CONFIGURATION["regressions_first_commits"]
    assert CONFIGURATION["regressions_first_commits"][pattern] is None
    for name in discovered:
        track = name.split(".track_")[1]
        assert bool(re.match(pattern, name)) == (track in MORE_IS_BETTER), name
    larger = [track.name for track in SUITE.STATIC + SUITE.HOST + SUITE.DEVICE if track.larger]
    assert sorted(larger) == sorted(MORE_IS_BETTER)


# statistics want samples, seven or more


def test_six_samples_against_six_never_differ_and_seven_do():
    def differ(count):
        a, b = [1.0 + i / 100 for i in range(count)], [100.0 + i / 100 for i in range(count)]
        return is_different(a, b, None, None)

    assert not differ(6)
    assert differ(7)
    assert SUITE.SAMPLES >= 7
    assert asv_results.SAMPLES >= 7


def test_a_time_has_the_median_of_its_processes_as_value_an_interval_and_its_samples(commits):
    found = filed(commits[0], measured(1e-4))
    columns = found["result_columns"]
    row = dict(zip(columns, found["results"]["blackwell_gemm.track_time"], strict=False))
    assert row["result"][0] == pytest.approx(1.003e-4)
    assert len(row["samples"][0]) == 7
    assert row["stats_ci_99_a"][0] < row["result"][0] < row["stats_ci_99_b"][0]


def test_tflops_come_from_the_median_time(commits):
    found = filed(commits[0], measured(1e-4))
    assert found["results"]["blackwell_gemm.track_tflops"][0][0] == pytest.approx(2 * 4096**3 / 1.003e-4 / 1e12)


# versions by hand


def test_every_benchmark_has_a_version_by_hand_a_unit_a_name_and_named_parameters(discovered):
    wanted = {f"{ladder}.track_{track}" for ladder, track in product(SUITE.LADDERS, TRACKS)}
    assert set(discovered) == wanted
    by_hand = {track.name: track for track in SUITE.STATIC + SUITE.HOST + SUITE.DEVICE}
    for name, benchmark in discovered.items():
        track = by_hand[name.split(".track_")[1]]
        assert benchmark["version"] == track.version, name
        assert re.fullmatch(r"\d+", benchmark["version"]), name  # asv's own are SHA-256 of the code
        assert benchmark["unit"] not in ("", "unit"), name
        assert benchmark["pretty_name"], name
        assert benchmark["param_names"] == ["version", "problem"], name
        assert benchmark["setup_cache_timeout"] >= 1800, name  # asv's 60 seconds do not do for a ladder


def test_an_edit_of_the_suite_keeps_the_history(tmp_path, discovered):
    asv_history.shutil.copytree(HERE / "benchmarks", tmp_path / "benchmarks")
    file = tmp_path / "benchmarks" / "suite.py"
    text = file.read_text()
    edited = text.replace(
        "figures = found[ladder, version, problem]", "figures = dict(found)[ladder, version, problem]"
    )
    assert edited != text
    file.write_text(edited)
    after = asv_results.discover(tmp_path / "benchmarks")
    assert {n: b["version"] for n, b in after.items()} == {n: b["version"] for n, b in discovered.items()}


def test_every_version_of_every_ladder_here_has_a_history():
    for ladder in (HERE / "kernels").iterdir():
        if (ladder / "__init__.py").is_file():
            listed = re.findall(r"\"(v\d+)_\w+\"", (ladder / "__init__.py").read_text())
            assert listed
            assert set(listed) <= set(SUITE.LADDERS[ladder.name]), ladder.name


# the configuration


def test_asv_ignores_a_mistyped_key_and_so_ours_are_checked():
    assert Config.from_json({"repo": ".", "bench_dir": "x"}).benchmark_dir == "benchmarks"
    known = {*vars(Config()), "version", "build_cache_size"}
    assert not set(CONFIGURATION) - known


def test_the_toolchain_is_the_one_that_the_project_pins():
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["cubin"] + [d for d in extras["measure"] if "[" not in d]
    pinned = CONFIGURATION["matrix"]["req"]
    beside = CONFIGURATION["install_command"][0].split()
    for requirement in wanted:
        name, _, version = requirement.partition("==")
        if name in pinned:
            assert pinned[name] == [version]
        else:
            assert requirement in beside, requirement
    assert "--no-deps" in CONFIGURATION["install_command"][1].split()  # a commit's pins cannot change the toolchain


# benchmark code is the working tree's, the package is the commit's

LADDER = """
class UsageError(Exception): pass
class Problem:
    def __init__(self, m, n, k): self.m, self.n, self.k = m, n, k
class Version:
    def __init__(self, name): self.name = name
class Ladder:
    versions = [Version("v1"), Version("v2")]
    broken = {"v9": "v9_two cannot be imported"}
    def __getitem__(self, name):
        if name in self.broken: raise RuntimeError(self.broken[name])
        return {v.name: v for v in self.versions}[name]
def load(spec): return Ladder()
"""
BUILD = """
import types
def build(version, problem):
    if version.name == "v2": raise RuntimeError("ptxas: too many registers")
    seconds = types.SimpleNamespace(tir=.1, codegen=.2, cubin=.3)
    return types.SimpleNamespace(cubin=types.SimpleNamespace(cached=CACHED), seconds=seconds)
"""
PROFILE = """
import types
def nearest_problem(version, problem): return problem
def profile(built):
    return types.SimpleNamespace(registers=90, main_loop=None, intensity=64.0)
"""
COMMIT = {"ladder": LADDER, "build": BUILD.replace("CACHED", "False"), "profile": PROFILE}


def at_commit(place, modules, cache, versions=("v1",)):
    """What a setup_cache of the suite finds with the package of a commit that has these modules, and no others."""
    for name, text in modules.items():
        file = place / "tirx_ladder" / f"{name}.py"
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    (place / "blackwell_gemm").mkdir()
    (place / "blackwell_gemm" / "__init__.py").touch()
    code = (
        f"import json, sys; sys.path[:0] = [{str(place)!r}, {str(HERE)!r}]; from benchmarks import suite;"
        f"found = suite.{cache}();"
        f"print(json.dumps([found['blackwell_gemm', v, suite.PROBLEMS[0]] for v in {versions!r}]))"
    )
    # -S: the package that is installed here is out of sight
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("cache", ["static_cache", "host_cache", "device_cache"])
@pytest.mark.parametrize("lacking", ["everything", "profile", "build"])
def test_a_commit_that_lacks_a_module_has_no_value_and_does_not_fail(tmp_path, cache, lacking):
    modules = {} if lacking == "everything" else {n: t for n, t in COMMIT.items() if n != lacking}
    assert at_commit(tmp_path, modules, cache, ("v1", "v2", "v3")) == [{}, {}, {}]


def test_a_commit_that_lacks_a_version_or_a_figure_has_no_value_for_it(tmp_path):
    one, three = at_commit(tmp_path, COMMIT, "static_cache", ("v1", "v3"))
    assert one == {"registers": 90, "flop_per_byte": 64.0}
    assert three == {}


def test_a_version_that_is_there_and_does_not_build_fails_with_its_reason(tmp_path):
    two, nine = at_commit(tmp_path, COMMIT, "static_cache", ("v2", "v9"))
    assert "too many registers" in two
    assert "cannot be imported" in nine
    track = SUITE.tracks("blackwell_gemm")["track_registers"]
    with pytest.raises(RuntimeError, match="too many registers"):
        track({("blackwell_gemm", "v2", SUITE.PROBLEMS[0]): two}, "v2", SUITE.PROBLEMS[0])


def test_what_is_not_there_is_nan_and_never_a_number(discovered):
    for ladder, versions in SUITE.LADDERS.items():
        for benchmark in SUITE.tracks(ladder).values():
            value = benchmark({(ladder, versions[0], SUITE.PROBLEMS[0]): {}}, versions[0], SUITE.PROBLEMS[0])
            assert math.isnan(value)


def test_host_costs_are_seven_samples_and_none_comes_from_a_cache(tmp_path):
    (fresh,) = at_commit(tmp_path, COMMIT, "host_cache")
    assert fresh["host_cubin"] == {"samples": [0.3] * SUITE.SAMPLES, "number": 1}
    assert set(fresh) == {"host_tir", "host_codegen", "host_cubin"}


def test_a_host_cost_that_is_another_times_is_none(tmp_path):
    assert at_commit(tmp_path, COMMIT | {"build": BUILD.replace("CACHED", "True")}, "host_cache") == [{}]


# asv compare is no gate


def test_asv_compare_exits_0_for_twice_the_time_so_nothing_relies_on_it(commits):
    filed(commits[0], measured(1e-4))
    filed(commits[1], measured(2e-4))
    done = asv("compare", "--machine", "b200-1", commits[0], commits[1])
    assert "blackwell_gemm.track_time" in done.stdout
    assert re.search(r"\|\s*\+\s*\|", done.stdout)  # it does see it
    assert done.returncode == 0
    for file in [HERE / "noxfile.py", *(HERE / ".github" / "workflows").glob("*"), *(HERE / ".ci").glob("*")]:
        assert not re.search(r"asv\W+(compare|continuous)", file.read_text()), file


# import


def test_machine_and_toolchain_are_facets(commits):
    found = filed(commits[0], measured(1e-4))
    assert found["params"] == {"machine": "b200-1", "apache-tvm": "0.27.0", "nvidia-cuda-nvrtc": "13.2.78"}


def test_two_toolchains_at_one_commit_keep_a_file_each(commits):
    filed(commits[0], measured(1e-4))
    filed(commits[0], measured(1e-4), toolchain={"apache-tvm": "0.28.0"})
    assert len(list(Path(".asv/results/b200-1").glob(f"{commits[0][:8]}-*"))) == 2


def test_a_version_that_was_not_measured_has_no_value(commits):
    found = filed(commits[0], measured(1e-4), measured(1e-4, version="v8", processes=6))
    first, second, *rest = found["results"]["blackwell_gemm.track_time"][0]
    assert first > 0
    assert all(math.isnan(value) for value in (second, *rest))


@pytest.mark.parametrize(
    ("changes", "why"), [({"processes": 6}, "6 clean processes, 7"), ({"marks": ["throttled: hot"]}, "throttled: hot")]
)
def test_too_few_or_marked_processes_are_left_out_with_the_reason(commits, capsys, changes, why):
    path = result_set(commits[0], measured(1e-4), measured(1e-4, version="v8", **changes))
    assert asv_results.main([str(path)]) == 1
    assert why in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"dirty": True}, "uncommitted"), ({"machine": None}, "no machine"), ({"ladder": "other"}, "the ladder 'other'")],
)
def test_what_is_not_of_a_commit_a_machine_and_a_known_ladder_is_refused(commits, capsys, changes, why):
    assert asv_results.main([str(result_set(commits[0], measured(1e-4), **changes))]) == 2
    assert why in capsys.readouterr().err


def test_a_commit_that_the_repository_does_not_have_is_refused(commits):
    with pytest.raises(UsageError, match="cannot be filed"):
        asv_results.add(asv_results.read(result_set("a" * 40, measured(1e-4))))


GPU = machine.Gpu("NVIDIA H200", "GPU-1", "580.1", 132, None, None)


def bench_file(commit, toolchains=({"apache-tvm": "0.27.0"},), processes=7, **changes):
    """bench.json and bench-samples.json of V7 and cuBLAS."""
    made = measured(1e-4, processes=processes).samples.processes
    series = tuple(bench.Series(name, P, made, ()) for name in ("v7", bench.CUBLAS))
    rows = (bench.Row("v7", P, 1e-4, 1e3, None, 50, ()),)
    report = bench.Report(bench.SCHEMA, "hopper_gemm", "sm_90a", commit, False, GPU, rows)
    by_version = {f"v{i}": toolchain for i, toolchain in enumerate(toolchains)}
    options = measure.Options()
    evidence = bench.Evidence(bench.SCHEMA, 1, options, False, {}, by_version, (), (), (), series)
    bench.write(dataclasses.replace(report, **changes), evidence, Path.cwd())
    return Path("bench.json")


def test_a_bench_is_filed_with_gpu_driver_and_toolchain_as_facets_and_without_cublas(commits):
    found = json.loads(asv_results.add(asv_results.read(bench_file(commits[0]))).read_text())
    wanted = {"machine": "NVIDIA-H200-GPU-1", "gpu": "NVIDIA H200", "driver": "580.1", "apache-tvm": "0.27.0"}
    assert found["params"] == wanted
    values = found["results"]["hopper_gemm.track_time"][0]
    assert values[0] == pytest.approx(1.003e-4)
    assert sum(not math.isnan(value) for value in values) == 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dirty": True}, "clean checkout"),
        ({"commit": None}, "clean checkout"),
        ({"ladder": ""}, "which ladder"),
        ({"toolchains": ({"a": "1"}, {"a": "2"})}, "2 toolchains"),
        ({"processes": 3}, "7 clean processes"),
    ],
)
def test_a_bench_that_is_no_record_of_a_commit_is_refused(commits, capsys, changes, why):
    assert asv_results.main([str(bench_file(**{"commit": commits[0]} | changes))]) == 2
    assert why in capsys.readouterr().err


def test_a_file_that_is_neither_is_refused_in_one_line(commits, capsys):
    Path("x.json").write_text("[]")
    assert asv_results.main(["x.json"]) == 2
    assert asv_results.main(["none.json"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_this_machine_gets_gpu_and_driver_as_facets_and_says_none_without(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    def no_gpu():
        raise UsageError("no NVML")

    monkeypatch.setattr(machine, "Nvml", no_gpu)
    known = asv_results.register()
    assert (known["gpu"], known["driver"]) == ("none", "none")
    assert json.loads((tmp_path / ".asv-machine.json").read_text())[known["machine"]] == known


RUNTIME = "def require(arch): pass\n"
NO_GPU = "from tirx_ladder.ladder import UsageError\ndef require(arch): raise UsageError('no GPU here')\n"
BENCH = """
from types import SimpleNamespace as N
def from_ladder(loaded, problem, folder, say): return []
def run(items, *, ladder, processes, witness, say):
    clean = [N(seconds=(1e-4, 1.1e-4, 3e-4), marks=())] * processes
    throttled = [*clean[1:], N(seconds=(1e-4,), marks=("throttled: hot",))]
    problem = N(flops=11e7)
    by_name = {"v1": clean, "v2": throttled, "cuBLAS": clean}
    series = [N(version=name, processes=processes) for name, processes in by_name.items()]
    return N(rows=[N(version=v, problem=problem) for v in ("v1", "v2")]), N(series=series)
"""


def test_on_a_gpu_a_time_is_the_medians_of_processes_and_a_spoilt_one_fails_by_its_mark(tmp_path):
    ladder = LADDER.replace("class Ladder:", "class Ladder:\n    arch = 'sm_100a'")
    modules = COMMIT | {"ladder": ladder, "gpu/bench": BENCH, "gpu/runtime": RUNTIME}
    one, two, three = at_commit(tmp_path, modules, "device_cache", ("v1", "v2", "v3"))
    assert one == {"time": {"samples": [1.1e-4] * 7, "number": 1}, "tflops": pytest.approx(1.0)}
    assert "6 of 7 processes are clean: throttled: hot" in two
    assert three == {}


def test_without_a_gpu_for_the_ladder_there_is_no_time(tmp_path):
    ladder = LADDER.replace("class Ladder:", "class Ladder:\n    arch = 'sm_100a'")
    modules = COMMIT | {"ladder": ladder, "gpu/bench": BENCH, "gpu/runtime": NO_GPU}
    assert at_commit(tmp_path, modules, "device_cache", ("v1",)) == [{}]
