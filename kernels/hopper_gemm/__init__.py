"""The Hopper GEMM ladder: D = A·Bᵀ for sm_90a in seven versions, each adding one idea to the last.

V1 to V4 multiply with mma.sync, and the CPU simulator runs them; it does not know wgmma, so V5 to V7 are
judged on a GPU.
"""

LADDER = ("v1_tma", "v2_pipeline", "v3_persistent", "v4_warp_specialised", "v5_wgmma", "v6_cluster", "v7_overlap")
