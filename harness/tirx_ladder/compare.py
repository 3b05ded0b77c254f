"""Two result sets → a verdict on each version and problem, with reason codes and figures.

Stages of a row: the same code (code_hash equal: pass at once, nothing to time), then the static figures by the
policy, then the samples. All findings of a row are kept, and the worst decides: invalid, regression, undecided, pass.

What is not two healthy builds:

    base            head            verdict      reason
    there           missing         invalid      missing             removing a version is a decision for people
    any             build fails     invalid      build-failed        there is nothing to judge, so also when base fails
    build fails     builds          undecided    base-build-failed   nothing to compare with: a repair, or bad luck
    missing         there           pass         new                 unless it is incorrect or fits no SM
    any             incorrect       invalid      incorrect           the speed of a wrong kernel means nothing
    clean           not checked     undecided    correctness-unknown unless its code is the same

REASONS lists every code. A regression, and nothing else, can be accepted by a trade (trades.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from .ladder import Problem, UsageError
from .policy import Policy
from .results import CLEAN, Entry, Figures, ResultSet, Samples
from .trades import Trade, Unused


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
    "no-statistics": (UNDECIDED, "samples are there, and this tirx-ladder has no statistics to judge them by"),
    "missing": (INVALID, "there at base and missing at head"),
    "build-failed": (INVALID, "it does not build at head"),
    "incorrect": (INVALID, "it is not clean at head"),
    "cannot-launch": (INVALID, "no SM has room for a CTA of it"),
    "figure-missing": (INVALID, "the figure is known on one side only"),
    "not-finite": (INVALID, "the figure is not a finite number"),
    "other-sm-count": (INVALID, "compiled for another number of SMs"),
    "samples-broken": (INVALID, "a sample is not a positive, finite time, or a process has none"),
    "other-machine": (INVALID, "measured on two machines, or on an unknown one"),
    "unreadable": (INVALID, "the file holds no result set of this schema"),
    "other-ladder": (INVALID, "the result sets are of two ladders"),
    "other-arch": (INVALID, "the result sets are for two architectures"),
    "other-toolchain": (INVALID, "the result sets were built with two toolchains"),
    "other-commit": (INVALID, "the result set is of another commit than the one asked for"),
    "dirty": (INVALID, "the result set is of a checkout with uncommitted changes"),
    "empty": (INVALID, "the result set has no entry"),
    "empty-selection": (INVALID, "no version was selected"),
}
"""Reason code → its verdict and what it says. Codes are stable: scripts may rely on them."""


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict.

    figure:      what it is about; base and head its values, limit what the policy lets pass at head
    detail:      what the code alone does not say
    accepted_by: the trade that accepts it
    """

    code: str
    figure: str | None = None
    base: float | None = None
    head: float | None = None
    limit: float | None = None
    detail: str = ""
    accepted_by: Trade | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict of its code; pass once it is accepted."""
        verdict = REASONS[self.code][0]
        return PASS if verdict is REGRESSION and self.accepted_by is not None else verdict


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of some verdicts; invalid if there are none, for nothing was judged."""
    return max(verdicts, key=_BADNESS.__getitem__, default=INVALID)


@dataclass(frozen=True)
class Row:
    """The findings on one version and problem. problem is None for a version that builds for none."""

    version: str
    problem: Problem | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings."""
        return worst(finding.verdict for finding in self.findings)

    @property
    def reasons(self) -> tuple[str, ...]:
        """The codes of its findings, worst first, each once."""
        ordered = sorted(self.findings, key=lambda finding: -_BADNESS[finding.verdict])
        return tuple(dict.fromkeys(finding.code for finding in ordered))


@dataclass(frozen=True)
class Comparison:
    """What came out of two result sets.

    findings: what stands against comparing them at all; there are no rows then
    rows:     in the order of base's entries, then head's new ones
    unused:   trades that accepted nothing
    """

    findings: tuple[Finding, ...]
    rows: tuple[Row, ...]
    unused: tuple[Unused, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all findings."""
        return worst([*(finding.verdict for finding in self.findings), *(row.verdict for row in self.rows)])


Judge = Callable[[Samples, Samples, float], Finding]
"""Judges samples that are complete, clean and enough: base, head, and the fraction of slowdown that passes."""


def judge_samples(base: Samples, head: Samples, margin: float) -> Finding:
    """Judge head's samples by base's. There are no statistics yet, so all that is said is what was measured."""
    before, after = _typical_seconds(base), _typical_seconds(head)
    return Finding("no-statistics", SECONDS, before, after, before * (1 + margin))


def _typical_seconds(samples: Samples) -> float:
    return median(median(process.seconds) for process in samples.processes)


@dataclass(frozen=True)
class _Rule:
    """How a static figure is judged. read gives its value, limit the worst that passes for a value at base."""

    code: str
    read: Callable[[Figures], float | None]
    limit: Callable[[float, Policy], float]
    larger_is_worse: bool

    def worse(self, value: float, than: float) -> bool:
        """Whether value is worse than another, rounding of fractions aside."""
        gap = value - than if self.larger_is_worse else than - value
        return gap > 1e-9 * max(abs(value), abs(than))


RULES: dict[str, _Rule] = {
    "spill_bytes": _Rule("spill", lambda f: f.spill_bytes, lambda base, p: base + p.max_new_spill_bytes, True),
    "ctas_per_sm": _Rule("fewer-ctas", lambda f: f.ctas_per_sm, lambda base, p: base, False),
    "registers_per_thread": _Rule(
        "more-registers", lambda f: f.registers_per_thread, lambda base, p: base + p.max_register_growth, True
    ),
    "main_loop_instructions_per_k_tile": _Rule(
        "more-main-loop-instructions",
        lambda f: f.main_loop_instructions_per_k_tile,
        lambda base, p: base * (1 + p.max_main_loop_growth),
        True,
    ),
    "bytes_in_flight_per_sm": _Rule(
        "fewer-bytes-in-flight",
        lambda f: f.bytes_in_flight_per_sm,
        lambda base, p: base * (1 - p.max_bytes_in_flight_loss),
        False,
    ),
    "flops_per_load_byte": _Rule(
        "less-work-per-byte",
        lambda f: f.flops_per_load_byte,
        lambda base, p: base * (1 - p.max_work_per_byte_loss),
        False,
    ),
}
"""The static figures that are judged one by one; _cliffs judges registers and shared memory together with the CTAs."""

SECONDS = "seconds"
SMEM = "smem_bytes"
FIGURES = (*RULES, SMEM, SECONDS)
"""Every figure that can regress: what a trade may name."""


def compare(
    base: ResultSet,
    head: ResultSet,
    policy: Policy,
    trades: Sequence[Trade] = (),
    *,
    base_commit: str | None = None,
    head_commit: str | None = None,
    versions: Collection[str] | None = None,
    judge: Judge = judge_samples,
) -> Comparison:
    """Compare head with base, version by version.

    base_commit and head_commit are the commits that were asked for (None: any). versions limits the comparison
    (None: all of them). Raises UsageError for a version that neither side has.
    """
    findings = tuple(_set_findings(base, head, base_commit, head_commit))
    known = base.versions() | head.versions()
    if versions is not None:
        for name in sorted(set(versions) - known):
            raise UsageError(f"unknown version {name!r}: the result sets have {', '.join(sorted(known)) or 'none'}")
        if not versions:
            findings += (Finding("empty-selection"),)
    if findings:
        return Comparison(findings, (), tuple(Unused(str(trade), "nothing could be compared") for trade in trades))
    rows = []
    for key, before, after in _pairs(base, head):
        if versions is None or key[0] in versions:
            found = list(_judge_row(before, after, policy, judge, (base.origin.machine, head.origin.machine)))
            rows.append(Row(*key, tuple(_accepted(key[0], finding, trades) for finding in found)))
    used = {finding.accepted_by for row in rows for finding in row.findings}
    accepted = {(trade.version, trade.figure) for trade in used if trade is not None}
    unused = [
        Unused(str(trade), _why_unused(trade, known))
        for trade in trades
        if (trade.version, trade.figure) not in accepted
    ]
    return Comparison((), tuple(rows), tuple(unused))


def _set_findings(base: ResultSet, head: ResultSet, base_commit: str | None, head_commit: str | None) -> list[Finding]:
    """What stands against comparing two result sets at all."""
    found = []
    for side, result, asked in (("base", base, base_commit), ("head", head, head_commit)):
        if asked is not None and result.origin.commit != asked:
            found.append(Finding("other-commit", detail=f"{side} is {result.origin.commit}, asked for is {asked}"))
        if result.origin.dirty:
            found.append(Finding("dirty", detail=side))
        if not result.entries:
            found.append(Finding("empty", detail=side))
    if base.ladder != head.ladder:
        found.append(Finding("other-ladder", detail=f"{base.ladder} at base, {head.ladder} at head"))
    if base.arch != head.arch:
        found.append(Finding("other-arch", detail=f"{base.arch} at base, {head.arch} at head"))
    before, after = base.origin.toolchain, head.origin.toolchain
    changed = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if changed:
        told = (f"{name} {before.get(name, 'absent')} at base, {after.get(name, 'absent')} at head" for name in changed)
        found.append(Finding("other-toolchain", detail="; ".join(told)))
    return found


Key = tuple[str, Problem | None]


def _pairs(base: ResultSet, head: ResultSet) -> Iterator[tuple[Key, Entry | None, Entry | None]]:
    """The entries of both sides under each key. A version that builds for no problem fails for each of the other's."""
    before, after = ({entry.key: entry for entry in side.entries} for side in (base, head))
    keys = list(dict.fromkeys([*before, *after]))
    with_problem = {version for version, problem in keys if problem is not None}
    for version, problem in keys:
        if problem is None and version in with_problem:
            continue
        sides = [side.get((version, problem)) or side.get((version, None)) for side in (before, after)]
        yield (version, problem), sides[0], sides[1]


def _judge_row(
    base: Entry | None, head: Entry | None, policy: Policy, judge: Judge, machines: tuple[str | None, str | None]
) -> Iterator[Finding]:
    if head is None:
        yield Finding("missing")
        return
    if head.build_error is not None:
        yield Finding("build-failed", detail=head.build_error)
        return
    if head.correctness not in (None, CLEAN):
        yield Finding("incorrect", detail=head.correctness or "its verdict is empty")
    if base is not None and base.code_hash is not None and base.code_hash == head.code_hash:
        yield Finding("same-code")
        return
    if head.figures is None or head.figures.ctas_per_sm == 0:
        yield Finding("cannot-launch")
    if base is None:
        yield Finding("new")
        return
    if base.correctness == CLEAN and head.correctness is None:
        yield Finding("correctness-unknown")
    if base.build_error is not None or base.figures is None or head.figures is None:
        yield Finding("base-build-failed", detail=base.build_error or "")
        return
    if base.sm_count != head.sm_count:
        yield Finding("other-sm-count", "sm_count", base.sm_count, head.sm_count)
    static = [*_static(base.figures, head.figures, policy), *_cliffs(base.figures, head.figures)]
    yield from static
    if all(finding.code == "improved" for finding in static):
        yield Finding("no-worse")
    yield from _measured(base.samples, head.samples, policy, judge, machines)


def _static(base: Figures, head: Figures, policy: Policy) -> Iterator[Finding]:
    """Each static figure by its rule; a figure that is the same on both sides gives no finding."""
    for name, rule in RULES.items():
        before, after = rule.read(base), rule.read(head)
        if before is None and after is None:
            continue
        if before is None or after is None:
            yield Finding("figure-missing", name, before, after)
        elif not (math.isfinite(before) and math.isfinite(after)):  # NaN is neither better nor worse than anything
            yield Finding("not-finite", name)
        elif rule.worse(after, than=(limit := rule.limit(before, policy))):
            yield Finding(rule.code, name, before, after, limit)
        elif rule.worse(after, than=before):
            yield Finding("within-margin", name, before, after, limit)
        elif rule.worse(before, than=after):
            yield Finding("improved", name, before, after)
    loops = [f.main_loop_instructions is not None for f in (base, head)]
    unclear = [f.main_loop_instructions_per_k_tile is None for f in (base, head)]
    if loops[0] != loops[1] and all(unclear):
        yield Finding(
            "figure-missing", "main_loop_instructions", base.main_loop_instructions, head.main_loop_instructions
        )
    elif all(loops) and all(unclear):
        yield Finding(
            "main-loop-unclear", "main_loop_instructions", base.main_loop_instructions, head.main_loop_instructions
        )


def _cliffs(base: Figures, head: Figures) -> Iterator[Finding]:
    """Which resource that grew is what now allows an SM fewer CTAs."""
    if head.ctas_per_sm < base.ctas_per_sm:
        told = f"CTAs per SM {base.ctas_per_sm} → {head.ctas_per_sm}"
        for code, figure, resource in (
            ("register-cliff", "registers_per_thread", "registers"),
            ("smem-cliff", SMEM, "SMEM"),
        ):
            before, after = getattr(base, figure), getattr(head, figure)
            if resource in head.ctas_limited_by and after > before:
                yield Finding(code, figure, before, after, before, told)


def _measured(
    base: Samples | None, head: Samples | None, policy: Policy, judge: Judge, machines: tuple[str | None, str | None]
) -> Iterator[Finding]:
    """What the samples say; what is not fit to be judged never reaches the statistics."""
    if base is None and head is None:
        yield Finding("measurement-required" if policy.require_measured else "not-measured")
        return
    unfit = [Finding("half-measured", detail=f"not at {side}") for side, s in _sides(base, head) if s is None]
    for side, samples in _sides(base, head):
        if samples is not None:
            unfit.extend(_unfit(samples, side, policy))
    if machines[0] is None or machines[0] != machines[1]:
        unfit.append(Finding("other-machine", detail=f"{machines[0] or 'unknown'} and {machines[1] or 'unknown'}"))
    yield from unfit
    if base is not None and head is not None and not unfit:
        said = judge(base, head, policy.max_slowdown)
        numbers = [value for value in (said.base, said.head, said.limit) if value is not None]
        yield said if all(map(math.isfinite, numbers)) else Finding("not-finite", SECONDS)


def _sides(base: Samples | None, head: Samples | None) -> tuple[tuple[str, Samples | None], ...]:
    return ("base", base), ("head", head)


def _unfit(samples: Samples, side: str, policy: Policy) -> Iterator[Finding]:
    """Why samples cannot be judged."""
    if not all(
        process.seconds and all(math.isfinite(seconds) and seconds > 0 for seconds in process.seconds)
        for process in samples.processes
    ):
        yield Finding("samples-broken", SECONDS, detail=side)
    if not samples.complete:
        yield Finding("samples-incomplete", detail=side)
    marks = sorted({mark for process in samples.processes for mark in process.marks})
    if marks:
        yield Finding("samples-unclean", detail=f"{side}: {', '.join(marks)}")
    count = len(samples.processes)
    if count < policy.min_processes:
        yield Finding("few-processes", detail=f"{count} at {side}, {policy.min_processes} are wanted")


def _accepted(version: str, finding: Finding, trades: Sequence[Trade]) -> Finding:
    """The finding, accepted if it is a regression and a trade names its version and figure."""
    if finding.verdict is REGRESSION:
        for trade in trades:
            if (trade.version, trade.figure) == (version, finding.figure):
                return replace(finding, accepted_by=trade)
    return finding


def _why_unused(trade: Trade, versions: Collection[str]) -> str:
    if trade.version not in versions:
        return f"unknown version {trade.version!r}"
    if trade.figure not in FIGURES:
        return f"unknown figure {trade.figure!r}; known are {', '.join(FIGURES)}"
    return f"no regression of {trade.figure} of {trade.version} was found"
