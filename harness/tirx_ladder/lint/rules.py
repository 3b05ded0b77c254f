"""The rules: what must hold in any TIRx kernel, and what the PTX manual says to it.

Each finding names a rule, what is wrong, and the kernel's line. The simulator sees only what one schedule of one
problem does; these rules look at every path.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import tir

SMEM_LIMIT = 227 * 1024
"""Bytes of SMEM that one CTA may have (CUDA C++ programming guide, compute capability 9.0 and 10.0)."""

TMEM_COLUMNS = 512
"""Columns of an SM's TMEM (PTX ISA, tensor memory)."""

RULES = {
    "ld-wait": "tcgen05.ld is asynchronous: its registers may be read only after tcgen05.wait::ld "
    "(PTX ISA, tcgen05.ld and tcgen05.wait)",
    "tmem-free-sync": "tcgen05.dealloc must come after every access to the columns: with a CTA sync between, and with "
    "cta_group::2 a cluster sync, since the peer CTA's part goes too (PTX ISA, tcgen05.alloc and dealloc)",
    "tmem-free-once": "every allocation is freed once, by one whole warp, before the kernel ends "
    "(PTX ISA, tcgen05.alloc and dealloc)",
    "tmem-columns": "an allocation is a power of two from 32 to 512 columns (PTX ISA, tcgen05.alloc)",
    "tmem-range": "only allocated columns may be used (PTX ISA, tensor memory addressing and tcgen05.alloc)",
    "commit-wait": "the completion of tcgen05.mma is known only through a tcgen05.commit whose mbarrier is waited on "
    "(PTX ISA, tcgen05.commit)",
    "store-drain": "the SMEM source of a bulk store is read until cp.async.bulk.wait_group returns for its committed "
    "group: until then it may not be written, nor may the kernel end (PTX ISA, cp.async.bulk.wait_group)",
    "proxy-fence": "a write to SMEM through the generic proxy is visible to TMA and tcgen05.mma only after "
    "fence.proxy.async by the writer, before the sync that hands it over (PTX ISA, async proxy)",
    "init-visible": "an mbarrier may be used only after its init is visible: fence.mbarrier_init, then a CTA sync, in "
    "a cluster a cluster sync (PTX ISA, mbarrier.init and fence.mbarrier_init)",
    "fence-after": "tcgen05 operations are ordered after another thread's only by tcgen05.fence::after_thread_sync "
    "behind the wait (PTX ISA, tcgen05 memory consistency model)",
    "fence-before": "tcgen05.ld is ordered before another thread's MMA only by tcgen05.fence::before_thread_sync "
    "ahead of the arrive (PTX ISA, tcgen05 memory consistency model)",
    "wgmma-fence": "the registers of a wgmma are ordered after other accesses to them only by wgmma.fence "
    "(PTX ISA, wgmma.fence)",
    "wgmma-wait": "wgmma is asynchronous: its registers may be read, and its SMEM be handed back, only after "
    "wgmma.wait_group for its committed group (PTX ISA, wgmma.commit_group and wgmma.wait_group)",
    "named-barrier": "a named barrier counts the threads of all who use its id: each warpgroup needs one of its own "
    "(PTX ISA, barrier.cta)",
    "whole-warp": "instructions with .sync.aligned are executed by all lanes of a warp together "
    "(PTX ISA, tcgen05.ld, wait, alloc and dealloc)",
    "smem-limit": "a CTA may have at most 227 KiB of SMEM (CUDA C++ programming guide)",
}
"""Each rule and its source."""


@dataclass(frozen=True)
class Violation:
    """A rule that does not hold, why, and where."""

    rule: str
    text: str
    place: tir.Place | None
    other: tir.Place | None = None

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.text}"]
        lines += [f"  {place}" for place in (self.place, self.other) if place is not None]
        return "\n".join([*lines, f"  rule: {RULES[self.rule]}"])
