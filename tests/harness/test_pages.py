"""The gate's page: everything that was found, the history drawn, and other people's text as text."""

import math
from html.parser import HTMLParser

import pytest
from result_sets import P, broken, entry, result, samples

from tirx_ladder import gate, pages, results
from tirx_ladder.git import Commit
from tirx_ladder.pages import history
from tirx_ladder.pages.history import History, Point
from tirx_ladder.pages.sparks import HEIGHT, WIDTH, spark
from tirx_ladder.policy import Policy

HOSTILE = '<script>alert("x")</script> & {{ 7 * 7 }}'
NONE = History((), ())


class Page(HTMLParser):
    """What a browser would see: tags, and the text outside of styles."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.titles, self.classes = [], [], [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag == "circle":
            self.classes.append(dict(attrs)["class"])

    def handle_data(self, data):
        if self.tags and self.tags[-1] != "style":
            self.words.append(data)
            if self.tags[-1] == "title":
                self.titles.append(data)


def report(tmp_path, base, head, *trailers):
    results.write(result(*base), tmp_path / "base.json")
    results.write(result(*head, side="b"), tmp_path / "head.json")
    message = "Title\n\n" + "\n".join(f"Accept-regression: {trailer}" for trailer in trailers)
    return gate.run(tmp_path / "base.json", tmp_path / "head.json", Policy(), [message])


def page(tmp_path, base, head, *trailers, known=NONE):
    return Page(pages.gate_page(report(tmp_path, base, head, *trailers), known))


def known(*entries, titles=None):
    """A history with one entry a commit."""
    return History(
        tuple(
            Point(Commit(str(i) * 40, f"2026-01-0{i + 1}", (titles or {}).get(i, f"commit {i}")), result(one))
            for i, one in enumerate(entries)
        ),
        (),
    )


def test_figures_limit_reason_and_verdict_are_shown_worst_first(tmp_path):
    base = entry("v8"), entry("v9")
    head = entry("v8"), entry("v9", "new", registers_per_thread=140)
    text = page(tmp_path, base, head).text
    assert "Gate: regression" in text
    assert "more-registers registers_per_thread 90 140 106" in text
    assert text.index("regression v9 4096x4096x4096") < text.index("pass v8")


def test_an_accepted_trade_is_shown_with_its_reason(tmp_path):
    head = (entry("v9", "new", registers_per_thread=140),)
    text = page(tmp_path, (entry(),), head, f"v9 registers_per_thread: {HOSTILE}").text
    assert f"Accepted trades version problem figure base head reason given v9 {P} registers_per_thread 90 140" in text
    assert HOSTILE in text


def test_compiler_messages_and_titles_stay_text(tmp_path):
    titles = known(entry(), titles={0: HOSTILE})
    found = page(tmp_path, (entry(),), (broken(problem=P, why=f"error:\n{HOSTILE}"),), known=titles)
    assert "script" not in found.tags
    assert found.text.count(HOSTILE) == 1 + 7 + 1  # the message, a tooltip on each figure, the list of commits


def test_nothing_is_loaded_from_elsewhere(tmp_path):
    text = pages.gate_page(report(tmp_path, (entry(),), (entry(),)), known(entry()))
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text


def test_an_empty_history_says_so(tmp_path):
    assert "No result set of a commit on this branch is known yet" in page(tmp_path, (entry(),), (entry(),)).text


def test_a_file_that_could_not_be_read_is_named(tmp_path):
    assert "left out: a.json" in page(tmp_path, (entry(),), (entry(),), known=History((), ("a.json: bad",))).text


def test_unreadable_result_sets_make_a_page_too(tmp_path):
    (tmp_path / "a.json").write_text("[")
    found = gate.run(tmp_path / "a.json", tmp_path / "a.json", Policy())
    assert "Gate: invalid" in Page(pages.gate_page(found, NONE)).text


def test_each_commit_is_a_dot_and_a_worse_one_is_marked(tmp_path):
    drawn = known(entry(), entry(registers_per_thread=100), entry(registers_per_thread=95))
    found = page(tmp_path, (entry(),), (entry(),), known=drawn)
    assert found.classes.count("worse") == 1
    assert found.classes.count("better") == 1
    assert any("111111111111 2026-01-02 commit 1: 100" in title for title in found.titles)


def test_measured_times_are_drawn_in_microseconds(tmp_path):
    found = page(tmp_path, (entry(),), (entry(),), known=known(entry(samples=samples())))
    assert "time, µs" in found.text
    assert any(title.endswith(": 100") for title in found.titles)


def test_a_chart_stays_in_its_frame_and_is_broken_where_a_value_is_unknown():
    drawn = spark([1.0, 2.0, None, math.nan, 5.0, 1e308, -1e308], larger_is_worse=True)
    assert [dot.index for dot in drawn.dots] == [0, 1, 4, 5, 6]
    assert len(drawn.lines) == 2
    assert all(0 <= dot.x <= WIDTH and 0 <= dot.y <= HEIGHT for dot in drawn.dots)
    assert [dot.change for dot in drawn.dots] == ["same", "worse", "worse", "worse", "better"]


@pytest.mark.parametrize("values", [[], [None], [math.inf]])
def test_a_series_of_nothing_known_is_an_empty_chart(values):
    assert spark(values) == spark([])


def test_result_sets_are_kept_by_commit_and_read_in_the_branchs_order(tmp_path):
    commits = [Commit(side * 40, "2026-01-01", side) for side in "abc"]
    for side in "ca":
        history.keep(result(entry(), side=side), tmp_path)
    read = history.load(tmp_path, "blackwell_gemm", commits)
    assert [point.commit.title for point in read.points] == ["a", "c"]
    assert history.load(tmp_path, "hopper_gemm", commits).points == ()


def test_another_problem_of_the_same_commit_is_added_and_the_same_one_replaced(tmp_path):
    history.keep(result(entry(problem=P), entry(problem=P, version="v8")), tmp_path)
    history.keep(result(entry(problem=P, registers_per_thread=99)), tmp_path)
    (point,) = history.load(tmp_path, "blackwell_gemm", [Commit("a" * 40, "", "")]).points
    assert [(e.version, e.figures.registers_per_thread) for e in point.result.entries] == [("v9", 99), ("v8", 90)]


@pytest.mark.parametrize(("code", "machine", "kept"), [("old", None, True), ("new", None, False), ("old", "h", False)])
def test_samples_stay_with_the_same_code_and_machine(tmp_path, code, machine, kept):
    history.keep(result(entry(samples=samples())), tmp_path)
    history.keep(result(entry(code=code), machine=machine), tmp_path)
    (point,) = history.load(tmp_path, "blackwell_gemm", [Commit("a" * 40, "", "")]).points
    assert (point.result.entries[0].samples is not None) == kept


def test_a_kept_file_that_is_broken_is_named_and_left_out(tmp_path):
    history.keep(result(entry()), tmp_path)
    next(tmp_path.rglob("*.json")).write_text("{}")
    read = history.load(tmp_path, "blackwell_gemm", [Commit("a" * 40, "", "")])
    assert (read.points, len(read.unreadable)) == ((), 1)
