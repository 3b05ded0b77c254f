"""V1, single tile: the whole Blackwell data path once, with nothing overlapped.

One CTA of one warpgroup computes one 128x128 output tile from one K chunk of 64. Right comes first:
every later version keeps this path and changes who drives it, or how much of it runs at a time.

Schedule: threads copy A and B from GMEM to swizzled SMEM; one elected thread issues tcgen05.mma into
TMEM; all threads wait for it, read the fp32 accumulator into registers, round it to fp16 and store D.

Barriers
| barrier | who arrives            | arrivals | who waits   | initial phase |
| ------- | ---------------------- | -------- | ----------- | ------------- |
| mma_bar | tcgen05.commit (1 thr) | 1        | all threads | 0             |

The threads write SMEM through the generic proxy and tcgen05.mma reads it through the async proxy, so
each writer needs fence.proxy.async before the CTA sync that hands the tile to the MMA.
"""

from tvm.backend.cuda.lang.pipeline import TCGen05Bar
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F32, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

BLK_M, BLK_N, BLK_K = 128, 128, 64


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k

    @T.prim_func
    def gemm_v1(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
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

        # load
        Tx.cta.copy(Asmem[:, :], A[0:BLK_M, 0:BLK_K])
        Tx.cta.copy(Bsmem[:, :], B[0:BLK_N, 0:BLK_K])
        T.ptx.fence.proxy.async_.shared__cta()
        T.cuda.cta_sync()

        # MMA
        if warp_id == 0:
            if T.cuda.elect_sync():
                Tx.gemm_async(tmem[:, :BLK_N], Asmem[:, :], Bsmem[:, :], accum=False, dispatch="tcgen05", cta_group=1)
                mma_bar.arrive(0)
        mma_bar.wait(0, 0)

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

    return gemm_v1


VERSION = KernelVersion(
    name="v1",
    adds="the whole data path: GMEM, SMEM, tcgen05.mma, TMEM, registers, GMEM",
    build=build,
    tile=(BLK_M, BLK_N),
    blk_k=BLK_K,
    max_tiles=1,
    max_k_tiles=1,
)
