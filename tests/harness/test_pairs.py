"""pairs: numbers worked by hand or by scipy, and what must hold of any log-ratios."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tirx_ladder.compare import pairs

EIGHT = np.array([0.003, -0.001, 0.002, 0.010, 0.001, 0.002, -0.002, 0.001])


def test_the_estimate_of_eight_pairs_by_hand():
    """Sorted -2 -1 1 1 2 2 3 10: mean of -1 1 1 2 2 3 is 8/6, variance of -1 -1 1 1 2 2 3 3 is 17.5/7."""
    found = pairs.estimate(EIGHT)
    assert found.centre == pytest.approx(8 / 6 * 1e-3)
    assert found.error == pytest.approx(np.sqrt(17.5 / 7) / (0.75 * np.sqrt(8)) * 1e-3)
    assert found.freedom == 4


@pytest.mark.parametrize(("count", "trimmed", "freedom"), [(8, 1, 4), (12, 1, 8), (16, 2, 9), (24, 3, 14), (32, 4, 19)])
def test_centre_and_error_are_those_of_scipy(count, trimmed, freedom):
    data = np.random.default_rng(count).standard_t(3, count)
    found = pairs.estimate(data)
    cut = (trimmed / count + 1e-9,) * 2
    assert found.centre == pytest.approx(float(stats.mstats.trimmed_mean(data, limits=cut)))
    assert found.error == pytest.approx(float(stats.mstats.trimmed_stde(data, limits=cut)))
    assert found.freedom == freedom


def test_p_values_and_bounds_are_those_of_students_t():
    found = pairs.Estimate(np.array(0.004), np.array(0.001), 4)
    distance = (0.004 - np.log(1.005)) / 0.001
    assert found.p_slower(0.005) == pytest.approx(stats.t.sf(distance, 4))
    assert found.p_not_slower(0.005) == pytest.approx(stats.t.cdf(distance, 4))
    # t tables, 4 degrees of freedom: 3.747 for 0.01, 2.132 for 0.05
    lower, upper = found.bounds(0.01, 0.05)
    assert lower == pytest.approx(np.exp(0.004 - 0.003747) - 1, abs=1e-6)
    assert upper == pytest.approx(np.exp(0.004 + 0.002132) - 1, abs=1e-6)


def test_rows_are_estimated_each_for_itself():
    both = pairs.estimate(np.stack([EIGHT, -2 * EIGHT]))
    one, other = pairs.estimate(EIGHT), pairs.estimate(-2 * EIGHT)
    assert both.centre.tolist() == [one.centre, other.centre]
    assert both.error.tolist() == [one.error, other.error]


def test_one_process_gone_astray_moves_nothing():
    astray = np.sort(EIGHT)
    astray[-1] = 3.0  # 20 times as slow
    assert pairs.estimate(astray).centre == pairs.estimate(EIGHT).centre
    assert pairs.estimate(astray).error == pairs.estimate(EIGHT).error


@pytest.mark.parametrize("same", [np.zeros(8), np.full(8, 0.02), np.full(8, 0.02) + 1e-16 * np.arange(8)])
def test_pairs_that_do_not_differ_prove_nothing(same):
    found = pairs.estimate(same)
    assert np.isnan(found.p_slower(0.005))
    assert np.isnan(found.p_not_slower(0.005))


def test_looks_grow_by_half_up_to_the_budget():
    assert pairs.looks(8, 32) == (8, 12, 16, 24, 32)
    assert pairs.looks(12, 24) == (12, 16, 24)
    assert pairs.looks(8, 30) == (8, 12, 16, 24, 30)
    assert pairs.looks(9, 11) == (9, 11)
    assert pairs.looks(8, 8) == (8,)


def test_holm_by_hand():
    """Four rows at 0.01: 0.0025, 0.01/3, 0.005, 0.01 in turn; the third fails, and so does what comes after."""
    limits = pairs.holm(np.array([0.006, 0.001, 0.003, 0.0099]))
    assert limits == pytest.approx([0.005, 0.0025, 0.01 / 3, 0.005])


def test_a_row_without_a_number_is_never_significant_and_still_counts():
    p = np.array([np.nan, 0.004, np.nan])
    assert not (p <= pairs.holm(p)).any()
    p = np.array([np.nan, 0.003, np.nan])
    assert (p <= pairs.holm(p)).tolist() == [False, True, False]


def test_rows_of_many_comparisons_are_adjusted_each_within_its_own():
    many = np.random.default_rng(1).uniform(0, 0.02, (50, 6))
    assert np.array_equal(pairs.holm(many), np.stack([pairs.holm(one) for one in many]))


ratios = st.lists(st.floats(-0.5, 0.5), min_size=8, max_size=32).map(np.array)


@given(ratios)
def test_swapping_base_and_head_turns_the_sign(d):
    there, back = pairs.estimate(d), pairs.estimate(-d)
    assert back.centre == pytest.approx(-there.centre, abs=1e-12)
    assert back.error == pytest.approx(there.error, abs=1e-12)


@given(ratios, st.integers(-1000, 1000))
def test_a_change_of_all_pairs_moves_the_centre_and_not_the_error(d, thousandths):
    there, moved = pairs.estimate(d), pairs.estimate(d + thousandths / 1000)
    assert moved.centre == pytest.approx(there.centre + thousandths / 1000, abs=1e-12)
    assert moved.error == pytest.approx(there.error, abs=1e-12)


@given(ratios, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(d, random):
    shuffled = list(d)
    random.shuffle(shuffled)
    assert pairs.estimate(np.array(shuffled)).centre == pairs.estimate(d).centre


@given(ratios, st.floats(0, 0.5))
def test_a_row_is_never_both_slower_and_not_slower(d, margin):
    found = pairs.estimate(d)
    slower, not_slower = found.p_slower(margin), found.p_not_slower(margin)
    assert not (slower <= pairs.FALSE_ALARM and not_slower <= pairs.FALSE_PASS)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).map(np.array))
def test_holm_finds_what_bonferroni_finds_and_no_more_than_each_test_alone(p):
    found = p <= pairs.holm(p)
    assert (found >= (p <= pairs.FALSE_ALARM / len(p))).all()
    assert (found <= (p <= pairs.FALSE_ALARM)).all()


@pytest.mark.parametrize("count", [8, 12, 16, 24, 32])
@pytest.mark.parametrize("noise", ["normal", "t3"])
def test_false_alarms_at_the_very_margin_are_as_rare_as_they_should_be(count, noise):
    """200,000 rows (seeded) whose slowdown is the margin; the bound is five standard errors above the level."""
    rng = np.random.default_rng(7)
    shape = (200_000, count)
    noises = [rng.standard_normal(shape) if noise == "normal" else rng.standard_t(3, shape) for _ in range(2)]
    p = pairs.estimate(0.002 * (noises[0] - noises[1]) + np.log(1.005)).p_slower(0.005)
    for level in (0.05, 0.01, 0.001):
        assert (p <= level).mean() <= level + 5 * np.sqrt(level / 200_000)
