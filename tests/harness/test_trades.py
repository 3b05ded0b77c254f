"""Trades in commit messages: read as git reads trailers, and nothing malformed is taken for one."""

import shutil
import subprocess

import pytest

from tirx_ladder.trades import Trade, Unused, trades, trailers

GIT = shutil.which("git")
GOOD = "Accept-regression: v9 registers_per_thread: keeps a whole row"
MESSAGES = {
    "one": f"Epilogue\n\nWhy so.\n\n{GOOD}\n",
    "two": f"Epilogue\n\n{GOOD}\nSigned-off-by: A <a@b.c>\n",
    "no newline at the end": f"Epilogue\n\n{GOOD}",
    "blank lines at the end": f"Epilogue\n\n{GOOD}\n\n\n",
    "title only": GOOD,
    "right under the title": f"Epilogue\n{GOOD}\n",
    "two lines of title": f"Epilogue\nof V9\n\n{GOOD}\n",
    "prose after it": f"Epilogue\n\n{GOOD}\n\nMore prose.\n",
    "prose beside it": f"Epilogue\n\nSome prose\n{GOOD}\n",
    "prose beside it, signed off": f"Epilogue\n\nSome prose\n{GOOD}\nSigned-off-by: A <a@b.c>\n",
    "much prose beside it, signed off": "Epilogue\n\n" + "Some prose\n" * 7 + f"{GOOD}\nSigned-off-by: A <a@b.c>\n",
    "a quarter of trailers": "Epilogue\n\n" + "Some prose\n" * 6 + f"{GOOD}\nSigned-off-by: A <a@b.c>\n",
    "cherry pick": f"Epilogue\n\nprose\n{GOOD}\n(cherry picked from commit 1234)\n",
    "folded": "Epilogue\n\nAccept-regression: v9 registers_per_thread: keeps\n  a whole\n\trow\nOther: x\n",
    "folded prose": f"Epilogue\n\nprose\n  goes on\n{GOOD}\nSigned-off-by: A <a@b.c>\n",
    "folds first": f"Epilogue\n\n  goes on\n{GOOD}\n",
    "comment": f"Epilogue\n\n# Please enter: a message\n{GOOD}\n# more\n",
    "comment within a fold": "Epilogue\n\nA: b\n# c: d\n  e\nF: g\n",
    "space before the colon": "Epilogue\n\nAccept-regression : v9 registers_per_thread: x\n",
    "space in the key": f"Epilogue\n\nAccept regression: v9\n{GOOD}\n",
    "underscore in the key": "Epilogue\n\nAccept_regression: v9\n",
    "no value": "Epilogue\n\nAccept-regression:\nOther:\n",
    "divider": f"Epilogue\n\n{GOOD}\n---\n file | 2 ++\n",
    "divider with words": f"Epilogue\n\n{GOOD}\n--- a/file\n",
    "no divider": f"Epilogue\n\n---x\n{GOOD}\n",
    "divider first": f"---\n\n{GOOD}\n",
    "indented": f"Epilogue\n\n  {GOOD}\n",
    "lines of spaces": f"Epilogue\n  \nprose\n \t\n{GOOD}\n   \n",
    "begins blank": f"\n{GOOD}\n",
    "carriage returns": f"Epilogue\r\n\r\n{GOOD}\r\n",
    "colon first": f"Epilogue\n\n: x\n{GOOD}\n",
    "a link is a trailer": f"Epilogue\n\nhttps://example.com\n{GOOD}\n",
    "empty": "",
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.skipif(GIT is None, reason="needs git, to compare with")
def test_trailers_are_what_git_says_they_are(message, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    ran = subprocess.run(
        [GIT, "interpret-trailers", "--parse"], input=message.encode(), cwd=tmp_path, capture_output=True, check=True
    )
    assert [f"{key}: {value}".rstrip() for key, value in trailers(message)] == [
        line.rstrip() for line in ran.stdout.decode().splitlines()
    ]


def body(*lines):
    return "Title\n\nProse.\n\n" + "\n".join(lines) + "\n"


def test_a_trade_names_version_figure_and_reason():
    found, unused = trades([body(GOOD), body("accept-REGRESSION: v7 seconds : noise: see #12 ")])
    assert found == (Trade("v9", "registers_per_thread", "keeps a whole row"), Trade("v7", "seconds", "noise: see #12"))
    assert unused == ()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("v9 registers_per_thread:", "no reason"),
        ("v9 registers_per_thread:  ", "no reason"),
        ("v9 registers_per_thread: .", "no reason"),
        ("v9 registers_per_thread", "is wanted"),
        ("v9: it is fine", "is wanted"),
        ("v9 registers_per_thread spill_bytes: both", "is wanted"),
        ("", "is wanted"),
    ],
)
def test_a_trailer_without_reason_figure_or_version_is_refused(value, why):
    found, unused = trades([body(f"Accept-regression: {value}")])
    assert found == ()
    assert len(unused) == 1
    assert "refused" in unused[0].why
    assert why in unused[0].why


def test_a_trade_outside_the_trailers_is_none_and_is_told():
    found, unused = trades([f"Title\n\n{GOOD}\n\nProse.\n\nAccept-regression: v8 seconds: noise\n"])
    assert found == (Trade("v8", "seconds", "noise"),)
    assert [(u.text, u.why[:22]) for u in unused] == [
        ("v9 registers_per_thread: keeps a whole row", "not among the trailers")
    ]


def test_other_trailers_and_no_messages_are_no_trades():
    assert trades([]) == ((), ())
    assert trades([body("Signed-off-by: A <a@b.c>"), "Title"]) == ((), ())


def test_a_trade_is_told_as_it_was_written():
    (trade,), _ = trades([body(GOOD)])
    assert f"Accept-regression: {trade}" == GOOD
    assert Unused("x", "y") != Unused("x", "z")
