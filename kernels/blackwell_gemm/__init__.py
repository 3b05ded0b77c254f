"""The Blackwell GEMM ladder: D = A·Bᵀ for sm_100a in nine versions, each adding one idea to the last.

A tenth version is one more file beside these and one more name in LADDER.
"""

LADDER = (
    "v1_single_tile",
    "v2_k_loop",
    "v3_cta_grid",
    "v4_tma",
    "v5_pipeline",
    "v6_persistent",
    "v7_warp_specialised",
    "v8_two_cta_cluster",
    "v9_two_consumers",
)
