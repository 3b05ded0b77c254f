"""How many CTAs of a kernel an SM holds, and what limits them.

Limits: CUDA C++ Programming Guide, compute capabilities, "Technical Specifications per Compute Capability" (threads,
CTAs, registers and shared memory of an SM for 9.0 and 10.0); tensor memory: PTX ISA, "Tensor Memory" (512
columns). How they are handed out, and the number of named barriers: cuda_occupancy.h (in the wheel
nvidia-cuda-runtime), with which a test compares this module; it knows nothing of tensor memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..elf import RESERVED_SMEM_BYTES
from ..ladder import UsageError

WARP = 32
REGISTER_UNIT = 256  # registers are handed to a warp in units of so many (cuda_occupancy.h)
QUARTERS = 4  # parts of an SM, each with a quarter of its registers, that warps are handed to
SMEM_UNIT = 128  # bytes


@dataclass(frozen=True)
class SmLimits:
    """What one SM has: registers, bytes of shared memory, threads, CTAs, named barriers, columns of tensor memory."""

    registers: int
    smem_bytes: int
    threads: int
    ctas: int
    barriers: int
    tmem_columns: int


LIMITS = {
    "sm_90a": SmLimits(registers=65536, smem_bytes=228 * 1024, threads=2048, ctas=32, barriers=64, tmem_columns=0),
    "sm_100a": SmLimits(registers=65536, smem_bytes=228 * 1024, threads=2048, ctas=32, barriers=64, tmem_columns=512),
}


@dataclass(frozen=True)
class Occupancy:
    """CTAs that an SM holds at a time, and the resources that allow no more."""

    ctas: int
    limited_by: tuple[str, ...]


def occupancy(
    arch: str, *, registers: int, threads: int, smem_bytes: int, barriers: int, tmem_columns: int
) -> Occupancy:
    """CTAs per SM of a kernel with so many registers per thread, and threads, SMEM, named barriers and TMEM per CTA.

    smem_bytes is static and dynamic shared memory; the 1 KiB that CUDA reserves for each CTA is added here. A
    CTA that finds no free TMEM columns waits in tcgen05.alloc, so it does not count as held. A kernel that
    fits no SM has 0. Raises UsageError for an architecture whose limits are not known.
    """
    if arch not in LIMITS:
        raise UsageError(f"no limits of an SM are known for {arch}: {' and '.join(LIMITS)} are")
    limits = LIMITS[arch]
    warps = _ceil(threads, WARP)
    by_warp = _ceil(max(registers, 1) * WARP, REGISTER_UNIT) * REGISTER_UNIT
    warps_with_registers = limits.registers // QUARTERS // by_warp * QUARTERS
    launches = by_warp * _ceil(warps, QUARTERS) * QUARTERS <= limits.registers  # the check made at a launch
    allowed = {
        "registers": warps_with_registers // warps if launches else 0,
        "SMEM": limits.smem_bytes // (_ceil(smem_bytes + RESERVED_SMEM_BYTES, SMEM_UNIT) * SMEM_UNIT),
        "threads": limits.threads // (warps * WARP),
        "CTA slots": limits.ctas,
    }
    if barriers:
        allowed["named barriers"] = limits.barriers // barriers
    if tmem_columns:
        allowed["TMEM"] = limits.tmem_columns // tmem_columns
    ctas = min(allowed.values())
    return Occupancy(ctas, tuple(name for name, count in allowed.items() if count == ctas))


def _ceil(value: int, unit: int) -> int:
    return -(-value // unit)
