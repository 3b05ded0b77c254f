"""Result files: what is written is read, and whatever is wrong in one is refused by the name of its key."""

import copy
import json
import types
from pathlib import Path

import pytest
from result_sets import P, Q, broken, entry, result, samples

from tirx_ladder import profile, records, results
from tirx_ladder.ladder import UsageError


def plain(*entries, **changes):
    return json.loads(json.dumps(records.to_plain(result(*(entries or [entry(samples=samples())]), **changes))))


def changed(path, value):
    """A good result set as JSON data, with one key set to a value; ... removes it."""
    data = plain()
    *above, last = path
    inner = data
    for key in above:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return data


FIRST = ("entries", 0)
WRONG = [
    # path to the key, its value, what the error must name
    (("schema",), 1, "schema: 1"),
    (("schema",), True, "schema: True"),
    (("schema",), ..., "schema: None"),
    (("colour",), "red", "unknown key 'colour'"),
    (("arch",), ..., "key 'arch' is missing"),
    (("origin", "host"), "x", "origin: unknown key 'host'"),
    (("origin", "commit"), "abc", "origin, commit: 'abc'"),
    (("origin", "commit"), "", "origin, commit: ''"),
    (("origin", "dirty"), 0, "origin, dirty: 0, a truth"),
    (("origin", "toolchain"), {}, "origin, toolchain: it is empty"),
    (("origin", "toolchain", "nvrtc"), 13, "origin, toolchain, nvrtc: 13, a text"),
    (("entries",), {}, "entries: {}, a list"),
    ((*FIRST, "code_hash"), "", "code_hash: ''"),
    ((*FIRST, "code_hash"), None, "code_hash: null"),
    ((*FIRST, "code_hash"), "G" * 64, "code_hash: 'GGG"),
    ((*FIRST, "problem"), None, "problem: null"),
    ((*FIRST, "problem", "m"), 0, "M = 0"),
    ((*FIRST, "figures"), None, "figures: null"),
    ((*FIRST, "build_error"), "nvrtc: error", "what does not build has no code_hash"),
    ((*FIRST, "correctness"), True, "correctness: true, a text"),
    ((*FIRST, "figures", "registers"), 90, "figures: unknown key 'registers'"),
    ((*FIRST, "figures", "registers_per_thread"), 90.5, "registers_per_thread: 90.5, an integer"),
    ((*FIRST, "figures", "registers_per_thread"), "90", 'registers_per_thread: "90", an integer'),
    ((*FIRST, "figures", "registers_per_thread"), True, "registers_per_thread: true, an integer"),
    ((*FIRST, "figures", "registers_per_thread"), None, "registers_per_thread: null, an integer"),
    ((*FIRST, "figures", "registers_per_thread"), -1, "registers_per_thread: -1, 0 or more"),
    ((*FIRST, "figures", "registers_per_thread"), float("nan"), "registers_per_thread: NaN, an integer"),
    ((*FIRST, "figures", "flops_per_load_byte"), float("nan"), "flops_per_load_byte: nan, a finite number"),
    ((*FIRST, "figures", "flops_per_load_byte"), float("inf"), "flops_per_load_byte: inf, a finite number"),
    ((*FIRST, "figures", "flops_per_load_byte"), 10**400, "flops_per_load_byte: inf, a finite number"),
    ((*FIRST, "samples", "unit"), "ms", "samples, unit: 'ms', 's'"),
    ((*FIRST, "samples", "complete"), "yes", 'samples, complete: "yes", a truth'),
    ((*FIRST, "samples", "processes", 3, "seconds", 1), float("nan"), "processes, number 3, seconds, number 1: nan"),
    ((*FIRST, "samples", "protocol"), 1.5, "samples, protocol: 1.5, an integer"),
    ((*FIRST, "samples", "null_floor"), ..., "samples: key 'null_floor' is missing"),
    ((*FIRST, "samples", "null_floor"), float("nan"), "samples, null_floor: nan"),
    ((*FIRST, "samples", "processes", 3, "clock_hz"), None, "processes, number 3, clock_hz: null, a list"),
    ((*FIRST, "samples", "processes", 3, "rank"), ..., "processes, number 3: key 'rank' is missing"),
    ((*FIRST, "samples", "processes", 3, "marks"), None, "processes, number 3, marks: null, a list"),
]


@pytest.mark.parametrize(("path", "value", "named"), WRONG, ids=[f"{c[0][-1]}={str(c[1])[:20]}" for c in WRONG])
def test_what_is_wrong_in_a_result_file_is_refused_by_the_name_of_its_key(tmp_path, path, value, named):
    file = tmp_path / "head.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(results.ResultError) as refused:
        results.read(file)
    assert str(refused.value).startswith(str(file))
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_result_set_is_read_as_it_was_written(tmp_path):
    kept = result(entry(samples=samples(), correctness="clean"), entry("v1", main_loop_instructions=None), broken("v2"))
    results.write(kept, tmp_path / "new" / "base.json")
    assert results.read(tmp_path / "new" / "base.json") == kept


@pytest.mark.parametrize(
    ("entries", "named"),
    [
        ([entry(), entry(code="new")], "number 1 (v9 on 4096x4096x4096): it is there twice"),
        ([entry(), broken()], "builds for no problem, and yet has another entry"),
        ([broken(problem=P), entry()], "number 1 (v9 on 4096x4096x4096): it is there twice"),
    ],
)
def test_contradicting_entries_are_refused(entries, named):
    with pytest.raises(results.ResultError) as refused:
        results.from_plain(plain(*entries), "head.json")
    assert named in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"[]", b"null", b"1", b"[" * 100_000])
def test_a_file_that_is_no_result_set_at_all_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "base.json").write_bytes(text)
    with pytest.raises(results.ResultError, match=r"base\.json"):
        results.read(tmp_path / "base.json")


def test_a_key_that_is_there_twice_is_refused(tmp_path):
    text = json.dumps(plain()).replace(
        '"registers_per_thread": 90', '"registers_per_thread": 255, "registers_per_thread": 90'
    )
    (tmp_path / "head.json").write_text(text)
    with pytest.raises(results.ResultError, match="'registers_per_thread' is there twice"):
        results.read(tmp_path / "head.json")


def test_a_file_that_is_not_there_is_a_usage_error_and_no_verdict(tmp_path):
    with pytest.raises(UsageError, match="cannot be read") as refused:
        results.read(tmp_path / "nowhere.json")
    assert not isinstance(refused.value, results.ResultError)


LOOP = profile.LoopProfile(offset=0, instructions=155, counts={"tensor": 16}, k_tiles=4)


def a_profile(**changes):
    """What a Profile says, as far as a result set keeps it."""
    said = {
        "version": "v9", "problem": P, "sm_count": 148, "code_hash": "0" * 64, "registers": 90,
        "spill_store_bytes": 8, "spill_load_bytes": 12, "stack_bytes": 16, "static_smem_bytes": 1000,
        "dynamic_smem_bytes": 2000, "tmem_columns": 512, "threads": 384, "ctas_per_sm": 1,
        "ctas_limited_by": ("SMEM",), "instructions": 943, "main_loop": LOOP, "intensity": 170.5,
        "bytes_in_flight_per_sm": 196608,
    }  # fmt: skip
    known = profile.Profile.__dataclass_fields__
    assert set(said) <= set(known)  # or this is not what a Profile says
    return types.SimpleNamespace(**said | changes)


def test_profiles_become_a_result_set_that_can_be_read_again(tmp_path):
    short = a_profile(version="v1", main_loop=None, intensity=None)
    profiles = types.SimpleNamespace(
        ladder="blackwell_gemm", arch="sm_100a", profiles=(a_profile(), short), failed={"v2": "nvrtc: error", "v3": ""}
    )
    made = results.from_profiles(profiles, result().origin, {"v9": "clean"})
    results.write(made, tmp_path / "head.json")
    assert results.read(tmp_path / "head.json") == made
    v9, v1, v2, v3 = made.entries
    assert (v9.correctness, v1.correctness) == ("clean", None)
    figures = v9.figures
    assert (figures.spill_bytes, figures.smem_bytes, figures.main_loop_instructions_per_k_tile) == (20, 3000, 38.75)
    assert (figures.registers_per_thread, figures.flops_per_load_byte) == (90, 170.5)
    assert v1.figures.main_loop_instructions_per_k_tile is None
    assert (v2.build_error, v2.problem) == ("nvrtc: error", None)
    assert v3.build_error  # a failure without words is a failure


def test_reading_needs_neither_tvm_nor_cuda_nor_torch():
    """compare, gate and what they need run where nothing heavy is installed."""
    import subprocess
    import sys

    code = (
        "import sys; from tirx_ladder import compare, gate, policy, results, trades; "
        "print([m for m in ('tvm', 'torch', 'cuda', 'numpy', 'scipy') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_good_data_stays_as_it_is():
    data = plain()
    before = copy.deepcopy(data)
    results.from_plain(data, str(Path("x")))
    assert data == before


def test_result_sets_of_two_problems_become_one():
    failed = entry("v1", problem=None, code_hash=None, figures=None, sm_count=None, build_error="no K of 8192")
    both = results.together((P, Q), [result(entry("v1"), entry("v2")), result(failed, entry("v2", problem=Q))])
    assert [(e.version, e.problem, e.build_error) for e in both.entries] == [
        ("v1", P, None), ("v2", P, None), ("v1", Q, "no K of 8192"), ("v2", Q, None),
    ]  # fmt: skip
    assert results.from_plain(records.to_plain(both), "both") == both


def test_a_version_that_builds_for_no_problem_has_one_entry():
    failed = entry("v1", problem=None, code_hash=None, figures=None, sm_count=None, build_error="no CUDA")
    both = results.together((P, Q), [result(failed, entry("v2")), result(failed, entry("v2", problem=Q))])
    assert [(e.version, e.problem) for e in both.entries] == [("v2", P), ("v2", Q), ("v1", None)]


def test_a_version_cut_to_the_same_problem_for_both_is_there_once():
    both = results.together((P, Q), [result(entry("v1")), result(entry("v1"))])
    assert [(e.version, e.problem) for e in both.entries] == [("v1", P)]
