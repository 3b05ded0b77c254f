"""What one K tile costs by a kernel's TIRx: bytes loaded into shared memory, MMA instructions, stages of the ring."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import tir
from ..lint.events import events_by_statement

_UNROLLED = 3  # tvm.tirx.ForKind.UNROLLED

_ISSUED = {
    "tma_loads": re.compile(r"tirx\.ptx\.cp_async_bulk_(tensor_)?g2s\w*"),
    "mma": re.compile(r"tirx\.ptx\.(tcgen05_mma|wgmma_(?!fence|commit_group|wait_group)|mma)\w*"),
}

_THREADS_OF_SCOPE = {"thread": 1, "warp": 32, "warpgroup": 128}


@dataclass(frozen=True)
class Traffic:
    """Figures of one CTA and one K tile; None where loops of unknown extent leave them open.

    tma_load_bytes:  that the CTA loads by TMA, a multicast counted once
    copy_load_bytes: by the CTA's threads (Tx.copy) into shared memory
    landed_bytes:    that arrive in its shared memory; the peers' multicasts count too, taken to be like its own
    ring_bytes:      shared memory of the buffers that are loaded into
    tma_loads:       TMA loads that are issued
    mma:             MMA instructions that a warp which issues them issues
    tmem_columns:    columns of tensor memory that are allocated
    """

    tma_load_bytes: int | None
    copy_load_bytes: int | None
    landed_bytes: int | None
    ring_bytes: int
    tma_loads: int | None
    mma: int | None
    tmem_columns: int

    @property
    def load_bytes(self) -> int | None:
        """Bytes loaded, either way."""
        if self.tma_load_bytes is None or self.copy_load_bytes is None:
            return None
        return self.tma_load_bytes + self.copy_load_bytes

    @property
    def stages(self) -> int | None:
        """K tiles that the ring has room for."""
        if not self.landed_bytes or self.ring_bytes % self.landed_bytes:
            return None
        return self.ring_bytes // self.landed_bytes


@dataclass(frozen=True)
class _Done:
    """Something done in a loop: how much in one pass through it, and how many passes (None: not a constant)."""

    loop: Any
    passes: int | None
    kind: str
    amount: int


def traffic(kernel: Any, lowered: Any, k_tiles: int, threads: int) -> Traffic:
    """Read a kernel (as written, and as lowered to PTX calls) for a problem with so many K tiles.

    The loop meant is the innermost serial one around a load or an MMA; unrolled loops in it multiply. A
    prologue that fills the ring is a loop of its own, and what moves most in all its passes counts.
    """
    loads = [done for s, loop, passes, times in _walk(kernel.body) for done in _load(s, loop, passes, times, threads)]
    main = _most(loads)
    by_kind = {kind: sum(d.amount for d in main if d.kind == kind) for kind in ("tma", "copy", "landed")}
    issued = [
        _Done(loop, passes, kind, times)
        for s, loop, passes, times in _walk(lowered.body)
        if (call := tir.call_of(s)) is not None
        for kind, pattern in _ISSUED.items()
        if pattern.match(tir.op_name(call))
    ]
    columns = [e.count for found in events_by_statement(kernel).values() for e in found if e.kind == "alloc"]
    return Traffic(
        tma_load_bytes=_per_k_tile(by_kind["tma"], main, k_tiles),
        copy_load_bytes=_per_k_tile(by_kind["copy"], main, k_tiles),
        landed_bytes=_per_k_tile(by_kind["landed"], main, k_tiles) if all(d.amount for d in main) else None,
        ring_bytes=_ring_bytes(kernel),
        tma_loads=_issued(issued, "tma_loads", k_tiles),
        mma=_issued(issued, "mma", k_tiles),
        tmem_columns=sum(int(count) for count in columns if count is not None),
    )


def _most(done: list[_Done]) -> list[_Done]:
    """What is done in the one loop that does most in all its passes."""
    loops = {d.loop for d in done}
    groups = [[d for d in done if d.loop == loop] for loop in loops]
    return max(groups, key=lambda g: (g[0].passes or 0) * sum(d.amount for d in g), default=[])


def _per_k_tile(amount: int, done: list[_Done], k_tiles: int) -> int | None:
    if not done:
        return 0
    passes = done[0].passes
    if passes is None or amount * passes % k_tiles:
        return None
    return amount * passes // k_tiles


def _issued(done: list[_Done], kind: str, k_tiles: int) -> int | None:
    most = _most([d for d in done if d.kind == kind])
    return _per_k_tile(sum(d.amount for d in most), most, k_tiles) if most else None


def _walk(statement: Any, loop: Any = None, passes: int | None = 1, times: int = 1) -> Iterator[Any]:
    """Every statement, with the innermost serial loop around it, its passes, and the unrolled passes inside that."""
    kind = type(statement).__name__
    if kind == "For" and int(statement.kind) == _UNROLLED and (extent := tir.constant(statement.extent)) is not None:
        times *= extent
    elif kind == "For":
        loop, passes, times = statement, tir.constant(statement.extent), 1
    elif kind == "While":  # over output tiles, in the persistent kernels
        loop, passes, times = statement, None, 1
    yield statement, loop, passes, times
    for child in tir.children(statement):
        yield from _walk(child, loop, passes, times)


def _regions(statement: Any) -> list[Any]:
    return [arg for arg in statement.args if hasattr(arg, "source") and hasattr(arg, "region")]


def _is_load(statement: Any) -> bool:
    if type(statement).__name__ != "TilePrimitiveCall":
        return False
    op, regions = str(statement.op.name).rsplit(".", 1)[-1], _regions(statement)
    scopes = [region.source.scope() for region in regions]
    return op in ("copy", "copy_async") and scopes[0].startswith("shared") and scopes[1] == "global"


def _load(statement: Any, loop: Any, passes: int | None, times: int, threads: int) -> Iterator[_Done]:
    if not _is_load(statement):
        return
    region = _regions(statement)[0]
    extents = [tir.constant(part.extent) for part in region.region]
    if any(extent is None for extent in extents):
        yield _Done(loop, None, "copy", 0)
        return
    size = math.prod(e for e in extents if e is not None) * _bytes(region.source)
    if str(statement.dispatch or "").startswith("tma") or (statement.config and "mbar" in statement.config):
        mask = statement.config.get("cta_mask", 1)  # CTAs that a multicast lands in; an expression: not known here
        yield _Done(loop, passes, "tma", size * times)
        yield _Done(loop, passes, "landed", size * times * mask.bit_count() if isinstance(mask, int) else 0)
    else:  # warps and threads copy each its own part: all of the CTA's are taken to
        copiers = threads // _THREADS_OF_SCOPE.get(str(statement.scope.name), threads)
        yield _Done(loop, passes, "copy", size * times * copiers)
        yield _Done(loop, passes, "landed", size * times * copiers)


def _ring_bytes(kernel: Any) -> int:
    buffers = {_regions(s)[0].source for s in tir.statements(kernel.body) if _is_load(s)}
    return sum(math.prod(int(n) for n in buffer.shape) * _bytes(buffer) for buffer in buffers)


def _bytes(buffer: Any) -> int:
    return int(buffer.dtype.itemsize)
