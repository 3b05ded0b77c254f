"""V5, software pipeline: the next K chunk loads while this one is multiplied.

A and B get a ring of PIPE_DEPTH SMEM stages. A prologue fills the ring; then each pass over a stage
multiplies its chunk and, once the MMA has read it, refills the stage with the chunk PIPE_DEPTH ahead.

Barriers (per CTA)
| barrier        | who arrives                       | arrivals          | who waits   | initial phase            |
| -------------- | --------------------------------- | ----------------- | ----------- | ------------------------ |
| tma_bar[stage] | thread 0 (expect_tx), TMA (bytes) | 1, and TILE_BYTES | all threads | 0, flips every ring pass |
| mma_bar        | tcgen05.commit (1 thr)            | 1                 | all threads | 0, flips every K chunk   |

A stage's barrier completes once in PIPE_DEPTH chunks, so its phase flips only when the ring wraps:
PipelineState keeps the stage and that phase. The CTA sync stands between the waits for a chunk and the
next arming of its stage, as in V4.
"""

from tvm.backend.cuda.lang.pipeline import PipelineState, TCGen05Bar, TMABar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F16_BYTES, F32, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

BLK_M, BLK_N, BLK_K = 128, 128, 64
PIPE_DEPTH = 2
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v5(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        bx, by = T.cta_id([M // BLK_M, N // BLK_N])
        warp_id = T.warp_id([4])
        tid = T.thread_id([128])

        # SMEM, barriers, TMEM
        pool = T.SMEMPool()
        tmem_addr = pool.alloc((1,), "uint32", align=4)
        tma_bar = TMABar(pool, PIPE_DEPTH)
        mma_bar = TCGen05Bar(pool, 1)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, BLK_M, BLK_N)
        pool.commit()
        tma_bar.init(1)
        mma_bar.init(1)
        T.ptx.fence.mbarrier_init.release.cluster()
        if warp_id == 0:
            T.ptx.tcgen05.alloc.cta_group__1.sync.aligned.shared__cta.b32(
                T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)
            )
            T.ptx.tcgen05.relinquish_alloc_permit.cta_group__1.sync.aligned()
        T.cuda.cta_sync()
        tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())
        m_st = T.meta_var(bx * BLK_M)
        n_st = T.meta_var(by * BLK_N)
        ring = PipelineState(PIPE_DEPTH, phase=0)
        phase_mma: T.int32 = 0

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

        # prologue: fill the ring
        for s in T.serial(min(PIPE_DEPTH, K_TILES)):
            tma_load(s, s)

        for k in T.serial(K_TILES):
            tma_bar.wait(ring.stage, ring.phase)

            # MMA
            if warp_id == 0:
                if T.cuda.elect_sync():
                    Tx.gemm_async(
                        tmem[:, :BLK_N],
                        Asmem[ring.stage, :, :],
                        Bsmem[ring.stage, :, :],
                        accum=(k != 0),
                        dispatch="tcgen05",
                        cta_group=1,
                    )
                    mma_bar.arrive(0)
            mma_bar.wait(0, phase_mma)
            phase_mma = phase_mma ^ 1
            T.cuda.cta_sync()

            # refill the stage that the MMA has just read
            if k + PIPE_DEPTH < K_TILES:
                tma_load(ring.stage, k + PIPE_DEPTH)
            ring.advance()

        # writeback: TMEM -> registers -> fp16 -> SMEM -> GMEM
        T.ptx.tcgen05.fence__after_thread_sync()
        acc = T.alloc_local((BLK_N,), F32)
        out = T.alloc_local((BLK_N,), F16)
        acc_wg = acc.view(128, BLK_N, layout=row_per_thread(BLK_N))
        Tx.wg.copy_async(acc_wg[:, :], tmem[:, :BLK_N])
        T.ptx.tcgen05.wait__ld.sync.aligned()
        Tx.cast(out[:], acc[:])
        Tx.copy(Dsmem[tid, 0:BLK_N], out[:])
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()
        if tid == 0:
            Tx.copy_async(D[m_st : m_st + BLK_M, n_st : n_st + BLK_N], Dsmem[:, :], dispatch="tma_auto")
            T.ptx.cp.async_.bulk.commit_group()
            T.ptx.cp.async_.bulk.wait_group(0)

        # TMEM is freed once, when every warp has read its part
        T.cuda.cta_sync()
        if warp_id == 0:
            T.ptx.tcgen05.dealloc.cta_group__1.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))

    return gemm_v5


VERSION = KernelVersion(
    name="v5",
    adds="a two-stage SMEM ring: load ahead of the MMA",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
)
