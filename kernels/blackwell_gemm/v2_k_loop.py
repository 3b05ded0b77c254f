"""V2, K loop: any K that is a multiple of 64, accumulated in the same TMEM columns.

The K chunks pass one by one through the same pair of SMEM tiles. The first chunk overwrites the
accumulator (accum=False), the others add to it. One mbarrier now completes once per chunk, so the
wait must name a phase: 0, 1, 0, 1, ...

Barriers
| barrier | who arrives            | arrivals | who waits   | initial phase          |
| ------- | ---------------------- | -------- | ----------- | ---------------------- |
| mma_bar | tcgen05.commit (1 thr) | 1        | all threads | 0, flips every K chunk |

The CTA sync before each MMA also keeps the warps together: none can still be waiting for chunk k when
chunk k + 1 completes, so no warp ever meets a parity that has come round again.
"""

from tvm.backend.cuda.lang.pipeline import TCGen05Bar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F32, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

BLK_M, BLK_N, BLK_K = 128, 128, 64


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v2(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        T.cta_id([1])
        warp_id = T.warp_id([4])
        tid = T.thread_id([128])

        # SMEM, barriers, TMEM
        pool = T.SMEMPool()
        tmem_addr = pool.alloc((1,), "uint32", align=4)
        mma_bar = TCGen05Bar(pool, 1)
        Asmem = swizzled_tile(pool, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, BLK_N, BLK_K)
        pool.commit()
        mma_bar.init(1)
        T.ptx.fence.mbarrier_init.release.cluster()
        if warp_id == 0:
            T.ptx.tcgen05.alloc.cta_group__1.sync.aligned.shared__cta.b32(
                T.address_of(tmem_addr[0]), T.uint32(TMEM_COLS)
            )
            T.ptx.tcgen05.relinquish_alloc_permit.cta_group__1.sync.aligned()
        T.cuda.cta_sync()
        tmem = T.decl_buffer((128, TMEM_COLS), F32, scope="tmem", allocated_addr=0, layout=tmem_layout())
        phase_mma: T.int32 = 0

        for k in T.serial(K_TILES):
            # load
            Tx.cta.copy(Asmem[:, :], A[0:BLK_M, k * BLK_K : (k + 1) * BLK_K])
            Tx.cta.copy(Bsmem[:, :], B[0:BLK_N, k * BLK_K : (k + 1) * BLK_K])
            T.ptx.fence.proxy.async_.shared__cta()
            T.cuda.cta_sync()

            # MMA
            if warp_id == 0:
                if T.cuda.elect_sync():
                    Tx.gemm_async(
                        tmem[:, :BLK_N], Asmem[:, :], Bsmem[:, :], accum=(k != 0), dispatch="tcgen05", cta_group=1
                    )
                    mma_bar.arrive(0)
            mma_bar.wait(0, phase_mma)
            phase_mma = phase_mma ^ 1
            # the MMA has read the tiles through the async proxy; the next chunk's generic writes come after
            T.ptx.fence.proxy.async_.shared__cta()

        # writeback: TMEM -> registers -> fp16 -> GMEM
        T.ptx.tcgen05.fence__after_thread_sync()
        acc = T.alloc_local((BLK_N,), F32)
        out = T.alloc_local((BLK_N,), F16)
        acc_wg = acc.view(128, BLK_N, layout=row_per_thread(BLK_N))
        Tx.wg.copy_async(acc_wg[:, :], tmem[:, :BLK_N])
        T.ptx.tcgen05.wait__ld.sync.aligned()
        Tx.cast(out[:], acc[:])
        Tx.copy(D[tid, 0:BLK_N], out[:])

        # TMEM is freed once, when every warp has read its part
        T.cuda.cta_sync()
        if warp_id == 0:
            T.ptx.tcgen05.dealloc.cta_group__1.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))

    return gemm_v2


VERSION = KernelVersion(
    name="v2", adds="a K loop that accumulates in TMEM", build=build, tile=(BLK_M, BLK_N), blk_k=BLK_K, max_tiles=1
)
