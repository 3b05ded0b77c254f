"""The policy of the gate: defaults that stop what must be stopped, and mistakes in pyproject.toml named."""

import dataclasses
from pathlib import Path

import pytest

from tirx_ladder import policy
from tirx_ladder.ladder import UsageError

ROOT = Path(__file__).parents[2]


def read(tmp_path, text):
    (tmp_path / "pyproject.toml").write_text(text)
    return policy.read(tmp_path / "pyproject.toml")


@pytest.mark.parametrize("text", ["", "[tool.other]\nx = 1", "[tool.tirx-ladder]", "[tool.tirx-ladder.gate]"])
def test_without_a_table_the_defaults_hold(tmp_path, text):
    assert read(tmp_path, text) == policy.Policy()


def test_each_key_can_be_set(tmp_path):
    other = {
        "max_new_spill_bytes": 4, "max_register_growth": 8, "max_main_loop_growth": 0.1,
        "max_bytes_in_flight_loss": 0.2, "max_work_per_byte_loss": 0,
        "max_slowdown": 0.02, "min_processes": 12, "max_processes": 20, "require_measured": True,
    }  # fmt: skip
    assert set(other) == {field.name for field in dataclasses.fields(policy.Policy)}
    text = "\n".join(f"{key} = {str(value).lower()}" for key, value in other.items())
    assert dataclasses.asdict(read(tmp_path, f"[tool.tirx-ladder.gate]\n{text}")) == other


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("max_spill = 0", "unknown key 'max_spill'; known are max_new_spill_bytes"),
        ("max_new_spill_bytes = -1", "max_new_spill_bytes = -1: an integer of 0 or more"),
        ("max_new_spill_bytes = true", "max_new_spill_bytes = True"),
        ("max_register_growth = 1.5", "max_register_growth = 1.5: an integer"),
        ("max_main_loop_growth = '5 %'", "max_main_loop_growth = '5 %': a fraction"),
        ("max_main_loop_growth = 5", "max_main_loop_growth = 5: a fraction"),
        ("max_main_loop_growth = nan", "max_main_loop_growth = nan: a fraction"),
        ("max_slowdown = inf", "max_slowdown = inf: a fraction"),
        ("max_slowdown = -0.01", "max_slowdown = -0.01: a fraction"),
        ("max_bytes_in_flight_loss = 1.0", "max_bytes_in_flight_loss = 1.0: a fraction"),
        ("max_slowdown = false", "max_slowdown = False: a fraction"),
        ("min_processes = 7", "min_processes = 7: an integer of 8 or more"),
        ("max_processes = 6", "max_processes = 6: an integer of 8 or more"),
        ("min_processes = 40", "max_processes = 32: min_processes (40) or more"),
        ("require_measured = 1", "require_measured = 1: true or false"),
    ],
)
def test_a_wrong_policy_is_refused_by_the_name_of_its_key(tmp_path, line, named):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, f"[tool.tirx-ladder.gate]\n{line}\n")
    assert named in str(refused.value)
    assert "pyproject.toml" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[tool.tirx-ladder]\ngate = 1", "tool.tirx-ladder.gate = 1: a table"),
        ("[tool]\ntirx-ladder = []", "tool.tirx-ladder = []: a table"),
        ("tool = 'x'", "tool = 'x': a table"),
        ("[tool", "is not TOML"),
    ],
)
def test_a_pyproject_that_holds_no_table_there_is_refused(tmp_path, text, named):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert named in str(refused.value)


def test_a_pyproject_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        policy.read(tmp_path / "pyproject.toml")


def test_the_policy_of_this_project_is_valid():
    assert isinstance(policy.read(ROOT / "pyproject.toml"), policy.Policy)
