"""Static profile of a version on a problem: the figures that its cubin and its TIRx give away without a GPU.

Only `profile` and `profile_ladder` need tvm and the CUDA wheels; a profile's JSON is read without them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .. import build, cubin, elf, records
from ..build import Build, Launch
from ..ladder import KernelVersion, Ladder, Problem, UsageError
from . import occupancy, sass
from .traffic import traffic

SCHEMA = 1
NVDISASM = ("nvidia-cuda-nvdisasm", "/bin/nvdisasm")


@dataclass(frozen=True)
class LoopProfile:
    """A loop of the SASS. counts and instructions are of one pass through it, which may take several K tiles."""

    offset: int
    instructions: int
    counts: dict[str, int]
    k_tiles: int | None

    @property
    def per_k_tile(self) -> float | None:
        """Instructions per K tile: what can be compared when ptxas unrolls otherwise."""
        return self.instructions / self.k_tiles if self.k_tiles else None


@dataclass(frozen=True)
class Profile:
    """The static figures of one version on one problem. Bytes and flops of a K tile are of one CTA."""

    version: str
    problem: Problem
    sm_count: int
    arch: str
    launch: Launch
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_smem_bytes: int
    dynamic_smem_bytes: int
    tmem_columns: int
    named_barriers: int
    threads: int
    ctas_per_sm: int
    ctas_limited_by: tuple[str, ...]
    instructions: int
    counts: dict[str, int]
    main_loop: LoopProfile | None
    load_loop: LoopProfile | None
    tma_load_bytes: int | None
    copy_load_bytes: int | None
    flops: int
    intensity: float | None
    stages: int | None
    bytes_in_flight_per_sm: int
    cubin_bytes: int
    code_bytes: int
    code_hash: str
    tir_seconds: float
    codegen_seconds: float
    cubin_seconds: float

    @property
    def key(self) -> tuple[str, str]:
        """Version and problem: what a profile is the profile of."""
        return self.version, str(self.problem)


SOURCES: dict[str, str] = {
    "version": "KernelVersion.name",
    "problem": "as asked, or the nearest that the version accepts",
    "sm_count": "as asked",
    "arch": "as asked",
    "launch": "call_ffi_kernel and tensormap_encode_tiled in the host function after tirx.MakePackedAPI",
    "registers": "per thread; .nv.info EIATTR_REGCOUNT of the cubin",
    "spill_store_bytes": "per thread; ptxas -v, bytes spill stores",
    "spill_load_bytes": "per thread; ptxas -v, bytes spill loads",
    "stack_bytes": "per thread; .nv.info EIATTR_FRAME_SIZE of the cubin",
    "static_smem_bytes": "per CTA; size of .nv.shared.<kernel> less the 1024 bytes that CUDA reserves",
    "dynamic_smem_bytes": "per CTA; tirx.use_dyn_shared_memory of the launch",
    "tmem_columns": "per CTA; tcgen05.alloc in the TIRx",
    "named_barriers": "per CTA; .nv.info EIATTR_NUM_BARRIERS of the cubin",
    "threads": "per CTA; threadIdx extents of the launch",
    "ctas_per_sm": "occupancy.py, with the limits of the compute capability",
    "ctas_limited_by": "the resources that allow no more CTAs; occupancy.py",
    "instructions": "nvdisasm -json, without the padding at the end",
    "counts": "the same by class (sass.CLASSES)",
    "main_loop": "innermost loop with tensor-core instructions; null if there is none",
    "load_loop": "innermost loop with TMA loads (the producer's, or the main loop); null: none",
    "tma_load_bytes": "per K tile; Tx.copy_async from global to shared memory in the TIRx's K loop, a multicast once",
    "copy_load_bytes": "per K tile; Tx.copy by threads from global to shared memory in the K loop",
    "flops": "per K tile; 2 x tile x blk_k of the KernelVersion, over the CTAs of a cluster",
    "intensity": "flops per byte that the CTA loads: flops / (tma + copy load bytes)",
    "stages": "bytes of the SMEM buffers loaded into / bytes that arrive per K tile, the peers' multicasts too",
    "bytes_in_flight_per_sm": "bytes of the SMEM buffers loaded into x CTAs per SM: what can be in flight at most",
    "cubin_bytes": "size of the cubin",
    "code_bytes": "size of .text.<kernel>, padding included",
    "code_hash": "SHA-256 of elf.behaviour_digest and the launch without its entry name",
    "tir_seconds": "host time of the version's build(); not part of the hash",
    "codegen_seconds": "host time of tvm.compile to CUDA source",
    "cubin_seconds": "host time of NVRTC when the cubin was compiled",
    "loop.offset": "first instruction's offset in the code section; natural loops of the SASS (sass.py)",
    "loop.instructions": "instructions in that loop, the slow paths of its waits included",
    "loop.counts": "the same by class (sass.CLASSES)",
    "loop.k_tiles": "its tensor-core (or TMA load) instructions over those of one K tile in the lowered TIRx",
}
"""Where each figure comes from."""


@dataclass(frozen=True)
class ProfileSet:
    """The profiles of a ladder. failed: version → why it has none; toolchain: distribution → version."""

    schema: int
    ladder: str
    arch: str
    toolchain: dict[str, str]
    sources: dict[str, str]
    profiles: tuple[Profile, ...]
    failed: dict[str, str]


def profile(compiled: Build) -> Profile:
    """The profile of a compiled version. Raises UsageError if nvdisasm is not there or cannot read the cubin."""
    version, problem, launch = compiled.version, compiled.problem, compiled.launch
    image = compiled.cubin.image
    noted = elf.notes(image, launch.entry)
    spilled = _spills(compiled.cubin.ptxas, launch.entry)
    code = sass.disassemble(image, launch.entry, cubin.wheel_file(*NVDISASM))
    moved = traffic(compiled.kernel, compiled.lowered, version.k_tiles(problem), launch.threads)
    fit = occupancy.occupancy(
        compiled.arch,
        registers=noted.registers,
        threads=launch.threads,
        smem_bytes=noted.static_smem_bytes + launch.dynamic_smem_bytes,
        barriers=noted.named_barriers,
        tmem_columns=moved.tmem_columns,
    )
    flops = 2 * version.tile[0] * version.tile[1] * version.blk_k // launch.cluster_ctas
    main, loading = sass.main_loop(code), sass.load_loop(code)
    main_k_tiles = _k_tiles(main.tensor, moved.mma) if main else None
    if loading and main and loading.header == main.header:
        loading_k_tiles = main_k_tiles
    else:
        loading_k_tiles = _k_tiles(loading.tma_loads, moved.tma_loads) if loading else None
    return Profile(
        version=version.name,
        problem=problem,
        sm_count=compiled.sm_count,
        arch=compiled.arch,
        launch=launch,
        registers=noted.registers,
        spill_store_bytes=spilled[0],
        spill_load_bytes=spilled[1],
        stack_bytes=noted.stack_bytes,
        static_smem_bytes=noted.static_smem_bytes,
        dynamic_smem_bytes=launch.dynamic_smem_bytes,
        tmem_columns=moved.tmem_columns,
        named_barriers=noted.named_barriers,
        threads=launch.threads,
        ctas_per_sm=fit.ctas,
        ctas_limited_by=fit.limited_by,
        instructions=len(code),
        counts=sass.counts(code),
        main_loop=_loop(main, main_k_tiles) if main else None,
        load_loop=_loop(loading, loading_k_tiles) if loading else None,
        tma_load_bytes=moved.tma_load_bytes,
        copy_load_bytes=moved.copy_load_bytes,
        flops=flops,
        intensity=flops / moved.load_bytes if moved.load_bytes else None,
        stages=moved.stages,
        bytes_in_flight_per_sm=moved.ring_bytes * fit.ctas,
        cubin_bytes=len(image),
        code_bytes=noted.code_bytes,
        code_hash=code_hash(image, launch),
        tir_seconds=compiled.seconds.tir,
        codegen_seconds=compiled.seconds.codegen,
        cubin_seconds=compiled.seconds.cubin,
    )


def code_hash(image: bytes, launch: Launch) -> str:
    """One hash of the machine code, the constants and resources that go with it, and how it is launched.

    Equal hashes mean that nothing is left to time: comments, line numbers and names do not enter.
    """
    how = {name: value for name, value in records.to_plain(launch).items() if name != "entry"}
    text = f"{elf.behaviour_digest(image, launch.entry)} {json.dumps(how, sort_keys=True)}"
    return hashlib.sha256(text.encode()).hexdigest()


_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def _spills(ptxas: str, entry: str) -> tuple[int, int]:
    """Bytes of spill stores and loads that ptxas -v reports for a kernel."""
    _, found, after = ptxas.partition(f"Function properties for {entry}\n")
    match = _SPILLS.search(after) if found else None
    if match is None:
        raise UsageError(f"ptxas says nothing of spills in {entry}: TVM's option -v is missing, or its wording is new")
    return int(match[1]), int(match[2])


def _k_tiles(in_loop: int, in_k_tile: int | None) -> int | None:
    if not in_loop or not in_k_tile or in_loop % in_k_tile:
        return None
    return in_loop // in_k_tile


def _loop(loop: sass.Loop, k_tiles: int | None) -> LoopProfile:
    return LoopProfile(loop.header, len(loop.instructions), sass.counts(loop.instructions), k_tiles)


def nearest_problem(version: KernelVersion, problem: Problem) -> Problem:
    """The problem, cut to one output tile or fewer K tiles for a version that is limited to that."""
    tiles_m, tiles_n = version.grid(problem)
    k_tiles = min(version.k_tiles(problem), version.max_k_tiles or version.k_tiles(problem))
    if version.max_tiles is not None and tiles_m * tiles_n > version.max_tiles:
        tiles_m, tiles_n = 1, version.max_tiles
    cut = version.problem(max(tiles_m, 1), max(tiles_n, 1), max(k_tiles, 1))
    limited = version.max_tiles is not None or version.max_k_tiles is not None
    return cut if limited else problem


def profile_ladder(
    ladder: Ladder,
    problem: Problem,
    *,
    sm_count: int | None = None,
    arch: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> ProfileSet:
    """The profiles of all versions of a ladder. A version that does not build or refuses the problem is under failed.

    say is told what is being done. Raises UsageError for what concerns all versions, like a missing wheel.
    """
    toolchain = cubin.toolchain() | {NVDISASM[0]: cubin.version_of(NVDISASM[0])}
    arch = ladder.arch if arch is None else arch
    profiles, failed = [], dict(ladder.broken)
    for version in ladder.versions:
        try:
            taken = nearest_problem(version, problem)
            version.check(taken, sm_count)
        except UsageError as error:  # refuses the problem: that version's affair
            failed[version.name] = str(error)
            continue
        say(f"{version.name} on {taken}: TIRx, CUDA and cubin for {arch}, 2 to 4 seconds")
        try:
            profiles.append(profile(build.build(version, taken, sm_count=sm_count, arch=arch)))
        except build.BuildError as error:
            failed[version.name] = str(error)
    return ProfileSet(SCHEMA, ladder.spec, arch, toolchain, SOURCES, tuple(profiles), failed)


def write(profiles: ProfileSet, path: Path) -> None:
    """Write profiles as JSON. Raises UsageError if that cannot be done."""
    records.write(profiles, path)


def read(path: Path) -> ProfileSet:
    """Read profiles, strictly: UsageError names an unknown or missing key, a wrong type, another schema."""
    found = records.read(ProfileSet, path, SCHEMA)
    twice = [p.key for p in found.profiles if [q.key for q in found.profiles].count(p.key) > 1]
    if twice:
        raise UsageError(f"{path}: {' on '.join(twice[0])} is there twice")
    return found
