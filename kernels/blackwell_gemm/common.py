"""What all versions of the ladder share: dtypes, the 128-byte swizzled layouts and the TMEM view.

The sizes that a version is free to choose (tile, PIPE_DEPTH, warp roles) are in its own file.
"""

from tvm.backend.cuda.tile_primitive.tma_utils import SwizzleMode, mma_shared_layout
from tvm.tirx.layout import S, TCol, TileLayout, TLane, tid_in_wg

F16, F32 = "float16", "float32"
F16_BYTES = 2

# An SM's whole tensor memory: 512 columns of 128 lanes of 32 bits. Taking all of it means that the
# allocation starts at column 0, so kernels may name columns by constants.
TMEM_COLS = 512

# Rows of output tiles that the persistent scheduler visits together, for L2 reuse.
L2_GROUP = 8


def swizzled_tile(pool, *shape):
    """An fp16 tile in SMEM, in the 128-byte swizzle that TMA and tcgen05.mma share.

    It starts on a whole swizzle atom: 8 rows of 128 bytes.
    """
    layout = mma_shared_layout(F16, SwizzleMode.SWIZZLE_128B_ATOM, shape)
    return pool.alloc(shape, F16, align=1024, layout=layout)


def tmem_layout(cols=TMEM_COLS):
    """TMEM as a (128, cols) matrix: row r is lane r, column c is column c."""
    return TileLayout(S[(128, cols) : (1 @ TLane, 1 @ TCol)])


def row_per_thread(cols):
    """Registers of a warpgroup as a (128, cols) matrix: thread t of the warpgroup holds row t."""
    return TileLayout(S[(128, cols) : (1 @ tid_in_wg, 1)])
