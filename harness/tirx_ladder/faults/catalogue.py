"""The catalogue of faults for the Blackwell GEMM ladder, by class."""

from __future__ import annotations

from . import Edit, Fault, drop

LINT, NUMERICS, SYNC, RACE = "lint", "numerics", "synccheck", "racecheck"

ONE = (1, 1, 1, 1)  # rows and columns of output tiles, K_TILES, clusters
K3 = (1, 1, 3, 1)
K4 = (1, 1, 4, 1)
PAST_THE_RING = (1, 1, 6, 1)  # more K tiles than the deepest ring has stages
TWO_TILES = (2, 1, 3, 1)  # two output tiles in one CTA or cluster, an odd number of K tiles in each

_TMEM = 'tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())'
_AFTER = "T.ptx.tcgen05.fence__after_thread_sync()"
_BEFORE = "T.ptx.tcgen05.fence__before_thread_sync()"
_PROXY = "T.ptx.fence.proxy.async_.shared__cta()"
_WAIT_LD = "T.ptx.tcgen05.wait__ld.sync.aligned()"
_WAIT_GROUP = "T.ptx.cp.async_.bulk.wait_group(0)"
_COMMIT_GROUP = "T.ptx.cp.async_.bulk.commit_group()"
_INIT_FENCE = "T.ptx.fence.mbarrier_init.release.cluster()"
_CAST = "Tx.cast(out[:], acc[:])"


def _dealloc(group: int) -> str:
    return f"T.ptx.tcgen05.dealloc.cta_group__{group}.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))"


def _gone(line: str) -> Edit:
    """Remove a line that stands there once."""
    return Edit(line, "")


def _fault(
    name: str, kind: str, did: str, caught: tuple[str, ...], place: str, launch: tuple[int, int, int, int],
    **edits: Edit | tuple[Edit, ...],
) -> Fault:  # fmt: skip
    by_version = {version: edit if isinstance(edit, tuple) else (edit,) for version, edit in edits.items()}
    return Fault(name, kind, did, caught, place, launch, by_version)


def _same(edit: Edit, *versions: str) -> dict[str, Edit]:
    return dict.fromkeys(versions, edit)


PHASES = (
    _fault(
        "mma-phase-never-flipped", "phases", "the phase waited for stays 0 although the barrier completes every K tile",
        (SYNC,), "mma_bar.wait(", K3, **_same(_gone("phase_mma = phase_mma ^ 1"), "v2", "v3", "v4"),
    ),
    _fault(
        "tma-phase-never-flipped", "phases", "the phase of the TMA barrier stays 0", (SYNC,), "tma_bar.wait(", K3,
        v4=_gone("phase_tma = phase_tma ^ 1"),
    ),
    _fault(
        "phase-flipped-each-k-tile", "phases", "the ring's phase flips every K tile, not every pass over the ring",
        (NUMERICS, SYNC), "tma_bar.wait(", K4,
        **_same(Edit("tma_bar.wait(ring.stage, ring.phase)", "tma_bar.wait(ring.stage, k % 2)"), "v5", "v6"),
    ),
    _fault(
        "producer-starts-at-phase-0", "phases", "the producer waits for stages that no one has filled yet",
        (NUMERICS, SYNC), "mma2tma.wait(", ONE,
        **_same(
            Edit("tma_ps = PipelineState(PIPE_DEPTH, phase=1)", "tma_ps = PipelineState(PIPE_DEPTH, phase=0)"),
            "v7", "v8", "v9",
        ),
    ),
    _fault(
        "consumer-starts-at-phase-1", "phases", "the consumer takes stages that TMA has yet to fill",
        (SYNC, RACE), "", ONE,
        **_same(
            Edit("mma_ps = PipelineState(PIPE_DEPTH, phase=0)", "mma_ps = PipelineState(PIPE_DEPTH, phase=1)"),
            "v7", "v9",
        ),
    ),
    _fault(
        "accumulator-starts-taken", "phases", "the consumer waits for an accumulator that no one will hand back",
        (NUMERICS, SYNC), "ld2mma.wait(", ONE,
        **_same(Edit("acc_ps = PipelineState(1, phase=1)", "acc_ps = PipelineState(1, phase=0)"), "v7", "v8"),
    ),
    _fault(
        "writeback-starts-at-phase-1", "phases", "writeback reads an accumulator that no MMA has finished",
        (RACE,), "", ONE, **_same(Edit("ld_ps = PipelineState(1, phase=0)", "ld_ps = PipelineState(1, phase=1)"), "v7", "v9"),
    ),
    _fault(
        "phases-reset-per-tile", "phases", "stage and phases are set back to 0 for each output tile, the barriers go on",
        (NUMERICS, SYNC), "_bar.wait(", TWO_TILES,
        v6=Edit("while sched.valid():", "while sched.valid():\n    ring.init(0)\n    phase_mma = 0"),
    ),
    _fault(
        "writeback-phase-reset-per-tile", "phases", "the writeback's phase is set back to 0 for each output tile",
        (SYNC,), "", TWO_TILES,
        v7=Edit("mma2ld.wait(0, ld_ps.phase)", "ld_ps.init(0)\nmma2ld.wait(0, ld_ps.phase)"),
    ),
    _fault(
        "phase-of-another-barrier", "phases", "the wait for the MMA names the phase of the TMA barrier",
        (SYNC,), "", K3, v4=Edit("mma_bar.wait(0, phase_mma)", "mma_bar.wait(0, phase_tma)"),
    ),
    _fault(
        "consumer-never-advances", "phases", "the consumer stays at its first stage", (SYNC,), "", K3,
        **_same(_gone("mma_ps.advance()"), "v7", "v8", "v9"),
    ),
    _fault(
        "accumulator-phase-never-flipped", "phases", "the consumer's phase of the accumulator stays at 1",
        (SYNC, RACE), "", (3, 1, 1, 1), **_same(_gone("acc_ps.advance()"), "v7", "v9"),
    ),
)  # fmt: skip

COUNTS = (
    _fault(
        "expect-tx-too-small", "counts", "the barrier expects half of the bytes that TMA brings", (SYNC,), "", K3,
        v4=Edit("tma_bar.arrive(0, TILE_BYTES)", "tma_bar.arrive(0, TILE_BYTES // 2)"),
        v7=Edit("tma2mma.arrive(tma_ps.stage, TILE_BYTES)", "tma2mma.arrive(tma_ps.stage, TILE_BYTES // 2)"),
    ),
    _fault(
        "expect-tx-too-large", "counts", "the barrier expects twice the bytes that TMA brings", (NUMERICS, SYNC),
        "_bar.wait(", ONE, v4=Edit("tma_bar.arrive(0, TILE_BYTES)", "tma_bar.arrive(0, TILE_BYTES * 2)"),
        v5=Edit("tma_bar.arrive(stage, TILE_BYTES)", "tma_bar.arrive(stage, TILE_BYTES * 2)"),
    ),
    _fault(
        "expect-tx-of-one-cta", "counts", "the barrier in CTA 0 expects the bytes of one CTA, and both send theirs there",
        (SYNC,), "", ONE,
        **_same(
            Edit("tma2mma.arrive(tma_ps.stage, TILE_BYTES)", "tma2mma.arrive(tma_ps.stage, TILE_BYTES // CTA_GROUP)"),
            "v8", "v9",
        ),
    ),
    _fault(
        "expect-tx-missing", "counts", "the producer arrives without saying how many bytes will come", (SYNC,), "", ONE,
        v7=Edit("tma2mma.arrive(tma_ps.stage, TILE_BYTES)", "tma2mma.arrive(tma_ps.stage)"),
    ),
    _fault(
        "stage-freed-by-one-consumer", "counts", "mma2tma expects one arrival, and two consumers read the stage",
        (SYNC,), "", PAST_THE_RING, v9=Edit("mma2tma.init(NUM_CONSUMER)", "mma2tma.init(1)"),
    ),
    _fault(
        "ld2mma-counts-one-cta", "counts", "ld2mma expects the threads of one CTA, and both read the accumulator",
        (SYNC,), "", TWO_TILES, **_same(Edit("ld2mma.init(128 * CTA_GROUP)", "ld2mma.init(128)"), "v8", "v9"),
    ),
    _fault(
        "ld2mma-counts-two-warpgroups", "counts", "ld2mma expects 256 arrivals, and 128 threads write back",
        (NUMERICS, SYNC), "ld2mma.wait(", TWO_TILES, v7=Edit("ld2mma.init(128)", "ld2mma.init(256)"),
    ),
    _fault(
        "stage-freed-in-one-cta", "counts", "the commit that frees a stage tells CTA 0 alone", (NUMERICS, SYNC),
        "mma2tma.wait(", PAST_THE_RING,
        v8=Edit(
            "mma2tma.arrive(mma_ps.stage, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)",
            "mma2tma.arrive(mma_ps.stage, cta_group=CTA_GROUP, cta_mask=0b01)",
        ),
    ),
    _fault(
        "result-told-to-one-cta", "counts", "the commit that ends a tile tells CTA 0 alone", (NUMERICS, SYNC),
        "mma2ld.wait(", ONE,
        v8=Edit("mma2ld.arrive(0, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)", "mma2ld.arrive(0, cta_group=CTA_GROUP, cta_mask=0b01)"),
        v9=Edit(
            "mma2ld.arrive(warp_id, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)",
            "mma2ld.arrive(warp_id, cta_group=CTA_GROUP, cta_mask=0b01)",
        ),
    ),
)  # fmt: skip

MISSING = (
    _fault(
        "no-proxy-fence-before-mma", "fences", "threads store A and B, tcgen05.mma reads them, no fence.proxy.async between",
        (LINT, RACE), "Tx.gemm_async(", ONE, **_same(drop(_PROXY, before="T.cuda.cta_sync()\n\n# MMA"), "v1", "v2", "v3"),
    ),
    _fault(
        "no-proxy-fence-before-store", "fences", "threads store D to SMEM, TMA reads it, no fence.proxy.async between",
        (LINT, RACE), "Dsmem[", ONE, **_same(_gone(_PROXY), "v4", "v6", "v7", "v9"),
    ),
    _fault(
        "proxy-fence-behind-the-sync", "fences", "fence.proxy.async stands behind the sync, in the reader, not the writers",
        (LINT,), "Dsmem[", ONE,
        v7=Edit(
            f"{_PROXY}\nT.cuda.warpgroup_sync(WRITEBACK_BAR)", f"T.cuda.warpgroup_sync(WRITEBACK_BAR)\n{_PROXY}"
        ),
    ),
    _fault(
        "no-wait-ld", "waits", "registers are read with no tcgen05.wait::ld after tcgen05.ld", (LINT,), _CAST, ONE,
        **_same(_gone(_WAIT_LD), "v1", "v3", "v4", "v7", "v8", "v9"),
    ),
    _fault(
        "wait-ld-after-the-cast", "waits", "tcgen05.wait::ld stands behind the cast that reads the registers",
        (LINT,), _CAST, ONE,
        **_same(Edit(f"{_WAIT_LD}\n{_CAST}", f"{_CAST}\n{_WAIT_LD}"), "v1", "v4", "v5"),
    ),
    _fault(
        "no-fence-after-mma-wait", "fences", "no tcgen05.fence::after_thread_sync between the wait for the MMA and tcgen05.ld",
        (LINT,), "Tx.wg.copy_async(", ONE, **_same(_gone(_AFTER), "v1", "v4", "v5"),
        v7=drop(_AFTER, after="mma2ld.wait(0, ld_ps.phase)"), v9=drop(_AFTER, after="mma2ld.wait(wg_id, ld_ps.phase)"),
    ),
    _fault(
        "no-fence-before-hand-back", "fences", "no tcgen05.fence::before_thread_sync ahead of handing TMEM back",
        (LINT,), "ld2mma.arrive(", ONE, **_same(_gone(_BEFORE), "v7", "v8", "v9"),
    ),
    _fault(
        "no-fence-after-hand-back", "fences", "no tcgen05.fence::after_thread_sync between TMEM's return and the next MMA",
        (LINT,), "Tx.gemm_async(", ONE,
        v6=drop(_AFTER, after="if T.cuda.elect_sync():"),
        v7=(drop(_AFTER, after="ld2mma.wait(0, acc_ps.phase)"), drop(_AFTER, after="tma2mma.wait(mma_ps.stage, mma_ps.phase)")),
    ),
    _fault(
        "no-wait-for-tma", "waits", "the MMA does not wait for TMA to fill the stage", (RACE,), "", ONE,
        v4=_gone("tma_bar.wait(0, phase_tma)"), v5=_gone("tma_bar.wait(ring.stage, ring.phase)"),
        **_same(_gone("tma2mma.wait(mma_ps.stage, mma_ps.phase)"), "v7", "v9"),
    ),
    _fault(
        "no-wait-for-a-free-stage", "waits", "the producer does not wait for the MMAs that read the stage", (LINT, RACE), "",
        PAST_THE_RING, **_same(_gone("mma2tma.wait(tma_ps.stage, tma_ps.phase)"), "v7", "v8"),
    ),
    _fault(
        "no-wait-for-a-free-accumulator", "waits", "the MMA does not wait until the last tile is in registers", (RACE,), "",
        TWO_TILES, v7=_gone("ld2mma.wait(0, acc_ps.phase)"), v9=_gone("ld2mma.wait(warp_id, acc_ps.phase)"),
    ),
    _fault(
        "no-wait-for-the-result", "waits", "writeback does not wait for the MMAs", (LINT, RACE), "", ONE,
        v7=_gone("mma2ld.wait(0, ld_ps.phase)"), v9=_gone("mma2ld.wait(wg_id, ld_ps.phase)"),
    ),
    _fault(
        "commit-without-a-wait", "waits", "the MMA is committed, and no one waits for it", (LINT, RACE), "mma_bar.arrive(0)",
        ONE, v1=_gone("mma_bar.wait(0, 0)"), v2=_gone("mma_bar.wait(0, phase_mma)"),
    ),
    _fault(
        "mma-never-committed", "waits", "the wait for the MMA has no tcgen05.commit to complete it", (LINT, SYNC),
        "Tx.gemm_async(", ONE, **_same(_gone("mma_bar.arrive(0)"), "v1", "v4"),
    ),
    _fault(
        "store-not-drained", "waits", "no wait_group behind the TMA store: Dsmem is rewritten, or the kernel ends, too early",
        (LINT,), "Tx.copy_async(", ONE, **_same(_gone(_WAIT_GROUP), "v4", "v5", "v7", "v9"),
    ),
    _fault(
        "store-not-committed", "waits", "the TMA store is in no group, so wait_group does not wait for it", (LINT,),
        "Tx.copy_async(", ONE, **_same(_gone(_COMMIT_GROUP), "v4", "v7"),
    ),
    _fault(
        "no-sync-after-the-drain", "syncs", "the other threads rewrite Dsmem while the TMA store still reads it", (RACE,),
        "Dsmem[", TWO_TILES,
        v7=_gone("T.cuda.warpgroup_sync(WRITEBACK_BAR)  # Dsmem is free again"),
        v9=_gone("T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)  # Dsmem is free again"),
    ),
    _fault(
        "no-sync-before-the-store", "syncs", "one thread starts the TMA store before the others have written their rows",
        (RACE,), "Dsmem[", ONE, v7=drop("T.cuda.warpgroup_sync(WRITEBACK_BAR)", before="if tid == 0:"),
        v4=drop("T.cuda.cta_sync()", after=_PROXY),
    ),
    _fault(
        "cta-sync-in-one-warpgroup", "syncs", "writeback syncs the whole CTA, whose other warps never come", (NUMERICS, SYNC),
        "", ONE, v7=Edit("T.cuda.warpgroup_sync(WRITEBACK_BAR)\nif tid == 0:", "T.cuda.cta_sync()\nif tid == 0:"),
    ),
    _fault(
        "cta-sync-after-cluster-init", "syncs", "a CTA sync after the inits, which does not show them to the peer CTA",
        (LINT, SYNC, RACE), "", ONE,
        **_same(Edit(f"T.cuda.cluster_sync()\n{_TMEM}", f"T.cuda.cta_sync()\n{_TMEM}"), "v8", "v9"),
    ),
    _fault(
        "no-sync-after-init", "syncs", "nothing between the barrier inits and their first use by other warps", (LINT,),
        "", ONE, v4=drop("T.cuda.cta_sync()", before=_TMEM), v7=drop("T.cuda.cta_sync()", before=_TMEM),
    ),
    _fault(
        "no-init-fence", "fences", "no fence.mbarrier_init: the async proxy may not see the inits", (LINT,), "", ONE,
        **_same(_gone(_INIT_FENCE), "v4", "v7", "v8"),
    ),
    _fault(
        "no-sync-before-tmem-is-freed", "syncs", "TMEM is freed while other warps may still read it", (LINT,), ".dealloc.",
        ONE, v3=drop("T.cuda.cta_sync()", before=f"if warp_id == 0:\n{_dealloc(1)}"),
        v7=drop("T.cuda.cta_sync()", before="if wg_id == 0:\nif warp_id == 0:\n" + _dealloc(1)),
    ),
    _fault(
        "no-cluster-sync-before-tmem-is-freed", "syncs", "TMEM of the pair is freed before the peer CTA has read its part",
        (LINT,), ".dealloc.", ONE,
        **_same(drop("T.cuda.cluster_sync()", before="if wg_id == 0:\nif warp_id == 0:\n" + _dealloc(2)), "v8", "v9"),
    ),
    _fault(
        "cta-sync-before-tmem-is-freed", "syncs", "a CTA sync before TMEM of the pair is freed, which the peer does not join",
        (LINT,), ".dealloc.", ONE,
        **_same(
            Edit(
                "T.cuda.cluster_sync()\nif wg_id == 0:\nif warp_id == 0:\n" + _dealloc(2),
                "T.cuda.cta_sync()\nif wg_id == 0:\nif warp_id == 0:\n" + _dealloc(2),
            ),
            "v8", "v9",
        ),
    ),
    _fault(
        "parity-lag", "syncs", "one thread arms barriers on which every warp waits, and no CTA sync keeps the warps together",
        (SYNC,), "_bar.wait(", K4,
        **_same(drop("T.cuda.cta_sync()", after="phase_mma = phase_mma ^ 1"), "v4", "v5", "v6"),
    ),
)  # fmt: skip

STORAGE = (
    _fault(
        "stage-off-by-one", "storage", "the MMA reads B from the next stage of the ring", (RACE,), "", K3,
        v5=Edit("Bsmem[ring.stage, :, :],", "Bsmem[(ring.stage + 1) % PIPE_DEPTH, :, :],"),
        **_same(Edit("Bsmem[mma_ps.stage, :, :],", "Bsmem[(mma_ps.stage + 1) % PIPE_DEPTH, :, :],"), "v7", "v9"),
    ),
    _fault(
        "ring-one-stage-short", "storage", "A's ring is allocated one stage shorter than it is used", (SYNC,), "", K3,
        **_same(
            Edit("Asmem = swizzled_tile(pool, PIPE_DEPTH,", "Asmem = swizzled_tile(pool, PIPE_DEPTH - 1,"), "v5", "v7"
        ),
    ),
    _fault(
        "consumers-share-tmem", "storage", "both consumers accumulate in the same TMEM columns", (NUMERICS, RACE), "", ONE,
        v9=Edit("tmem[:, warp_id * TILE_N : (warp_id + 1) * TILE_N],", "tmem[:, 0:TILE_N],"),
    ),
    _fault(
        "warpgroups-share-dsmem", "storage", "both writeback warpgroups stage D in the same SMEM", (RACE,), "Dsmem[", ONE,
        v9=(
            Edit("Tx.copy(Dsmem[wg_id, tid, 0:EPI_N], out[:])", "Tx.copy(Dsmem[0, tid, 0:EPI_N], out[:])"),
            Edit("Dsmem[wg_id, :, :],", "Dsmem[0, :, :],"),
        ),
    ),
    _fault(
        "accumulator-handed-back-early", "storage", "TMEM is handed back before it is in registers", (RACE,), "",
        TWO_TILES,
        v7=(
            _gone("ld2mma.arrive(0)  # the accumulator is in registers: its TMEM is free"),
            Edit("Tx.wg.copy_async(acc_wg[:, :], tmem[:, :BLK_N])", "ld2mma.arrive(0)\nTx.wg.copy_async(acc_wg[:, :], tmem[:, :BLK_N])"),
        ),
    ),
    _fault(
        "tmem-freed-by-every-warpgroup", "storage", "the clean-up asks for warp 0 alone, and warp ids count in each warpgroup",
        (LINT, SYNC, RACE), ".dealloc.", ONE,
        **{
            version: Edit(
                f"if wg_id == 0:\nif warp_id == 0:\n{_dealloc(group)}",
                f"if warp_id < 1:\nif warp_id == 0:\n{_dealloc(group)}",
            )
            for version, group in (("v7", 1), ("v8", 2), ("v9", 2))
        },
    ),
    _fault(
        "tmem-never-freed", "storage", "TMEM is never freed: the next kernel on the SM waits for ever", (LINT, SYNC), "", ONE,
        v1=Edit(f"if warp_id == 0:\n{_dealloc(1)}", ""),
        v9=Edit("if wg_id == 0:\nif warp_id == 0:\n" + _dealloc(2), ""),
    ),
    _fault(
        "tmem-columns-not-a-power-of-two", "storage", "384 columns are allocated, which is no power of two", (LINT,),
        ".alloc.", ONE,
        v7=Edit("T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)", "T.address_of(tmem_addr[0]), T.uint32(384)"),
    ),
    _fault(
        "tmem-half-allocated", "storage", "256 columns are allocated, and the second consumer's accumulator lies beyond them",
        (LINT,), "Tx.", ONE,
        v9=(
            Edit("T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)", "T.address_of(tmem_addr[0]), T.uint32(256)"),
            Edit(".b32(tmem_addr[0], T.uint32(TMEM_COLS))", ".b32(tmem_addr[0], T.uint32(256))"),
        ),
    ),
    _fault(
        "too-much-smem", "storage", "a ring one stage too deep: more than the 227 KiB of SMEM that a CTA may have",
        (LINT,), "", ONE, v8=Edit("PIPE_DEPTH = 4", "PIPE_DEPTH = 7"), v9=Edit("PIPE_DEPTH = 4", "PIPE_DEPTH = 5"),
    ),
    _fault(
        "named-barrier-shared", "storage", "both writeback warpgroups sync on one named barrier", (LINT,),
        "T.cuda.warpgroup_sync(", ONE,
        v9=(
            Edit("T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)\nif tid == 0:", "T.cuda.warpgroup_sync(WRITEBACK_BAR)\nif tid == 0:"),
            Edit("T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)  # Dsmem is free again", "T.cuda.warpgroup_sync(WRITEBACK_BAR)"),
        ),
    ),
)  # fmt: skip

ARITHMETIC = (
    _fault(
        "accumulate-always", "arithmetic", "the first K tile is added to whatever TMEM holds", (RACE,), "", TWO_TILES,
        **_same(Edit("accum=(k != 0)", "accum=True"), "v6", "v7", "v9"),
    ),
    _fault(
        "accumulate-never", "arithmetic", "every K tile overwrites the last", (NUMERICS,), "D[", K3,
        **_same(Edit("accum=(k != 0)", "accum=False"), "v2", "v5", "v8"),
    ),
    _fault(
        "accumulate-from-the-wrong-tile", "arithmetic", "the second K tile overwrites the first", (NUMERICS,), "D[", K3,
        **_same(Edit("accum=(k != 0)", "accum=(k != 1)"), "v3", "v9"),
    ),
    _fault(
        "last-k-tile-dropped", "arithmetic", "the K loop ends one tile early", (NUMERICS,), "K tile 2 is missing", K3,
        **_same(Edit("for k in T.serial(K_TILES):", "for k in T.serial(K_TILES - 1):"), "v2", "v4"),
    ),
    _fault(
        "first-k-tile-dropped", "arithmetic", "the K loop begins with the second tile", (NUMERICS,), "K tile 0 is missing", K3,
        v2=(Edit("for k in T.serial(K_TILES):", "for k in T.serial(1, K_TILES):"), Edit("accum=(k != 0)", "accum=(k != 1)")),
    ),
    _fault(
        "k-tiles-of-b-off-by-one", "arithmetic", "B is loaded one K tile ahead of A", (NUMERICS,), "met B of K tile", K3,
        v3=Edit("B[n_st : n_st + BLK_N, k * BLK_K : (k + 1) * BLK_K]", "B[n_st : n_st + BLK_N, (k + 1) % K_TILES * BLK_K : (k + 1) % K_TILES * BLK_K + BLK_K]"),
    ),
    _fault(
        "a-and-b-swapped", "arithmetic", "the MMA multiplies B by A", (NUMERICS,), "D[", ONE,
        **_same(Edit("Asmem[:, :], Bsmem[:, :]", "Bsmem[:, :], Asmem[:, :]"), "v1", "v2", "v4"),
    ),
    _fault(
        "rows-swapped-between-ctas", "arithmetic", "each CTA of the pair loads the other's rows of A", (NUMERICS,),
        "it holds rows of block", ONE,
        v8=Edit(
            "A[m_st : m_st + BLK_M, k * BLK_K : (k + 1) * BLK_K],",
            "A[m_st + BLK_M - 2 * BLK_M * cbx : m_st + 2 * BLK_M - 2 * BLK_M * cbx, k * BLK_K : (k + 1) * BLK_K],",
        ),
    ),
    _fault(
        "columns-swapped-between-ctas", "arithmetic", "each CTA of the pair loads the other's rows of B", (NUMERICS,),
        "it holds columns of block", ONE,
        **_same(
            Edit("n_st = T.meta_var(sched.n_idx * TILE_N + cbx * BLK_N)", "n_st = T.meta_var(sched.n_idx * TILE_N + (1 - cbx) * BLK_N)"),
            "v8", "v9",
        ),
    ),
    _fault(
        "epilogue-column-with-cta-rank", "arithmetic", "the column that D is stored at has the CTA's rank in it", (NUMERICS,),
        "D[", ONE,
        v8=Edit("sched.n_idx * TILE_N + no * BLK_N)", "n_st + no * BLK_N)"),
        v9=Edit("sched.n_idx * TILE_N + no * EPI_N)", "n_st + no * EPI_N)"),
    ),
    _fault(
        "tile-visited-twice", "arithmetic", "two CTAs take the same output tile, and no one takes another", (NUMERICS,),
        "never written", (2, 1, 1, 2), v6=Edit("sched.init(bx)", "sched.init(bx // 2)"), v7=Edit("sched.init(bx)", "sched.init(bx // 2)"),
    ),
    _fault(
        "tile-never-visited", "arithmetic", "the scheduler leaves out the last row of tiles", (NUMERICS,), "never written",
        (3, 1, 1, 1),
        **_same(Edit("num_m_tiles=M // TILE_M", "num_m_tiles=M // TILE_M - 1"), "v8", "v9"),
    ),
    _fault(
        "cast-rounds-towards-zero", "arithmetic", "fp32 is cut to fp16, not rounded to the nearest", (NUMERICS,), "D[", ONE,
        **_same(
            Edit(
                _CAST,
                "for i in T.serial(BLK_N):\n"
                '    acc[i] = T.reinterpret("float32", T.reinterpret("uint32", acc[i]) & T.uint32(0xFFFFE000))\n' + _CAST,
            ),
            "v1", "v4",
        ),
    ),
)  # fmt: skip

FAULTS: tuple[Fault, ...] = (*PHASES, *COUNTS, *MISSING, *STORAGE, *ARITHMETIC)
"""Every fault, by class."""
