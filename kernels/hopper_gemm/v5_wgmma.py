"""V5, wgmma: the tensor cores read A and B from SMEM themselves.

mma.sync needs every fragment loaded into registers first, and reaches only part of what a Hopper SM can
multiply. A wgmma is issued by a whole warpgroup, names its A and B tiles by SMEM descriptors and leaves the
64x256 result of a warpgroup in its registers. Everything around it is V4's.

Barriers (per CTA): the ownership cycle of the SMEM stages
| barrier      | who arrives                       | arrivals          | who waits | initial phase            |
| ------------ | --------------------------------- | ----------------- | --------- | ------------------------ |
| full[stage]  | producer (expect_tx), TMA (bytes) | 1, and TILE_BYTES | consumers | 0, flips every ring pass |
| empty[stage] | a lane of every consumer warp     | 8                 | producer  | 1: stages are free       |

wgmma reads SMEM through the async proxy, as TMA writes it, so the stage needs no proxy fence; wait_group
says when its reads are done. wgmma.fence orders the accumulator's registers before the first wgmma of a
K tile.
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import ARCH, F16, F16_BYTES, F32, H200_SMS, L2_GROUP, MMA_K, describe, swizzled_tile, wgmma, wgmma_fragment

BLK_M, BLK_N, BLK_K = 128, 256, 64
PIPE_DEPTH = 3
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES
WG_M = 64  # rows of a wgmma
CONSUMERS = BLK_M // WG_M  # warpgroups
WRITEBACK_BAR = 10  # named barrier of consumer 0; the next is that of consumer 1
# Registers of a thread: 384 threads start with 168 each; what the producer gives back, the consumers take.
PRODUCER_REGS, CONSUMER_REGS = 40, 232


def build(problem, *, sm_count=H200_SMS):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v5(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
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
        Dsmem = swizzled_tile(pool, CONSUMERS, WG_M, BLK_N)
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
        m_wg = T.meta_var(wg_id * WG_M)

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
            # registers of a warpgroup
            acc = T.alloc_local((BLK_N // 2,), F32)
            out = T.alloc_local((BLK_N // 2,), F16)
            out_wg = out.view(WG_M, BLK_N, layout=wgmma_fragment(BLK_N))
            desc = T.alloc_local((2,), "uint64")
            mma_ps = PipelineState(PIPE_DEPTH, phase=0)
            while sched.valid():
                # MMA
                for k in T.serial(K_TILES):
                    full.wait(mma_ps.stage, mma_ps.phase)
                    T.ptx.wgmma.fence.sync.aligned()
                    for ki in T.unroll(BLK_K // MMA_K):
                        describe(desc, 0, Asmem.ptr_to([mma_ps.stage, m_wg, ki * MMA_K]))
                        describe(desc, 1, Bsmem.ptr_to([mma_ps.stage, 0, ki * MMA_K]))
                        wgmma(BLK_N)(*[acc[i] for i in range(BLK_N // 2)], desc[0], desc[1], k + ki != 0, 1, 1, 0, 0)
                    T.ptx.wgmma.commit_group.sync.aligned()
                    T.ptx.wgmma.wait_group.sync.aligned(0)
                    if T.cuda.elect_sync():
                        empty.arrive(mma_ps.stage)
                    mma_ps.advance()

                # writeback: registers -> fp16 -> SMEM -> GMEM
                Tx.cast(out[:], acc[:])
                Tx.wg.copy(Dsmem[wg_id, :, :], out_wg[:, :])
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)
                if tid == 0:
                    Tx.copy_async(
                        D[m_st + m_wg : m_st + m_wg + WG_M, n_st : n_st + BLK_N],
                        Dsmem[wg_id, :, :],
                        dispatch="tma_auto",
                    )
                    T.ptx.cp.async_.bulk.commit_group()
                    T.ptx.cp.async_.bulk.wait_group(0)
                T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)  # its Dsmem is free again
                sched.next_tile()

    return gemm_v5


VERSION = KernelVersion(
    name="v5",
    adds="wgmma in place of mma.sync: operands straight from SMEM",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    persistent=True,
    l2_group=L2_GROUP,
    arch=ARCH,
    sms=H200_SMS,
    simulated=False,
)
