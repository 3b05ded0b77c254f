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

from tirx_ladder.compare import pairs, slowdown
from tirx_ladder.compare.measured import Timed
from tirx_ladder.policy import Policy
from tirx_ladder.results import Process, Samples


def timed(base, head, name="v9"):
    return Timed(name, P, base, head)


def noisy(seed, *, slower=0.0, faster_clock=0.0, count=8, spread=0.001, clocks=0.0, unit=1e-4):
    """A row with normal noise on both sides; slower is of head's cycles, faster_clock of its clock.

    spread is of a launch's cycles, clocks of the clocks of a process, both standard deviations.
    """
    rng, of_clocks = (np.random.default_rng([seed, i]) for i in range(2))
    sides = []
    for factor, clock in ((1.0, 1.5e9), (1 + slower, 1.5e9 * (1 + faster_clock))):
        cycles = 1.5e9 * unit * factor * (1 + spread * rng.standard_normal((count, 5)))
        at = clock * np.exp(clocks * of_clocks.standard_normal(count))
        processes = tuple(
            Process(tuple((c / hz).tolist()), (hz,) * 5, 0, ()) for c, hz in zip(cycles, at.tolist(), strict=True)
        )
        sides.append(Samples("s", True, 1, 0.0, processes))
    return timed(*sides)


def clockless(side, which=slice(None)):
    """A side of which these processes do not know their clock."""
    chosen = range(len(side.processes))[which]
    processes = [dataclasses.replace(p, clock_hz=()) if i in chosen else p for i, p in enumerate(side.processes)]
    return dataclasses.replace(side, processes=tuple(processes))


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
        f"in seconds {math.expm1(centre):+.2%}, bounds {lower:+.2%} and {upper:+.2%}, 100.00 → 101.00 µs"
    )
    assert found.figure == "cycles"
    assert (found.base, found.head, found.limit) == pytest.approx((150_000, 151_500, 150_750), rel=1e-4)
    in_seconds = judge_one(timed(clockless(samples()), samples("head", slower=0.01)))
    assert (in_seconds.code, in_seconds.figure) == ("slower", "seconds")
    assert (in_seconds.base, in_seconds.head) == pytest.approx((1e-4, 1.01e-4), rel=1e-4)
    assert in_seconds.detail == found.detail.split("; in seconds")[0] + "; clock not known"


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
    assert (found.code, found.limit) == ("near-margin", pytest.approx(154_500))
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


@pytest.mark.parametrize("processes", [8, 11])
def test_a_clock_that_is_not_known_everywhere_is_not_used(processes):
    """Also where the process without its clock is past the last look."""
    unknown = samples("head", processes=processes, slower=0.02, faster_clock=0.02, last={"clock_hz": ()})
    found = judge_one(timed(samples(processes=processes), unknown))
    assert (found.code, found.figure) == ("not-slower", "seconds")
    assert "clock not known" in found.detail


def test_a_clock_that_varies_hides_no_slowdown_in_cycles():
    """The clock of a process varies by 6 %: seconds know nothing, and cycles find 1 %."""
    found = [judge_one(noisy(seed, slower=0.01, clocks=0.06)) for seed in range(50)]
    assert [f.code for f in found].count("slower") >= 48
    blind = [
        timed(clockless(row.base), row.head) for row in (noisy(seed, slower=0.01, clocks=0.06) for seed in range(50))
    ]
    assert [judge_one(row).code for row in blind].count("too-noisy") >= 48


def test_a_clock_that_varies_seldom_keeps_a_row_from_passing_and_it_is_said_that_seconds_do_not_confirm_it():
    found = [judge_one(noisy(seed, count=32, clocks=0.06)) for seed in range(100)]
    passed = [f for f in found if f.code == "not-slower"]
    assert {f.code for f in found} <= {"not-slower", "clock-change"}
    assert len(passed) >= 90
    for f in passed:
        upper = float(re.search(r"in seconds .* and ([-+.\d]+)%", f.detail)[1])
        assert ("seconds are too noisy to confirm it" in f.detail) == (upper > 0.5)
    assert "too noisy" not in judge_one(noisy(0)).detail


def test_suspicious_seconds_ask_for_pairs_and_accuse_only_at_the_end():
    """Head's clock is 2 % lower and varies by 2 %. By 8 pairs the bound in seconds is not above the margin."""
    row = noisy(1, faster_clock=-0.02, clocks=0.02, count=32)
    first, last = (judge_one(timed(*(cut(side, count) for side in (row.base, row.head)))) for count in (8, 32))
    assert (first.code, first.more_pairs, last.code, last.more_pairs) == ("clock-change", 4, "clock-change", 0)
    at_once = judge_one(timed(*(cut(side, 8) for side in (row.base, row.head))), max_processes=8)
    estimate = pairs.estimate(np.log([
        np.median(h.seconds) / np.median(b.seconds)
        for h, b in zip(row.head.processes[:8], row.base.processes[:8], strict=True)
    ]))  # fmt: skip
    assert slowdown.ACCUSATION < estimate.p_slower(0.005) <= slowdown.SUSPICION
    assert at_once.code == "not-slower"  # the first look is the last


def cut(side, count):
    return dataclasses.replace(side, processes=side.processes[:count])


def test_slower_in_cycles_and_not_in_seconds_is_measured_again():
    hidden = [noisy(3, slower=0.02, faster_clock=0.02, count=count) for count in (8, 32)]
    assert [(judge_one(row).code, judge_one(row).more_pairs) for row in hidden] == [
        ("clock-change", 4),
        ("clock-change", 0),
    ]


def test_seconds_surely_slower_hold_against_cycles_that_cannot_tell():
    """Cycles are too noisy and seconds are not: 3 % slower in them, which no trade on noise should hide."""
    row = noisy(5, slower=0.03, spread=0.001)
    rng = np.random.default_rng(5)
    sides = [
        dataclasses.replace(side, processes=tuple(
            dataclasses.replace(p, clock_hz=tuple(hz * factor for hz in p.clock_hz))
            for p, factor in zip(side.processes, np.exp(0.1 * rng.standard_normal(8)).tolist(), strict=True)
        ))
        for side in (row.base, row.head)
    ]  # fmt: skip
    found = judge_one(timed(*sides))
    assert (found.code, found.figure, found.more_pairs) == ("clock-change", "cycles", 4)


def test_clocks_that_differ_are_told():
    assert "head's clock is 10.0% lower" in judge_one(noisy(1, faster_clock=-0.1)).detail
    assert "head's clock is 4.0% higher" in judge_one(noisy(1, slower=0.1, faster_clock=0.04)).detail
    assert "head's clock" not in judge_one(noisy(1, clocks=0.02)).detail
    assert "head's clock" not in judge_one(noisy(1)).detail


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_time_that_is_no_number_is_no_verdict_even_where_nobody_looked_before(broken):
    bad = samples("head", last={"seconds": (broken,) * 3})
    good = timed(samples(), samples("head", slower=0.02))
    assert [f.code for f in slowdown.judge([timed(samples(), bad), good], Policy())] == ["samples-broken", "slower"]


def test_no_rows_no_findings():
    assert slowdown.judge([], Policy()) == ()


def test_the_null_floor_is_the_largest_difference_of_the_same_code():
    base = samples().processes
    for of in (0.001, -0.004, 0.002):
        null = samples("head", slower=of).processes
        assert slowdown.null_floor(base, null) == pytest.approx(abs(of), abs=2e-4)
    clocked = samples("head", slower=0.001, faster_clock=0.03).processes
    assert slowdown.null_floor(list(base), list(clocked)) == pytest.approx(0.001, abs=2e-4)
    blind = (*clocked[:-1], dataclasses.replace(clocked[-1], clock_hz=()))
    assert slowdown.null_floor(base, blind) == pytest.approx(1.03 / 1.001 - 1, abs=2e-4)


def test_there_is_no_null_floor_without_eight_sound_and_undisturbed_pairs():
    base, null = samples().processes, samples("head").processes
    assert slowdown.null_floor((), ()) is None
    assert slowdown.null_floor(base[:7], null[:7]) is None
    assert slowdown.null_floor(base, null[:7]) is None
    wrong = ({"marks": ("throttled",)}, {"seconds": (math.nan,) * 3}, {"seconds": ()}, {"clock_hz": (1e9,)})
    for change in wrong:
        spoilt = (*null[:7], dataclasses.replace(null[7], **change))
        assert slowdown.null_floor(base, spoilt) is None
        assert slowdown.null_floor(spoilt, base) is None


seeds = st.integers(0, 2**32)


@given(seeds, st.floats(0.01, 0.3))
def test_a_slower_clock_and_nothing_else_is_a_clock_change(seed, by):
    row = noisy(seed, faster_clock=-by, spread=0.0005)
    assert judge_one(row).code == "clock-change"
    for one in (slice(None), 3):
        of_base = slice(one, one + 1) if isinstance(one, int) else one
        assert judge_one(timed(clockless(row.base, of_base), row.head)).code == "slower"


@given(seeds, st.floats(0.01, 0.3))
def test_more_cycles_that_a_faster_clock_hides_are_a_clock_change(seed, by):
    assert judge_one(noisy(seed, slower=by, faster_clock=by, spread=0.0005)).code == "clock-change"


@given(seeds, st.floats(-0.1, 0.1), st.integers(-20, 20))
def test_the_unit_of_time_does_not_matter(seed, slower, power):
    one, other = (judge_one(noisy(seed, slower=slower, unit=unit)) for unit in (1e-4, 1e-4 * 2.0**power))
    assert (one.code, without_times(one), one.more_pairs) == (other.code, without_times(other), other.more_pairs)


def without_times(found):
    """What is told, but for the times of both sides."""
    return re.sub(r", [\d.]+ → [\d.]+ µs", "", found.detail)


@given(seeds, st.floats(-0.05, 0.05), st.floats(-0.05, 0.05), st.floats(0, 0.05))
def test_what_passes_in_cycles_is_not_surely_slower_in_seconds(seed, slower, faster_clock, clocks):
    """And what is slower in cycles is not surely no slower in seconds: whichever way the clock goes."""
    row = noisy(seed, slower=slower, faster_clock=faster_clock, clocks=clocks)
    in_cycles = judge_one(row)
    in_seconds = judge_one(timed(clockless(row.base), clockless(row.head)))
    assert {in_cycles.code, in_seconds.code} != {"slower", "not-slower"}


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
