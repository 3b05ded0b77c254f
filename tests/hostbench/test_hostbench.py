"""What the host spends: TIRx build, CUDA code generation, cubin compile, one case on the simulator.

Nothing here judges a time: pytest-benchmark shows, saves and compares runs (docs/history.md).
"""

import pytest

from tirx_ladder import cubin, ladder, simulate, toolchain

LADDER = ladder.load("blackwell_gemm")
PROBLEM = ladder.Problem(4096, 4096, 4096)
ROUNDS = {"rounds": 7, "warmup_rounds": 1}

each_version = pytest.mark.parametrize("name", ["v4", "v7", "v9"])


def kernel_of(name):
    return LADDER[name].build(PROBLEM, sm_count=LADDER[name].default_sm_count)


def compiled(kernel):
    import tvm

    target = tvm.target.Target({"kind": "cuda", "arch": LADDER.arch})
    return tvm.compile(tvm.IRModule({"main": kernel}), target=target, tir_pipeline="tirx")


@each_version
@pytest.mark.benchmark(group="TIRx build")
def test_tir(benchmark, name):
    assert benchmark.pedantic(kernel_of, [name], **ROUNDS) is not None


@each_version
@pytest.mark.benchmark(group="CUDA code generation")
def test_codegen(benchmark, name):
    assert benchmark.pedantic(compiled, [kernel_of(name)], **ROUNDS) is not None


@each_version
@pytest.mark.benchmark(group="cubin compile, nothing cached")
def test_cubin(benchmark, name, tmp_path_factory, monkeypatch):
    source = compiled(kernel_of(name)).mod.imports[0].inspect_source("cuda")

    def empty_cache():
        monkeypatch.setenv("TIRX_LADDER_CUBIN_CACHE", str(tmp_path_factory.mktemp("cubin")))

    made = benchmark.pedantic(cubin.compile_cubin, [source, LADDER.arch], setup=empty_cache, **ROUNDS)
    assert not made.cached


@pytest.mark.benchmark(group="one case on the simulator, built before")
def test_simulated_case(benchmark, monkeypatch):
    for name, value in toolchain.worker_environment().items():  # or it would build engines of its own
        monkeypatch.setenv(name, value)
    job = simulate.Job("blackwell_gemm", "v4", 128, 128, 128, None, "numerics", ("exact",))
    outcome = benchmark.pedantic(simulate.run, [job, lambda stage: None], **ROUNDS)
    assert outcome.of("exact").verdict == simulate.CLEAN
    assert not outcome.built
