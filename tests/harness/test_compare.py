"""compare: what each stage says of two entries, to the very margin, and that no doubt ends in a pass."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_sets import FIGURES, P, Q, broken, entry, result, samples

from tirx_ladder import compare
from tirx_ladder.compare import INVALID, PASS, REASONS, REGRESSION, UNDECIDED, Finding, Row
from tirx_ladder.ladder import UsageError
from tirx_ladder.policy import Policy
from tirx_ladder.trades import Trade


def row(base, head, policy=None, trades=(), **options):
    """The one row of a comparison of two entries."""
    found = compare.compare(result(base), result(head, side="b"), policy or Policy(), trades, **options)
    assert found.findings == ()
    (only,) = found.rows
    return only


def changed(**figures):
    """An entry with other code and other figures than the base's."""
    return entry(code="new", **figures)


AT_THE_MARGIN = [
    # figures at head, policy: the last value that passes, then the first that does not
    ({"spill_load_bytes": 0}, {"spill_load_bytes": 4}, {}, "spill"),
    ({"spill_store_bytes": 8}, {"spill_store_bytes": 12}, {"max_new_spill_bytes": 8}, "spill"),
    ({"spill_store_bytes": 4, "spill_load_bytes": 4}, {"spill_store_bytes": 4, "spill_load_bytes": 8},
     {"max_new_spill_bytes": 8}, "spill"),
    ({"ctas_per_sm": 2}, {"ctas_per_sm": 1}, {}, "fewer-ctas"),
    ({"registers_per_thread": 106}, {"registers_per_thread": 107}, {}, "more-registers"),
    ({"registers_per_thread": 90}, {"registers_per_thread": 91}, {"max_register_growth": 0}, "more-registers"),
    ({"main_loop_instructions": 168}, {"main_loop_instructions": 169}, {}, "more-main-loop-instructions"),
    ({"main_loop_instructions": 336, "main_loop_k_tiles": 8}, {"main_loop_instructions": 337, "main_loop_k_tiles": 8},
     {}, "more-main-loop-instructions"),
    ({"main_loop_instructions": 176}, {"main_loop_instructions": 177}, {"max_main_loop_growth": 0.1},
     "more-main-loop-instructions"),
    ({"bytes_in_flight_per_sm": 196_608}, {"bytes_in_flight_per_sm": 196_607}, {}, "fewer-bytes-in-flight"),
    ({"bytes_in_flight_per_sm": 147_456}, {"bytes_in_flight_per_sm": 147_455}, {"max_bytes_in_flight_loss": 0.25},
     "fewer-bytes-in-flight"),
    ({"flops_per_load_byte": 128.0}, {"flops_per_load_byte": 127.9}, {}, "less-work-per-byte"),
    ({"flops_per_load_byte": 64.0}, {"flops_per_load_byte": 63.9}, {"max_work_per_byte_loss": 0.5},
     "less-work-per-byte"),
]  # fmt: skip


@pytest.mark.parametrize(("passes", "fails", "margins", "code"), AT_THE_MARGIN)
def test_a_figure_passes_at_its_limit_and_regresses_past_it(passes, fails, margins, code):
    policy = Policy(**margins)
    assert row(entry(), changed(**passes), policy).verdict is PASS
    worse = row(entry(), changed(**fails), policy)
    assert (worse.verdict, worse.reasons[0]) == (REGRESSION, code)


def test_a_finding_holds_the_figures_and_the_limit():
    found = row(entry(), changed(registers_per_thread=128)).findings[0]
    assert found == Finding("more-registers", "registers_per_thread", 90, 128, 106)


def test_a_figure_worse_within_its_margin_is_told_and_passes():
    found = row(entry(), changed(registers_per_thread=98))
    assert found.verdict is PASS
    assert found.findings[0] == Finding("within-margin", "registers_per_thread", 90, 98, 106)
    assert "no-worse" not in found.reasons


def test_improvements_are_told_and_do_not_make_up_for_a_regression():
    better = {"registers_per_thread": 64, "main_loop_instructions": 100, "bytes_in_flight_per_sm": 200_000}
    found = row(entry(), changed(**better))
    assert found.reasons == ("improved", "no-worse", "not-measured")
    assert {f.figure for f in found.findings if f.code == "improved"} == {
        "registers_per_thread", "main_loop_instructions_per_k_tile", "bytes_in_flight_per_sm"
    }  # fmt: skip
    assert row(entry(), changed(**better, spill_load_bytes=4)).verdict is REGRESSION


def test_an_unrolled_loop_is_compared_by_the_k_tile():
    assert row(entry(), changed(main_loop_instructions=310, main_loop_k_tiles=8)).verdict is PASS


CLIFFS = [
    # what grew, what limits the CTAs at head, the codes that name the cause
    ({"registers_per_thread": 96}, ("registers", "TMEM"), {"register-cliff"}),
    ({"smem_bytes": 120_000}, ("SMEM",), {"smem-cliff"}),
    ({"registers_per_thread": 96, "smem_bytes": 120_000}, ("registers", "SMEM"), {"register-cliff", "smem-cliff"}),
    ({"registers_per_thread": 96, "smem_bytes": 120_000}, ("SMEM",), {"smem-cliff"}),
    ({"threads": 512}, ("registers", "threads"), set()),
]


@pytest.mark.parametrize(("grew", "limit", "codes"), CLIFFS)
def test_a_fall_in_ctas_names_the_resource_that_caused_it(grew, limit, codes):
    found = row(entry(), changed(ctas_per_sm=1, ctas_limited_by=limit, **grew))
    assert {f.code for f in found.findings if f.verdict is REGRESSION} == codes | {"fewer-ctas"}


def test_more_ctas_are_no_cliff_even_if_what_grew_is_what_limits_them():
    assert row(entry(), changed(ctas_per_sm=3, smem_bytes=120_000, tmem_columns=128)).verdict is PASS


def test_shared_memory_that_costs_no_cta_passes():
    assert row(entry(), changed(smem_bytes=113_000)).verdict is PASS


@pytest.mark.parametrize("figure", ["flops_per_load_byte", "main_loop_instructions", "main_loop_k_tiles"])
def test_a_figure_known_on_one_side_only_is_invalid_and_on_neither_is_not(figure):
    unknown = {figure: None}
    for sides in ((entry(), changed(**unknown)), (entry(**unknown), changed())):
        found = row(*sides)
        assert (found.verdict, found.reasons[0]) == (INVALID, "figure-missing")
    assert row(entry(**unknown), changed(**unknown)).verdict in (PASS, UNDECIDED)


def test_a_main_loop_whose_k_tiles_are_unknown_on_both_sides_is_undecided():
    found = row(entry(main_loop_k_tiles=None), changed(main_loop_k_tiles=None, main_loop_instructions=900))
    assert (found.verdict, found.reasons[0]) == (UNDECIDED, "main-loop-unclear")


def test_a_main_loop_that_is_lost_is_invalid_even_if_its_k_tiles_were_unknown():
    lost = changed(main_loop_k_tiles=None, main_loop_instructions=None)
    assert row(entry(main_loop_k_tiles=None), lost).reasons[0] == "figure-missing"


def test_without_a_main_loop_on_either_side_the_other_figures_decide():
    none = {"main_loop_instructions": None, "main_loop_k_tiles": None}
    assert row(entry(**none), changed(**none)).verdict is PASS
    assert row(entry(**none), changed(**none, spill_load_bytes=4)).verdict is REGRESSION


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("figure", ["flops_per_load_byte", "registers_per_thread", "bytes_in_flight_per_sm"])
def test_a_figure_that_is_no_number_never_passes_even_unread_from_a_file(figure, value):
    for sides in ((entry(), changed(**{figure: value})), (entry(**{figure: value}), changed())):
        found = row(*sides)
        assert (found.verdict, found.reasons[0]) == (INVALID, "not-finite")


SAMPLES = [
    # what is changed of one side's samples, verdict, code
    ({}, PASS, "not-slower"),
    ({"processes": 7}, INVALID, "not-paired"),
    ({"processes": 0}, INVALID, "not-paired"),
    ({"processes": 7, "complete": False}, UNDECIDED, "few-processes"),
    ({"complete": False}, UNDECIDED, "samples-incomplete"),
    ({"null_floor": None}, UNDECIDED, "no-null-pair"),
    ({"null_floor": math.nan}, INVALID, "samples-broken"),
    ({"null_floor": math.inf}, INVALID, "samples-broken"),
    ({"protocol": 2}, INVALID, "other-protocol"),
    ({"last": {"marks": ("throttled",)}}, UNDECIDED, "samples-unclean"),
    ({"last": {"rank": 0}}, INVALID, "not-paired"),
    *[({"last": {"seconds": (1e-4, 1e-4, bad)}}, INVALID, "samples-broken") for bad in (math.nan, math.inf, 0.0, -1.0)],
    *[({"last": {"clock_hz": (1e9, 1e9, bad)}}, INVALID, "samples-broken") for bad in (math.nan, math.inf, 0.0, -1.0)],
    ({"last": {"seconds": ()}}, INVALID, "samples-broken"),
    ({"last": {"seconds": (), "clock_hz": ()}}, INVALID, "samples-broken"),
    ({"last": {"clock_hz": (1e9, 1e9)}}, INVALID, "samples-broken"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "verdict", "code"), SAMPLES, ids=[str(case[0]) for case in SAMPLES])
@pytest.mark.parametrize("side", ["base", "head"])
def test_samples_that_are_not_fit_never_pass_and_never_reach_the_statistics(side, changes, verdict, code):
    judged = []

    def judge(rows, policy):
        judged.extend(rows)
        return compare.judge_samples(rows, policy)

    pair = [
        samples("base", **(changes if side == "base" else {})),
        samples("head", **(changes if side == "head" else {})),
    ]
    found = row(entry(samples=pair[0]), changed(samples=pair[1]), judge=judge)
    assert found.verdict is verdict
    assert code in found.reasons
    assert len(judged) == (not changes)


@pytest.mark.parametrize(("clock_hz", "figure", "base"), [((1.5e9,) * 3, "cycles", 150_000.0), ((), "seconds", 1e-4)])
@pytest.mark.parametrize("traded", ["seconds", "cycles"])
def test_what_is_judged_is_told_and_a_trade_on_time_holds_in_either_unit(clock_hz, figure, base, traded):
    pair = entry(samples=samples(last={"clock_hz": clock_hz})), changed(samples=samples("head", slower=0.02))
    found = row(*pair).findings[-1]
    assert (found.code, found.figure) == ("slower", figure)
    assert (found.base, found.head, found.limit) == pytest.approx((base, 1.02 * base, 1.005 * base), rel=1e-4)
    assert row(*pair, None, [Trade("v9", traded, "why")]).verdict is PASS


def test_a_trade_on_time_that_accepts_nothing_is_told_in_its_own_words():
    same = result(entry(samples=samples())), result(entry(samples=samples("head")), side="b")
    found = compare.compare(*same, Policy(), [Trade("v9", "cycles", "why")])
    assert [unused.why for unused in found.unused] == ["no regression of cycles of v9 was found"]


def test_processes_may_be_missing_between_those_of_a_row_but_not_out_of_turn():
    def with_ranks(side, ranks):
        made = samples(side)
        processes = [dataclasses.replace(p, rank=rank) for p, rank in zip(made.processes, ranks, strict=True)]
        return dataclasses.replace(made, processes=tuple(processes))

    base, head = [0, 3, 4, 7, 8, 11, 12, 15], [1, 2, 5, 6, 9, 10, 13, 14]
    stretched = [[rank * 3 + 5 for rank in side] for side in (base, head)]
    in_blocks = [range(8), range(8, 16)]
    base_first = [range(0, 16, 2), range(1, 16, 2)]
    swapped = [head, base]
    for ranks, code in (
        ((base, head), "not-slower"), (stretched, "not-slower"),
        (in_blocks, "not-paired"), (base_first, "not-paired"), (swapped, "not-paired"),
    ):  # fmt: skip
        pair = [with_ranks(side, of) for side, of in zip(("base", "head"), ranks, strict=True)]
        assert code in row(entry(samples=pair[0]), changed(samples=pair[1])).reasons


@pytest.mark.parametrize("missing", ["base", "head"])
def test_one_side_measured_is_undecided_and_its_own_faults_are_still_told(missing):
    bad = samples(last={"marks": ("throttled",), "seconds": (math.nan,) * 3})
    pair = (None, bad) if missing == "base" else (bad, None)
    found = row(entry(samples=pair[0]), changed(samples=pair[1]))
    assert found.verdict is INVALID
    assert {"half-measured", "samples-unclean", "samples-broken"} < set(found.reasons)


def slower(rows, policy):
    return [Finding("slower", "seconds", 1e-4, 1.1e-4, 1e-4 * (1 + policy.max_slowdown)) for _ in rows]


def not_slower(rows, policy):
    return [Finding("not-slower", "seconds", 1e-4, 1e-4, 1e-4 * (1 + policy.max_slowdown)) for _ in rows]


def test_the_statistics_decide_where_the_static_figures_pass():
    pair = entry(samples=samples()), changed(samples=samples("head"))
    assert row(*pair, judge=not_slower).verdict is PASS
    assert row(*pair, judge=slower).verdict is REGRESSION
    assert row(*pair, None, [Trade("v9", "seconds", "why")], judge=slower).verdict is PASS


def test_a_good_time_does_not_make_up_for_a_static_regression():
    pair = entry(samples=samples()), changed(samples=samples("head"), spill_load_bytes=4)
    assert row(*pair, judge=not_slower).verdict is REGRESSION


def test_an_accepted_figure_does_not_accept_a_slowdown():
    pair = entry(samples=samples()), changed(samples=samples("head"), spill_load_bytes=4)
    assert row(*pair, None, [Trade("v9", "spill_bytes", "why")], judge=slower).reasons[0] == "slower"


@pytest.mark.parametrize("machines", [("b200-1", "b200-2"), (None, None), ("b200-1", None)])
def test_samples_of_two_machines_or_of_an_unknown_one_are_invalid_and_not_judged(machines):
    base = result(entry(samples=samples()), machine=machines[0])
    head = result(changed(samples=samples("head")), machine=machines[1], side="b")
    (found,) = compare.compare(base, head, Policy(), judge=not_slower).rows
    assert (found.verdict, found.reasons[0]) == (INVALID, "other-machine")


def test_without_samples_the_machine_does_not_matter():
    found = compare.compare(result(entry(), machine="x"), result(changed(), machine=None, side="b"), Policy())
    assert found.verdict is PASS


def test_the_same_code_passes_whatever_was_measured_or_is_said_of_its_figures():
    same = entry(samples=samples("head", last={"marks": ("throttled",)}), ctas_per_sm=0, spill_load_bytes=400)
    assert row(entry(samples=samples(), correctness="clean"), same).reasons == ("same-code",)


def test_a_version_that_builds_for_no_problem_fails_for_each_of_the_others():
    both = [entry(), entry(problem=Q)]
    found = compare.compare(result(*both), result(broken(), side="b"), Policy())
    assert [(r.problem, r.reasons) for r in found.rows] == [(P, ("build-failed",)), (Q, ("build-failed",))]
    found = compare.compare(result(broken()), result(*both, side="b"), Policy())
    assert [(r.problem, r.reasons) for r in found.rows] == [
        (P, ("base-build-failed",)), (Q, ("base-build-failed",))
    ]  # fmt: skip
    found = compare.compare(result(broken()), result(broken(), side="b"), Policy())
    assert [(r.problem, r.reasons) for r in found.rows] == [(None, ("build-failed",))]


def test_rows_are_in_the_order_of_base_then_what_is_new():
    base = result(entry("v2"), entry("v1"), entry("v1", problem=Q))
    head = result(entry("v3"), entry("v1", problem=Q), entry("v1"), entry("v2"), side="b")
    found = compare.compare(base, head, Policy())
    assert [(r.version, r.problem) for r in found.rows] == [("v2", P), ("v1", P), ("v1", Q), ("v3", P)]


def test_the_selected_versions_are_compared_and_no_others():
    base = result(entry("v1"), entry("v2"))
    head = result(entry("v1"), entry("v2", code="new", spill_load_bytes=4), side="b")
    assert compare.compare(base, head, Policy(), versions=["v1"]).verdict is PASS
    assert compare.compare(base, head, Policy(), versions=["v2"]).verdict is REGRESSION
    with pytest.raises(UsageError, match="unknown version 'v12': the result sets have v1, v2"):
        compare.compare(base, head, Policy(), versions=["v1", "v12"])


def test_nothing_judged_is_invalid():
    assert compare.worst([]) is INVALID
    assert Row("v9", P, ()).verdict is INVALID
    assert compare.Comparison((), (), ()).verdict is INVALID


def test_the_worst_verdict_decides():
    assert compare.worst([PASS, UNDECIDED]) is UNDECIDED
    assert compare.worst([REGRESSION, UNDECIDED, PASS]) is REGRESSION
    assert compare.worst([PASS, INVALID, REGRESSION]) is INVALID


@pytest.mark.parametrize("code", REASONS)
def test_a_trade_accepts_a_regression_or_nearly_one_and_never_anything_else(code):
    finding = Finding(code, "seconds", accepted_by=Trade("v9", "seconds", "why"))
    verdict = REASONS[code][0]
    assert finding.verdict is (PASS if verdict is REGRESSION or code == "near-margin" else verdict)


figures = st.fixed_dictionaries(
    {
        "registers_per_thread": st.integers(0, 255),
        "spill_store_bytes": st.integers(0, 64),
        "spill_load_bytes": st.integers(0, 64),
        "smem_bytes": st.integers(0, 232_448),
        "ctas_per_sm": st.integers(1, 4),
        "ctas_limited_by": st.sampled_from([("SMEM",), ("registers",), ("TMEM",)]),
        "main_loop_instructions": st.none() | st.integers(1, 1000),
        "main_loop_k_tiles": st.none() | st.integers(1, 8),
        "flops_per_load_byte": st.none() | st.floats(1, 1000),
        "bytes_in_flight_per_sm": st.integers(0, 10**6),
    }
)


@given(figures, figures)
def test_what_passes_one_way_for_sure_is_no_better_the_other_way(before, after):
    """With no margins, a change and its reverse both pass only if no judged figure differs."""
    strict = Policy(max_register_growth=0, max_main_loop_growth=0)
    there = row(entry(code="x", **before), entry(code="y", **after), strict)
    back = row(entry(code="y", **after), entry(code="x", **before), strict)
    if there.verdict is PASS and back.verdict is PASS:
        assert {f.code for f in there.findings} == {"no-worse", "not-measured"}
    assert (there.verdict is INVALID) == (back.verdict is INVALID)


@given(figures)
def test_equal_figures_never_regress(same):
    found = row(entry(code="x", **same), entry(code="y", **same))
    assert found.verdict in (PASS, UNDECIDED)


def test_every_figure_that_a_trade_may_name_is_one_that_can_regress():
    fields = {field.name for field in dataclasses.fields(FIGURES)}
    for name in compare.FIGURES:
        assert name == "seconds" or name in fields or hasattr(type(FIGURES), name)


def three(**of_last):
    """Rows of code that nothing was measured of, of code that is the same, and of code with these samples."""
    base = result(entry("v1"), entry("v2"), entry("v3", samples=samples(processes=of_last.get("processes", 8))))
    head = result(entry("v1", "new"), entry("v2"), entry("v3", "new", samples=samples("head", **of_last)), side="b")
    return compare.compare(base, head, Policy())


@pytest.mark.parametrize(
    ("measured", "wanted"),
    [
        ({}, {}),
        ({"slower": 0.02}, {}),
        ({"slower": 0.005}, {("v3", P): 4}),
        ({"slower": 0.005, "processes": 9}, {("v3", P): 3}),
        ({"slower": 0.005, "processes": 24}, {("v3", P): 8}),
        ({"slower": 0.005, "processes": 32}, {}),
        ({"slower": 0.005, "processes": 40}, {}),
        ({"spread": 0.1}, {("v3", P): 4}),
        ({"processes": 5}, {("v3", P): 3}),
        ({"faster_clock": -0.02}, {}),
        ({"spread": 0.0}, {}),
    ],
)
def test_pairs_are_added_where_they_can_tell_more_up_to_the_budget(measured, wanted):
    assert compare.more_pairs(three(**measured)) == {("v1", P): 8} | wanted


def test_no_pairs_are_added_to_what_a_trade_accepts():
    pair = entry(samples=samples()), changed(samples=samples("head", slower=0.005))
    found = compare.compare(result(pair[0]), result(pair[1], side="b"), Policy(), [Trade("v9", "seconds", "why")])
    assert compare.more_pairs(found) == {}
