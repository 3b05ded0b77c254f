"""The catalogue of faults for the Blackwell GEMM ladder."""

from __future__ import annotations

from . import Edit, Fault, drop

_TMEM = 'tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())'


def _dealloc(group: int) -> str:
    return f"T.ptx.tcgen05.dealloc.cta_group__{group}.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))"


FAULTS = (
    Fault(
        name="no-proxy-fence-before-mma",
        kind="fences",
        did="threads store A and B to SMEM and tcgen05.mma reads them with no fence.proxy.async between",
        caught=("racecheck",),
        place="Tx.gemm_async(",
        launch=(1, 1, 1, 1),
        edits={
            version: (drop("T.ptx.fence.proxy.async_.shared__cta()", before="T.cuda.cta_sync()\n\n# MMA"),)
            for version in ("v1", "v2", "v3")
        },
    ),
    Fault(
        name="parity-lag",
        kind="syncs",
        did="one thread arms barriers on which every warp waits, and no CTA sync keeps the warps together",
        caught=("synccheck",),
        place="_bar.wait(",
        launch=(1, 1, 4, 1),
        edits={
            version: (drop("T.cuda.cta_sync()", after="phase_mma = phase_mma ^ 1"),) for version in ("v4", "v5", "v6")
        },
    ),
    Fault(
        name="phases-reset-per-tile",
        kind="phases",
        did="stage and phases are set back to 0 for each output tile, while the barriers go on",
        caught=("numerics", "synccheck"),
        place="_bar.wait(",
        launch=(2, 1, 3, 1),
        edits={"v6": (Edit("while sched.valid():", "while sched.valid():\n    ring.init(0)\n    phase_mma = 0"),)},
    ),
    Fault(
        name="tmem-freed-by-every-warpgroup",
        kind="storage",
        did="the clean-up asks for warp 0 alone, and warp ids count from 0 in every warpgroup",
        caught=("lint", "synccheck", "racecheck"),
        place=".dealloc.",
        launch=(1, 1, 1, 1),
        edits={
            version: (
                Edit(
                    f"if wg_id == 0:\nif warp_id == 0:\n{_dealloc(group)}",
                    f"if warp_id == 0:\n    if warp_id == 0:\n        {_dealloc(group)}",
                ),
            )
            for version, group in (("v7", 1), ("v8", 2), ("v9", 2))
        },
    ),
    Fault(
        name="cta-sync-after-cluster-init",
        kind="syncs",
        did="cta_sync after the barrier inits, which does not make them visible to the peer CTA",
        caught=("synccheck", "racecheck"),
        place="",
        launch=(1, 1, 1, 1),
        edits={
            version: (Edit(f"T.cuda.cluster_sync()\n{_TMEM}", f"T.cuda.cta_sync()\n{_TMEM}"),)
            for version in ("v8", "v9")
        },
    ),
)
