"""Reason codes: every reason that the gate can give for a verdict, and what a finding holds besides.

Codes are stable: scripts may rely on them. A trade (trades.py) accepts what is in ACCEPTABLE, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from ..trades import Trade


class Verdict(StrEnum):
    """From best to worst."""

    PASS = "pass"  # noqa: S105 (no password)
    UNDECIDED = "undecided"
    REGRESSION = "regression"
    INVALID = "invalid"


PASS, UNDECIDED, REGRESSION, INVALID = Verdict
_BADNESS = {verdict: badness for badness, verdict in enumerate(Verdict)}

REASONS: dict[str, tuple[Verdict, str]] = {
    "same-code": (PASS, "machine code and launch are the same, so there is nothing to time"),
    "new": (PASS, "not there at base"),
    "no-worse": (PASS, "the code changed, and no static figure is worse"),
    "improved": (PASS, "the figure is better than at base"),
    "within-margin": (PASS, "the figure is worse, and the policy lets that pass"),
    "not-measured": (PASS, "neither side was measured, so the static figures decide"),
    "not-slower": (PASS, "measured, and no slower than the policy lets pass"),
    "spill": (REGRESSION, "more bytes of registers are spilled to memory"),
    "fewer-ctas": (REGRESSION, "an SM holds fewer CTAs"),
    "more-registers": (REGRESSION, "more registers per thread"),
    "register-cliff": (REGRESSION, "the registers added leave an SM with fewer CTAs"),
    "smem-cliff": (REGRESSION, "the shared memory added leaves an SM with fewer CTAs"),
    "more-main-loop-instructions": (REGRESSION, "more instructions in the main loop for each K tile"),
    "fewer-bytes-in-flight": (REGRESSION, "fewer bytes of loads in flight per SM"),
    "less-work-per-byte": (REGRESSION, "fewer flops for each byte loaded into shared memory"),
    "slower": (REGRESSION, "measured, and slower than the policy lets pass"),
    "base-build-failed": (UNDECIDED, "it did not build at base, so there is nothing to compare with"),
    "correctness-unknown": (UNDECIDED, "clean at base, not checked at head"),
    "main-loop-unclear": (UNDECIDED, "how many K tiles a pass of the main loop takes is unknown on both sides"),
    "half-measured": (UNDECIDED, "only one side was measured"),
    "measurement-required": (UNDECIDED, "the policy wants samples of changed code, and there are none"),
    "samples-incomplete": (UNDECIDED, "the measurement did not run to its end"),
    "samples-unclean": (UNDECIDED, "a mark says that the measurement was disturbed"),
    "few-processes": (UNDECIDED, "too few processes measured"),
    "no-null-pair": (UNDECIDED, "how much the same code differs from itself on that machine was not measured"),
    "timer-too-coarse": (UNDECIDED, "all pairs agree to the last digit, so the timer cannot tell a change"),
    "too-noisy": (UNDECIDED, "the interval of the slowdown is too wide to tell"),
    "near-margin": (UNDECIDED, "a small change: under twice the margin, and neither surely above it nor surely under"),
    "clock-change": (UNDECIDED, "cycles and seconds do not agree, since the sides ran at two clocks: measure again"),
    "missing": (INVALID, "there at base and missing at head"),
    "build-failed": (INVALID, "it does not build at head"),
    "incorrect": (INVALID, "it is not clean at head"),
    "cannot-launch": (INVALID, "no SM has room for a CTA of it"),
    "figure-missing": (INVALID, "the figure is known on one side only"),
    "not-finite": (INVALID, "the figure is not a finite number"),
    "other-sm-count": (INVALID, "compiled for another number of SMs"),
    "samples-broken": (INVALID, "a sample is not a positive, finite time, or a process has none"),
    "other-machine": (INVALID, "measured on two machines, or on an unknown one"),
    "other-protocol": (INVALID, "the two sides were measured by two protocols"),
    "not-paired": (INVALID, "base and head were not measured in turn: base, head, head, base, base, head, …"),
    "unreadable": (INVALID, "the file holds no result set of this schema"),
    "other-ladder": (INVALID, "the result sets are of two ladders"),
    "other-arch": (INVALID, "the result sets are for two architectures"),
    "other-toolchain": (INVALID, "the result sets were built with two toolchains"),
    "other-commit": (INVALID, "the result set is of another commit than the one asked for"),
    "dirty": (INVALID, "the result set is of a checkout with uncommitted changes"),
    "empty": (INVALID, "the result set has no entry"),
    "empty-selection": (INVALID, "no version was selected"),
}
"""Reason code → its verdict and what it says."""

ACCEPTABLE = frozenset(code for code, (verdict, _) in REASONS.items() if verdict is REGRESSION) | {"near-margin"}
"""What a trade can accept: regressions, and a change that would be one if it were a little larger. Noise is neither."""


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict.

    figure:      what it is about; base and head its values, limit what the policy lets pass at head
    detail:      what the code alone does not say
    accepted_by: the trade that accepts it
    more_pairs:  pairs of processes worth measuring before this is the last word
    """

    code: str
    figure: str | None = None
    base: float | None = None
    head: float | None = None
    limit: float | None = None
    detail: str = ""
    accepted_by: Trade | None = None
    more_pairs: int = 0

    @property
    def verdict(self) -> Verdict:
        """The verdict of its code; pass once it is accepted."""
        accepted = self.accepted_by is not None and self.code in ACCEPTABLE
        return PASS if accepted else REASONS[self.code][0]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; invalid if there are none, for nothing was judged."""
    return max(verdicts, key=_BADNESS.__getitem__, default=INVALID)
