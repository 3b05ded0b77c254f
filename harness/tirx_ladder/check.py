"""Judge cases: turn specialisations into jobs, and the tools' findings into one verdict a case."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from .cases import Case, Specialisation
from .ladder import DEFAULT_LADDER
from .pool import Pool
from .simulate import CLEAN, TOOLS, Finding, Job, Outcome


@dataclass(frozen=True)
class Verdict:
    """What every tool said of one case. Clean only if each of the tools asked ran and said so."""

    case: Case
    findings: dict[str, Finding]
    asked: tuple[str, ...]

    @property
    def clean(self) -> bool:
        return bool(self.asked) and all(
            tool in self.findings and self.findings[tool].verdict == CLEAN for tool in self.asked
        )

    def report(self, ladder: str) -> str:
        """Why the case is not clean, and the command that runs just this case again."""
        lines = [f"case {self.case.id}"]
        for tool in self.asked:
            finding = self.findings.get(tool) or Finding("incomplete", "the tool did not run")
            if finding.verdict != CLEAN:
                lines.append(f"{tool}: {finding.verdict}")
                lines.extend(f"  {line}" for line in finding.text.splitlines())
        return "\n".join([*lines, f"again: {command(self.case, ladder)}"])


def command(case: Case, ladder: str = DEFAULT_LADDER) -> str:
    """The command line that judges one case."""
    spec = case.specialisation
    words = ["tirx-ladder check", spec.version]
    words += [f"--{name} {getattr(spec.problem, name)}" for name in ("m", "n", "k")]
    if spec.sm_count is not None:
        words.append(f"--sm-count {spec.sm_count}")
    if spec.clusters is not None:
        words.append("--clusters " + ",".join(map(str, spec.clusters)))
    words.append(f"--inputs {case.inputs}")
    if ladder != DEFAULT_LADDER:
        words.append(f"--ladder {shlex.quote(ladder)}")
    return " ".join(words)


class Judge:
    """Runs the jobs of many cases on a pool, each job once, and hands out verdicts."""

    def __init__(self, ladder: str, pool: Pool) -> None:
        self.ladder = ladder
        self.pool = pool
        self._jobs: dict[tuple[Specialisation, str], dict[str, Future[Outcome]]] = {}

    def plan(self, cases: Iterable[Case], tools: Sequence[str] = TOOLS) -> None:
        """Queue what the cases need, in their order: each tool once a specialisation, with all its inputs."""
        inputs: dict[Specialisation, list[str]] = {}
        for case in cases:
            inputs.setdefault(case.specialisation, []).append(case.inputs)
        for spec, kinds in inputs.items():
            p = spec.problem
            wanted: list[Job] = []
            for tool in tools_for(spec, tools):
                done = self._jobs.setdefault((spec, tool), {})
                fresh = tuple(kind for kind in dict.fromkeys(kinds) if kind not in done)
                if done and tool != "numerics":  # one run of a checker stands for all inputs
                    done.update(dict.fromkeys(fresh, next(iter(done.values()))))
                elif fresh:
                    wanted.append(
                        Job(self.ladder, spec.version, p.m, p.n, p.k, spec.sm_count, tool, fresh, spec.clusters)
                    )
            for job, future in zip(wanted, self.pool.submit_together(wanted), strict=True):
                self._jobs[spec, job.tool].update(dict.fromkeys(job.inputs, future))

    def futures(self, case: Case) -> dict[str, Future[Outcome]]:
        """The jobs that a planned case waits for, by tool."""
        return {
            tool: jobs[case.inputs]
            for (spec, tool), jobs in self._jobs.items()
            if spec == case.specialisation and case.inputs in jobs
        }

    def verdict(self, case: Case, tools: Sequence[str] = TOOLS) -> Verdict:
        """The verdict on a planned case; waits for its jobs."""
        outcomes = {tool: future.result() for tool, future in self.futures(case).items()}
        findings = {tool: outcome.of(case.inputs) for tool, outcome in outcomes.items()}
        return Verdict(case, findings, tools_for(case.specialisation, tools))


def tools_for(spec: Specialisation, tools: Sequence[str]) -> tuple[str, ...]:
    """The tools that can judge a specialisation: the checkers judge whole launches only."""
    return tuple(tool for tool in tools if spec.clusters is None or tool in ("lint", "numerics"))
