"""Samples: what a measuring process does on a fake GPU, base and head in turn, marks, planted slowdowns, campaigns."""

import dataclasses
import json
import sys
import types
from array import array

import gpu
import numpy as np
import pytest

from tirx_ladder import build, bundle, records, results
from tirx_ladder.gpu import bench, gate_pool, inputs, jobs, machine, measure, plant
from tirx_ladder.gpu import nvbench as nvbench_
from tirx_ladder.gpu.measure import MeasureError, Options
from tirx_ladder.ladder import Problem, UsageError

H200 = machine.Gpu("NVIDIA H200", "GPU-fake", "580.1", 132, 989.4, 4.8e12)
STATE = machine.State("before", 1980, 3201, 90.0, 700.0, 35, ("power cap",), (), 0)
OPTIONS = Options(samples=4, heat_s=0.0)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    gpu.compile_into(folder)
    return folder


@pytest.fixture(scope="module")
def built():
    return build.build(gpu.version(), gpu.PROBLEM)


@pytest.fixture(scope="module")
def small(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "s1"
    bundle.export(built, folder)
    return folder


@pytest.fixture(scope="module")
def planted(built, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "planted"
    bundle.export(plant.planted(built), folder)
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """As if a GPU of the small bundle's kind were here: what asks the driver is in the processes, which are faked."""
    monkeypatch.setattr("tirx_ladder.gpu.runtime.require", lambda arch, ordinal=0: None)


def answer(job, seconds=lambda task: 1e-3, **changed):
    timed = tuple(
        jobs.Timed(task.label, (seconds(task),) * job.samples, (1.5e9,) * job.samples, (), 0, None)
        for task in job.tasks
    )
    made = jobs.Answer(H200, (STATE, STATE), 1, timed, {}, {"tvm": "0.27"})
    return dataclasses.replace(made, **changed)


class Fakes:
    """Stands for measuring processes; notes what each was asked, and answers or raises as told."""

    def __init__(self, reply=answer):
        self.jobs, self.closed, self.measuring = [], 0, 0
        self._reply = reply

    def __call__(self, job, limit_s):
        self.jobs.append(job)
        number, owner = len(self.jobs) - 1, self

        class Process:
            def measure(self):
                owner.measuring = number
                found = owner._reply(job) if owner._reply.__code__.co_argcount < 2 else owner._reply(job, number)
                if isinstance(found, MeasureError):
                    raise found
                return found

            def close(self):
                owner.closed += 1

        return Process()


def one(job):
    return answer(job)


# The measuring process


def bench_here(libraries, small, tmp_path, *words, **how):
    words = ("--timer", "events", "--no-witness", "--processes", 2, "--samples", 5, "--write", tmp_path, *words)
    done = gpu.run(libraries, "bench", small, *words, **how)
    file = tmp_path / "bench.json"
    return done, json.loads(file.read_text()) if file.exists() else None


def test_bench_times_a_bundle_and_writes_all_samples(libraries, small, tmp_path):
    done, report = bench_here(libraries, small, tmp_path)
    assert done.returncode == 0, done.stderr
    (row,) = report["rows"]
    assert set(report) == {"schema", "ladder", "arch", "commit", "dirty", "gpu", "rows"}
    assert row["tflops"] == pytest.approx(2 * 64 * 16 * 32 / row["seconds"] / 1e12)
    assert (row["version"], row["problem"], row["samples"], row["marks"]) == ("s1", {"m": 64, "n": 16, "k": 32}, 10, [])
    assert report["gpu"]["peak_tflops"] == 989.4
    evidence = json.loads((tmp_path / "bench-samples.json").read_text())
    series = next(s for s in evidence["series"] if s["version"] == "s1")
    assert [len(process["seconds"]) for process in series["processes"]] == [5, 5]
    assert {state["when"] for state in evidence["states"]} == {"before", "during", "measured"}
    assert evidence["power_capped"]
    assert "apache-tvm-ffi" in evidence["versions"]


def test_a_wrong_result_is_never_timed(libraries, small, tmp_path):
    done, report = bench_here(libraries, small, tmp_path, gpu="unwritten")
    (row,) = report["rows"]
    assert (done.returncode, row["seconds"], row["samples"]) == (1, None, 0)
    assert "wrong result: 1 of 1024 elements of D are NaN or were never written" in row["marks"][0]


def test_a_launch_that_the_driver_refuses_is_told_in_its_words(libraries, small, tmp_path):
    done, report = bench_here(libraries, small, tmp_path, gpu="refused")
    assert done.returncode == 1
    said = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES grid=(2,2,1), block=(32,1,1) // func_name=gemm_kernel"
    assert report["rows"][0]["marks"][0] == f"error: CUDALaunch Error: {said}"


@pytest.mark.parametrize(
    ("nvml", "mark"),
    [
        ("thermal", "throttled: software thermal slowdown"),
        ("another", "another process on the GPU"),
        ("refused", "unknown: NVML does not say whether another process used the GPU"),
    ],
)
def test_a_disturbed_machine_is_marked(libraries, small, tmp_path, nvml, mark):
    done, report = bench_here(libraries, small, tmp_path, nvml=nvml)
    assert mark in report["rows"][0]["marks"]
    assert done.returncode == 1


def test_zeros_are_measured_and_marked(libraries, small, tmp_path):
    done, report = bench_here(libraries, small, tmp_path, "--inputs", "zeros")
    assert report["rows"][0]["marks"] == ["inputs are zeros"]
    assert done.returncode == 1


def test_a_process_that_dies_is_told_with_its_last_words(libraries, small, tmp_path):
    done, report = bench_here(libraries, small, tmp_path, gpu="abort")
    assert done.returncode == 2
    assert report is None
    assert "no measuring process answered: it ended before 'done'" in done.stderr


# NVBench, by its own reader of results


class Benchmark:
    """Takes what cuda.bench.Benchmark takes of what is used here."""

    def __init__(self, run):
        self.run, self.set = run, {}

    def __getattr__(self, name):
        assert name in (
            "set_name", "set_throttle_threshold", "set_stopping_criterion", "set_criterion_param_int64",
            "set_min_samples", "set_cold_warmup_runs", "set_timeout",
        )  # fmt: skip
        return lambda *values: self.set.__setitem__(name, values)


class State:
    """Launches as NVBench does: warm-up runs, then one launch a sample."""

    def __init__(self, launches):
        self._launches = launches

    def exec(self, launcher, *, batched):
        assert batched is False
        for _ in range(self._launches):
            launcher(types.SimpleNamespace(get_stream=lambda: types.SimpleNamespace(addressof=lambda: 77)))


def nvbench(monkeypatch, tmp_path, samples, frequencies, launches, jobs=1):
    """Put a cuda.bench in place that answers with samples and frequencies, as files of NVBench's form."""
    made = []

    def register(run):
        made.append(Benchmark(run))
        return made[-1]

    def run_all(argv):
        file = argv[argv.index("--jsonbin") + 1]
        assert argv[1:3] == ["--devices", "0"]
        states = []
        for benchmark in made:
            benchmark.run(State(launches))
            summaries = []
            for tag, values in (
                ("nv/json/bin:nv/cold/sample_times", samples), ("nv/json/freqs-bin:nv/cold/sample_freqs", frequencies),
            ):  # fmt: skip
                data = f"{file}-{len(states)}-{len(summaries)}.bin"
                with open(data, "wb") as out:  # noqa: PTH123
                    array("f", values).tofile(out)
                summaries.append({"tag": tag, "data": [
                    {"name": "filename", "type": "string", "value": data},
                    {"name": "size", "type": "int64", "value": str(len(values))},
                ]})  # fmt: skip
            states.append({"name": benchmark.set["set_name"][0], "devices": [0], "axes": [], "states": [
                {"name": "Device=0", "device": 0, "is_skipped": False, "summaries": summaries},
            ]})  # fmt: skip
        with open(file, "w") as out:  # noqa: PTH123
            json.dump({"devices": [], "benchmarks": states}, out)

    module = types.SimpleNamespace(register=register, run_all_benchmarks=run_all)
    real = __import__("importlib").import_module("cuda.bench.results")
    monkeypatch.setitem(sys.modules, "cuda.bench", module)
    monkeypatch.setitem(sys.modules, "cuda.bench.results", real)
    return made


def prepared(launch=lambda: None):
    class Stream:
        def __init__(self, handle):
            assert handle == 77

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

    return jobs.Prepared(jobs.Task("a", "bundle", witness=False), launch, Stream)


def job(samples=4):
    return jobs.Job((), "store", "normal", 0, samples, 2, 0.0, "nvbench", False, 0)


def test_nvbench_gives_every_sample_with_its_clock_and_drops_none_silently(monkeypatch, tmp_path):
    made = nvbench(monkeypatch, tmp_path, [1e-3, 2e-3, 3e-3], [1.5e9] * 3, launches=6)
    each, notes = prepared(), []
    nvbench_.measure(job(), None, [each], lambda: notes.append(1))
    assert each.timed.seconds == (0.00100000005, 0.00200000009, 0.00300000003)  # float32, and no digit more
    assert each.timed.clock_hz == (1.5e9,) * 3
    assert each.timed.discarded == 1  # six launches, two to warm up, three samples
    assert len(notes) == 1
    assert made[0].set["set_throttle_threshold"] == (nvbench_.NO_DISCARD,)
    assert made[0].set["set_criterion_param_int64"] == ("target-samples", 4)


def test_a_launch_that_fails_under_nvbench_is_that_tasks_error_and_the_next_is_timed(monkeypatch, tmp_path):
    nvbench(monkeypatch, tmp_path, [1e-3], [1.5e9], launches=3)

    def fails():
        raise RuntimeError("CUDA: illegal memory access")

    bad, good = prepared(fails), prepared()
    nvbench_.measure(job(), None, [bad, good], lambda: None)
    assert bad.timed.error == "CUDA: illegal memory access"
    assert good.timed.error is None


def test_tasks_of_a_process_take_turns_in_orders_that_favour_none(monkeypatch, tmp_path):
    made = nvbench(monkeypatch, tmp_path, [1e-3] * 2, [1.5e9] * 2, launches=4)
    several = [prepared() for _ in range(4)]
    nvbench_.measure(job(samples=10), None, several, lambda: None)
    names = [benchmark.set["set_name"][0] for benchmark in made]
    rounds = [[int(name[4]) for name in names if name.endswith(f"round {i}")] for i in range(nvbench_.ROUNDS)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in rounds)
    assert len({order[0] for order in rounds}) > 2
    assert all(len(each.timed.seconds) == 10 and not each.timed.discarded for each in several)


class Events:
    """A GPU whose events are numbers; each launch lasts as long as told."""

    def __init__(self, seconds):
        self.api, self._clock, self._seconds = self, 0.0, seconds

    def cuEventCreate(self, flags):  # noqa: N802 (the driver's name)
        return 0, []

    def cuEventRecord(self, event, stream):  # noqa: N802
        assert stream == 77
        event.append(self._clock)
        self._clock += self._seconds / 2 if len(event) else 0.0
        return (0,)

    def cuEventElapsedTime(self, start, stop):  # noqa: N802
        return 0, (stop[0] - start[0]) * 1e3


def test_events_are_set_beside_what_nvbench_says_of_the_very_same_launches(monkeypatch, tmp_path):
    made = nvbench(monkeypatch, tmp_path, [1e-3] * 4, [1.5e9] * 4, launches=5)
    each = prepared()
    nvbench_.measure(dataclasses.replace(job(), check=True), Events(2.2e-3), [each], lambda: None)
    assert [benchmark.set["set_name"] for benchmark in made] == [("task0, round 0",), ("check of task0",)]
    assert each.timed.checked == ((1.1e-3, 0.00100000005),) * 4  # the fifth launch was to warm up
    assert "CUDA events say +10.0%" in measure.marks(
        jobs.Answer(H200, (STATE, STATE), 1, (), {}, {}), each.timed, OPTIONS
    )


def test_a_check_that_did_not_happen_is_a_mark():
    good = jobs.Timed("a", (1e-3,) * 4, (1.5e9,) * 4, (), 0, None)
    said = jobs.Answer(H200, (STATE, STATE), 1, (), {}, {})
    assert measure.marks(said, good, dataclasses.replace(OPTIONS, check=True)) == ("not checked by CUDA events",)


def test_clocks_that_no_gpu_has_are_not_taken(monkeypatch, tmp_path):
    nvbench(monkeypatch, tmp_path, [1e-3], [0.0], launches=3)
    each = prepared()
    nvbench_.measure(job(), None, [each], lambda: None)
    assert each.timed.clock_hz == ()


# Inputs


def test_inputs_are_made_once_and_a_wrong_element_in_any_tile_is_seen(tmp_path):
    problem = Problem(256, 128, 64)
    inputs.prepare(tmp_path, problem, "normal", 0)
    held = inputs.load(tmp_path, problem, "normal", 0)
    d = (held.a.astype(np.float64) @ held.b.astype(np.float64).T).astype(np.float16)
    assert inputs.wrong(held, d) is None
    assert [row // inputs.ROW_STEP for row in held.rows] == [0, 1, 2, 3]
    for row in held.rows:
        spoiled = d.copy()
        spoiled[row, 100] += 2
        assert f"first D[{row}, 100]" in inputs.wrong(held, spoiled)
    spoiled = d.copy()
    spoiled[0, 0] = np.nan
    assert "1 of 32768 elements of D are NaN" in inputs.wrong(held, spoiled)
    before = (tmp_path / f"{problem}-normal-0" / "a.npy").stat().st_mtime_ns
    inputs.prepare(tmp_path, problem, "normal", 0)
    assert (tmp_path / f"{problem}-normal-0" / "a.npy").stat().st_mtime_ns == before


def test_inputs_of_an_unknown_kind_are_refused(tmp_path):
    with pytest.raises(UsageError, match="inputs 'ones': one of normal, zeros is wanted"):
        inputs.prepare(tmp_path, Problem(64, 64, 64), "ones", 0)


# In turn


def test_only_one_process_is_told_to_measure_while_the_next_one_gets_ready(small, tmp_path):
    started = []

    def reply(job, number):
        started.append((number, len(fakes.jobs)))
        return answer(job)

    fakes = Fakes(reply)
    task = jobs.Task("a", str(small), witness=False)
    several = [measure.job([task], tmp_path, OPTIONS) for _ in range(3)]
    assert len(list(measure.in_turn(several, 1.0, start=fakes))) == 3
    assert started == [(0, 2), (1, 3), (2, 3)]


def test_stopping_early_closes_the_process_that_waits(small, tmp_path):
    fakes = Fakes(one)
    several = [measure.job([jobs.Task("a", str(small), witness=False)], tmp_path, OPTIONS) for _ in range(3)]
    turns = measure.in_turn(several, 1.0, start=fakes)
    next(turns)
    turns.close()
    assert fakes.closed == 1


def test_base_and_head_are_measured_abba_with_ranks_in_that_order(small, tmp_path):
    fakes = Fakes(one)
    comparison = measure.Comparison(small, small, tmp_path, OPTIONS, start=fakes)
    comparison.more(3)
    comparison.more(1)
    assert [job.tasks[0].label for job in fakes.jobs] == [
        "base",
        "head",
        "head",
        "base",
        "base",
        "head",
        "head",
        "base",
    ]
    base, head = comparison.samples()
    assert [process.rank for process in base.processes] == [0, 3, 4, 7]
    assert [process.rank for process in head.processes] == [1, 2, 5, 6]
    assert (base.unit, base.protocol, base.complete, base.null_floor) == ("s", measure.PROTOCOL, True, None)
    assert base.processes[0] == results.Process((1e-3,) * 4, (1.5e9,) * 4, 0, ())


def test_the_null_pair_is_a_copy_of_base_and_gives_the_floor(small, tmp_path):
    seen = []

    def reply(job, number):
        folder = job.tasks[0].bundle
        seen.append((folder == str(small), bundle.verify(measure.Path(folder)).behaviour))
        return answer(job, lambda task: 1e-3 if task.label == "base" else 1.01e-3)

    comparison = measure.Comparison(small, small, tmp_path, OPTIONS, start=Fakes(reply))
    comparison.null(measure.NULL_PAIRS)
    assert [own for own, _ in seen] == [True, False, False, True] * 4
    assert len({behaviour for _, behaviour in seen}) == 1
    assert comparison.null_floor == pytest.approx(0.01)
    assert comparison.samples()[0].null_floor == comparison.null_floor


def test_a_process_that_fails_leaves_its_place_marked_and_the_samples_incomplete(small, tmp_path):
    def reply(job, number):
        return MeasureError("it ended before 'done'") if number == 2 else answer(job)

    comparison = measure.Comparison(small, small, tmp_path, OPTIONS, start=Fakes(reply))
    comparison.more(2)
    base, head = comparison.samples()
    assert not base.complete
    assert (head.processes[1].seconds, head.processes[1].marks) == ((), ("error: it ended before 'done'",))
    assert len(base.processes) == len(head.processes) == 2


def test_bundles_for_two_problems_are_not_compared(small, tmp_path):
    other = gpu.small_bundle(tmp_path / "other", Problem(32, 8, 16))
    with pytest.raises(UsageError, match="the same problem and GPU are wanted"):
        measure.Comparison(small, other, tmp_path / "store", OPTIONS)


# Marks


@pytest.mark.parametrize(
    ("timed", "mark"),
    [
        ({"seconds": (1e-3,) * 3, "clock_hz": (1.5e9,) * 3}, "too few samples: 3 of 4"),
        ({"discarded": 2}, "the timer dropped 2 samples"),
        ({"checked": ((1.05e-3, 1e-3),) * 4}, "CUDA events say +5.0%"),
        ({"error": "wrong result", "seconds": ()}, "error: wrong result"),
    ],
)
def test_samples_that_cannot_be_trusted_are_marked(timed, mark):
    good = jobs.Timed("a", (1e-3,) * 4, (1.5e9,) * 4, ((1.004e-3, 1e-3),) * 4, 0, None)
    said = jobs.Answer(H200, (STATE, STATE), 1, (), {}, {})
    assert measure.marks(said, good, OPTIONS) == ()
    assert mark in measure.marks(said, dataclasses.replace(good, **timed), OPTIONS)


# Planted slowdowns and the campaign


def test_a_planted_bundle_differs_in_the_cycles_alone(planted, tmp_path):
    none, some = tmp_path / "none", tmp_path / "some"
    plant.set_cycles(planted, none, 0)
    plant.set_cycles(planted, some, 0x1234)
    first, second = ((folder / bundle.CUBIN).read_bytes() for folder in (none, some))
    differ = [i for i, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]]
    assert len(differ) == 2
    assert second[differ[0] : differ[0] + 2] == bytes([0x34, 0x12])
    assert bundle.verify(some).launch == bundle.verify(planted).launch


def test_a_bundle_without_a_spin_is_refused(small, tmp_path):
    with pytest.raises(UsageError, match="holds the mark of a planted spin 0 times"):
        plant.set_cycles(small, tmp_path / "out", 100)


def test_the_spin_is_the_first_thing_that_the_kernel_does(built):
    source = plant.source(built.cuda, built.launch.entry)
    body = source[source.rindex("{\n  tirx_ladder_spin();") :]
    assert body.count("tirx_ladder_spin();") == 1
    assert source.index(f"__constant__ unsigned long long {plant.NAME}") < source.index("__launch_bounds__")


@pytest.fixture
def campaign(small, planted, tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "default_store", lambda: tmp_path / "store")
    place = tmp_path / "bundles" / "one"
    place.mkdir(parents=True)
    (place / "base").symlink_to(small)
    (place / "planted").symlink_to(planted)

    def run(fakes, **how):
        how = {"wanted": 3, "options": OPTIONS, "start": fakes, "say": lambda _: None, **how}
        return gate_pool.run(place.parent, tmp_path / "pools.json", **how)

    return run


def test_every_process_of_a_campaign_measures_every_variant_once_in_another_order(campaign):
    fakes = Fakes(one)
    found, record = campaign(fakes)
    orders = [[task.label for task in job.tasks] for job in fakes.jobs[gate_pool.CALIBRATE :]]
    wanted = {f"{gpu.PROBLEM}/{name}" for name in ("base", "null", "slow0.5", "slow1", "slow2", "slow5")}
    assert all(set(order) == wanted and len(order) == 6 for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert record.base_cycles == {str(gpu.PROBLEM): pytest.approx(1.5e6)}
    assert (record.complete, record.ran) == (True, 3)
    assert [(pool.variant, pool.planted) for pool in found.pools] == [
        ("base", 0.0), ("null", 0.0), ("slow0.5", 0.005), ("slow1", 0.01), ("slow2", 0.02), ("slow5", 0.05),
    ]  # fmt: skip
    assert all([process.rank for process in pool.processes] == [0, 1, 2] for pool in found.pools)


def test_a_campaign_that_ran_out_of_time_goes_on_where_it_stopped(campaign, tmp_path):
    first = Fakes(one)
    _, record = campaign(first, limit_s=0.0)
    assert (record.ran, record.complete) == (1, False)
    second = Fakes(one)
    found, record = campaign(second)
    assert (record.ran, record.complete) == (3, True)
    assert {job.tasks[0].label for job in second.jobs} != {str(gpu.PROBLEM)}  # not calibrated again
    assert [process.rank for process in found.pools[0].processes] == [0, 1, 2]
    assert records.read(gate_pool.Pools, tmp_path / "pools.json", gate_pool.SCHEMA) == found


def test_a_process_in_which_one_variant_failed_counts_in_no_pool(campaign):
    def reply(job, number):
        made = answer(job)
        if number == gate_pool.CALIBRATE:
            made = dataclasses.replace(made, timed=(dataclasses.replace(made.timed[0], error="lost"), *made.timed[1:]))
        return made

    found, record = campaign(Fakes(reply), wanted=2)
    assert [[process.rank for process in pool.processes] for pool in found.pools] == [[1]] * 6
    assert (record.complete, len(record.failures)) == (False, 1)


def test_base_and_planted_of_two_problems_are_refused(small, tmp_path):
    place = tmp_path / "one"
    place.mkdir()
    (place / "base").symlink_to(small)
    gpu.small_bundle(place / "planted", Problem(32, 8, 16))
    with pytest.raises(UsageError, match="are not one version on one problem"):
        gate_pool.pairs_in(tmp_path)


# bench


def items(small, *names):
    return [bench.Item(name, gpu.PROBLEM, small) for name in names]


def test_cublas_is_timed_in_every_process_and_set_beside_each_version(small, monkeypatch):
    monkeypatch.setattr("tirx_ladder.gpu.device.require_torch", lambda: None)
    fakes = Fakes(lambda job: answer(job, lambda task: 5e-4 if task.witness else 1e-3))
    report, evidence = bench.run(
        items(small, "v1", "v2"), processes=2, options=OPTIONS, start=fakes, say=lambda _: None
    )
    assert all(sum(task.witness for task in job.tasks) == 1 for job in fakes.jobs)
    assert [job.tasks[0].label for job in fakes.jobs] == ["0", "1"]  # another order in each
    assert [(row.version, row.seconds, row.cublas_seconds) for row in report.rows] == [
        ("v1", 1e-3, 5e-4),
        ("v2", 1e-3, 5e-4),
    ]
    assert {series.version for series in evidence.series} == {"v1", "v2", "cuBLAS"}


def test_a_version_that_takes_the_process_with_it_costs_only_its_own_row(small):
    def reply(job):
        labels = {task.label for task in job.tasks}
        return MeasureError("it ended before 'done'") if "0" in labels else answer(job)

    report, evidence = bench.run(
        items(small, "bad", "good"), processes=1, witness=False, options=OPTIONS, start=Fakes(reply), say=lambda _: None
    )
    bad, good = report.rows
    assert (bad.seconds, bad.marks) == (None, ("error: the process that measured it did not answer",))
    assert (good.seconds, good.marks) == (1e-3, ())
    assert len(evidence.failures) == 1


def test_a_bundle_names_its_ladder_and_a_bench_of_two_ladders_is_refused(small, tmp_path):
    assert bench.from_folder(small)[0] == "small_ladder"
    for name in ("a", "b"):
        measure.shutil.copytree(small, tmp_path / name)
    manifest = bundle.load_manifest(small)
    other = dataclasses.replace(manifest, source=dataclasses.replace(manifest.source, ladder="other"))
    records.write(other, tmp_path / "b" / bundle.MANIFEST)
    with pytest.raises(UsageError, match="bundles of other and small_ladder"):
        bench.from_folder(tmp_path)
