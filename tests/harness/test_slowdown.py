"""slowdown: verdicts on samples, with numbers worked by hand and by scipy, and what must hold of any samples."""

import dataclasses
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_sets import P, samples
from scipy import stats

from tirx_ladder import pairs, slowdown
from tirx_ladder.measured import Timed
from tirx_ladder.policy import Policy
from tirx_ladder.results import Process, Samples


def timed(base, head, name="v9"):
    return Timed(name, P, base, head)


def noisy(seed, *, slower=0.0, faster_clock=0.0, count=8, spread=0.001, unit=1e-4):
    """A row with normal noise on both sides; slower is of head's cycles, faster_clock of its clock."""
    rng = np.random.default_rng(seed)
    sides = []
    for factor, clock in ((1.0, 1.5e9), (1 + slower, 1.5e9 * (1 + faster_clock))):
        cycles = 1.5e9 * unit * factor * (1 + spread * rng.standard_normal((count, 5)))
        processes = tuple(Process(tuple((c / clock).tolist()), (clock,) * 5, 0, ()) for c in cycles)
        sides.append(Samples("s", True, 1, 0.0, processes))
    return timed(*sides)


def judge_one(row, **policy):
    (found,) = slowdown.judge([row], Policy(**policy))
    return found


def test_a_slowdown_by_hand():
    """Medians of head are 1 % over base's, times 1 + 0.001 × the wobbles: sorted, -4 -3 -2 -1 1 1 3 5 tenths of 1e-3.

    One row and five looks: the lower bound is at 0.01 / 5, the upper at 0.05 / 5, with 4 degrees of freedom.
    """
    found = judge_one(timed(samples(), samples("head", slower=0.01)))
    wobble = np.log1p(1e-3 * np.array([-0.4, -0.3, -0.2, -0.1, 0.1, 0.1, 0.3, 0.5])) + np.log(1.01)
    centre = wobble[1:-1].mean()
    error = np.clip(wobble, wobble[1], wobble[-2]).std(ddof=1) / (0.75 * math.sqrt(8))
    lower = math.expm1(centre - stats.t.isf(0.002, 4) * error)
    upper = math.expm1(centre + stats.t.isf(0.01, 4) * error)
    assert found.code == "slower"
    assert found.detail == (
        f"{math.expm1(centre):+.2%}, bounds {lower:+.2%} and {upper:+.2%} by 8 pairs, margin 0.50%; "
        f"in cycles {math.expm1(centre):+.2%}, bounds {lower:+.2%} and {upper:+.2%}"
    )
    assert (found.base, found.head, found.limit) == pytest.approx((1e-4, 1.01e-4, 1.005e-4), rel=1e-4)


def test_the_median_of_a_process_counts_and_not_its_rounds():
    few = timed(samples(), samples("head", slower=0.004))
    many = timed(*(
        dataclasses.replace(side, processes=tuple(
            dataclasses.replace(p, seconds=p.seconds * 50, clock_hz=p.clock_hz * 50) for p in side.processes
        ))
        for side in (few.base, few.head)
    ))  # fmt: skip
    assert judge_one(few) == judge_one(many)


def test_the_margin_is_what_the_machine_shows_of_itself_if_that_is_more():
    slow = timed(samples(), samples("head", slower=0.01))
    assert judge_one(slow).code == "slower"
    loud = dataclasses.replace(slow, base=dataclasses.replace(slow.base, null_floor=0.03))
    found = judge_one(loud)
    assert (found.code, found.limit) == ("near-margin", pytest.approx(1.03e-4))
    assert judge_one(slow, max_slowdown=0.02).code == "not-slower"


def test_a_machine_that_differs_from_itself_lets_no_slowdown_pass():
    loud = timed(samples(null_floor=0.1), samples("head", slower=0.05, null_floor=0.1))
    assert judge_one(loud).code != "not-slower"
    assert judge_one(timed(samples(null_floor=0.1), samples("head", null_floor=0.1))).code == "not-slower"


def test_more_rows_need_more_evidence():
    """P-value times looks is between 0.01 / 18 and 0.01: enough alone, not among 18 of which none else is slower."""
    row = timed(samples(), samples("head", slower=0.0062))
    quiet = [noisy(seed, spread=0.0005) for seed in range(17)]
    assert judge_one(row).code == "slower"
    found = slowdown.judge([row, *quiet], Policy())
    assert [f.code for f in found[1:]] == ["not-slower"] * 17
    assert found[0].code != "slower"
    assert found[0].more_pairs == 4
    surely = noisy(4, slower=0.05, spread=0.0005)
    assert slowdown.judge([row, *[surely] * 17], Policy())[0].code == "slower"  # Holm: the others are out of the way


def test_pairs_past_a_look_wait_for_the_next():
    """Nobody finds what he hopes for by looking after every pair."""
    eleven = timed(*(samples(side, processes=11, spread=0.02) for side in ("base", "head")))
    eight = timed(*(samples(side, processes=8, spread=0.02) for side in ("base", "head")))
    told = [re.search(r"bounds .* by \d+ pairs", judge_one(row).detail)[0] for row in (eleven, eight)]
    assert told[0] == told[1]
    assert (judge_one(eleven).more_pairs, judge_one(eight).more_pairs) == (1, 4)


def test_at_the_budgets_end_it_is_said_how_many_pairs_would_tell():
    found = judge_one(noisy(1, slower=0.009, spread=0.02, count=32))
    assert (found.code, found.more_pairs) == ("too-noisy", 0)
    count = int(re.search(r"about (\d+) pairs would tell", found.detail)[1])
    assert 32 < count < 1000


@pytest.mark.parametrize("stray", [0.5, 2.0, 30.0])
@pytest.mark.parametrize("side", ["base", "head"])
def test_one_process_gone_astray_raises_no_alarm_and_hides_none(side, stray):
    def with_stray(of, **changes):
        made = samples(of, **changes)
        if of != side:
            return made
        first = dataclasses.replace(made.processes[0], seconds=tuple(stray * s for s in made.processes[0].seconds))
        return dataclasses.replace(made, processes=(first, *made.processes[1:]))

    assert judge_one(timed(with_stray("base"), with_stray("head"))).code == "not-slower"
    assert judge_one(timed(with_stray("base"), with_stray("head", slower=0.02))).code == "slower"


def test_a_clock_that_is_not_known_everywhere_is_not_used():
    unknown = samples("head", slower=0.02, faster_clock=0.02, last={"clock_hz": ()})
    found = judge_one(timed(samples(), unknown))
    assert found.code == "not-slower"
    assert "clock not known" in found.detail


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_time_that_is_no_number_is_no_verdict_even_where_nobody_looked_before(broken):
    bad = samples("head", last={"seconds": (broken,) * 3})
    good = timed(samples(), samples("head", slower=0.02))
    assert [f.code for f in slowdown.judge([timed(samples(), bad), good], Policy())] == ["samples-broken", "slower"]


def test_no_rows_no_findings():
    assert slowdown.judge([], Policy()) == ()


def test_the_null_floor_is_the_largest_difference_of_the_same_code():
    rows = [timed(samples(), samples("head", slower=of)) for of in (0.001, -0.004, 0.002)]
    assert slowdown.null_floor(rows) == pytest.approx(0.004, abs=2e-4)
    assert slowdown.null_floor([]) is None
    assert slowdown.null_floor([*rows, timed(samples(), samples("head", last={"marks": ("throttled",)}))]) is None
    for broken in ((math.nan,) * 3, ()):
        assert slowdown.null_floor([*rows, timed(samples(), samples("head", last={"seconds": broken}))]) is None


seeds = st.integers(0, 2**32)


@given(seeds, st.floats(0.01, 0.3))
def test_a_slower_clock_and_nothing_else_is_a_clock_change(seed, by):
    row = noisy(seed, faster_clock=-by, spread=0.0005)
    assert judge_one(row).code == "clock-change"
    no_clock = [
        dataclasses.replace(s, processes=tuple(dataclasses.replace(p, clock_hz=()) for p in s.processes))
        for s in (row.base, row.head)
    ]
    assert judge_one(timed(*no_clock)).code == "slower"


@given(seeds, st.floats(0.01, 0.3))
def test_more_cycles_that_a_faster_clock_hides_are_a_clock_change(seed, by):
    assert judge_one(noisy(seed, slower=by, faster_clock=by, spread=0.0005)).code == "clock-change"


@given(seeds, st.floats(-0.1, 0.1), st.integers(-20, 20))
def test_the_unit_of_time_does_not_matter(seed, slower, power):
    one, other = (judge_one(noisy(seed, slower=slower, unit=unit)) for unit in (1e-4, 1e-4 * 2.0**power))
    assert (one.code, one.detail, one.more_pairs) == (other.code, other.detail, other.more_pairs)


@given(seeds, st.floats(-0.1, 0.1))
def test_what_is_slower_one_way_is_not_slower_the_other_way(seed, slower):
    row = noisy(seed, slower=slower)
    there, back = judge_one(row).code, judge_one(timed(row.head, row.base)).code
    assert there != "slower" or back == "not-slower"
    centres = [float(re.match(r"([-+.\d]+)%", judge_one(r).detail)[1]) for r in (row, timed(row.head, row.base))]
    assert math.log1p(centres[0] / 100) == pytest.approx(-math.log1p(centres[1] / 100), abs=2e-4)


@given(seeds, st.integers(1, 6), st.floats(-0.02, 0.02))
def test_a_row_is_judged_the_same_wherever_it_stands(seed, count, slower):
    rows = [noisy(seed + i, slower=slower * i / count, spread=0.002) for i in range(count)]
    assert slowdown.judge(rows, Policy()) == slowdown.judge(rows[::-1], Policy())[::-1]


def test_the_default_policy_looks_where_the_docs_say():
    assert pairs.looks(Policy().min_processes, Policy().max_processes) == (8, 12, 16, 24, 32)
