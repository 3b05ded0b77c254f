"""V9, two consumers: a second MMA warp multiplies other rows of A by the same B.

Each stage holds two A tiles per CTA and one B tile. Consumer c multiplies A tile c of both CTAs by the
shared B, so the cluster's tile grows to 512x256 while the bytes of B stay as they were: more MMAs per
byte loaded. The accumulators take TMEM columns [0, 256) and [256, 512), all there are.

Roles: warpgroups 0 and 1 write back consumer 0's and 1's accumulator; of warpgroup 2, warp 3 is the TMA
producer and warps 0 and 1 are the MMA consumers. Only CTA 0's consumers issue.

Barriers: tma2mma and ld2mma live in CTA 0, mma2tma and mma2ld in both CTAs (multicast commit, cta_mask 3)
| barrier          | who arrives                      | arrivals          | who waits         | initial phase       |
| ---------------- | -------------------------------- | ----------------- | ----------------- | ------------------- |
| tma2mma[stage]   | CTA 0's producer, both TMAs      | 1, and TILE_BYTES | CTA 0's consumers | 0, flips every pass |
| mma2tma[stage]   | consumers' commits, to both CTAs | NUM_CONSUMER      | each producer     | 1: stages are free  |
| mma2ld[consumer] | tcgen05.commit, to both CTAs     | 1                 | each writeback    | 0, flips every tile |
| ld2mma[consumer] | writeback threads of both CTAs   | 256               | CTA 0's consumer  | 1: TMEM is free     |

A stage is free only when both consumers have read it. Each writeback warpgroup has its own named barrier:
on a shared one their arrivals would be counted together.
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TCGen05Bar, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import F16, F16_BYTES, F32, L2_GROUP, TMEM_COLS, row_per_thread, swizzled_tile, tmem_layout

CTA_GROUP = 2
NUM_CONSUMER = 2
BLK_M, BLK_N, BLK_K = 128, 128, 64  # of one CTA
TILE_M, TILE_N = NUM_CONSUMER * CTA_GROUP * BLK_M, CTA_GROUP * BLK_N  # of the cluster
PIPE_DEPTH = 4
EPI_N = 64  # columns written back at a time
TILE_BYTES = CTA_GROUP * (NUM_CONSUMER * BLK_M + BLK_N) * BLK_K * F16_BYTES
BOTH_CTAS = 0b11  # cta_mask
WRITEBACK_BAR = 10  # named barriers 10 and 11, one of each writeback warpgroup


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v9(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        cluster = T.cluster_id([sm_count // CTA_GROUP])
        cbx = T.cta_id_in_cluster([CTA_GROUP])
        wg_id = T.warpgroup_id([NUM_CONSUMER + 1])
        warp_id = T.warp_id_in_wg([4])
        tid = T.thread_id_in_wg([128])

        # SMEM, barriers, TMEM
        pool = T.SMEMPool()
        tmem_addr = pool.alloc((1,), "uint32", align=4)
        tma2mma = TMABar(pool, PIPE_DEPTH)
        mma2tma = TCGen05Bar(pool, PIPE_DEPTH)
        mma2ld = TCGen05Bar(pool, NUM_CONSUMER)
        ld2mma = MBarrier(pool, NUM_CONSUMER)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, NUM_CONSUMER, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, NUM_CONSUMER, BLK_M, EPI_N)
        pool.commit()
        tma2mma.init(1)
        mma2tma.init(NUM_CONSUMER)
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
        m_st = T.meta_var(sched.m_idx * TILE_M + cbx * BLK_M)  # this CTA's rows of A and of D for consumer 0
        n_st = T.meta_var(sched.n_idx * TILE_N + cbx * BLK_N)  # this CTA's rows of B
        tma2mma_cta0 = tma2mma.remote_view(0)

        if wg_id == NUM_CONSUMER:
            if warp_id == 3:
                # TMA producer
                if T.cuda.elect_sync():
                    tma_ps = PipelineState(PIPE_DEPTH, phase=1)
                    while sched.valid():
                        for k in T.serial(K_TILES):
                            mma2tma.wait(tma_ps.stage, tma_ps.phase)
                            for c in T.unroll(NUM_CONSUMER):
                                m_st_c = T.meta_var(m_st + c * CTA_GROUP * BLK_M)
                                Tx.copy_async(
                                    Asmem[tma_ps.stage, c, :, :],
                                    A[m_st_c : m_st_c + BLK_M, k * BLK_K : (k + 1) * BLK_K],
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
            elif warp_id < NUM_CONSUMER:
                # MMA consumer number warp_id
                if cbx == 0:
                    if T.cuda.elect_sync():
                        mma_ps = PipelineState(PIPE_DEPTH, phase=0)
                        acc_ps = PipelineState(1, phase=1)
                        while sched.valid():
                            ld2mma.wait(warp_id, acc_ps.phase)
                            T.ptx.tcgen05.fence__after_thread_sync()
                            for k in T.serial(K_TILES):
                                tma2mma.wait(mma_ps.stage, mma_ps.phase)
                                T.ptx.tcgen05.fence__after_thread_sync()
                                Tx.gemm_async(
                                    tmem[:, warp_id * TILE_N : (warp_id + 1) * TILE_N],
                                    Asmem[mma_ps.stage, warp_id, :, :],
                                    Bsmem[mma_ps.stage, :, :],
                                    accum=(k != 0),
                                    dispatch="tcgen05",
                                    cta_group=CTA_GROUP,
                                )
                                mma2tma.arrive(mma_ps.stage, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)
                                mma_ps.advance()
                            mma2ld.arrive(warp_id, cta_group=CTA_GROUP, cta_mask=BOTH_CTAS)
                            acc_ps.advance()
                            sched.next_tile()
        else:
            # writeback: TMEM -> registers -> fp16 -> SMEM -> GMEM
            ld_ps = PipelineState(1, phase=0)
            acc = T.alloc_local((EPI_N,), F32)
            out = T.alloc_local((EPI_N,), F16)
            acc_wg = acc.view(128, EPI_N, layout=row_per_thread(EPI_N))
            m_st_epi = T.meta_var(m_st + wg_id * CTA_GROUP * BLK_M)
            while sched.valid():
                mma2ld.wait(wg_id, ld_ps.phase)
                T.ptx.tcgen05.fence__after_thread_sync()
                # EPI_N columns at a time: 256 fp32 values per thread would not fit in registers
                for no in T.unroll(TILE_N // EPI_N):
                    n_st_epi = T.meta_var(sched.n_idx * TILE_N + no * EPI_N)  # every CTA stores all columns
                    col = T.meta_var(wg_id * TILE_N + no * EPI_N)
                    Tx.wg.copy_async(acc_wg[:, :], tmem[:, col : col + EPI_N])
                    T.ptx.tcgen05.wait__ld.sync.aligned()
                    if no == TILE_N // EPI_N - 1:
                        T.ptx.tcgen05.fence__before_thread_sync()
                        ld2mma.arrive(wg_id, remote=0)  # the accumulator is in registers: its TMEM is free
                    Tx.cast(out[:], acc[:])
                    Tx.copy(Dsmem[wg_id, tid, 0:EPI_N], out[:])
                    T.ptx.fence.proxy.async_.shared__cta()
                    T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)
                    if tid == 0:
                        Tx.copy_async(
                            D[m_st_epi : m_st_epi + BLK_M, n_st_epi : n_st_epi + EPI_N],
                            Dsmem[wg_id, :, :],
                            dispatch="tma_auto",
                        )
                        T.ptx.cp.async_.bulk.commit_group()
                        T.ptx.cp.async_.bulk.wait_group(0)
                    T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)  # Dsmem is free again
                ld_ps.advance()
                sched.next_tile()

        # TMEM is freed once: warp ids count from 0 in every warpgroup, so name the warpgroup as well
        T.cuda.cluster_sync()
        if wg_id == 0:
            if warp_id == 0:
                T.ptx.tcgen05.dealloc.cta_group__2.sync.aligned.b32(tmem_addr[0], T.uint32(TMEM_COLS))

    return gemm_v9


VERSION = KernelVersion(
    name="v9",
    adds="a second MMA consumer that shares the B tile",
    build=build,
    tile=(TILE_M, TILE_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    cluster=CTA_GROUP,
    persistent=True,
    l2_group=L2_GROUP,
)
