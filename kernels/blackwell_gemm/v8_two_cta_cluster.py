"""V8, two-CTA cluster: two SMs multiply one 256x256 tile, each loading half of the operands.

One tcgen05.mma with cta_group=2, issued by CTA 0, reads A and B from both CTAs' SMEM and writes both
CTAs' TMEM. CTA r stages A rows and B rows [128 r, 128 r + 128) of the cluster's tile; its TMEM then holds
128 rows by all 256 columns. Each operand byte is loaded once per cluster and used by twice as many MMAs.
The producer now feeds half of a tile twice as wide per stage, so the ring is 4 stages deep.

Roles in each CTA are those of V7; only CTA 0's MMA consumer issues.

Barriers: tma2mma and ld2mma live in CTA 0, mma2tma and mma2ld in both CTAs (multicast commit, cta_mask 3)
| barrier        | who arrives                    | arrivals          | who waits      | initial phase       |
| -------------- | ------------------------------ | ----------------- | -------------- | ------------------- |
| tma2mma[stage] | CTA 0's producer, both TMAs    | 1, and TILE_BYTES | CTA 0's MMA    | 0, flips every pass |
| mma2tma[stage] | tcgen05.commit, to both CTAs   | 1                 | each producer  | 1: stages are free  |
| mma2ld         | tcgen05.commit, to both CTAs   | 1                 | each writeback | 0, flips every tile |
| ld2mma         | writeback threads of both CTAs | 256               | CTA 0's MMA    | 1: TMEM is free     |

A CTA's barrier inits become visible to its peer only by a cluster sync, and TMEM of a CTA pair is freed
only after one: the peer may still be reading.
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F16_BYTES, F32, L2_GROUP, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

CTA_GROUP = 2
BLK_M, BLK_N, BLK_K = 128, 128, 64  # of one CTA
TILE_M, TILE_N = CTA_GROUP * BLK_M, CTA_GROUP * BLK_N  # of the cluster
PIPE_DEPTH = 4
TILE_BYTES = CTA_GROUP * (BLK_M + BLK_N) * BLK_K * F16_BYTES
BOTH_CTAS = 0b11  # cta_mask
WRITEBACK_BAR = 10  # named barrier of the writeback warpgroup


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v8(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        cluster = T.cluster_id([sm_count // CTA_GROUP])
        cbx = T.cta_id_in_cluster([CTA_GROUP])
        wg_id = T.warpgroup_id([2])
        warp_id = T.warp_id_in_wg([4])
        tid = T.thread_id_in_wg([128])

        # SMEM, barriers, TMEM
        pool = T.SMEMPool()
        tmem_addr = pool.alloc((1,), "uint32", align=4)
        tma2mma = TMABar(pool, PIPE_DEPTH)
        mma2tma = TCGen05Bar(pool, PIPE_DEPTH)
        mma2ld = TCGen05Bar(pool, 1)
        ld2mma = MBarrier(pool, 1)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, BLK_M, BLK_N)
        pool.commit()
        tma2mma.init(1)
        mma2tma.init(1)
        mma2ld.init(1)
        ld2mma.init(128 * CTA_GROUP)
        T.ptx.fence.mbarrier_init.release.cluster()
        if wg_id == 0:
            if warp_id == 0:
                T.ptx.tcgen05.alloc.cta_group__2.sync.aligned.shared__cta.b32(
                    T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)
                )
                T.ptx.tcgen05.relinquish_alloc_permit.cta_group__2.sync.aligned()
        T.cuda.cluster_sync()
        tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())
        sched = ClusterPersistentScheduler2D(
            "sched",
            num_m_tiles=M // TILE_M,
            num_n_tiles=N // TILE_N,
            num_clusters=sm_count // CTA_GROUP,
            l2_group_size=L2_GROUP,
        )
        sched.init(cluster)
        m_st = T.meta_var(sched.m_idx * TILE_M + cbx * BLK_M)  # this CTA's rows of A and of D
        n_st = T.meta_var(sched.n_idx * TILE_N + cbx * BLK_N)  # this CTA's rows of B
        tma2mma_cta0 = tma2mma.remote_view(0)

        if wg_id == 1:
            if warp_id == 3:
                # TMA producer
                if T.cuda.elect_sync():
                    tma_ps = PipelineState(PIPE_DEPTH, phase=1)
                    while sched.valid():
                        for k in T.serial(K_TILES):
                            mma2tma.wait(tma_ps.stage, tma_ps.phase)
                            Tx.copy_async(
                                Asmem[tma_ps.stage, :, :],
                                A[m_st : m_st + BLK_M, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=tma2mma_cta0.ptr_to([tma_ps.stage]),
                                cta_group=CTA_GROUP,
                            )
                            Tx.copy_async(
                                Bsmem[tma_ps.stage, :, :],
                                B[n_st : n_st + BLK_N, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=tma2mma_cta0.ptr_to([tma_ps.stage]),
                                cta_group=CTA_GROUP,
                            )
                            if cbx == 0:
                                tma2mma.arrive(tma_ps.stage, TILE_BYTES)
                            tma_ps.advance()
                        sched.next_tile()
            elif warp_id == 0:
                # MMA consumer
                if cbx == 0:
                    if T.cuda.elect_sync():
                        mma_ps = PipelineState(PIPE_DEPTH, phase=0)
                        acc_ps = PipelineState(1, phase=1)
                        while sched.valid():
                            ld2mma.wait(0, acc_ps.phase)
                            T.ptx.tcgen05.fence__after_thread_sync()
                            for k in T.serial(K_TILES):
                                tma2mma.wait(mma_ps.stage, mma_ps.phase)
                                T.ptx.tcgen05.fence__after_thread_sync()
                                Tx.gemm_async(
                                    tmem[:, :TILE_N],
                                    Asmem[mma_ps.stage, :, :],
                                    Bsmem[mma_ps.stage, :, :],
                                    accum=(k != 0),
                                    dispatch="tcgen05",
                                    cta_group=CTA_GROUP,
                                )
                                mma2tma.arrive(mma_ps.stage, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)
                                mma_ps.advance()
                            mma2ld.arrive(0, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)
                            acc_ps.advance()
                            sched.next_tile()
        else:
            # writeback: TMEM -> registers -> fp16 -> SMEM -> GMEM
            ld_ps = PipelineState(1, phase=0)
            acc = T.alloc_local((BLK_N,), F32)
            out = T.alloc_local((BLK_N,), F16)
            acc_wg = acc.view(128, BLK_N, layout=row_per_thread(BLK_N))
            while sched.valid():
                mma2ld.wait(0, ld_ps.phase)
                T.ptx.tcgen05.fence__after_thread_sync()
                # 128 columns at a time: 256 fp32 values per thread would not fit in registers
                for no in T.unroll(TILE_N // BLK_N):
                    n_st_epi = T.meta_var(sched.n_idx * TILE_N + no * BLK_N)  # every CTA stores all columns
                    Tx.wg.copy_async(acc_wg[:, :], tmem[:, no * BLK_N : (no + 1) * BLK_N])
                    T.ptx.tcgen05.wait__ld.sync.aligned()
                    if no == TILE_N // BLK_N - 1:
                        T.ptx.tcgen05.fence__before_thread_sync()
                        ld2mma.arrive(0, remote=0)  # the accumulator is in registers: its TMEM is free
                    Tx.cast(out[:], acc[:])
                    Tx.copy(Dsmem[tid, 0:BLK_N], out[:])
                    T.ptx.fence.proxy.async_.shared__cta()
                    T.cuda.warpgroup_sync(WRITEBACK_BAR)
                    if tid == 0:
                        Tx.copy_async(
                            D[m_st : m_st + BLK_M, n_st_epi : n_st_epi + BLK_N], Dsmem[:, :], dispatch="tma_auto"
                        )
                        T.ptx.cp.async_.bulk.commit_group()
                        T.ptx.cp.async_.bulk.wait_group(0)
                    T.cuda.warpgroup_sync(WRITEBACK_BAR)  # Dsmem is free again
                ld_ps.advance()
                sched.next_tile()

        # TMEM is freed once: warp ids count from 0 in every warpgroup, so name the warpgroup as well
        T.cuda.cluster_sync()
        if wg_id == 0:
            if warp_id == 0:
                T.ptx.tcgen05.dealloc.cta_group__2.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))

    return gemm_v8


VERSION = KernelVersion(
    name="v8",
    adds="a cluster of two CTAs that multiply one 256x256 tile",
    build=build,
    tile=(TILE_M, TILE_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    cluster=CTA_GROUP,
    persistent=True,
    l2_group=L2_GROUP,
)
