"""Profile: figures agree with an independent reading, loops are found, equal code has an equal hash, JSON is strict."""

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tirx_ladder import build, cubin, elf, ladder, profile
from tirx_ladder.profile import occupancy, sass
from tirx_ladder.profile import tables as profile_tables

BLACKWELL = ladder.load()
PROBLEM = ladder.Problem(512, 256, 2048)
SMALL = ladder.load(str(Path(__file__).parent / "small_ladder.py"))
HAVE_CUOBJDUMP = "nvidia-cuda-cuobjdump"

# A kernel with spills, a stack and static shared memory: figures that the ladder's own kernels lack.
SPILLS = """
extern "C" __global__ void __launch_bounds__(128, 8) spills(float *p) {
  __shared__ float a[64];
  float x[200];
  #pragma unroll
  for (int i = 0; i < 200; i++) x[i] = p[i * 128 + threadIdx.x];
  a[threadIdx.x & 63] = p[0];
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 200; i++) p[i * 128 + threadIdx.x + 1] = x[i] * a[i & 63];
}
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cubin cache of this module's own, so that each cubin is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIRX_LADDER_CUBIN_CACHE", str(tmp_path_factory.mktemp("cubin")))
        yield


@pytest.fixture(scope="module")
def built(cache):
    """The versions that the tests look at: one of threads, one pipelined, one warp-specialised in clusters."""
    return {name: build.build(BLACKWELL[name], PROBLEM) for name in ("v3", "v5", "v9")}


@pytest.fixture(scope="module")
def profiles(built):
    return {name: profile.profile(compiled) for name, compiled in built.items()}


@pytest.fixture(scope="module")
def spilling(cache):
    return cubin.compile_cubin(SPILLS, "sm_100a")


def res_usage(image, tmp_path):
    """Registers, stack and shared memory as cuobjdump reads them."""
    (tmp_path / "k.cubin").write_bytes(image)
    tool = cubin.wheel_file(HAVE_CUOBJDUMP, "/bin/cuobjdump")
    done = subprocess.run([tool, "-res-usage", tmp_path / "k.cubin"], capture_output=True, text=True, check=True)
    return {key: int(value) for key, value in re.findall(r"\b(REG|STACK|SHARED):(\d+)", done.stdout)}


def test_registers_stack_and_smem_are_what_cuobjdump_reads(built, spilling, tmp_path):
    images = {c.launch.entry: c.cubin.image for c in built.values()} | {"spills": spilling.image}
    for entry, image in images.items():
        noted, read = elf.notes(image, entry), res_usage(image, tmp_path)
        assert (noted.registers, noted.stack_bytes) == (read["REG"], read["STACK"])
        assert noted.static_smem_bytes == read["SHARED"] - 1024


def test_static_smem_and_registers_are_what_ptxas_says(spilling):
    noted = elf.notes(spilling.image, "spills")
    assert f"Used {noted.registers} registers" in spilling.ptxas
    assert (noted.static_smem_bytes, noted.max_threads, noted.named_barriers) == (256, 128, 1)
    assert "256 bytes smem" in spilling.ptxas


def test_spilled_bytes_are_those_of_the_local_loads_and_stores_in_the_sass(spilling):
    stored, loaded = profile._spills(spilling.ptxas, "spills")
    code = sass.disassemble(spilling.image, "spills", cubin.wheel_file(*profile.NVDISASM))
    assert stored > 0
    assert sass.local_bytes(code) == (loaded, stored)


def test_a_version_that_does_not_spill_has_no_local_access(profiles):
    for p in profiles.values():
        assert (p.spill_load_bytes, p.spill_store_bytes, p.counts["local"]) == (0, 0, 0)


def test_the_main_loop_multiplies_k_tile_after_k_tile(profiles):
    for p in profiles.values():
        assert p.main_loop.counts["tensor"] == 4 * p.main_loop.k_tiles  # 64 of K, 16 an instruction
        assert p.main_loop.instructions == sum(p.main_loop.counts.values()) < p.instructions


def test_threads_load_in_v3_tma_loads_in_the_main_loop_of_v5_and_in_another_loop_of_v9(profiles):
    v3, v5, v9 = profiles["v3"], profiles["v5"], profiles["v9"]
    assert v3.load_loop is None
    assert v3.main_loop.counts["global"] == 16 * v3.main_loop.k_tiles  # 32 KiB by 128 threads, 16 bytes each
    assert v5.load_loop == v5.main_loop
    assert v5.main_loop.counts["tma_load"] == 2 * v5.main_loop.k_tiles
    assert v9.main_loop.counts["tma_load"] == 0
    assert v9.load_loop.counts["tensor"] == 0
    assert v9.load_loop.counts["tma_load"] == 3 * v9.load_loop.k_tiles


def test_traffic_and_stages_are_those_of_the_schedule(profiles):
    tile = 128 * 64 * 2
    figures = {n: (p.tma_load_bytes, p.copy_load_bytes, p.stages) for n, p in profiles.items()}
    assert figures == {"v3": (0, 2 * tile, 1), "v5": (2 * tile, 0, 2), "v9": (3 * tile, 0, 4)}
    for name, p in profiles.items():
        assert p.stages == BLACKWELL[name].pipe_depth
        assert p.bytes_in_flight_per_sm == p.stages * (p.tma_load_bytes + p.copy_load_bytes) * p.ctas_per_sm


def test_bytes_of_a_k_tile_are_those_that_the_barrier_expects(built, profiles):
    expected = {
        name: set(map(int, re.findall(r"expect_tx\w*\(.*\(uint\)(\d+)\);", c.cuda))) for name, c in built.items()
    }
    assert expected["v5"] == {profiles["v5"].tma_load_bytes}
    assert expected["v9"] == {2 * profiles["v9"].tma_load_bytes}  # CTA 0's barrier counts both CTAs'


def test_flops_of_all_k_tiles_are_those_of_the_problem(profiles):
    for name, p in profiles.items():
        rows, cols = BLACKWELL[name].grid(PROBLEM)
        ctas = rows * cols * p.launch.cluster_ctas
        assert p.flops * ctas * BLACKWELL[name].k_tiles(PROBLEM) == PROBLEM.flops
        assert p.intensity == p.flops / (p.tma_load_bytes + p.copy_load_bytes)


def test_v9_keeps_more_tensor_work_per_byte_than_v5(profiles):
    assert profiles["v9"].intensity > 2 * profiles["v5"].intensity


def test_a_kernel_without_tensor_cores_has_no_main_loop_not_an_empty_one():
    for arch in ("sm_90a", "sm_100a"):
        p = profile.profile(build.build(SMALL["s1"], ladder.Problem(32, 8, 64), arch=arch))
        assert (p.main_loop, p.load_loop, p.intensity, p.stages, p.tmem_columns) == (None, None, None, None, 0)
        assert p.arch == arch
        assert p.counts["global"] > 0


def test_v1_has_one_k_tile_and_so_no_loop(cache):
    p = profile.profile(build.build(BLACKWELL["v1"], ladder.Problem(128, 128, 64)))
    assert p.main_loop is None
    assert p.counts["tensor"] == 4


def code(text):
    """Instructions from lines of 'label: opcode operands', labels as branch targets."""
    lines = [line.partition(":") for line in text.strip().splitlines()]
    at = {name.strip(): 16 * i for i, (name, _, _) in enumerate(lines) if name.strip()}
    found = []
    for i, (_, _, rest) in enumerate(lines):
        predicate, words = "", rest.split()
        if words[0].startswith("@"):
            predicate, *words = words
        operands = ",".join(hex(at[w]) if w in at else w for w in words[1:])
        found.append(sass.Instruction(16 * i, words[0], operands, predicate))
    return found


SLOW_WAIT = """
start: MOV
loop: SYNCS.PHASECHK.TRANS64.TRYWAIT
: @!P0 BRA slow
back: HGMMA.64x128x16.F32
: UTMALDG.2D
: @P1 BRA loop
tile: IADD3
: @P2 BRA start
: EXIT
slow: SYNCS.PHASECHK.TRANS64.TRYWAIT
: @!P0 BRA slow
: BRA back
"""


def test_the_slow_path_of_a_wait_behind_the_kernel_is_not_taken_for_the_main_loop():
    main = sass.main_loop(code(SLOW_WAIT))
    assert main.header == 16  # not 'back', to which the branch from the end leads
    assert {i.offset // 16 for i in main.instructions} == {1, 2, 3, 4, 5, 9, 10, 11}
    assert sass.load_loop(code(SLOW_WAIT)) == main


def test_of_two_loops_with_tensor_instructions_the_unrolled_one_is_the_main_loop():
    text = "a: UTCHMMA\n: @P0 BRA a\nb: UTCHMMA\n: UTCHMMA\n: UTCHMMA\n: BRA.U UP0 b\n: EXIT"
    assert sass.main_loop(code(text)).header == 32


def test_the_loop_that_issues_for_one_lane_after_another_is_no_loop_of_the_kernel():
    text = "k: MOV\nlane: ELECT\n: UTMALDG.2D\n: @P0 BRA.U.ANY lane\n: UTCHMMA\n: @P1 BRA k\n: EXIT"
    assert sass.load_loop(code(text)).header == 0


def test_a_backward_branch_that_is_never_reached_makes_no_loop():
    assert sass.loops(code("a: UTCHMMA\n: EXIT\nb: UTCHMMA\n: BRA b")) == []


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("UTCHMMA.2CTA", "tensor"),
        ("HGMMA.64x128x16.F32", "tensor"),
        ("UTMALDG.2D.2CTA", "tma_load"),
        ("UTMASTG.3D", "tma_store"),
        ("SYNCS.ARRIVE.TRANS64", "barrier"),
        ("UTCBAR.2CTA.MULTICAST", "barrier"),
        ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
        ("LDTM.x64", "tmem_load"),
        ("STS.128", "shared"),
        ("LDG.E.128", "global"),
        ("STL.64", "local"),
        ("LDCU.64", "constant"),
        ("UIADD3.X", "integer"),
        ("BRA.U.ANY", "branch"),
        ("R2UR", "move"),
        ("F2FP.F16.F32.PACK_AB", "float"),
        ("NOP", "other"),
    ],
)
def test_an_instruction_is_of_the_class_that_its_opcode_says(opcode, kind):
    assert sass.class_of(opcode) == kind


def test_nothing_that_the_ladder_uses_is_unclassified_but_nops(built):
    tool = cubin.wheel_file(*profile.NVDISASM)
    for compiled in built.values():
        found = sass.disassemble(compiled.cubin.image, compiled.launch.entry, tool)
        assert {i.base for i in found if sass.class_of(i.opcode) == "other"} <= {"NOP", "UVIRTCOUNT"}


def copy_with(folder, version, old, new):
    """The version from a copy of the ladder in which a text was replaced."""
    source = BLACKWELL[version].source
    shutil.copytree(source.parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = source.read_text()
    assert old in text
    (folder / source.name).write_text(text.replace(old, new))
    return ladder.load(str(folder))[version]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        # prologue: fill the ring\n", "        # prologue\n\n        # in more words than before\n"),
        ('"""V5, software pipeline', '"""V5\n\nsoftware pipeline'),
        ("gemm_v5", "gemm_of_another_name"),
        ("phase_mma", "parity_of_mma"),
    ],
    ids=["comment", "docstring", "kernel", "variable"],
)
def test_comments_line_numbers_and_names_do_not_change_the_code_hash(profiles, tmp_path, old, new):
    edited = build.build(copy_with(tmp_path / "ladder", "v5", old, new), PROBLEM)
    assert profile.profile(edited).code_hash == profiles["v5"].code_hash


def test_another_pipe_depth_changes_the_hash_and_the_figures(profiles, tmp_path):
    p = profile.profile(build.build(copy_with(tmp_path / "ladder", "v5", "PIPE_DEPTH = 2", "PIPE_DEPTH = 3"), PROBLEM))
    assert p.code_hash != profiles["v5"].code_hash
    assert (p.stages, p.bytes_in_flight_per_sm) == (3, 3 * 32768)


@pytest.mark.parametrize(
    "change",
    [{"grid": (1, 1, 1)}, {"cluster": (2, 1, 1)}, {"dynamic_smem_bytes": 1}, {"tensor_maps": ("another swizzle",)}],
    ids=lambda change: next(iter(change)),
)
def test_another_launch_of_the_same_code_changes_the_hash(built, profiles, change):
    other = dataclasses.replace(built["v5"].launch, **change)
    assert profile.code_hash(built["v5"].cubin.image, other) != profiles["v5"].code_hash


def test_one_changed_bit_of_the_code_changes_the_hash(built, profiles):
    image, launch = bytearray(built["v5"].cubin.image), built["v5"].launch
    text = next(s for s in elf.sections(bytes(image)) if s.name == f".text.{launch.entry}")
    image[bytes(image).index(text.data) + 64] ^= 1
    assert profile.code_hash(bytes(image), launch) != profiles["v5"].code_hash


def test_what_is_no_cubin_is_refused():
    for image in (b"", b"\x7fELF", b"not a cubin" * 10):
        with pytest.raises(ladder.UsageError, match="cubin"):
            elf.sections(image)


def test_a_cubin_cut_short_is_refused(built):
    with pytest.raises(ladder.UsageError, match="not a whole cubin"):
        elf.sections(built["v5"].cubin.image[:-100])


OCCUPANCY = r"""
#include <cstdio>
#include <cstdlib>
#include <cuda_occupancy.h>
int main() {
  int major, registers, threads, smem, barriers;
  while (scanf("%d %d %d %d %d", &major, &registers, &threads, &smem, &barriers) == 5) {
    cudaOccDeviceProp p;
    p.computeMajor = major; p.maxThreadsPerBlock = 1024; p.maxThreadsPerMultiprocessor = 2048;
    p.regsPerBlock = p.regsPerMultiprocessor = 65536; p.warpSize = 32; p.sharedMemPerBlock = 48 * 1024;
    p.sharedMemPerMultiprocessor = 228 * 1024; p.numSms = 148; p.sharedMemPerBlockOptin = 227 * 1024;
    p.reservedSharedMemPerBlock = 1024;
    cudaOccFuncAttributes f;
    f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.maxDynamicSharedSizeBytes = 227 * 1024;
    f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; f.numBlockBarriers = barriers;
    cudaOccDeviceState state; cudaOccResult result;
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &p, &f, &state, threads, smem);
    printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
"""


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler to compile cuda_occupancy.h with")
def test_ctas_per_sm_are_those_of_cuda_occupancy_h(tmp_path):
    (tmp_path / "o.cpp").write_text(OCCUPANCY)
    include = cubin.cuda_home() / "include"
    command = ["c++", "-w", f"-I{include}", "-o", tmp_path / "o", tmp_path / "o.cpp"]
    subprocess.run(command, check=True)
    archs = {"sm_90a": 9, "sm_100a": 10}
    cases = list(
        itertools.product(
            archs,
            (16, 32, 41, 90, 128, 155, 168, 255),
            (32, 96, 128, 256, 384, 1024),
            (0, 8192, 33792, 99328, 164864, 230400, 227 * 1024, 227 * 1024 + 16),
            (0, 1, 16),
        )
    )
    asked = "\n".join(" ".join(map(str, (archs[arch], *rest))) for arch, *rest in cases)
    said = subprocess.run([tmp_path / "o"], input=asked, capture_output=True, text=True, check=True).stdout.split()
    for (arch, registers, threads, smem, barriers), want in zip(cases, map(int, said), strict=True):
        found = occupancy.occupancy(
            arch, registers=registers, threads=threads, smem_bytes=smem, barriers=barriers, tmem_columns=0
        )
        assert found.ctas == want, (arch, registers, threads, smem, barriers)


def test_tensor_memory_limits_ctas_on_blackwell_and_is_named(profiles):
    assert (profiles["v3"].ctas_per_sm, profiles["v3"].ctas_limited_by) == (1, ("TMEM",))
    assert set(profiles["v9"].ctas_limited_by) == {"registers", "SMEM", "TMEM"}
    half = occupancy.occupancy("sm_100a", registers=64, threads=128, smem_bytes=1024, barriers=1, tmem_columns=256)
    assert (half.ctas, half.limited_by) == (2, ("TMEM",))


def test_an_architecture_without_known_limits_is_refused():
    with pytest.raises(ladder.UsageError, match="sm_90a and sm_100a are"):
        occupancy.occupancy("sm_80", registers=1, threads=32, smem_bytes=0, barriers=0, tmem_columns=0)


@pytest.fixture(scope="module")
def whole(profiles, tmp_path_factory):
    """A file with profiles."""
    found = profile.ProfileSet(
        profile.SCHEMA,
        "blackwell_gemm",
        "sm_100a",
        cubin.toolchain(),
        profile.SOURCES,
        tuple(profiles.values()),
        {"v4": "does not build"},
    )
    path = tmp_path_factory.mktemp("profile") / "profile.json"
    profile.write(found, path)
    assert profile.read(path) == found
    return path


def test_every_figure_names_its_source(whole):
    data = json.loads(whole.read_text())
    loop = {f"loop.{f.name}" for f in dataclasses.fields(profile.LoopProfile)}
    assert set(data["sources"]) == set(data["profiles"][0]) | loop
    assert all(data["sources"].values())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d | {"schema": 0}, "schema 0, and this tirx-ladder reads schema 1"),
        (lambda d: d | {"more": 1}, "unknown key 'more'"),
        (lambda d: d | {"profiles": [d["profiles"][0] | {"registers": 90.5}]}, "profiles, number 0, registers: 90.5"),
        (lambda d: d | {"profiles": [d["profiles"][0] | {"intensity": float("nan")}]}, "intensity: nan"),
        (lambda d: d | {"profiles": [d["profiles"][0] | {"regs": 1}]}, "unknown key 'regs'"),
        (
            lambda d: d | {"profiles": [d["profiles"][0] | {"main_loop": {"offset": 1}}]},
            "key 'instructions' is missing",
        ),
        (lambda d: d | {"profiles": d["profiles"][:1] * 2}, "v3 on 512x256x2048 is there twice"),
    ],
)
def test_a_profile_file_with_something_wrong_is_refused_by_name(whole, tmp_path, change, says):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(change(json.loads(whole.read_text()))))
    with pytest.raises(ladder.UsageError) as caught:
        profile.read(path)
    assert says in str(caught.value)


def test_profiles_are_read_where_tvm_and_cuda_are_not_installed(whole):
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi", "cuda", "torch", "nvidia"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from tirx_ladder import profile
from tirx_ladder.profile import tables as profile_tables
print(profile_tables.markdown(profile.read(Path({str(whole)!r}))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "| v9 | 512x256x2048 |" in done.stdout


def test_tables_show_each_version_and_why_one_is_missing(whole):
    found = profile.read(whole)
    text = profile_tables.markdown(found)
    assert [line.split(" | ")[0] for line in text.splitlines() if re.match(r"\| v\d", line)] == ["| v3", "| v5", "| v9"]
    assert "v4: does not build" in text
    assert profile_tables.table(found).row_count == len(profile_tables.COLUMNS) - 1
    assert profile_tables.details(found.profiles[0]).row_count > 30


def test_a_ladder_is_profiled_at_the_nearest_problem_each_version_accepts():
    big = ladder.Problem(4096, 4096, 4096)
    taken = {v.name: str(profile.nearest_problem(v, big)) for v in BLACKWELL.versions}
    assert (taken["v1"], taken["v2"]) == ("128x128x64", "128x128x4096")
    assert {taken[name] for name in taken if name not in ("v1", "v2")} == {"4096x4096x4096"}


def test_versions_that_refuse_the_problem_or_do_not_build_are_listed_as_failed(tmp_path):
    def fails(problem, *, sm_count):
        raise ValueError("broken on purpose")

    good = SMALL["s1"]
    bad = dataclasses.replace(good, name="s2", build=fails)
    picky = dataclasses.replace(good, name="s3", tile=(64, 8))
    said = []
    found = profile.profile_ladder(
        ladder.Ladder("small", (good, bad, picky), {"s0": "cannot be imported"}),
        ladder.Problem(32, 8, 64),
        say=said.append,
    )
    assert [p.version for p in found.profiles] == ["s1"]
    assert set(found.failed) == {"s0", "s2", "s3"}
    assert "broken on purpose" in found.failed["s2"]
    assert "M = 32 is not a multiple of 64" in found.failed["s3"]
    assert said[0].startswith("s1 on 32x8x64")
