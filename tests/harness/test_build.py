"""Build: a cubin from wheels alone, a cache that cannot go wrong, errors with their lines, bundles that are checked."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

from tirx_ladder import build, bundle, cubin, cuda_errors, elf, ladder

TINY = 'extern "C" __global__ void tiny(float *p) { p[threadIdx.x] = 2.0f; }\n'
V5 = ladder.load()["v5"]
PROBLEM = ladder.Problem(256, 128, 256)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cubin cache of this module's own, so that each cubin is compiled once."""
    root = tmp_path_factory.mktemp("cubin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIRX_LADDER_CUBIN_CACHE", str(root))
        for name in cubin.SETTINGS:
            patch.delenv(name, raising=False)
        yield root


@pytest.fixture(scope="module")
def v5(cache):
    return build.build(V5, PROBLEM)


@pytest.fixture(scope="module")
def exported(v5, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bundles") / "v5"
    bundle.export(v5, folder)
    return folder


@pytest.fixture
def damaged(exported, tmp_path):
    """A copy of the bundle, to spoil."""
    folder = tmp_path / "bundle"
    subprocess.run(["cp", "-r", exported, folder], check=True)
    return folder


def test_a_version_becomes_a_cubin_for_blackwell(v5):
    assert "UTCHMMA" not in v5.cuda
    assert "gemm_v5_kernel" in v5.cuda
    assert elf.kernels(v5.cubin.image) == ["gemm_v5_kernel"]
    assert v5.cubin.options[0] == "--gpu-architecture=sm_100a"


def test_the_launch_is_that_of_the_host_code(v5):
    launch = v5.launch
    assert (launch.entry, launch.grid, launch.block, launch.cluster) == (
        "gemm_v5_kernel",
        (2, 1, 1),
        (128, 1, 1),
        (1, 1, 1),
    )
    ring, staging = 2 * (128 + 128) * 64 * 2, 128 * 128 * 2
    assert launch.dynamic_smem_bytes == ring + staging + 1024  # barriers, up to the next swizzle atom
    assert all("swizzle=3" in text for text in launch.tensor_maps)


def test_the_options_are_those_that_tvm_gives_nvrtc_at_run_time(v5, monkeypatch):
    from tvm.support import nvcc
    from tvm.target import Target

    given = []

    def kept(program, count, options):
        given.extend(option.decode() for option in options)
        raise RuntimeError("seen enough")

    monkeypatch.setenv("CUDA_PATH", str(cubin.cuda_home()))
    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcCompileProgram", kept)
    with Target({"kind": "cuda", "arch": "sm_100a"}), pytest.raises(RuntimeError, match="seen enough"):
        nvcc.tvm_callback_cuda_compile(v5.cuda)
    assert v5.cubin.options == tuple(option for option in given if not option.startswith("-I"))


def test_the_same_source_comes_from_the_cache_and_another_setting_does_not(monkeypatch):
    first = cubin.compile_cubin(TINY, "sm_100a")
    again = cubin.compile_cubin(TINY, "sm_100a")
    assert (again.cached, again.image, again.options, again.ptxas) == (True, first.image, first.options, first.ptxas)
    monkeypatch.setenv("TVM_CUDA_PTXAS_REG_LEVEL", "5")
    other = cubin.compile_cubin(TINY, "sm_100a")
    assert not other.cached
    assert "--ptxas-options=--register-usage-level=5" in other.options


@pytest.mark.parametrize(
    "spoil", [lambda b: b[:-1], lambda b: b"", lambda b: b[:200] + b"x" + b[201:], lambda b: b[:9000] + b"x" + b[9001:]]
)
def test_a_damaged_cache_entry_is_made_again_and_never_used(cache, spoil):
    good = cubin.compile_cubin(TINY, "sm_90a")
    entry = cache / f"{good.key}.cubin"
    whole = entry.read_bytes()
    entry.write_bytes(spoil(whole))
    made = cubin.compile_cubin(TINY, "sm_90a")
    assert not made.cached
    assert made.image == good.image
    assert cubin.compile_cubin(TINY, "sm_90a").cached


def test_two_processes_at_once_leave_one_whole_entry(tmp_path):
    code = f"from tirx_ladder import cubin; print(cubin.compile_cubin({TINY!r}, 'sm_100a').image.hex()[:64])"
    environment = os.environ | {"TIRX_LADDER_CUBIN_CACHE": str(tmp_path)}
    both = [subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    said = {process.communicate()[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert len(said) == 1
    (entry,) = tmp_path.iterdir()  # no temporary file is left either
    assert entry.name.endswith(".cubin")


def test_a_build_leaves_the_environment_as_it_was(monkeypatch):
    monkeypatch.setenv("CUDA_PATH", "/nowhere")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    before = dict(os.environ)
    assert not cubin.compile_cubin(TINY + "// another\n", "sm_100a").cached
    with pytest.raises(cuda_errors.CudaError):
        cubin.compile_cubin(TINY.replace("float", "flaot"), "sm_100a")
    assert dict(os.environ) == before


def test_a_missing_wheel_is_named(monkeypatch):
    monkeypatch.setitem(cubin.WHEELS, "nvidia-cuda-not-there", "/include/none.h")
    with pytest.raises(ladder.UsageError, match="nvidia-cuda-not-there is not installed"):
        cubin.compile_cubin(TINY + "// yet another\n", "sm_100a")


def test_a_cache_that_cannot_be_made_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TIRX_LADDER_CUBIN_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(ladder.UsageError, match="TIRX_LADDER_CUBIN_CACHE"):
        cubin.compile_cubin(TINY, "sm_100a")


def test_an_unaccepted_problem_is_refused_before_anything_compiles():
    with pytest.raises(ladder.UsageError, match="M = 100 is not a multiple of 128"):
        build.build(V5, ladder.Problem(100, 128, 64))


def test_an_architecture_that_is_none_is_refused():
    with pytest.raises(ladder.UsageError, match="one like sm_100a"):
        build.build(V5, PROBLEM, arch="blackwell")


BROKEN = '''
from tvm.script import tirx as T
from tirx_ladder.ladder import KernelVersion

SOURCE = """
__device__ __forceinline__ void ladder_helper(int x) {
    BODY
}
"""

def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k

    @T.prim_func
    def broken(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"), D: T.Buffer((M, N), "float16")):
        T.device_entry()
        T.cta_id([1])
        tid = T.thread_id([32])
        T.cuda.func_call("ladder_helper", tid, source_code=SOURCE)  # the culprit
        D[tid, 0] = A[tid, 0]

    return broken

LADDER = [KernelVersion(name="b1", adds="an error", build=build, tile=(32, 8), blk_k=16)]
'''


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("undefined_function(x);", 'identifier "undefined_function" is undefined'),
        ('asm volatile("nosuch.instruction %0;" :: "r"(x));', "nosuch"),
    ],
)
def test_an_error_of_the_cuda_compiler_names_the_generated_line_and_the_kernels(tmp_path, body, says):
    (tmp_path / "broken.py").write_text(BROKEN.replace("BODY", body))
    version = ladder.load(str(tmp_path / "broken.py"))["b1"]
    with pytest.raises(build.BuildError) as caught:
        build.build(version, ladder.Problem(32, 8, 16))
    text = str(caught.value)
    assert text.startswith("b1 on 32x8x16: CUDA compiler")
    assert says in text
    assert f": {body} (in ladder_helper)" in text
    assert "broken.py:19: T.cuda.func_call" in text
    assert "\n" not in text
    number = caught.value.__cause__.number
    assert 0 < number < 1000


def test_a_builder_that_raises_is_that_versions_verdict():
    def fails(problem, *, sm_count):
        raise ValueError("no such layout")

    version = dataclasses.replace(V5, build=fails)
    with pytest.raises(build.BuildError, match="v5 on 256x128x256: its build fails: ValueError: no such layout"):
        build.build(version, PROBLEM)


def test_a_bundle_holds_what_a_gpu_machine_needs_to_run_it_later(exported, v5):
    manifest = bundle.verify(exported)
    assert (manifest.version, manifest.problem, manifest.arch) == ("v5", PROBLEM, "sm_100a")
    assert manifest.launch == v5.launch
    assert manifest.toolchain["nvidia-cuda-nvrtc"]
    assert (exported / "kernel.cubin").read_bytes() == v5.cubin.image
    assert sorted(path.name for path in exported.iterdir()) == ["kernel.cubin", "library.so", "manifest.json"]


def test_a_bundles_library_exports_the_function_that_the_manifest_names(exported):
    manifest = bundle.load_manifest(exported)
    assert manifest.function == "gemm_v5"
    assert b"\0__tvm_ffi_gemm_v5\0" in (exported / "library.so").read_bytes()


def test_a_bundle_does_not_overwrite_anything(exported, v5):
    with pytest.raises(ladder.UsageError, match="there already and not empty"):
        bundle.export(v5, exported)


@pytest.mark.parametrize("name", ["library.so", "kernel.cubin"])
def test_a_file_that_is_not_the_manifests_is_refused_by_name(damaged, name):
    file = damaged / name
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ladder.UsageError, match=f"{name} has SHA-256 .* its manifest says"):
        bundle.verify(damaged)
    file.write_bytes(content[:-1])
    with pytest.raises(ladder.UsageError, match=f"{name} has .* bytes, its manifest says"):
        bundle.verify(damaged)
    file.unlink()
    with pytest.raises(ladder.UsageError, match=f"{name} cannot be read"):
        bundle.verify(damaged)
    file.symlink_to("/etc/passwd")
    with pytest.raises(ladder.UsageError, match=f"{name} is not a plain file"):
        bundle.verify(damaged)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m | {"extra": 1}, "unknown key 'extra'"),
        (lambda m: {k: v for k, v in m.items() if k != "launch"}, "key 'launch' is missing"),
        (lambda m: m | {"sm_count": "148"}, 'sm_count: "148", an integer is wanted'),
        (lambda m: m | {"sm_count": True}, "sm_count: true, an integer is wanted"),
        (lambda m: m | {"schema": 1}, "schema 1, and this tirx-ladder reads schema 3"),
        (lambda m: m | {"problem": {"m": 0, "n": 1, "k": 1}}, "M = 0: a positive integer is wanted"),
        (lambda m: m | {"launch": m["launch"] | {"grid": [1, 2]}}, "launch, grid: 2 values, 3 are wanted"),
        (lambda m: m | {"launch": m["launch"] | {"entry": "other"}}, "holds no kernel other"),
        (lambda m: m | {"behaviour": "0" * 64}, "behaviour of kernel.cubin"),
        (lambda m: m | {"files": {"../x": m["files"]["library.so"]}}, "library.so and kernel.cubin are wanted"),
        (lambda m: [m], "schema None"),
    ],
)
def test_a_manifest_with_a_wrong_key_is_refused_by_name(damaged, change, says):
    file = damaged / "manifest.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(ladder.UsageError) as caught:
        bundle.verify(damaged)
    assert says in str(caught.value)


def test_no_manifest_is_said_so(tmp_path):
    with pytest.raises(ladder.UsageError, match=r"manifest\.json cannot be read"):
        bundle.verify(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ladder.UsageError, match="is not JSON"):
        bundle.verify(tmp_path)
