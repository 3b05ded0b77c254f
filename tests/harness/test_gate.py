"""The gate: pairs of small result files and the outcome wanted, exit code and reason; then its reports."""
# ruff: noqa: E501 (a table: one scenario on a line)

import io
import json
import math

import pytest
from result_sets import P, Q, broken, entry, result, samples
from rich.console import Console

from tirx_ladder import gate, results
from tirx_ladder.compare import INVALID, PASS, REASONS, REGRESSION, UNDECIDED, Finding, Row
from tirx_ladder.ladder import UsageError
from tirx_ladder.policy import Policy

LEAST = Policy()


def files(tmp_path, base, head):
    """Two result sets, each a tuple of entries or a whole set, in files."""
    paths = []
    for name, side, content in (("base", "a", base), ("head", "b", head)):
        content = content if isinstance(content, results.ResultSet) else result(*content, side=side)
        paths.append(tmp_path / f"{name}.json")
        results.write(content, paths[-1])
    return paths


def judge(tmp_path, base, head, *trailers, policy=LEAST, **options):
    """The gate's report on two result sets, with one commit that has these trailers."""
    message = "Title\n\nProse.\n\n" + "\n".join(f"Accept-regression: {trailer}" for trailer in trailers)
    return gate.run(*files(tmp_path, base, head), policy, [message], **options)


def reasons(report):
    """All reason codes of a report."""
    return {f.code for f in (*report.findings, *(f for row in report.rows for f in row.findings))}


def v9(code="new", **changes):
    return (entry("v9", code, **changes),)


OLD = v9("old")
CLEAN = v9("old", correctness="clean")
TIMED = v9("old", samples=samples())
NEW_TIMED = v9(samples=samples("head"))
MEASURE = {"policy": Policy(require_measured=True)}
FALL = {"ctas_per_sm": 1}


def said(code):
    """A judge that comes to this conclusion."""
    return {"judge": lambda rows, policy: [Finding(code, "seconds", 1.0, 1.1, 1.01)] * len(rows)}


def timed(**changes):
    """Head as measured, with these changes of its samples."""
    return v9(samples=samples("head", **changes))


SCENARIOS = {
    # what happened: (exit code, reason, base, head, trailers and options)
    "docs only": (0, "same-code", OLD, OLD),
    "docs only, timed badly": (0, "same-code", TIMED, v9("old", samples=samples(last={"marks": ("throttled",)}))),
    "docs only, correctness not run again": (0, "same-code", CLEAN, OLD),
    "other code, same figures": (0, "no-worse", OLD, v9()),
    "other code, nothing measured": (0, "not-measured", OLD, v9()),
    "a faster epilogue": (0, "improved", OLD, v9(registers_per_thread=80, main_loop_instructions=150)),
    "a few registers more": (0, "within-margin", OLD, v9(registers_per_thread=98)),
    "a version is new": (0, "new", OLD, (*OLD, entry("v10"))),
    "a problem is new": (0, "new", OLD, (*OLD, entry(problem=Q))),
    "measured, no slower": (0, "not-slower", TIMED, NEW_TIMED),
    "measured, faster": (0, "not-slower", TIMED, timed(slower=-0.05)),
    "still clean": (0, "no-worse", CLEAN, v9(correctness="clean")),
    "repaired": (0, "no-worse", v9("old", correctness="wrong"), v9(correctness="clean")),
    "a spill": (1, "spill", OLD, v9(spill_store_bytes=8, spill_load_bytes=8)),
    "a spill beside an improvement": (1, "spill", OLD, v9(spill_load_bytes=4, registers_per_thread=64)),
    "fewer stages": (1, "fewer-bytes-in-flight", OLD, v9(bytes_in_flight_per_sm=147_456)),
    "fewer CTAs": (1, "fewer-ctas", OLD, v9(ctas_per_sm=1, ctas_limited_by=("TMEM",))),
    "registers past the margin": (1, "more-registers", OLD, v9(registers_per_thread=128)),
    "registers over the cliff": (1, "register-cliff", OLD, v9(registers_per_thread=96, ctas_limited_by=("registers",), **FALL)),
    "SMEM over the cliff": (1, "smem-cliff", OLD, v9(smem_bytes=120_000, ctas_limited_by=("SMEM",), **FALL)),
    "a longer main loop": (1, "more-main-loop-instructions", OLD, v9(main_loop_instructions=170)),
    "a smaller tile": (1, "less-work-per-byte", OLD, v9(flops_per_load_byte=64.0)),
    "measured, slower": (1, "slower", TIMED, timed(slower=0.02)),
    "slower, and no clock known": (1, "slower", v9("old", samples=samples(last={"clock_hz": ()})), timed(slower=0.02)),
    "one of two problems is worse": (1, "spill", (*OLD, entry(problem=Q)), (*OLD, *v9(problem=Q, spill_load_bytes=4))),
    "one of two versions is worse": (1, "spill", (*OLD, entry("v8")), (*OLD, entry("v8", "new", spill_load_bytes=4))),
    "did not build at base": (3, "base-build-failed", (broken(),), v9()),
    "did not build at base for the problem": (3, "base-build-failed", (broken(problem=P),), v9()),
    "correctness not run": (3, "correctness-unknown", CLEAN, v9()),
    "a main loop that cannot be read": (3, "main-loop-unclear", v9("old", main_loop_k_tiles=None), v9(main_loop_k_tiles=None)),
    "head not measured": (3, "half-measured", TIMED, v9()),
    "base not measured": (3, "half-measured", OLD, NEW_TIMED),
    "must be measured": (3, "measurement-required", OLD, v9(), MEASURE),
    "measured to the half": (3, "samples-incomplete", TIMED, timed(complete=False)),
    "throttled at head": (3, "samples-unclean", TIMED, timed(last={"marks": ("throttled",)})),
    "throttled at base": (3, "samples-unclean", v9("old", samples=samples(last={"marks": ("throttled",)})), NEW_TIMED),
    "seven processes": (3, "few-processes", v9("old", samples=samples(processes=7)), timed(processes=7)),
    "no null pair": (3, "no-null-pair", TIMED, timed(null_floor=None)),
    "much noise": (3, "too-noisy", TIMED, timed(spread=0.05)),
    "slower in much noise": (3, "too-noisy", TIMED, timed(slower=0.02, spread=0.05)),
    "half a per cent": (3, "near-margin", TIMED, timed(slower=0.005)),
    "under what the machine does by itself": (3, "near-margin", TIMED, timed(slower=0.02, null_floor=0.03)),
    "a coarse timer": (3, "timer-too-coarse", TIMED, timed(spread=0.0, slower=0.02)),
    "a slower clock at head": (3, "clock-change", TIMED, timed(faster_clock=-0.02)),
    "a faster clock hides it": (3, "clock-change", TIMED, timed(slower=0.02, faster_clock=0.02)),
    "a version removed": (4, "missing", (entry("v8"), *OLD), OLD),
    "a problem removed": (4, "missing", (entry(problem=Q), *OLD), OLD),
    "everything removed": (4, "missing", OLD, (entry("v10"),)),
    "a version renamed": (4, "missing", OLD, (entry("v9b", "old"),)),
    "does not build": (4, "build-failed", OLD, (broken(),)),
    "does not build for one problem": (4, "build-failed", (*OLD, entry(problem=Q)), (*OLD, broken(problem=Q))),
    "does not build, as before": (4, "build-failed", (broken(),), (broken(),)),
    "a new version does not build": (4, "build-failed", OLD, (*OLD, broken("v10"))),
    "wrong at head": (4, "incorrect", CLEAN, v9(correctness="wrong")),
    "a review is not clean": (4, "incorrect", CLEAN, v9(correctness="review")),
    "an empty verdict is not clean": (4, "incorrect", CLEAN, v9(correctness="")),
    "wrong with the same code": (4, "incorrect", CLEAN, v9("old", correctness="wrong")),
    "a new version is wrong": (4, "incorrect", OLD, (*OLD, entry("v10", correctness="incomplete"))),
    "fits no SM": (4, "cannot-launch", OLD, v9(ctas_per_sm=0)),
    "a new version fits no SM": (4, "cannot-launch", OLD, (*OLD, entry("v10", ctas_per_sm=0))),
    "a figure lost": (4, "figure-missing", OLD, v9(flops_per_load_byte=None)),
    "a figure found": (4, "figure-missing", v9("old", flops_per_load_byte=None), v9()),
    "other SMs": (4, "other-sm-count", OLD, v9(sm_count=132)),
    "a time of zero": (4, "samples-broken", TIMED, timed(last={"seconds": (0.0,) * 3})),
    "a process without times": (4, "samples-broken", TIMED, timed(last={"seconds": ()})),
    "a sample without its clock": (4, "samples-broken", TIMED, timed(last={"clock_hz": (1.5e9,)})),
    "a clock of zero": (4, "samples-broken", TIMED, timed(last={"clock_hz": (0.0,) * 3})),
    "a machine quieter than silence": (4, "samples-broken", TIMED, timed(null_floor=-0.01)),
    "another machine": (4, "other-machine", result(*TIMED, machine="b200-2"), NEW_TIMED, said("not-slower")),
    "an unknown machine": (4, "other-machine", result(*TIMED, machine=None), result(*NEW_TIMED, machine=None), said("not-slower")),
    "another protocol": (4, "other-protocol", TIMED, timed(protocol=2), said("not-slower")),
    "one side after the other": (4, "not-paired", TIMED, timed(last={"rank": 99}), said("not-slower")),
    "a process without its pair": (4, "not-paired", TIMED, timed(processes=9), said("not-slower")),
    "another ladder": (4, "other-ladder", OLD, result(*OLD, ladder="small_ladder")),
    "another architecture": (4, "other-arch", OLD, result(*OLD, arch="sm_90a")),
    "another toolchain": (4, "other-toolchain", OLD, result(*OLD, toolchain={"apache-tvm": "0.28.0"})),
    "a toolchain with more": (4, "other-toolchain", result(*OLD, toolchain={"a": "1"}), result(*OLD, toolchain={"a": "1", "b": "1"})),
    "a stale base": (4, "other-commit", OLD, OLD, {"base_commit": "c" * 40}),
    "another head": (4, "other-commit", OLD, OLD, {"head_commit": "c" * 40}),
    "changes at base": (4, "dirty", result(*OLD, dirty=True), OLD),
    "changes at head": (4, "dirty", OLD, result(*OLD, dirty=True)),
    "nothing at base": (4, "empty", (), OLD),
    "nothing at head": (4, "empty", OLD, ()),
    "nothing at all": (4, "empty", (), ()),
    "nothing selected": (4, "empty-selection", OLD, OLD, {"versions": []}),
    "invalid beside a regression": (4, "missing", (entry("v8"), *OLD), v9(spill_load_bytes=4)),
    "undecided beside a regression": (1, "spill", (broken("v8"), *OLD), (entry("v8"), *v9(spill_load_bytes=4))),
    "accepted": (0, "spill", OLD, v9(spill_load_bytes=4), "v9 spill_bytes: pays off"),
    "accepted time": (0, "slower", TIMED, timed(slower=0.02), "v9 seconds: safer"),
    "accepted time, a little less of it": (0, "near-margin", TIMED, timed(slower=0.005), "v9 seconds: safer"),
    "accepted for both problems": (0, "spill", (*OLD, entry(problem=Q)), (*v9(spill_load_bytes=4), *v9(problem=Q, spill_load_bytes=4)), "v9 spill_bytes: x"),
    "accepted registers over the cliff, not the CTAs": (1, "fewer-ctas", OLD, v9(registers_per_thread=96, ctas_limited_by=("registers",), **FALL), "v9 registers_per_thread: x"),
    "accepted registers and CTAs": (0, "register-cliff", OLD, v9(registers_per_thread=96, ctas_limited_by=("registers",), **FALL), "v9 registers_per_thread: x", "v9 ctas_per_sm: x"),
    "accepted SMEM and CTAs": (0, "smem-cliff", OLD, v9(smem_bytes=120_000, ctas_limited_by=("SMEM",), **FALL), "v9 smem_bytes: x", "v9 ctas_per_sm: x"),
    "accepted, and another figure is worse": (1, "more-registers", OLD, v9(spill_load_bytes=4, registers_per_thread=128), "v9 spill_bytes: x"),
    "accepted of another version": (1, "spill", (*OLD, entry("v8")), (*v9(spill_load_bytes=4), entry("v8")), "v8 spill_bytes: x"),
    "accepted without a reason": (1, "spill", OLD, v9(spill_load_bytes=4), "v9 spill_bytes:"),
    "accepted by an unknown figure": (1, "spill", OLD, v9(spill_load_bytes=4), "v9 spills: x"),
    "accepted by a pattern": (1, "spill", OLD, v9(spill_load_bytes=4), "* spill_bytes: x", "v9 *: x"),
    "a removal cannot be accepted": (4, "missing", (entry("v8"), *OLD), OLD, "v8 missing: x", "v8 seconds: x"),
    "a lost figure cannot be accepted": (4, "figure-missing", OLD, v9(flops_per_load_byte=None), "v9 flops_per_load_byte: x"),
    "a foreign base cannot be accepted": (4, "dirty", result(*OLD, dirty=True), v9(spill_load_bytes=4), "v9 spill_bytes: x"),
    "noise cannot be accepted": (3, "too-noisy", TIMED, timed(spread=0.05), "v9 seconds: x"),
    "a clock cannot be accepted": (3, "clock-change", TIMED, timed(faster_clock=-0.02), "v9 seconds: x"),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(tmp_path, name):
    exit_code, reason, base, head, *rest = SCENARIOS[name]
    trailers = [item for item in rest if isinstance(item, str)]
    options = {k: v for item in rest if isinstance(item, dict) for k, v in item.items()}
    report = judge(tmp_path, base, head, *trailers, **options)
    assert report.exit_code == exit_code, reasons(report)
    assert reason in reasons(report)
    assert report.verdict is {0: PASS, 1: REGRESSION, 3: UNDECIDED, 4: INVALID}[exit_code]
    assert REASONS[reason][0] is report.verdict or (exit_code == 0 and report.accepted)


def test_every_reason_has_its_scenario():
    elsewhere = {"unreadable", "not-finite"}  # below, and in test_compare: no file can hold it
    assert {case[1] for case in SCENARIOS.values()} | elsewhere == set(REASONS)


@pytest.mark.parametrize(("figure", "value"), [("registers_per_thread", math.nan), ("flops_per_load_byte", math.inf)])
@pytest.mark.parametrize("side", [0, 1])
def test_nan_in_a_file_is_invalid_and_named(tmp_path, side, figure, value):
    paths = files(tmp_path, OLD, OLD)
    data = json.loads(paths[side].read_text())
    data["entries"][0]["figures"][figure] = value
    paths[side].write_text(json.dumps(data))
    report = gate.run(*paths, Policy())
    assert (report.exit_code, reasons(report)) == (4, {"unreadable"})
    assert figure in report.findings[0].detail


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 1}', "[1"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_file_of_another_schema_or_of_none_is_invalid(tmp_path, side, text):
    paths = files(tmp_path, OLD, OLD)
    paths[side].write_text(text)
    report = gate.run(*paths, Policy(), ["T\n\nAccept-regression: v9 seconds: x"])
    assert (report.exit_code, reasons(report), report.rows) == (4, {"unreadable"}, ())
    assert (report.base is None, report.head is None) == (side == 0, side == 1)
    assert [unused.why for unused in report.unused] == ["nothing could be compared"]
    assert "unreadable" in gate.markdown(report)
    assert json.loads(gate.to_json(report))["verdict"] == "invalid"


def test_a_file_that_is_not_there_and_an_unknown_version_are_usage_errors(tmp_path):
    base, head = files(tmp_path, OLD, OLD)
    with pytest.raises(UsageError, match="cannot be read"):
        gate.run(tmp_path / "nowhere.json", head, Policy())
    with pytest.raises(UsageError, match="unknown version 'v12'"):
        gate.run(base, head, Policy(), versions=["v12"])
    assert gate.USAGE == 2


def test_exit_codes_are_fixed_and_never_a_count(tmp_path):
    assert {str(verdict): code for verdict, code in gate.EXIT_CODES.items()} == {
        "pass": 0, "regression": 1, "undecided": 3, "invalid": 4
    }  # fmt: skip
    many = [entry(f"v{i}") for i in range(256)]
    worse = [entry(f"v{i}", "new", spill_load_bytes=4) for i in range(256)]
    assert judge(tmp_path, many, worse).exit_code == 1


@pytest.mark.parametrize(
    ("trailer", "why"),
    [
        ("v12 spill_bytes: x", "unknown version 'v12'"),
        ("v9 spills: x", "unknown figure 'spills'; known are spill_bytes, "),
        ("v9 instructions: x", "unknown figure 'instructions'"),
        ("v9 ctas_per_sm: x", "no regression of ctas_per_sm of v9"),
        ("v9 spill_bytes:", "refused: it gives no reason"),
        ("v9 spill_bytes", "refused"),
    ],
)
def test_a_trailer_that_accepts_nothing_is_reported_and_changes_nothing(tmp_path, trailer, why):
    report = judge(tmp_path, OLD, v9(spill_load_bytes=4), trailer)
    assert (report.exit_code, report.accepted) == (1, ())
    assert len(report.unused) == 1
    assert why in report.unused[0].why
    for text in (gate.markdown(report).replace("\\", ""), shown(report, width=400)):
        assert f"Accept-regression: {trailer}" in text


def test_a_trade_of_what_passes_anyway_is_unused(tmp_path):
    report = judge(tmp_path, OLD, v9(registers_per_thread=98), "v9 registers_per_thread: x")
    assert (report.exit_code, report.accepted) == (0, ())
    assert "no regression of registers_per_thread of v9" in report.unused[0].why


def test_an_accepted_trade_is_shown_with_its_reason(tmp_path):
    report = judge(tmp_path, OLD, v9(spill_load_bytes=4), "v9 spill_bytes: 3 % faster on 4096", "v9 spill_bytes: again")
    assert report.unused == ()
    ((row, finding),) = report.accepted
    assert (row.version, finding.code, finding.accepted_by.reason) == ("v9", "spill", "3 % faster on 4096")
    for text in (gate.markdown(report).replace("\\", ""), shown(report)):
        assert "accepted spill: spill_bytes 0 → 4" in text
        assert "3 % faster on 4096" in text
        assert "1 accepted by trailers" in text
    (told,) = [f for f in json.loads(gate.to_json(report))["rows"][0]["findings"] if f["code"] == "spill"]
    assert told["accepted_by"]["reason"] == "3 % faster on 4096"
    assert told["verdict"] == "pass"


def mixed(tmp_path):
    """One row of each verdict, the best first in the files."""
    base = (entry("v1"), broken("v2"), entry("v3"), entry("v4"))
    head = (entry("v1"), entry("v2"), entry("v3", "new", spill_load_bytes=4))
    return judge(tmp_path, base, head)


def shown(report, width=120):
    out = io.StringIO()
    gate.show(report, Console(file=out, width=width))
    return out.getvalue()


def test_every_report_has_all_rows_worst_first(tmp_path):
    report = mixed(tmp_path)
    worst_first = [("v4", "invalid"), ("v3", "regression"), ("v2", "undecided"), ("v1", "pass")]
    assert [(row.version, row.verdict) for row in report.worst_first] == worst_first
    assert [(row["version"], row["verdict"]) for row in json.loads(gate.to_json(report))["rows"]] == worst_first
    cells = [line.split("|") for line in gate.markdown(report).splitlines() if line.startswith("| **")]
    assert [(c[2].strip(), c[1].strip(" *")) for c in cells] == worst_first
    lines = shown(report).splitlines()
    first = [next(i for i, line in enumerate(lines) if version in line.split()) for version, _ in worst_first]
    assert first == sorted(first)


def test_no_row_is_lost_of_many(tmp_path):
    many = [entry(f"v{i}") for i in range(200)]
    report = judge(tmp_path, many, many)
    assert gate.markdown(report).count("| **pass** |") == 200
    assert shown(report).count("same-code") == 200


def test_reports_say_figures_limit_and_what_to_do(tmp_path):
    report = mixed(tmp_path)
    for text in (gate.markdown(report).replace("\\", ""), shown(report)):
        assert "spill: spill_bytes 0 → 4, the limit is 0" in text
        assert "Accept-regression: v3 spill_bytes: REASON" in text
        assert "4096x4096x4096" in text
        assert "exit code 4" in text
        assert "aaaaaaaaaaaa" in text
    data = json.loads(gate.to_json(report))
    assert (data["schema"], data["exit_code"], data["verdict"]) == (1, 4, "invalid")
    assert (data["base"]["commit"], data["head"]["commit"]) == ("a" * 40, "b" * 40)
    assert data["policy"]["max_new_spill_bytes"] == 0
    assert data["rows"][1]["reasons"] == ["spill", "not-measured"]
    found = data["rows"][1]["findings"][0]
    assert {k: found[k] for k in ("code", "figure", "base", "head", "limit", "verdict")} == {
        "code": "spill", "figure": "spill_bytes", "base": 0, "head": 4, "limit": 0, "verdict": "regression"
    }  # fmt: skip


HOSTILE = "error: [red]x[/red] | a < b\n| **pass** | `v9` @team <script>"


def test_what_a_compiler_says_cannot_break_a_report(tmp_path):
    report = judge(tmp_path, OLD, (broken(why=HOSTILE),))
    text = gate.markdown(report)
    (line,) = [line for line in text.splitlines() if "build-failed" in line]
    assert line.replace("\\|", "").count("|") == 6
    assert "<script" not in text
    assert "script>" not in text
    assert "@team" not in text
    assert "[red]x[/red]" in shown(report, width=400)
    assert json.loads(gate.to_json(report))["rows"][0]["findings"][0]["detail"] == HOSTILE


def test_what_a_version_is_called_cannot_add_a_row(tmp_path):
    report = judge(tmp_path, OLD, (*OLD, entry("v1\n| **pass** | v2")))
    rows = gate.markdown(report).splitlines()[-2:]
    assert all(line.startswith("| **pass** |") and line.endswith(" |") for line in rows)


def test_statistics_that_end_in_no_number_are_invalid(tmp_path):
    for bad in ((math.nan, 1.0, 1.0), (1.0, math.inf, 1.0), (1.0, 1.0, math.nan)):
        report = judge(tmp_path, TIMED, NEW_TIMED, judge=lambda *_, bad=bad: [Finding("not-slower", "seconds", *bad)])
        assert (report.exit_code, report.rows[0].reasons[0]) == (4, "not-finite")


def test_a_number_that_is_none_can_still_be_reported():
    row = Row("v9", P, (Finding("slower", "seconds", math.nan, math.inf, 1.0),))
    report = gate.GateReport(None, None, Policy(), (), (row,), ())
    assert "slower: seconds nan → inf" in shown(report)
    assert json.loads(gate.to_json(report))["rows"][0]["findings"][0]["head"] is None
