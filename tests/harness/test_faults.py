"""The catalogue itself: enough faults, in every class and version, all of which still fit the kernels."""

from collections import Counter

import pytest

from tirx_ladder import faults, ladder
from tirx_ladder.faults import campaign
from tirx_ladder.faults.catalogue import FAULTS
from tirx_ladder.simulate import TOOLS, Finding

BLACKWELL = ladder.load()
PLANTED = [pytest.param(f, v, id=f"{f.name}-{v}") for f in FAULTS for v in f.versions]


def test_there_are_at_least_40_faults_with_names_of_their_own():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 40


def test_every_class_has_several_members_and_every_version_some():
    kinds = Counter(fault.kind for fault in FAULTS)
    assert set(kinds) == {"phases", "counts", "fences", "waits", "syncs", "storage", "arithmetic"}
    assert min(kinds.values()) >= 4
    assert {version for fault in FAULTS for version in fault.versions} == {v.name for v in BLACKWELL.versions}


def test_every_fault_says_what_was_done_wrong_and_who_must_catch_it():
    for fault in FAULTS:
        assert fault.did, fault.name
        assert fault.caught, fault.name
        assert set(fault.caught) <= set(TOOLS), fault.name


@pytest.mark.parametrize(("fault", "version"), PLANTED)
def test_a_planted_version_loads_differs_and_leaves_the_others_alone(fault, version, tmp_path):
    copy = faults.plant(fault, version, BLACKWELL, tmp_path)
    loaded = ladder.load(str(copy))
    assert not loaded.broken
    original = BLACKWELL[version].source.parent
    changed = [path.name for path in original.glob("*.py") if path.read_text() != (copy / path.name).read_text()]
    assert changed == [BLACKWELL[version].source.name]
    spec = faults.specialisation(fault, loaded[version])
    loaded[version].check(spec.problem, spec.sm_count or ladder.B200_SMS)


def row(**changes):
    fields = {"fault": "f", "kind": "k", "version": "v1", "did": "d", "message": "m"}
    return campaign.Row(**{**fields, "expected": ("lint", "racecheck"), "caught": ("lint", "racecheck"), **changes})


def test_a_fault_is_caught_only_if_every_tool_expected_objected():
    assert row().ok
    assert row(caught=("lint", "numerics", "racecheck")).ok
    assert not row(caught=("lint",)).ok
    assert not row(caught=()).ok
    assert not row(expected=()).ok


@pytest.mark.parametrize("verdict", ["clean", "broken", "timeout", "crash", "incomplete"])
def test_a_kernel_that_was_not_judged_is_not_a_fault_that_was_caught(verdict):
    assert not campaign.catches(Finding(verdict, "why"))


@pytest.mark.parametrize("verdict", ["wrong", "error", "review"])
def test_an_objection_is_a_catch(verdict):
    assert campaign.catches(Finding(verdict, "why"))


def test_the_table_puts_what_was_missed_first_and_names_the_silent_tool(tmp_path):
    found = campaign.Campaign(BLACKWELL, None, tmp_path)
    found.rows += [row(fault="fine"), row(fault="silent", caught=("lint",))]
    table = [line for line in found.markdown().splitlines() if line.startswith("| k: ")]
    assert [line.split("|")[1].strip() for line in table] == ["k: silent", "k: fine"]
    assert "MISSED" in table[0]
    assert found.summary() == "caught 1 of 2 planted faults, false alarms 0 of 0 good cases"


def test_the_report_is_written_whole_and_says_the_same_as_the_table(tmp_path):
    found = campaign.Campaign(BLACKWELL, None, tmp_path)
    found.rows.append(row())
    found.write(tmp_path / "reports")
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {"faults.json", "faults.md"}
    assert '"summary": "caught 1 of 1' in (tmp_path / "reports/faults.json").read_text()
