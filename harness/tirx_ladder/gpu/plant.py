"""A kernel made slower by a known number of cycles: it spins at its entry, before anything else.

For the proof of the gate only. The cycles are a constant in the cubin, so that one compiled kernel, made where the
compiler is, is set to any slowdown where the GPU is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .. import build, bundle, cubin, elf, records
from ..build import Build
from ..cuda_errors import CudaError
from ..ladder import DEFAULT_LADDER, BrokenVersionError, Problem, UsageError, load

NAME = "tirx_ladder_planted_cycles"
MARK = 0x7469_7278_6C61_6464
"""What the constant is compiled with: eight bytes that occur nowhere else."""

_SPIN = f"""
extern "C" __constant__ unsigned long long {NAME} = {MARK:#x}ULL;
static __device__ __forceinline__ void tirx_ladder_spin() {{
  const long long until = clock64() + (long long)*(volatile const unsigned long long *)&{NAME};
  while (clock64() < until) {{}}
}}
"""


def source(cuda: str, entry: str) -> str:
    """CUDA source whose kernel spins at its entry. Raises UsageError if its definition cannot be found."""
    definition = re.search(rf'extern "C" __global__ [^;{{}}]*\b{re.escape(entry)}\([^;{{}}]*\)\s*\{{', cuda)
    if definition is None:
        raise UsageError(f"no definition of {entry} in its CUDA source: nothing was planted")
    first = re.search(r'extern "C" __global__ ', cuda)
    assert first is not None
    at, end = first.start(), definition.end()
    return f"{cuda[:at]}{_SPIN}{cuda[at:end]}\n  tirx_ladder_spin();{cuda[end:]}"


def planted(built: Build) -> Build:
    """The same version with a spin, whose length `set_cycles` sets. Raises UsageError if it does not compile."""
    try:
        compiled = cubin.compile_cubin(source(built.cuda, built.launch.entry), built.arch)
    except CudaError as error:
        raise UsageError(f"{built.version.name} with a spin does not compile: {error}") from None
    _place(compiled.image)
    return replace(built, cubin=compiled)


def set_cycles(folder: Path, out: Path, cycles: int) -> bundle.Manifest:
    """A copy of a planted bundle that spins for so many cycles. Raises UsageError if it is no planted one."""
    if cycles < 0:
        raise UsageError(f"{cycles} cycles: 0 or more are wanted")
    manifest = bundle.verify(folder)
    image = bytearray((folder / bundle.CUBIN).read_bytes())
    at = _place(bytes(image))
    image[at : at + 8] = cycles.to_bytes(8, "little")
    shutil.copytree(folder, out)
    (out / bundle.CUBIN).write_bytes(image)
    files = {**manifest.files, bundle.CUBIN: bundle.record(out / bundle.CUBIN)}
    spinning = replace(manifest, files=files, behaviour=elf.behaviour_digest(bytes(image), manifest.launch.entry))
    records.write(spinning, out / bundle.MANIFEST)
    return spinning


def _place(image: bytes) -> int:
    mark = MARK.to_bytes(8, "little")
    if image.count(mark) != 1:
        raise UsageError(f"the cubin holds the mark of a planted spin {image.count(mark)} times, once is wanted")
    return image.index(mark)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the bundles of a campaign: base and planted for each size."""
    parser = argparse.ArgumentParser(prog="python -m tirx_ladder.gpu.plant", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("out", type=Path, help="folder for PROBLEM/base and PROBLEM/planted")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="of M, N and K (%(default)s)")
    parser.add_argument("--ladder", default=DEFAULT_LADDER, help="(%(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        for size in chosen.sizes:
            problem = Problem(size, size, size)
            built = build.build(load(chosen.ladder)[chosen.version], problem)
            bundle.export(built, chosen.out / str(problem) / "base")
            bundle.export(planted(built), chosen.out / str(problem) / "planted")
    except (UsageError, build.BuildError, BrokenVersionError) as error:
        print(f"tirx-ladder: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
