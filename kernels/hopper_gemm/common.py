"""What all versions of the ladder share: dtypes, the 128-byte swizzled tiles and the accumulator's registers.

The sizes that a version is free to choose (tile, PIPE_DEPTH, warp roles) are in its own file.
"""

from tvm.backend.cuda.tile_primitive.tma_utils import SwizzleMode, mma_shared_layout
from tvm.script import tirx as T
from tvm.tirx.layout import S, TileLayout, laneid, tid_in_wg

ARCH = "sm_90a"
H200_SMS = 132

F16, F32 = "float16", "float32"
F16_BYTES = 2

# Rows of output tiles that the persistent scheduler visits together, for L2 reuse.
L2_GROUP = 8

MMA_K = 16  # elements of K that one mma.sync or wgmma takes


def swizzled_tile(pool, *shape):
    """An fp16 tile in SMEM, in the 128-byte swizzle that TMA, ldmatrix and wgmma share.

    It starts on a whole swizzle atom: 8 rows of 128 bytes.
    """
    layout = mma_shared_layout(F16, SwizzleMode.SWIZZLE_128B_ATOM, shape)
    return pool.alloc(shape, F16, align=1024, layout=layout)


# Fragments of mma.m16n8k16 in a warp (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"): lane
# l holds rows l // 4 and l // 4 + 8 of A and D, row l // 4 of B, and of every 8 columns the two from 2·(l % 4) on.


def a_fragment(rows):
    """Registers of a warp as a (rows, 16) piece of A."""
    return TileLayout(S[(rows // 16, 2, 8, 2, 4, 2) : (8, 2, 4 @ laneid, 4, 1 @ laneid, 1)])


def b_fragment(rows):
    """Registers of a warp as a (rows, 16) piece of B."""
    return TileLayout(S[(rows // 8, 8, 2, 4, 2) : (4, 4 @ laneid, 2, 1 @ laneid, 1)])


def d_fragment(rows, cols):
    """Registers of a warp as a (rows, cols) piece of D."""
    return TileLayout(S[(rows // 16, 2, 8, cols // 8, 4, 2) : (cols // 2, 2, 4 @ laneid, 4, 1 @ laneid, 1)])


def wgmma_fragment(cols):
    """Registers of a warpgroup as the (64, cols) result of a wgmma.

    Warp w holds rows 16·w to 16·w + 15; lane l of it rows l // 4 and l // 4 + 8, and of every 8 columns the two
    from 2·(l % 4) on (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16", matrix D).
    """
    return TileLayout(S[(4, 2, 8, cols // 8, 4, 2) : (32 @ tid_in_wg, 2, 4 @ tid_in_wg, 4, 1 @ tid_in_wg, 1)])


def wgmma(cols):
    """The instruction of a warpgroup's 64 x cols x 16 product: fp16 in, fp32 out."""
    return T.ptx[f"wgmma.mma_async.sync.aligned.m64n{cols}k16.f32.f16.f16"]


@T.inline
def describe(desc, i, ptr):
    """Set desc[i] to the wgmma descriptor of a 128-byte swizzled tile with K along its rows, from ptr on.

    A swizzle atom is 8 rows of 128 bytes, so the next 8 rows lie 64 times 16 bytes further. One atom holds the
    whole width of a K tile of 64, so the offset along K (1) is not used (PTX ISA, "Matrix Descriptor Format").
    """
    T.cuda.wgmma.encode_matrix_descriptor(T.address_of(desc[i]), ptr, 1, 64, 3)
