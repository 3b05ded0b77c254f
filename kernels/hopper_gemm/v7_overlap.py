"""V7, overlap: a wgmma group stays in flight across K tiles, and D is stored behind the next tile.

V6's tensor cores stand still twice: after each K tile, until the last wgmma has finished and the next is
issued, and after each output tile, until all of D has left SMEM. Here a K tile is committed before the one
before it is waited for, so there is always a group to work on, and its stage is released one K tile later.
D leaves through slices of STORE_N columns, two for each warpgroup in turn; a slice is waited for only when
its SMEM is needed again, so the last stores of a tile run under the next tile's wgmma. Slices are small, and
the SMEM that they free holds a fourth stage.

Barriers (per CTA): the ownership cycle of the SMEM stages
| barrier      | who arrives                              | arrivals          | who waits | initial phase            |
| ------------ | ---------------------------------------- | ----------------- | --------- | ------------------------ |
| full[stage]  | own producer (expect_tx), TMA (bytes)    | 1, and TILE_BYTES | consumers | 0, flips every ring pass |
| empty[stage] | a lane of every consumer warp, both CTAs | 16                | producer  | 1: stages are free       |
"""

from tvm.backend.cuda.lang.pipeline import MBarrier, PipelineState, TMABar
from tvm.backend.cuda.lang.tile_scheduler import ClusterPersistentScheduler2D
from tvm.script import tirx as T
from tvm.script.tirx import tile as Tx

from tirx_ladder.ladder import KernelVersion

from .common import ARCH, F16, F16_BYTES, F32, H200_SMS, L2_GROUP, MMA_K, describe, swizzled_tile, wgmma, wgmma_fragment

BLK_M, BLK_N, BLK_K = 128, 256, 64
PIPE_DEPTH = 4
CTA_GROUP = 2  # CTAs of a cluster
BOTH_CTAS = 0b11  # cta_mask
HALF_N = BLK_N // CTA_GROUP  # rows of B that one CTA loads for both
TILE_M = BLK_M * CTA_GROUP  # a cluster computes TILE_M x BLK_N of D
TILE_BYTES = (BLK_M + BLK_N) * BLK_K * F16_BYTES
WG_M = 64  # rows of a wgmma
CONSUMERS = BLK_M // WG_M  # warpgroups
STORE_N, SLICES = 64, 2  # columns of a slice of D; slices of SMEM for each warpgroup
WRITEBACK_BAR = 10  # named barrier of consumer 0; the next is that of consumer 1
# Registers of a thread: 384 threads start with 168 each; what the producer gives back, the consumers take.
PRODUCER_REGS, CONSUMER_REGS = 40, 232


def build(problem, *, sm_count=H200_SMS):
    M, N, K = problem.m, problem.n, problem.k
    K_TILES = K // BLK_K

    @T.prim_func
    def gemm_v7(A: T.Buffer((M, K), F16), B: T.Buffer((N, K), F16), D: T.Buffer((M, N), F16)):
        T.device_entry()
        cluster = T.cluster_id([sm_count // CTA_GROUP])
        cbx = T.cta_id_in_cluster([CTA_GROUP])
        wg_id = T.warpgroup_id([CONSUMERS + 1])
        warp_id = T.warp_id_in_wg([4])
        tid = T.thread_id_in_wg([128])
        lane = T.lane_id([32])

        # SMEM and barriers
        pool = T.SMEMPool()
        full = TMABar(pool, PIPE_DEPTH)
        empty = MBarrier(pool, PIPE_DEPTH)
        Asmem = swizzled_tile(pool, PIPE_DEPTH, BLK_M, BLK_K)
        Bsmem = swizzled_tile(pool, PIPE_DEPTH, BLK_N, BLK_K)
        Dsmem = swizzled_tile(pool, CONSUMERS * SLICES, WG_M, STORE_N)
        pool.commit()
        full.init(1)
        empty.init(CONSUMERS * 4 * CTA_GROUP)
        T.ptx.fence.mbarrier_init.release.cluster()
        T.cuda.cluster_sync()
        sched = ClusterPersistentScheduler2D(
            "sched",
            num_m_tiles=M // TILE_M,
            num_n_tiles=N // BLK_N,
            num_clusters=sm_count // CTA_GROUP,
            l2_group_size=L2_GROUP,
        )
        sched.init(cluster)
        m_st = T.meta_var(sched.m_idx * TILE_M + cbx * BLK_M)
        n_st = T.meta_var(sched.n_idx * BLK_N)
        n_half = T.meta_var(cbx * HALF_N)
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
                                Bsmem[tma_ps.stage, n_half : n_half + HALF_N, :],
                                B[n_st + n_half : n_st + n_half + HALF_N, k * BLK_K : (k + 1) * BLK_K],
                                dispatch="tma_auto",
                                mbar=full.ptr_to([tma_ps.stage]),
                                cta_mask=BOTH_CTAS,
                            )
                            full.arrive(tma_ps.stage, TILE_BYTES)
                            tma_ps.advance()
                        sched.next_tile()
        else:
            # registers of a warpgroup
            T.ptx.setmaxnreg.inc.sync.aligned.u32(CONSUMER_REGS)
            acc = T.alloc_local((BLK_N // 2,), F32)
            out = T.alloc_local((BLK_N // 2,), F16)
            out_wg = out.view(WG_M, BLK_N, layout=wgmma_fragment(BLK_N))
            desc = T.alloc_local((2,), "uint64")
            mma_ps = PipelineState(PIPE_DEPTH, phase=0)
            before: T.int32 = 0  # the stage of the K tile before
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
                    if k > 0:
                        T.ptx.wgmma.wait_group.sync.aligned(1)
                        if lane < CTA_GROUP:
                            empty.arrive(before, remote=lane)
                    before = mma_ps.stage
                    mma_ps.advance()
                T.ptx.wgmma.wait_group.sync.aligned(0)
                if lane < CTA_GROUP:
                    empty.arrive(before, remote=lane)

                # writeback: registers -> fp16 -> SMEM -> GMEM, a slice of columns at a time
                Tx.cast(out[:], acc[:])
                for no in T.unroll(BLK_N // STORE_N):
                    piece = T.meta_var(wg_id * SLICES + no % SLICES)
                    n_out = T.meta_var(n_st + no * STORE_N)
                    if tid == 0:
                        T.ptx.cp.async_.bulk.wait_group.read(SLICES - 1)  # this slice's last store has read it
                    T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)
                    Tx.wg.copy(Dsmem[piece, :, :], out_wg[:, no * STORE_N : (no + 1) * STORE_N])
                    T.ptx.fence.proxy.async_.shared__cta()
                    T.cuda.warpgroup_sync(WRITEBACK_BAR + wg_id)
                    if tid == 0:
                        Tx.copy_async(
                            D[m_st + m_wg : m_st + m_wg + WG_M, n_out : n_out + STORE_N],
                            Dsmem[piece, :, :],
                            dispatch="tma_auto",
                        )
                        T.ptx.cp.async_.bulk.commit_group()
                sched.next_tile()
            if tid == 0:
                T.ptx.cp.async_.bulk.wait_group(0)
        T.cuda.cluster_sync()

    return gemm_v7


VERSION = KernelVersion(
    name="v7",
    adds="wgmma groups in flight across K tiles, stores behind the next tile",
    build=build,
    tile=(TILE_M, BLK_N),
    blk_k=BLK_K,
    pipe_depth=PIPE_DEPTH,
    cluster=CTA_GROUP,
    persistent=True,
    l2_group=L2_GROUP,
    arch=ARCH,
    sms=H200_SMS,
    simulated=False,
)
