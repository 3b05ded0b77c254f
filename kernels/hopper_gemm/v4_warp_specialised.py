"""V4, warp specialisation: loading and multiplying run at the same time.

Up to V3 one path of control did both in turn, with a CTA sync for every K tile. Now a producer warp starts
TMA loads and two consumer warpgroups multiply; they meet only at barriers, so the loads run ahead, into the
next output tile too.

Roles: warpgroups 0 and 1 multiply and write back, each its 64 rows of the tile; warp 0 of warpgroup 2 is
the TMA producer.

Barriers (per CTA): the ownership cycle of the SMEM stages
| barrier      | who arrives                       | arrivals          | who waits | initial phase            |
| ------------ | --------------------------------- | ----------------- | --------- | ------------------------ |
| full[stage]  | producer (expect_tx), TMA (bytes) | 1, and TILE_BYTES | consumers | 0, flips every ring pass |
| empty[stage] | a lane of every consumer warp     | 8                 | producer  | 1: stages are free       |

A consumer thread holds 128 registers of accumulator and 32 of fragments. The producer needs few, gives its
own back, and the consumers take them (setmaxnreg), so that nothing spills.

Each consumer warpgroup writes back on its own, so it syncs on a named barrier of its own; a CTA sync there
would wait for warps that never come.
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import (
    ARCH,
    F16,
    F16_BYTES,
    F32,
    H200_SMS,
    L2_GROUP,
    MMA_K,
    a_fragment,
    b_fragment,
    d_fragment,
    swizzled_tile,
)

BLK_M, BLK_N, BLK_K = 128, 256, 64
PIPE_DEPTH = 3
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES
WARP_M, WARP_N = 64, 64  # a warp's piece of the output tile
CONSUMERS = BLK_M // WARP_M  # warpgroups
WRITEBACK_BAR = 10  # named barrier of consumer 0; the next is that of consumer 1
# Registers of a thread: 384 threads start with 168 each; what the producer gives back, the consumers take.
PRODUCER_REGS, CONSUMER_REGS = 40, 232


def build(problem, *, sm_count=H200_SMS):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v4(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        bx = T.cta_id([sm_count])
        wg_id = T.warpgroup_id([CONSUMERS + 1])
        warp_id = T.warp_id_in_wg([4])
        tid = T.thread_id_in_wg([128])

        # SMEM and barriers
        pool = T.SMEMPool()
        full = TMABar(pool, PIPE_DEPTH)
        empty = MBarrier(pool, PIPE_DEPTH)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, CONSUMERS, WARP_M, BLK_N)
        pool.commit()
        full.init(1)
        empty.init(CONSUMERS * 4)
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        sched = ClusterPersistentScheduler2D(
            "sched", num_m_tiles=M // BLK_M, num_n_tiles=N // BLK_N, num_clusters=sm_count, l2_group_size=L2_GROUP
        )
        sched.init(bx)
        m_st = T.meta_var(sched.m_idx * BLK_M)
        n_st = T.meta_var(sched.n_idx * BLK_N)
        m_wg = T.meta_var(wg_id * WARP_M)
        n_warp = T.meta_var(warp_id * WARP_N)

        if wg_id == CONSUMERS:
            # TMA producer
            T.ptx.setmaxnreg.dec.sync.aligned.u32(PRODUCER_REGS)
            if warp_id == 0:
                if T.cuda.elect_sync():
                    tma_ps = PipelineState(PIPE_DEPTH, phase=1)
                    while sched.valid():
                        for k in T.serial(K_TILES):
                            empty.wait(tma_ps.stage, tma_ps.phase)
                            Tx.copy_async(
                                Asmem[tma_ps.stage, :, :],
                                A[m_st : m_st + BLK_M, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=full.ptr_to([tma_ps.stage]),
                            )
                            Tx.copy_async(
                                Bsmem[tma_ps.stage, :, :],
                                B[n_st : n_st + BLK_N, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=full.ptr_to([tma_ps.stage]),
                            )
                            full.arrive(tma_ps.stage, TILE_BYTES)
                            tma_ps.advance()
                        sched.next_tile()
        else:
            T.ptx.setmaxnreg.inc.sync.aligned.u32(CONSUMER_REGS)
            # registers of a warp: accumulator, and fragments for one step of K
            acc = T.alloc_local((WARP_M * WARP_N // 32,), F32)
            acc_warp = acc.view(WARP_M, WARP_N, layout=d_fragment(WARP_M, WARP_N))
            a_reg = T.alloc_local((WARP_M * MMA_K // 32,), F16)
            a_warp = a_reg.view(WARP_M, MMA_K, layout=a_fragment(WARP_M))
            b_reg = T.alloc_local((WARP_N * MMA_K // 32,), F16)
            b_warp = b_reg.view(WARP_N, MMA_K, layout=b_fragment(WARP_N))
            out = T.alloc_local((WARP_M * WARP_N // 32,), F16)
            out_warp = out.view(WARP_M, WARP_N, layout=d_fragment(WARP_M, WARP_N))
            mma_ps = PipelineState(PIPE_DEPTH, phase=0)
            while sched.valid():
                # MMA
                Tx.fill(acc[:], T.float32(0))
                for _k in T.serial(K_TILES):
                    full.wait(mma_ps.stage, mma_ps.phase)
                    for ki in T.unroll(BLK_K // MMA_K):
                        k_st = T.meta_var(ki * MMA_K)
                        Tx.warp.copy(a_warp[:, :], Asmem[mma_ps.stage, m_wg : m_wg + WARP_M, k_st : k_st + MMA_K])
                        Tx.warp.copy(b_warp[:, :], Bsmem[mma_ps.stage, n_warp : n_warp + WARP_N, k_st : k_st + MMA_K])
                        Tx.warp.gemm(
                            acc_warp[:, :], a_warp[:, :], b_warp[:, :], acc_warp[:, :], transpose_B=True, beta=1.0
                        )
                    T.ptx.fence.proxy.async_.shared__cta()
                    T.cuda.warp_sync()
                    if T.cuda.elect_sync():
                        empty.arrive(mma_ps.stage)
                    mma_ps.advance()

                # writeback: registers -> fp16 -> SMEM -> GMEM
                Tx.cast(out[:], acc[:])
                Tx.warp.copy(Dsmem[wg_id, :, n_warp : n_warp + WARP_N], out_warp[:, :])
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)
                if tid == 0:
                    Tx.copy_async(
                        D[m_st + m_wg : m_st + m_wg + WARP_M, n_st : n_st + BLK_N],
                        Dsmem[wg_id, :, :],
                        dispatch="tma_auto",
                    )
                    T.ptx.cp.async_.bulk.commit_group()
                    T.ptx.cp.async_.bulk.wait_group(0)
                T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)  # its Dsmem is free again
                sched.next_tile()

    return gemm_v4


VERSION = KernelVersion(
    name="v4",
    adds="a producer warp and two consumer warpgroups that run at the same time",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    persistent=True,
    l2_group=L2_GROUP,
    arch=ARCH,
    sms=H200_SMS,
)
