"""Bundles on a GPU, here a fake one: right and wrong kernels, hangs, lost contexts, and what is no suitable GPU."""

import contextlib
import dataclasses
import json
import shutil
import sys
import types

import gpu
import numpy as np
import pytest

from tirx_ladder import build, bundle, ladder, oracle, records
from tirx_ladder.gpu import device, device_worker, matrix, runtime

HANG_S = 3


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = tmp_path_factory.mktemp("libraries")
    gpu.compile_into(folder)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return gpu.small_bundle(tmp_path_factory.mktemp("bundles") / "s1")


def judged(libraries, place, tmp_path, *words, **how):
    done = gpu.run(libraries, "device", place, "--no-torch", "--write", tmp_path, *words, **how)
    file = tmp_path / "device.json"
    return done, json.loads(file.read_text()) if file.exists() else None


def test_a_right_kernel_is_clean_on_every_kind_of_input(libraries, small, tmp_path):
    done, report = judged(libraries, small, tmp_path)
    assert (done.returncode, report["clean"]) == (0, True), done.stderr
    assert [f["inputs"] for f in report["results"][0]["findings"]] == ["exact", "normal", "marked", "special"]
    assert report["gpu"]["name"] == "NVIDIA H200"
    assert "4 of 4 cases clean on NVIDIA H200, driver 580.1; references: oracle" in done.stdout


@pytest.mark.parametrize(
    ("gpu_does", "verdict", "says"),
    [
        ("wrong", "wrong", "1 of 1024 elements of D differ"),
        ("unwritten", "wrong", "1 of them never written"),
        ("illegal", "error", "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"),
        ("refused", "error", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES grid=(2,2,1), block=(32,1,1)"),
        ("abort", "crash", "its process ended with signal SIGABRT in stage 'exact'"),
        ("hang", "hang", f"passed its limit of {HANG_S} s in stage 'exact' and was killed"),
    ],
)
def test_what_goes_wrong_is_a_verdict_with_the_drivers_words(libraries, small, tmp_path, gpu_does, verdict, says):
    done, report = judged(libraries, small, tmp_path, "--limit", HANG_S, gpu=gpu_does)
    assert (done.returncode, report["clean"]) == (1, False)
    findings = report["results"][0]["findings"]
    assert (findings[0]["inputs"], findings[0]["verdict"]) == ("exact", verdict)
    assert says in findings[0]["text"]
    assert "CUDA Source" not in findings[0]["text"]
    assert [f["verdict"] for f in findings].count("clean") == 0
    if verdict != "wrong":
        assert {f["text"] for f in findings[1:]} == {"not run: the process was lost on exact inputs"}


def test_a_run_that_differs_from_the_first_is_not_clean():
    a, b = oracle.make_inputs("special", gpu.PROBLEM, 16)
    with np.errstate(over="ignore", invalid="ignore"):
        d = oracle.reference("special", a, b).value.astype(np.float16)
    again = d.copy()
    zero = tuple(np.argwhere(d == 0)[0])
    again[zero] = -d[zero]  # the oracle accepts either zero
    version = gpu.version()
    assert device_worker.judge("special", [d, d], a, b, version, 132).verdict == "clean"
    assert device_worker.judge("special", [again, again], a, b, version, 132).verdict == "clean"
    found = device_worker.judge("special", [d, again], a, b, version, 132)
    assert found.verdict == "nondeterministic"
    assert "differs in 1 elements" in found.text


class Tensor:
    """A torch tensor, as much of it as the second reference uses."""

    def __init__(self, values):
        self.values = values

    T = property(lambda self: Tensor(self.values.T))

    def to(self, place):
        return self

    def double(self):
        return Tensor(self.values.astype(np.float64))

    def abs(self):
        return Tensor(np.abs(self.values))

    def __matmul__(self, other):
        with np.errstate(over="ignore", invalid="ignore"):
            return Tensor(self.values @ other.values)

    def cpu(self):
        return self

    def numpy(self):
        return self.values


class WrongTensor(Tensor):
    def to(self, place):
        return Tensor(self.values + np.float16(1))


@pytest.mark.parametrize("kind", ["exact", "normal", "marked", "special"])
def test_torch_is_a_second_reference_that_must_agree_with_the_oracle(monkeypatch, kind):
    a, b = oracle.make_inputs(kind, gpu.PROBLEM, 16)
    with np.errstate(over="ignore", invalid="ignore"):
        d = oracle.reference(kind, a, b).value.astype(np.float16)

    def opinion(tensor):
        torch = types.SimpleNamespace(
            from_numpy=tensor, device=str, no_grad=contextlib.nullcontext, __version__="2.11"
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "torch", torch)
        return device_worker._second_opinion(kind, d, a, b, 0)

    assert opinion(Tensor).verdict == "clean"
    found = opinion(WrongTensor)
    assert found.verdict == "reference"
    assert "the oracle differs from torch 2.11 on the device" in found.text


def test_a_bundle_that_fails_does_not_keep_the_next_from_running(libraries, small, tmp_path):
    place = tmp_path / "matrix"
    place.mkdir()
    for name in ("bad", "good"):
        shutil.copytree(small, place / name)
    cubin = place / "bad" / "kernel.cubin"
    cubin.write_bytes(cubin.read_bytes()[:-1] + b"?")
    rows = (
        matrix.Row("bad", "s1", ("exact",), "bad", None),
        matrix.Row("good", "s1", ("exact",), "good", None),
        matrix.Row("unbuilt", "s2", ("exact",), None, "s2 on 1x1x1: no CUDA from its TIRx"),
    )
    records.write(matrix.Index(matrix.SCHEMA, "small", "sm_90a", rows), place / matrix.INDEX)
    done, report = judged(libraries, place, tmp_path)
    verdicts = {r["id"]: [f["verdict"] for f in r["findings"]] for r in report["results"]}
    assert verdicts == {"bad": ["unusable"], "good": ["clean"], "unbuilt": ["build"]}
    assert "kernel.cubin has SHA-256" in done.stdout
    assert "no CUDA from its TIRx" in done.stdout
    assert (done.returncode, report["clean"]) == (1, False)


def one_line(done):
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    return line


def test_no_gpu_is_one_line_and_exit_code_2(libraries, small, tmp_path):
    done, report = judged(libraries, small, tmp_path, gpu="no device")
    assert "no usable GPU here: cuInit says CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected" in one_line(done)
    assert report is None


def test_a_gpu_of_another_compute_capability_is_one_line_and_exit_code_2(libraries, tmp_path):
    blackwell = dataclasses.replace(gpu.version(), arch="sm_100a")
    bundle.export(build.build(blackwell, gpu.PROBLEM), tmp_path / "b")
    done, _ = judged(libraries, tmp_path / "b", tmp_path)
    assert "GPU 0 has compute capability 9.0, and sm_100a does not run on it" in one_line(done)


def test_torch_missing_is_said_and_not_passed_over(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ladder.UsageError, match="torch, the second reference, is not installed"):
        device.require_torch()


def test_a_bundle_is_the_same_wherever_it_is_built(libraries, small, tmp_path):
    ladder_file = tmp_path / "here.py"
    ladder_file.write_text(f"import sys\nsys.path.insert(0, {str(gpu.HERE)!r})\nimport gpu\nLADDER = [gpu.version()]\n")
    sizes = [f"--{name}={getattr(gpu.PROBLEM, name)}" for name in ("m", "n", "k")]
    done = gpu.run(libraries, "bundle", "s1", tmp_path / "s1", "--ladder", ladder_file, *sizes)
    assert done.returncode == 0, done.stdout + done.stderr
    there, here = (bundle.load_manifest(folder) for folder in (tmp_path / "s1", small))
    assert (there.files["kernel.cubin"], there.behaviour) == (here.files["kernel.cubin"], here.behaviour)
    assert b"__launch_bounds__" in (tmp_path / "s1" / "library.so").read_bytes()  # the source: no cubin of TVM's making


def test_a_place_without_bundles_is_said(libraries, tmp_path):
    done, _ = judged(libraries, tmp_path / "nowhere", tmp_path)
    assert "no bundles at" in one_line(done)


@pytest.mark.parametrize(
    ("arch", "runs", "not_on"),
    [
        ("sm_90a", [(9, 0)], [(10, 0), (8, 9)]),
        ("sm_100a", [(10, 0)], [(10, 3), (12, 0), (9, 0)]),
        ("sm_100f", [(10, 0), (10, 3)], [(12, 0)]),
        ("sm_80", [(8, 0), (8, 9)], [(9, 0)]),
        ("sm_103a", [(10, 3)], [(10, 0)]),
    ],
)
def test_which_gpus_run_an_architecture(arch, runs, not_on):
    assert all(runtime.runs_on(arch, found) for found in runs)
    assert not any(runtime.runs_on(arch, found) for found in not_on)


def test_a_matrix_is_packed_whole_with_every_row(tmp_path, monkeypatch):
    versions = (gpu.version(),)
    spec = ladder.Ladder("small", versions, {"s9": "s9 cannot be imported"})
    wanted = matrix.specialisations(spec, production=False)[:2]
    monkeypatch.setattr(matrix, "specialisations", lambda *_, **__: wanted)
    out = tmp_path / "small.tar.xz"
    index = matrix.export(spec, out, say=lambda _: None)
    assert list(tmp_path.iterdir()) == [out]
    assert [row.id for row in index.rows] == [*(s.id for s in wanted), "s9-broken"]
    with matrix.opened(out) as (found, folder):
        assert found == index
        assert all((folder / row.folder / "manifest.json").is_file() for row in found.rows if row.folder)
    with pytest.raises(ladder.UsageError, match="is there already"):
        matrix.export(spec, out)


def test_a_matrix_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch):
    def fails(*_):
        raise ladder.UsageError("a wheel is missing")

    monkeypatch.setattr(matrix, "_build", fails)
    with pytest.raises(ladder.UsageError, match="a wheel is missing"):
        matrix.export(ladder.Ladder("small", (gpu.version(),)), tmp_path / "out", say=lambda _: None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["..", "a/b", ""])
def test_an_index_cannot_lead_out_of_its_folder(tmp_path, name):
    rows = (matrix.Row("s1", "s1", ("exact",), name, None),)
    records.write(matrix.Index(matrix.SCHEMA, "small", "sm_90a", rows), tmp_path / matrix.INDEX)
    with pytest.raises(ladder.UsageError, match="no plain name"), matrix.opened(tmp_path):
        pass
