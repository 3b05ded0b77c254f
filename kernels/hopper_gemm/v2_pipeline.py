"""V2, software pipeline: the next K tiles load while this one is multiplied.

A and B get a ring of PIPE_DEPTH SMEM stages. A prologue fills the ring; then each pass over a stage
multiplies its K tile and, once every warp has read it, refills the stage with the K tile PIPE_DEPTH ahead.

Barriers (per CTA)
| barrier        | who arrives                       | arrivals          | who waits   | initial phase            |
| -------------- | --------------------------------- | ----------------- | ----------- | ------------------------ |
| tma_bar[stage] | thread 0 (expect_tx), TMA (bytes) | 1, and TILE_BYTES | all threads | 0, flips every ring pass |

A stage's barrier completes once in PIPE_DEPTH K tiles, so its phase flips only when the ring wraps:
PipelineState keeps the stage and that phase. The CTA sync stands between the waits for a K tile and the
next arming of its stage, as in V1.
"""

from tvm.backend.cuda.lang.pipeline import PipelineState, TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import ARCH, F16, F16_BYTES, F32, H200_SMS, MMA_K, a_fragment, b_fragment, d_fragment, swizzled_tile

BLK_M, BLK_N, BLK_K = 128, 256, 64
PIPE_DEPTH = 3
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES
WARP_M, WARP_N = 64, 64  # a warp's piece of the output tile


def build(problem, *, sm_count=H200_SMS):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v2(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        bx, by = T.cta_id([M // BLK_M, N // BLK_N])
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
        m_st = T.meta_var(bx * BLK_M)
        n_st = T.meta_var(by * BLK_N)
        m_warp = T.meta_var(wg_id * WARP_M)
        n_warp = T.meta_var(warp_id * WARP_N)
        ring = PipelineState(PIPE_DEPTH, phase=0)

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
        Tx.fill(acc[:], T.float32(0))

        # prologue: fill the ring
        for s in T.serial(min(PIPE_DEPTH, K_TILES)):
            tma_load(s, s)

        for k in T.serial(K_TILES):
            tma_bar.wait(ring.stage, ring.phase)

            # MMA
            for ki in T.unroll(BLK_K // MMA_K):
                Tx.warp.copy(a_warp[:, :], Asmem[ring.stage, m_warp : m_warp + WARP_M, ki * MMA_K : (ki + 1) * MMA_K])
                Tx.warp.copy(b_warp[:, :], Bsmem[ring.stage, n_warp : n_warp + WARP_N, ki * MMA_K : (ki + 1) * MMA_K])
                Tx.warp.gemm(acc_warp[:, :], a_warp[:, :], b_warp[:, :], acc_warp[:, :], transpose_B=True, beta=1.0)
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()

            # refill the stage that every warp has just read
            if k + PIPE_DEPTH < K_TILES:
                tma_load(ring.stage, k + PIPE_DEPTH)
            ring.advance()

        # writeback: registers -> fp16 -> SMEM -> GMEM
        out = T.alloc_local((WARP_M * WARP_N // 32,), F16)
        out_warp = out.view(WARP_M, WARP_N, layout=d_fragment(WARP_M, WARP_N))
        Tx.cast(out[:], acc[:])
        Tx.warp.copy(Dsmem[m_warp : m_warp + WARP_M, n_warp : n_warp + WARP_N], out_warp[:, :])
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if tid == 0:
            Tx.copy_async(D[m_st : m_st + BLK_M, n_st : n_st + BLK_N], Dsmem[:, :], dispatch="tma_auto")
            T.ptx.cp.async_.bulk.commit_group()
            T.ptx.cp.async_.bulk.wait_group(0)

    return gemm_v2


VERSION = KernelVersion(
    name="v2",
    adds="a three-stage SMEM ring: load ahead of the MMA",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    arch=ARCH,
    sms=H200_SMS,
)
