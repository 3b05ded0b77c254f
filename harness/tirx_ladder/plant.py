"""A kernel made slower by a known number of cycles: it spins at its entry, before anything else.

For the proof of the gate only. The cycles are a constant in the cubin, so that one compiled kernel, made where the
compiler is, is set to any slowdown where the GPU is.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

from . import bundle, cubin, elf, records
from .build import Build
from .cuda_errors import CudaError
from .ladder import UsageError

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


def build(built: Build) -> Build:
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
    planted = replace(manifest, files=files, behaviour=elf.behaviour_digest(bytes(image), manifest.launch.entry))
    records.write(planted, out / bundle.MANIFEST)
    return planted


def _place(image: bytes) -> int:
    mark = MARK.to_bytes(8, "little")
    if image.count(mark) != 1:
        raise UsageError(f"the cubin holds the mark of a planted spin {image.count(mark)} times, once is wanted")
    return image.index(mark)
