"""A ladder outside the package: one thread computes one row of a 32x8 tile, no tensor cores."""

from tvm.script import tirx as T

from tirx_ladder.ladder import KernelVersion

TILE_M, TILE_N, BLK_K = 32, 8, 16


def build(problem, *, sm_count=148):
    M, N, K = problem.m, problem.n, problem.k

    @T.prim_func
    def gemm(A: T.Buffer((M, K), "float16"), B: T.Buffer((N, K), "float16"), D: T.Buffer((M, N), "float16")):
        T.device_entry()
        bx, by = T.cta_id([M // TILE_M, N // TILE_N])
        tid = T.thread_id([TILE_M])
        row = T.meta_var(bx * TILE_M + tid)
        acc: T.float32
        for j in T.serial(TILE_N):
            acc = T.float32(0)
            for k in T.serial(K):
                acc = acc + T.cast(A[row, k], "float32") * T.cast(B[by * TILE_N + j, k], "float32")
            D[row, by * TILE_N + j] = T.cast(acc, "float16")

    return gemm


LADDER = [KernelVersion(name="s1", adds="a thread for each row", build=build, tile=(TILE_M, TILE_N), blk_k=BLK_K)]
