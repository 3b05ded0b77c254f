"""V7, warp specialisation: loading, multiplying and writing back run at the same time.

Up to V6 one path of control did everything in turn. Now a producer warp starts TMA loads, a consumer
warp issues MMAs, and a warpgroup writes tiles back; they meet only at barriers, so the loads of the next
tile run under the MMAs of this one, and its MMAs under the cast and store of the last.

Roles: warpgroup 0 writes back; of warpgroup 1, warp 3 is the TMA producer and warp 0 the MMA consumer.

Barriers (per CTA): two ownership cycles, SMEM stages and the TMEM accumulator
| barrier        | who arrives                       | arrivals          | who waits    | initial phase       |
| -------------- | --------------------------------- | ----------------- | ------------ | ------------------- |
| tma2mma[stage] | producer (expect_tx), TMA (bytes) | 1, and TILE_BYTES | MMA consumer | 0, flips every pass |
| mma2tma[stage] | tcgen05.commit                    | 1                 | producer     | 1: stages are free  |
| mma2ld         | tcgen05.commit                    | 1                 | writeback    | 0, flips every tile |
| ld2mma         | writeback threads                 | 128               | MMA consumer | 1: TMEM is free     |

Only warpgroup 0 writes back, so it syncs on a named barrier of its own; a CTA sync there would wait for
warps that never come.
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F16_BYTES, F32, L2_GROUP, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

BLK_M, BLK_N, BLK_K = 128, 128, 64
PIPE_DEPTH = 2
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES
WRITEBACK_BAR = 10  # named barrier of the writeback warpgroup


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v7(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        bx = T.cta_id([sm_count])
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
        ld2mma.init(128)
        T.ptx.fence.mbarrier_init.release.cluster()
        if wg_id == 0:
            if warp_id == 0:
                T.ptx.tcgen05.alloc.cta_group__1.sync.aligned.shared__cta.b32(
                    T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)
                )
                T.ptx.tcgen05.relinquish_alloc_permit.cta_group__1.sync.aligned()
        T.cuda.cta_sync()
        tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())
        sched = ClusterPersistentScheduler2D(
            "sched", num_m_tiles=M // BLK_M, num_n_tiles=N // BLK_N, num_clusters=sm_count, l2_group_size=L2_GROUP
        )
        sched.init(bx)
        m_st = T.meta_var(sched.m_idx * BLK_M)
        n_st = T.meta_var(sched.n_idx * BLK_N)

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
                                mbar=tma2mma.ptr_to([tma_ps.stage]),
                            )
                            Tx.copy_async(
                                Bsmem[tma_ps.stage, :, :],
                                B[n_st : n_st + BLK_N, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=tma2mma.ptr_to([tma_ps.stage]),
                            )
                            tma2mma.arrive(tma_ps.stage, TILE_BYTES)
                            tma_ps.advance()
                        sched.next_tile()
            elif warp_id == 0:
                # MMA consumer
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
                                tmem[:, :BLK_N],
                                Asmem[mma_ps.stage, :, :],
                                Bsmem[mma_ps.stage, :, :],
                                accum=(k != 0),
                                dispatch="tcgen05",
                                cta_group=1,
                            )
                            mma2tma.arrive(mma_ps.stage)
                            mma_ps.advance()
                        mma2ld.arrive(0)
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
                Tx.wg.copy_async(acc_wg[:, :], tmem[:, :BLK_N])
                T.ptx.tcgen05.wait__ld.sync.aligned()
                T.ptx.tcgen05.fence__before_thread_sync()
                ld2mma.arrive(0)  # the accumulator is in registers: its TMEM is free
                Tx.cast(out[:], acc[:])
                Tx.copy(Dsmem[tid, 0:BLK_N], out[:])
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(WRITEBACK_BAR)
                if tid == 0:
                    Tx.copy_async(D[m_st : m_st + BLK_M, n_st : n_st + BLK_N], Dsmem[:, :], dispatch="tma_auto")
                    T.ptx.cp.async_.bulk.commit_group()
                    T.ptx.cp.async_.bulk.wait_group(0)
                T.cuda.warpgroup_sync(WRITEBACK_BAR)  # Dsmem is free again
                ld_ps.advance()
                sched.next_tile()

        # TMEM is freed once: warp ids count from 0 in every warpgroup, so name the warpgroup as well
        T.cuda.cta_sync()
        if wg_id == 0:
            if warp_id == 0:
                T.ptx.tcgen05.dealloc.cta_group__1.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))

    return gemm_v7


VERSION = KernelVersion(
    name="v7",
    adds="producer, MMA and writeback warps that run at the same time",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    persistent=True,
    l2_group=L2_GROUP,
)
