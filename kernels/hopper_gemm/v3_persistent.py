"""V3, persistent: sm_count CTAs stay on their SMs and take output tiles from a scheduler.

Barriers and descriptors are set up once per CTA, not once per tile; the loads of the next tile start before
this one is written back; and the scheduler visits neighbouring tiles together (L2_GROUP rows of tiles at a
time), so their rows of A and B are still in L2.

Barriers (per CTA)
| barrier        | who arrives                       | arrivals          | who waits   | initial phase            |
| -------------- | --------------------------------- | ----------------- | ----------- | ------------------------ |
| tma_bar[stage] | thread 0 (expect_tx), TMA (bytes) | 1, and TILE_BYTES | all threads | 0, flips every ring pass |

The barriers outlive the tile, so stage and phase do too: they are set once, before the tile loop, and the
ring goes on turning where the last tile left it. A tile's prologue therefore fills the ring from the
stage that comes next.
"""

from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
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


def build(problem, *, sm_count=H200_SMS):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v3(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        bx = T.cta_id([sm_count])
        wg_id = T.warpgroup_id([BLK_M // WARP_M])
        warp_id = T.warp_id_in_wg([BLK_N // WARP_N])
        tid = T.thread_id([256])

        # SMEM and barrier
        pool = T.SMEMPool()
        tma_bar = TMABar(pool, PIPE_DEPTH)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, BLK_M, BLK_N)
        pool.commit()
        tma_bar.init(1)
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cta_sync()
        sched = ClusterPersistentScheduler2D(
            "sched", num_m_tiles=M // BLK_M, num_n_tiles=N // BLK_N, num_clusters=sm_count, l2_group_size=L2_GROUP
        )
        sched.init(bx)
        m_st = T.meta_var(sched.m_idx * BLK_M)
        n_st = T.meta_var(sched.n_idx * BLK_N)
        m_warp = T.meta_var(wg_id * WARP_M)
        n_warp = T.meta_var(warp_id * WARP_N)
        ring = PipelineState(PIPE_DEPTH, phase=0)
        m_done: T.int32 = 0  # the tile that is written back
        n_done: T.int32 = 0

        @T.inline
        def tma_load(stage, k):
            if tid == 0:
                Tx.copy_async(
                    Asmem[stage, :, :],
                    A[m_st : m_st + BLK_M, k * BLK_K : (k + 1) * BLK_K],
                    dispatch="tma_auto",
                    mbar=tma_bar.ptr_to([stage]),
                )
                Tx.copy_async(
                    Bsmem[stage, :, :],
                    B[n_st : n_st + BLK_N, k * BLK_K : (k + 1) * BLK_K],
                    dispatch="tma_auto",
                    mbar=tma_bar.ptr_to([stage]),
                )
                tma_bar.arrive(stage, TILE_BYTES)

        # registers of a warp: accumulator, and fragments for one step of K
        acc = T.alloc_local((WARP_M * WARP_N // 32,), F32)
        acc_warp = acc.view(WARP_M, WARP_N, layout=d_fragment(WARP_M, WARP_N))
        a_reg = T.alloc_local((WARP_M * MMA_K // 32,), F16)
        a_warp = a_reg.view(WARP_M, MMA_K, layout=a_fragment(WARP_M))
        b_reg = T.alloc_local((WARP_N * MMA_K // 32,), F16)
        b_warp = b_reg.view(WARP_N, MMA_K, layout=b_fragment(WARP_N))
        out = T.alloc_local((WARP_M * WARP_N // 32,), F16)
        out_warp = out.view(WARP_M, WARP_N, layout=d_fragment(WARP_M, WARP_N))

        @T.inline
        def prologue():
            for s in T.serial(min(PIPE_DEPTH, K_TILES)):
                tma_load((ring.stage + s) % PIPE_DEPTH, s)

        if sched.valid():
            prologue()
        while sched.valid():
            Tx.fill(acc[:], T.float32(0))
            for k in T.serial(K_TILES):
                tma_bar.wait(ring.stage, ring.phase)

                # MMA
                for ki in T.unroll(BLK_K // MMA_K):
                    Tx.warp.copy(
                        a_warp[:, :], Asmem[ring.stage, m_warp : m_warp + WARP_M, ki * MMA_K : (ki + 1) * MMA_K]
                    )
                    Tx.warp.copy(
                        b_warp[:, :], Bsmem[ring.stage, n_warp : n_warp + WARP_N, ki * MMA_K : (ki + 1) * MMA_K]
                    )
                    Tx.warp.gemm(acc_warp[:, :], a_warp[:, :], b_warp[:, :], acc_warp[:, :], transpose_B=True, beta=1.0)
                T.ptx.fence.proxy.async_.shared__cta()
                T.cuda.cta_sync()

                # refill the stage that every warp has just read
                if k + PIPE_DEPTH < K_TILES:
                    tma_load(ring.stage, k + PIPE_DEPTH)
                ring.advance()

            # the next tile's loads run under this tile's writeback
            m_done = sched.m_idx
            n_done = sched.n_idx
            sched.next_tile()
            if sched.valid():
                prologue()

            # writeback: registers -> fp16 -> SMEM -> GMEM
            Tx.cast(out[:], acc[:])
            Tx.warp.copy(Dsmem[m_warp : m_warp + WARP_M, n_warp : n_warp + WARP_N], out_warp[:, :])
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()
            if tid == 0:
                Tx.copy_async(
                    D[m_done * BLK_M : (m_done + 1) * BLK_M, n_done * BLK_N : (n_done + 1) * BLK_N],
                    Dsmem[:, :],
                    dispatch="tma_auto",
                )
                T.ptx.cp.async_.bulk.commit_group()
                T.ptx.cp.async_.bulk.wait_group(0)
            T.cuda.cta_sync()  # Dsmem is free again

    return gemm_v3


VERSION = KernelVersion(
    name="v3",
    adds="persistent CTAs that take output tiles from a scheduler",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    persistent=True,
    l2_group=L2_GROUP,
    arch=ARCH,
    sms=H200_SMS,
)
