"""The GitHub workflows: least permissions, actions pinned, nothing of other people's in a shell, no gate that opens."""

import re
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
DATA = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}


def jobs():
    return [
        pytest.param(flow, job, id=f"{name}-{key}") for name, flow in DATA.items() for key, job in flow["jobs"].items()
    ]


def test_the_workflows_are_found():
    assert {"gate", "blackwell", "ci"} <= DATA.keys()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_action_is_pinned_by_a_full_hash_with_its_version(path):
    uses = [
        line.split("uses:")[1].strip() for line in path.read_text().splitlines() if re.match(r"\s*(- )?uses:", line)
    ]
    assert uses
    for action in uses:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


@pytest.mark.parametrize(("flow", "job"), jobs())
def test_permissions_are_set_and_write_is_for_what_no_pull_request_starts(flow, job):
    granted = job.get("permissions", flow.get("permissions"))
    assert isinstance(granted, dict)
    if "write" in granted.values():
        assert "github.event_name == 'push'" in job["if"] or "needs.results.result == 'success'" in job["if"]


@pytest.mark.parametrize(("flow", "job"), jobs())
def test_no_expression_is_put_into_a_shell(flow, job):
    for step in job["steps"]:
        assert "${{" not in step.get("run", "")


@pytest.mark.parametrize(("flow", "job"), jobs())
def test_a_checkout_leaves_no_token_where_foreign_code_runs(flow, job):
    for step in job["steps"]:
        if "actions/checkout@" in step.get("uses", ""):
            pushes = job.get("permissions", {}).get("contents") == "write"
            assert pushes or step["with"]["persist-credentials"] is False


def test_the_required_gate_is_not_skipped_when_correctness_fails():
    assert DATA["gate"]["jobs"]["gate"]["if"] == "${{ always() }}"


def test_a_pull_request_reaches_the_gpu_by_a_label_and_an_approval_at_the_commit_of_the_event():
    flow = DATA["blackwell"]
    on = flow[True]  # YAML 1.1 reads `on` as a truth
    assert on.keys() == {"push", "pull_request_target"}
    assert on["pull_request_target"] == {"types": ["labeled"]}
    gpu = flow["jobs"]["gpu"]
    assert "github.event.label.name == 'gpu'" in gpu["if"]
    assert "gpu-pull-request" in gpu["environment"]
    assert gpu["steps"][0]["with"]["ref"] == "${{ github.event.pull_request.head.sha || github.sha }}"
    assert [key for key, job in flow["jobs"].items() if "self-hosted" in job["runs-on"]] == ["gpu"]


def test_the_gpu_serves_one_job_at_a_time_and_its_clocks_are_always_unlocked():
    gpu = DATA["blackwell"]["jobs"]["gpu"]
    assert gpu["concurrency"] == {"group": "blackwell-gpu", "cancel-in-progress": False}
    unlock = [step for step in gpu["steps"] if step.get("if") == "${{ always() }}"]
    assert any("--reset-gpu-clocks" in step["run"] for step in unlock)
