"""The report: a page and PNGs of what is there, and words for what is not."""

import base64
import json
import subprocess

import pytest
from result_sets import entry, result

from tirx_ladder import cli, git, records
from tirx_ladder.git import Commit
from tirx_ladder.gpu import bench
from tirx_ladder.gpu.machine import Gpu
from tirx_ladder.ladder import Problem
from tirx_ladder.pages import changepoints, history, plots
from tirx_ladder.pages import index as report

P = Problem(4096, 4096, 4096)
PNG = b"\x89PNG\r\n\x1a\n"


def row(version="v9", tflops=600.0, **changes):
    seconds = None if tflops is None else P.flops / tflops / 1e12
    good = {"seconds": seconds, "tflops": tflops, "cublas_seconds": P.flops / 750e12, "samples": 300, "marks": ()}
    return bench.Row(version=version, problem=P, **(good | changes))


def measured(*rows, commit="a" * 40, dirty=False, peak=989.4):
    gpu = Gpu("NVIDIA H200", "GPU-1", "580.1", 132, peak, 4.8e12 if peak else None)
    return bench.Report(bench.SCHEMA, "blackwell_gemm", "sm_100a", commit, dirty, gpu, rows or (row(),))


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), *((*who, "commit", "-q", "--allow-empty", "-m", f"{i} <b>") for i in range(3))):
        subprocess.run(["git", *words], check=True)
    return tmp_path


def page(folder):
    assert cli.main(["report"]) == 0
    return (folder / "reports" / "index.html").read_text()


def test_with_nothing_measured_it_says_what_is_missing_and_how_to_make_it(repository):
    text = page(repository)
    for words in ("Nothing was measured", "nox -s bench", "No measured commit", "No gate has run"):
        assert words in text
    assert (repository / "reports" / "published.png").read_bytes().startswith(PNG)


def test_the_ladder_is_a_table_and_a_picture_with_cublas_and_peak(repository):
    records.write(measured(row("v8", 375.0), row("v9", 600.0)), repository / "reports/bench.json")
    text = page(repository)
    assert "50.0 %" in text  # v8 of cuBLAS
    assert "60.6 %" in text  # v9 of the peak
    png = (repository / "reports/ladder-blackwell_gemm-4096x4096x4096.png").read_bytes()
    assert png.startswith(PNG)
    assert base64.b64encode(png).decode() in text


def test_a_version_without_a_time_and_a_gpu_without_a_known_peak_are_shown(repository):
    rows = row("v8", None, marks=("crashed <b>",)), row("v9")
    records.write(measured(*rows, peak=None), repository / "reports/bench.json")
    text = page(repository)
    assert "crashed &lt;b&gt;" in text
    assert "It needs a measurement" in text


def test_the_roofline_has_the_versions_whose_flops_per_byte_are_known(repository):
    head = git.commit_of(repository, "HEAD")
    history.keep(result(entry("v9"), commit=head), repository / "reports")
    records.write(measured(row("v8"), row("v9")), repository / "reports/bench.json")
    assert "Not drawn, for want of one figure or the other: v8." in page(repository)
    assert (repository / "reports/roofline-blackwell_gemm-4096x4096x4096.png").is_file()


def test_the_last_gate_is_summed_up(repository):
    records.write(measured(), repository / "reports/bench.json")
    gate = {
        "schema": 1, "verdict": "invalid", "base": None, "head": {"commit": "b" * 40},
        "findings": [{"verdict": "invalid", "code": "unreadable", "detail": "<script>"}],
        "rows": [{"version": "v9", "problem": None, "verdict": "pass", "reasons": ["same-code"]}],
    }  # fmt: skip
    (repository / "reports/gate.json").write_text(json.dumps(gate))
    text = page(repository)
    assert "unreadable &lt;script&gt;" in text
    assert "head <code>bbbbbbbbbbbb</code>" in text


def test_a_bench_file_of_another_schema_is_one_line_and_exit_code_2(repository, capsys):
    (repository / "reports").mkdir()
    (repository / "reports/bench.json").write_text('{"schema": 9}')
    assert cli.main(["report"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(("dirty", "count"), [(False, 1), (True, 0)])
def test_only_what_was_measured_of_a_clean_commit_enters_the_history(tmp_path, dirty, count):
    report.keep(measured(dirty=dirty), tmp_path)
    assert len(report.collect(tmp_path, [Commit("a" * 40, "", "")])) == count


def test_the_history_is_in_the_branchs_order_without_disturbed_times_or_other_branches(tmp_path):
    for side, tflops, marks in (("a", 1.0, ()), ("b", 2.0, ("throttled",)), ("c", 3.0, ()), ("d", 4.0, ())):
        report.keep(measured(row("v9", tflops, marks=marks), commit=side * 40), tmp_path)
    (series,) = report.collect(tmp_path, [Commit(side * 40, "", "") for side in "cab"])
    assert series.tflops == (3.0, 1.0, None)


def test_change_points_are_told_by_commit(repository):
    commits = git.first_parents(repository, "HEAD")
    for i, commit in enumerate(commits):
        report.keep(measured(row("v9", 600.0 + i), commit=commit.hash), repository / "reports")
    assert "Change points were not looked for" in page(repository)
    (series,) = json.loads((repository / "reports/series.json").read_text())["series"]
    found = {"schema": 1, "series": [{"name": series["name"], "commits": [commits[2].hash], "judged": 3}]}
    (repository / "reports/changepoints.json").write_text(json.dumps(found))
    assert f"NVIDIA H200 changed at <code>{commits[2].hash[:12]}</code>" in page(repository)


def test_change_points_leave_out_unknown_values(monkeypatch):
    monkeypatch.setattr(changepoints, "change_points", lambda values: [2] if values == [1.0, 1.0, 9.0] else [])
    series = {"name": "v9", "commits": ["a", "b", "c", "d"], "tflops": [1.0, None, 1.0, 9.0]}
    assert changepoints.find({"series": [series]})["series"] == [{"name": "v9", "commits": ["d"], "judged": 3}]


def test_a_ladder_over_three_orders_of_magnitude_is_drawn_on_a_log_scale():
    wide = plots.ladder("t", {"v1": 0.5, "v9": 900.0}, {"cuBLAS": 950.0})
    assert wide.startswith(PNG)
    assert wide != plots.ladder("t", {"v1": 500.0, "v9": 900.0}, {"cuBLAS": 950.0})


def test_published_figures_are_those_of_the_issue_in_tflops():
    assert report.PUBLISHED_PROBLEM.flops / report.PUBLISHED_MS["v9"] / 1e9 == pytest.approx(1460.6, abs=0.1)
