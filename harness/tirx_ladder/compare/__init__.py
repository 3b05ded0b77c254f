"""Two result sets → a verdict on each version and problem, with reason codes and figures.

Stages of a row: the same code (code_hash equal: pass at once, nothing to time), then the static figures by the
policy (static_rules.py), then the samples of all rows together (measured.py, slowdown.py). All findings of a row are
kept, and the worst decides: invalid, regression, undecided, pass.

What is not two healthy builds:

    base            head            verdict      reason
    there           missing         invalid      missing             removing a version is a decision for people
    any             build fails     invalid      build-failed        there is nothing to judge, so also when base fails
    build fails     builds          undecided    base-build-failed   nothing to compare with: a repair, or bad luck
    missing         there           pass         new                 unless it is incorrect or fits no SM
    any             incorrect       invalid      incorrect           the speed of a wrong kernel means nothing
    clean           not checked     undecided    correctness-unknown unless its code is the same

REASONS (reasons.py) lists every code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from ..ladder import Problem, UsageError
from ..policy import Policy
from ..results import CLEAN, Entry, ResultSet
from ..trades import Trade, Unused
from . import static_rules
from .measured import CYCLES, SECONDS, Timed, unfit
from .reasons import ACCEPTABLE, INVALID, PASS, REASONS, REGRESSION, UNDECIDED, Finding, Verdict, worst

__all__ = [
    "FIGURES", "INVALID", "PASS", "REASONS", "REGRESSION", "SECONDS", "UNDECIDED", "Comparison", "Finding", "Judge",
    "Key", "Row", "Timed", "Verdict", "compare", "judge_samples", "more_pairs", "worst",
]  # fmt: skip

FIGURES = (*static_rules.FIGURES, SECONDS)
"""Every figure that can regress: what a trade may name. It is `seconds` also where cycles were judged, which is CYCLES
to a finding: which of the two decides is the machine's doing, and no trade should hang on it."""

Key = tuple[str, Problem | None]

Judge = Callable[[Sequence[Timed], Policy], Sequence[Finding]]
"""Judges the samples of all rows that are fit for it, together: one finding a row, in their order."""


def judge_samples(rows: Sequence[Timed], policy: Policy) -> Sequence[Finding]:
    """What the pairs of processes say (slowdown.py)."""
    from .slowdown import judge  # needs scipy, which is not wanted where nothing was measured

    return judge(rows, policy)


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
        order = tuple(Verdict)
        ordered = sorted(self.findings, key=lambda finding: -order.index(finding.verdict))
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
    machines = base.origin.machine, head.origin.machine
    found: dict[Key, list[Finding]] = {}
    timed: list[Timed] = []
    for key, before, after in _pairs(base, head):
        if versions is not None and key[0] not in versions:
            continue
        found[key] = list(_judge_builds(before, after, policy))
        if before is not None and after is not None and _may_differ(before, after):
            reasons = unfit(before.samples, after.samples, policy, machines)
            found[key].extend(reasons)
            if before.samples is not None and after.samples is not None and not reasons:
                timed.append(Timed(*key, before.samples, after.samples))
    for row, said in zip(timed, judge(timed, policy) if timed else (), strict=True):
        found[row.version, row.problem].append(_finite(said))
    rows = [Row(*key, tuple(_accepted(key[0], f, trades) for f in findings)) for key, findings in found.items()]
    return Comparison((), tuple(rows), tuple(_unused(rows, trades, known)))


def more_pairs(found: Comparison) -> dict[Key, int]:
    """Pairs of processes worth adding to each row: an empty dict says that measuring more changes no verdict.

    Rows of changed code that nothing was measured of are in it with the policy's min_processes.
    """
    wanted = {(row.version, row.problem): max(f.more_pairs for f in row.findings) for row in found.rows}
    return {key: count for key, count in wanted.items() if count}


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


def _judge_builds(base: Entry | None, head: Entry | None, policy: Policy) -> Iterator[Finding]:
    """What is to be said of two builds without their samples."""
    if head is None:
        yield Finding("missing")
        return
    if head.build_error is not None:
        yield Finding("build-failed", detail=head.build_error)
        return
    if head.correctness not in (None, CLEAN):
        yield Finding("incorrect", detail=head.correctness or "its verdict is empty")
    if base is not None and _same_code(base, head):
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
    static = static_rules.judge_static(base.figures, head.figures, policy)
    yield from static
    if all(finding.code == "improved" for finding in static):
        yield Finding("no-worse")


def _same_code(base: Entry, head: Entry) -> bool:
    return base.code_hash is not None and base.code_hash == head.code_hash


def _may_differ(base: Entry, head: Entry) -> bool:
    """Whether both sides built, and what they built is not the same, so that there is something to time."""
    return base.figures is not None and head.figures is not None and not _same_code(base, head)


def _finite(said: Finding) -> Finding:
    """The finding of a judge, or that its figures are no numbers: those would compare as neither more nor less."""
    numbers = [value for value in (said.base, said.head, said.limit) if value is not None]
    return said if all(map(math.isfinite, numbers)) else Finding("not-finite", SECONDS)


def _accepted(version: str, finding: Finding, trades: Sequence[Trade]) -> Finding:
    """The finding, accepted if it can be and a trade names its version and figure."""
    if finding.code in ACCEPTABLE:
        for trade in trades:
            if trade.version == version and _figure(trade.figure) == _figure(finding.figure):
                return replace(finding, accepted_by=trade, more_pairs=0)
    return finding


def _figure(name: str | None) -> str | None:
    """What a trade's figure is compared as: a trade on seconds holds in cycles, and the other way round."""
    return SECONDS if name == CYCLES else name


def _unused(rows: Sequence[Row], trades: Sequence[Trade], versions: Collection[str]) -> Iterator[Unused]:
    used = {finding.accepted_by for row in rows for finding in row.findings}
    accepted = {(trade.version, trade.figure) for trade in used if trade is not None}
    for trade in trades:
        if (trade.version, trade.figure) not in accepted:
            yield Unused(str(trade), _why_unused(trade, versions))


def _why_unused(trade: Trade, versions: Collection[str]) -> str:
    if trade.version not in versions:
        return f"unknown version {trade.version!r}"
    if trade.figure not in (*FIGURES, CYCLES):
        return f"unknown figure {trade.figure!r}; known are {', '.join(FIGURES)}"
    return f"no regression of {trade.figure} of {trade.version} was found"
