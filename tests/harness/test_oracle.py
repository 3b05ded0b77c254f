"""Inputs, reference and comparison: what is right passes in any order of summation, what is wrong is found."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tirx_ladder import oracle
from tirx_ladder.cases import INPUTS
from tirx_ladder.ladder import KernelVersion, Problem, load

TILE, BLK_K = 128, 16
VERSION = KernelVersion("v0", "", print, (TILE, TILE), BLK_K)


def inputs(kind, tiles_m, tiles_n, k_tiles, version=VERSION, **seed):
    return oracle.make_inputs(kind, version.problem(tiles_m, tiles_n, k_tiles), version.blk_k, **seed)


def right_d(kind, a, b):
    """D as a kernel without faults writes it."""
    with np.errstate(over="ignore"):
        return oracle.reference(kind, a, b).value.astype(np.float16)


def compare(kind, d, a, b, version=VERSION, sm_count=148, clusters=None):
    problem = Problem(a.shape[0], b.shape[0], a.shape[1])
    return oracle.compare(kind, d, a, b, version, version.schedule(problem, sm_count), clusters)


@pytest.mark.parametrize("kind", INPUTS)
def test_inputs_are_fp16_of_the_problems_shape_and_the_same_every_time(kind):
    a, b = inputs(kind, 1, 2, 3)
    assert (a.dtype, a.shape, b.dtype, b.shape) == (np.float16, (128, 48), np.float16, (256, 48))
    assert all(np.array_equal(x, y, equal_nan=True) for x, y in zip((a, b), inputs(kind, 1, 2, 3), strict=True))


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("k_tiles", [1, 4, 64])
def test_a_right_d_passes(kind, k_tiles):
    a, b = inputs(kind, 1, 2, k_tiles)
    assert compare(kind, right_d(kind, a, b), a, b) is None


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("k_tiles", [1, 3, 8])
def test_every_kind_of_input_finds_any_dropped_k_tile(kind, k_tiles):
    a, b = inputs(kind, 1, 1, k_tiles)
    for t in range(k_tiles):
        without = a.copy()
        without[:, t * BLK_K : (t + 1) * BLK_K] = 0
        assert compare(kind, right_d(kind, without, b), a, b) is not None


@pytest.mark.parametrize("kind", INPUTS)
def test_every_kind_of_input_finds_a_d_that_was_never_written(kind):
    a, b = inputs(kind, 1, 1, 2)
    assert compare(kind, np.full((128, 128), np.nan, np.float16), a, b) is not None


# --- exact

any_k = st.one_of(st.integers(1, 5000), st.sampled_from([1, 8, 31, 32, 33, 512, 513, 2047, 2048, 2049, 4096]))


@given(any_k, st.integers(0, 2**32 - 1))
def test_exact_inputs_keep_every_partial_sum_within_2048(k, seed):
    a, b = oracle.make_inputs("exact", Problem(16, 16, k), 1, seed=seed)
    assert np.array_equal(a, np.rint(a))
    assert np.array_equal(b, np.rint(b))
    assert (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T).max() <= 2048
    assert np.count_nonzero(a, axis=1).max() * np.abs(a).max() * np.abs(b).max() <= 2048  # and not by luck


@given(any_k, st.integers(0, 2**32 - 1))
def test_exact_inputs_give_the_same_fp16_result_in_whatever_order_they_are_added(k, seed):
    a, b = oracle.make_inputs("exact", Problem(4, 4, k), 1, seed=seed)
    products = a.astype(np.float32)[:, None, :] * b.astype(np.float32)[None]
    order = np.random.default_rng(seed).permutation(k)
    in_order = np.cumsum(products[:, :, order], axis=-1, dtype=np.float32)[:, :, -1]
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.array_equal(in_order, exact)
    assert np.array_equal(in_order.astype(np.float16), exact)


@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_exact_inputs_are_bit_for_bit(k):
    a, b = oracle.make_inputs("exact", Problem(128, 128, k), 64)
    d = right_d("exact", a, b)
    d[3, 4] = np.nextafter(d[3, 4], np.float16(np.inf))
    found = compare("exact", d, a, b)
    assert (found.wrong, found.index) == (1, (3, 4))


# --- normal


def truncated(total):
    """float64 to float32, rounded towards zero."""
    nearest = total.astype(np.float32)
    return np.where(np.abs(nearest) > np.abs(total), np.nextafter(nearest, np.float32(0)), nearest)


def add_in_turn(products, add):
    total = np.zeros(products.shape[:2], np.float32)
    for k in range(products.shape[2]):
        total = add(total, products[:, :, k])
    return total


def add_pairwise(products):
    while products.shape[2] > 1:
        even = products.shape[2] // 2 * 2
        products = np.concatenate([products[:, :, :even:2] + products[:, :, 1:even:2], products[:, :, even:]], axis=2)
    return products[:, :, 0]


ORDERS = {
    "sequential": lambda products: add_in_turn(products, np.add),
    "reversed": lambda products: add_in_turn(products[:, :, ::-1], np.add),
    "pairwise": add_pairwise,
    "truncating": lambda products: add_in_turn(products, lambda x, y: truncated(x.astype(np.float64) + y)),
}


def normal_products(size, k, seed):
    a, b = oracle.make_inputs("normal", Problem(size, size, k), 16, seed=seed)
    return a, b, a.astype(np.float32)[:, None, :] * b.astype(np.float32)[None]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("k", [1, 16, 64, 256, 1040])
@pytest.mark.parametrize("seed", range(3))
def test_fp32_accumulation_in_any_order_stays_within_the_tolerance(order, k, seed):
    a, b, products = normal_products(32, k, seed)
    assert compare("normal", ORDERS[order](products).astype(np.float16), a, b) is None


@pytest.mark.parametrize("k", [16, 64, 1024])
@pytest.mark.parametrize("sign", [1, -1])
def test_one_product_of_typical_size_too_many_or_too_few_is_found_where_it_is(k, sign):
    a, b, products = normal_products(32, k, 0)
    at = np.unravel_index(np.abs(np.abs(products) - 0.7).argmin(), products.shape)
    i, j = map(int, at[:2])
    d = right_d("normal", a, b)
    d[i, j] = np.float16(np.float64(products[i, j].sum(dtype=np.float64)) + sign * np.float64(products[at]))
    found = compare("normal", d, a, b)
    assert (found.wrong, found.index) == (1, (i, j))


def toward_zero(exact):
    nearest = exact.astype(np.float16)
    return np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest, np.float16(0)), nearest)


FLAWED = {
    "rounds D towards zero": lambda products: toward_zero(products.sum(axis=2, dtype=np.float64)),
    "accumulates in fp16": lambda products: np.cumsum(products, axis=2, dtype=np.float16)[:, :, -1],
    "accumulates in bf16": lambda products: add_in_turn(
        products, lambda x, y: ((x + y).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    ).astype(np.float16),
}


@pytest.mark.parametrize("flaw", FLAWED)
def test_arithmetic_of_too_little_precision_is_found(flaw):
    a, b, products = normal_products(64, 64, 0)
    assert compare("normal", FLAWED[flaw](products), a, b) is not None


# --- marked: each fault in the output tile (1, 0) of 2 x 2, rows 128 to 255 and columns 0 to 127

ROWS, COLS = slice(TILE, 2 * TILE), slice(0, TILE)


def k_tile(t):
    return slice(t * BLK_K, (t + 1) * BLK_K)


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def explanation(a, b, rows, cols, part):
    """What compare says of a D whose rows and columns hold `part` in place of the right values."""
    d = right_d("marked", a, b)
    d[rows, cols] = part
    found = compare("marked", d, a, b)
    assert found.tile == (1, 0)
    assert f"of {found.wrong} wrong elements" in found.explanation
    return found.explanation


K_TILES = [1, 2, 3, 4, 5, 8, 9]
each_k_tile = pytest.mark.parametrize(("k_tiles", "t"), [(n, t) for n in K_TILES for t in {0, n // 2, n - 1}])


@each_k_tile
def test_a_dropped_k_tile_is_named(k_tiles, t):
    a, b = inputs("marked", 2, 2, k_tiles)
    part = product(a[ROWS], b[COLS]) - product(a[ROWS, k_tile(t)], b[COLS, k_tile(t)])
    assert f"K tile {t} is missing" in explanation(a, b, ROWS, COLS, part)


@each_k_tile
def test_a_k_tile_counted_twice_is_named(k_tiles, t):
    a, b = inputs("marked", 2, 2, k_tiles)
    part = product(a[ROWS], b[COLS]) + product(a[ROWS, k_tile(t)], b[COLS, k_tile(t)])
    assert f"K tile {t} was counted twice" in explanation(a, b, ROWS, COLS, part)


@pytest.mark.parametrize(
    ("k_tiles", "t", "other"), [(n, t, o) for n in K_TILES for t in {0, n - 1} for o in {0, n // 2, n - 1} - {t}]
)
def test_a_stale_b_stage_is_named_by_the_two_k_tiles_that_met(k_tiles, t, other):
    """A of K tile t was multiplied with B of another one."""
    a, b = inputs("marked", 2, 2, k_tiles)
    # A has one value a row and K tile, at another place in the next rows; B is the same all through a K tile
    stale = product(a[ROWS, k_tile(t)], b[COLS, k_tile(other)])
    part = product(a[ROWS], b[COLS]) - product(a[ROWS, k_tile(t)], b[COLS, k_tile(t)]) + stale
    assert f"A of K tile {t} met B of K tile {other}" in explanation(a, b, ROWS, COLS, part)


@pytest.mark.parametrize("k_tiles", K_TILES)
@pytest.mark.parametrize("block", [0, 1, 3])
def test_rows_of_another_block_are_named(k_tiles, block):
    """Rows 128 to 191, which are block 2, hold those of another block."""
    a, b = inputs("marked", 2, 2, k_tiles)
    part = product(a[64 * block : 64 * block + 64], b[COLS])
    assert f"rows of block {block} of A" in explanation(a, b, slice(128, 192), COLS, part)


@pytest.mark.parametrize("k_tiles", K_TILES)
@pytest.mark.parametrize("block", [1, 2, 3])
def test_columns_of_another_block_are_named(k_tiles, block):
    """Columns 0 to 63 hold those of another block."""
    a, b = inputs("marked", 2, 2, k_tiles)
    part = product(a[ROWS], b[64 * block : 64 * block + 64])
    assert f"columns of block {block} of B" in explanation(a, b, ROWS, slice(0, 64), part)


@pytest.mark.parametrize("k_tiles", K_TILES)
def test_a_tile_never_written_is_named(k_tiles):
    a, b = inputs("marked", 2, 2, k_tiles)
    text = explanation(a, b, ROWS, COLS, np.nan)
    assert "was never written" in text
    assert f"fits {TILE * TILE} of {TILE * TILE}" in text


def test_a_fault_that_is_none_of_these_is_not_given_a_false_name():
    a, b = inputs("marked", 2, 2, 3)
    d = right_d("marked", a, b)
    d[ROWS, COLS] = -d[ROWS, COLS]
    assert "fit no single" in compare("marked", d, a, b).explanation


@pytest.mark.parametrize("version", load().versions, ids=lambda version: version.name)
def test_within_an_output_tile_any_two_blocks_of_rows_and_of_columns_have_their_own_marks(version):
    """So that a kernel that swaps two of them is found, whatever K_TILES does to the rows' places in K."""
    a, b = inputs("marked", 1, 1, 1, version=version)
    assert len(set(a.max(axis=1)[::64])) == version.tile[0] // 64
    assert len(set(b.max(axis=1)[::64])) == version.tile[1] // 64


# --- special

SMALLEST_NORMAL = 2.0**-14


def half_way(value):
    """Whether a value lies exactly between two neighbours in fp16."""
    near = value.astype(np.float16).astype(np.float64)
    over = np.nextafter(near.astype(np.float16), np.float16(np.inf)).astype(np.float64)
    under = np.nextafter(near.astype(np.float16), np.float16(-np.inf)).astype(np.float64)
    return (value != near) & ((value - near == over - value) | (near - value == value - under))


def is_even(half):
    return half.view(np.uint16) % 2 == 0


FEATURES = {
    "NaN": lambda value, half: np.isnan(value),
    "+inf": lambda value, half: value == np.inf,
    "-inf": lambda value, half: value == -np.inf,
    "overflow": lambda value, half: np.isfinite(value) & np.isinf(half),
    "underflow to -0": lambda value, half: (value < 0) & (half == 0),
    "exact zero": lambda value, half: value == 0,
    "subnormal": lambda value, half: (half != 0) & (np.abs(half) < SMALLEST_NORMAL),
    "smallest normal": lambda value, half: np.abs(half) == SMALLEST_NORMAL,
    "tie, up to even": lambda value, half: half_way(value) & (np.abs(half) > np.abs(value)) & is_even(half),
    "tie, down to even": lambda value, half: half_way(value) & (np.abs(half) < np.abs(value)) & is_even(half),
}
shapes = pytest.mark.parametrize("sizes", [(64, 64, 16), (128, 128, 64), (128, 256, 1024)])


def special(sizes):
    a, b = oracle.make_inputs("special", Problem(*sizes), 16)
    with np.errstate(invalid="ignore", over="ignore"):
        value = oracle.reference("special", a, b).value
        return a, b, value, value.astype(np.float16)


@shapes
@pytest.mark.parametrize("feature", FEATURES)
def test_special_inputs_have_results_of_every_class(sizes, feature):
    *_, value, half = special(sizes)
    with np.errstate(all="ignore"):
        assert FEATURES[feature](value, half).any()


def test_the_reference_of_special_inputs_is_what_ieee_arithmetic_gives_product_by_product():
    a, b, value, _ = special((64, 64, 64))
    with np.errstate(invalid="ignore"):
        assert np.array_equal(
            value, (a.astype(np.float64)[:, None, :] * b.astype(np.float64)[None]).sum(axis=2), equal_nan=True
        )


@shapes
def test_special_results_as_ieee_rounds_them_pass_whatever_the_sign_of_an_exact_zero(sizes):
    a, b, value, half = special(sizes)
    assert compare("special", half, a, b) is None
    assert compare("special", np.where(value == 0, -half, half), a, b) is None


WRONG_RESULTS = {
    "-0 from underflow becomes +0": lambda value, half: np.where(FEATURES["underflow to -0"](value, half), 0.0, half),
    "NaN becomes inf": lambda value, half: np.where(np.isnan(half), np.inf, half),
    "inf becomes NaN": lambda value, half: np.where(np.isinf(half), np.nan, half),
    "+inf becomes -inf": lambda value, half: np.where(half == np.inf, -np.inf, half),
    "overflow saturates": lambda value, half: np.where(
        FEATURES["overflow"](value, half), np.sign(value) * oracle.FP16_MAX, half
    ),
    "subnormals are flushed": lambda value, half: np.where(FEATURES["subnormal"](value, half), 0.0, half),
    "ties go up": lambda value, half: np.where(
        FEATURES["tie, down to even"](value, half), np.nextafter(half, np.sign(half) * np.float16(np.inf)), half
    ),
    "ties go down": lambda value, half: np.where(
        FEATURES["tie, up to even"](value, half), np.nextafter(half, np.float16(0)), half
    ),
}


@shapes
@pytest.mark.parametrize("change", WRONG_RESULTS)
def test_special_results_other_than_ieees_are_found(sizes, change):
    a, b, value, half = special(sizes)
    with np.errstate(all="ignore"):
        d = WRONG_RESULTS[change](value, half).astype(np.float16)
    changed = (d.view(np.uint16) != half.view(np.uint16)) & ~(np.isnan(d) & np.isnan(half))
    assert changed.any()
    assert compare("special", d, a, b).wrong == changed.sum()


# --- part of a launch, and the message

PERSISTENT = KernelVersion("v0", "", print, (64, 64), 16, cluster=2, persistent=True, l2_group=2)


def part_of_a_launch(kind, clusters):
    """A right D of 3 x 3 tiles on 2 clusters of which some ran, and the mask of what they own."""
    a, b = inputs(kind, 3, 3, 2, version=PERSISTENT)
    schedule = PERSISTENT.schedule(PERSISTENT.problem(3, 3, 2), 4)
    owned = np.zeros((3, 3), bool)
    for cluster in clusters:
        owned[tuple(zip(*schedule[cluster], strict=True))] = True
    mask = np.kron(owned, np.ones((64, 64), bool))
    return a, b, np.where(mask, right_d(kind, a, b), np.float16(np.nan)), mask


def compare_part(kind, d, a, b, clusters):
    return compare(kind, d, a, b, PERSISTENT, 4, clusters)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("clusters", [(0,), (1,), (0, 1)])
def test_part_of_a_launch_is_right_if_its_tiles_are_and_nothing_else_was_written(kind, clusters):
    a, b, d, _ = part_of_a_launch(kind, clusters)
    assert compare_part(kind, d, a, b, clusters) is None


@pytest.mark.parametrize("kind", INPUTS)
def test_a_write_outside_the_clusters_tiles_is_an_error_even_if_the_value_is_right(kind):
    a, b, d, mask = part_of_a_launch(kind, (0,))
    finite = ~mask & np.isfinite(right_d(kind, a, b))
    i, j = map(int, np.argwhere(finite)[7])
    d[i, j] = right_d(kind, a, b)[i, j]
    found = compare_part(kind, d, a, b, (0,))
    assert (found.wrong, found.index, found.never_written) == (1, (i, j), 0)
    assert "no write" in found.want


@pytest.mark.parametrize("kind", ["exact", "normal", "marked"])
def test_an_element_of_the_clusters_tiles_that_was_never_written_is_an_error(kind):
    a, b, d, mask = part_of_a_launch(kind, (1,))
    i, j = map(int, np.argwhere(mask)[99])
    d[i, j] = np.nan
    found = compare_part(kind, d, a, b, (1,))
    assert (found.wrong, found.index, found.never_written) == (1, (i, j), 1)


def test_a_mismatch_says_how_many_where_first_on_which_cta_and_what_was_wanted():
    a, b = inputs("exact", 3, 3, 2, version=PERSISTENT)
    d = right_d("exact", a, b)
    d[70, 130], d[191, 0] = 777, np.nan
    text = str(compare_part("exact", d, a, b, None))
    assert text.splitlines() == [
        "2 of 36864 elements of D differ, 1 of them never written",
        "first at D[70, 130], output tile (1, 2), CTAs 2 to 3, tile 3 of 4 there",
        f"got 777, wanted {right_d('exact', a, b)[70, 130]:g}",
    ]


def test_a_mismatch_of_normal_inputs_says_how_far_off_would_have_passed():
    a, b = inputs("normal", 1, 1, 1)
    d = right_d("normal", a, b)
    d[0, 0] = 777
    found = compare("normal", d, a, b)
    assert "CTA 0, tile 1 of 1" in found.place
    assert found.want.startswith(f"{product(a, b)[0, 0]:g} within ")
