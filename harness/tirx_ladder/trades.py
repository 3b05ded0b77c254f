"""Deliberate trades: commit trailers that accept that one figure of one version gets worse, with a reason.

    Accept-regression: v9 registers_per_thread: the epilogue keeps a whole row, 3 % faster on 4096

A trade holds for all problems of the version, and for nothing but that figure. It accepts a regression, and a slowdown
that is nearly one (near-margin); never noise, and nothing invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

KEY = "Accept-regression"


@dataclass(frozen=True)
class Trade:
    """One accepted regression."""

    version: str
    figure: str
    reason: str

    def __str__(self) -> str:
        return f"{self.version} {self.figure}: {self.reason}"


@dataclass(frozen=True)
class Unused:
    """A trailer that accepted nothing, and why."""

    text: str
    why: str


_SEPARATED = re.compile(r"([A-Za-z0-9-]+)[ \t]*:(.*)", re.DOTALL)
_MADE_BY_GIT = ("Signed-off-by: ", "(cherry picked from commit ")
_VALUE = re.compile(r"(\S+)\s+([^\s:]+)\s*:\s*(.*)")
_ANYWHERE = re.compile(rf"{KEY}[ \t]*:\s*(.*)", re.IGNORECASE)


def trades(messages: Iterable[str]) -> tuple[tuple[Trade, ...], tuple[Unused, ...]]:
    """The trades of commit messages, and the trailers that are none: malformed, without a reason, or misplaced."""
    found: list[Trade] = []
    unused: list[Unused] = []
    for message in messages:
        values = [value for key, value in trailers(message) if key.lower() == KEY.lower()]
        for value in values:
            match = _VALUE.fullmatch(value)
            if match is None:
                unused.append(Unused(value, f"refused: '{KEY}: VERSION FIGURE: REASON' is wanted"))
            elif not re.search(r"\w", match[3]):
                unused.append(Unused(value, "refused: it gives no reason"))
            else:
                found.append(Trade(*match.groups()))
        written = [match[1].strip() for line in message.splitlines() if (match := _ANYWHERE.match(line))]
        for text in written[: len(written) - len(values)]:  # trailers come last
            unused.append(
                Unused(text, "not among the trailers: the last paragraph, of nothing but trailers, is wanted")
            )
    return tuple(found), tuple(unused)


def trailers(message: str) -> list[tuple[str, str]]:
    """Key and unfolded value of a message's trailers: what `git interpret-trailers --parse` prints (git, trailer.c).

    Trailers are the last paragraph, not the first, if all its lines are trailers or continue one, or if at least
    a quarter are and one is of git's own making.
    """
    lines = _before_divider(message)
    found: list[list[str]] = []
    folding = False
    for line in lines[_block_start(lines) :]:
        if folding and line[:1].isspace():
            found[-1][1] += f" {line.strip()}"
            continue
        match = _SEPARATED.fullmatch(line)
        folding = match is not None
        if match is not None:
            found.append([match[1], match[2].strip()])
    return [(key, value.strip()) for key, value in found]


def _before_divider(message: str) -> list[str]:
    """The lines of the message itself: a patch or notes may follow a line of dashes."""
    lines = message.split("\n")
    for i, line in enumerate(lines):
        if re.match(r"---\s", line + "\n" if i < len(lines) - 1 else line):
            lines = lines[:i]
            break
    while lines and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()
    return lines


def _block_start(lines: list[str]) -> int:
    """Index of the first line of the trailers; the number of lines if there are none."""
    nowhere = len(lines)
    trailing = other = continuing = 0
    by_git = False
    for i in range(nowhere - 1, -1, -1):
        line = lines[i]
        if line.startswith("#"):
            other, continuing = other + continuing, 0
        elif not line.strip():
            other += continuing
            fits = (by_git and trailing * 3 >= other) or (trailing and not other)
            return i + 1 if fits else nowhere
        elif line.startswith(_MADE_BY_GIT):
            trailing, continuing, by_git = trailing + 1, 0, True
        elif line[:1].isspace():
            continuing += 1
        elif _SEPARATED.fullmatch(line):
            trailing, continuing = trailing + 1, 0
        else:
            other, continuing = other + continuing + 1, 0
    return nowhere
