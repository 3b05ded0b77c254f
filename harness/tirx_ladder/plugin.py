"""The pytest plugin: a matrix over a ladder's versions, for this repository and any other.

A test that takes the fixtures `case` and `judge` runs once for every case of the ladder:

    def test_matrix(case, judge):
        judge(case)

`version` is there too: the KernelVersion that the case is about. Options: --ladder, --quick, --production,
--correctness-report; with --device the cases run on the GPU here, otherwise on the CPU simulator.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from . import cases, correctness, ladder, toolchain
from .check import Judge, Verdict
from .gpu import device, device_matrix
from .pool import Pool, default_workers, describe, pending
from .simulate import CLEAN, TOOLS, Finding, Outcome

HEARTBEAT_S = 10.0
"""Seconds of silence after which a waiting run says what it is doing."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tirx-ladder", "kernel ladders")
    group.addoption("--ladder", default=ladder.DEFAULT_LADDER, help="package, file or folder of the ladder")
    group.addoption("--quick", action="store_true", help="one problem a version, numerics only")
    group.addoption("--production", action="store_true", help="also the kernels that are timed, on part of a launch")
    group.addoption("--device", action="store_true", help="on the GPU of this machine, not on the CPU simulator")
    group.addoption("--no-torch", action="store_true", help="on the device, without torch as a second reference")
    group.addoption("--correctness-report", metavar="FILE", help="write what was judged there, for the gate")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all cases of one build to one worker of xdist, so that it is built and loaded once."""
    from xdist.scheduler import LoadScopeScheduling

    class ByBuild(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return nodeid.rpartition("-")[0]

    return ByBuild(config, log) if config.getoption("dist") == "load" else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames or "judge" not in metafunc.fixturenames:
        return
    config = metafunc.config
    loaded = _ladder(config)
    try:
        here = _judged_here(config, loaded)
    except ladder.UsageError as error:
        pytest.exit(f"tirx-ladder: {error}", returncode=2)
    config.stash[_ELSEWHERE] = [version for version in loaded.versions if version not in here]
    chosen: list[Any] = []
    for version in here:
        chosen += [pytest.param(version.name, case, id=case.id) for case in correctness.tier(version, _tier(config))]
    chosen += [pytest.param(name, None, id=f"{name}-broken") for name in loaded.broken]
    metafunc.parametrize(("version", "case"), chosen, indirect=["version"])


def _ladder(config: pytest.Config) -> ladder.Ladder:
    """The ladder under test, loaded once; the end of the session if it cannot be."""
    if _LADDER not in config.stash:
        try:
            config.stash[_LADDER] = ladder.load(config.getoption("--ladder"))
        except ladder.UsageError as error:
            pytest.exit(f"tirx-ladder: {error}", returncode=2)
    return config.stash[_LADDER]


def _judged_here(config: pytest.Config, loaded: ladder.Ladder) -> list[ladder.KernelVersion]:
    """The versions that this run can judge. Raises UsageError if it can judge none, or lacks what it needs."""
    if config.getoption("--device"):
        arch = config.stash[_ARCH] = device_matrix.architecture(loaded)
        if not config.getoption("--no-torch"):
            device.require_torch()
        return [version for version in loaded.versions if device_matrix.fits(version, arch)]
    here = [version for version in loaded.versions if version.simulated]
    if not here and not loaded.broken:
        raise ladder.UsageError(f"no version of {loaded.spec} runs on the CPU simulator: judge them with --device")
    toolchain.require()
    return here


def _tier(config: pytest.Config) -> str:
    if config.getoption("--quick"):
        return "quick"
    return "production" if config.getoption("--production") else "default"


_LADDER = pytest.StashKey[ladder.Ladder]()
_SELECTED = pytest.StashKey[list[cases.Case]]()
_JUDGE = pytest.StashKey[Judge]()
_PROGRESS = pytest.StashKey["Progress"]()
_RECORD = pytest.StashKey["Record"]()
_ARCH = pytest.StashKey[str]()
_DEVICE = pytest.StashKey[device_matrix.Bench]()
_ELSEWHERE = pytest.StashKey[list[ladder.KernelVersion]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if config.getoption("--device") and not config.getoption("collectonly"):
        try:
            _judged_here(config, _ladder(config))
        except ladder.UsageError as error:
            pytest.exit(f"tirx-ladder: {error}", returncode=2)
    file = config.getoption("--correctness-report")
    if file is not None and not config.getoption("collectonly") and not hasattr(config, "workerinput"):
        config.stash[_RECORD] = Record(config, config.invocation_params.dir / file)


@pytest.fixture
def version(request: pytest.FixtureRequest) -> ladder.KernelVersion | None:
    """The version that a case is about; None if its module cannot be imported, and then `judge` fails."""
    loaded = request.config.stash[_LADDER]
    return None if request.param in loaded.broken else loaded[request.param]


@pytest.fixture
def judge(
    request: pytest.FixtureRequest, version: ladder.KernelVersion | None
) -> Callable[[cases.Case | None], Verdict]:
    """Judges a case: fails the test unless every tool says clean."""
    config = request.config
    tools = ("numerics",) if config.getoption("--quick") else TOOLS

    def judge_case(case: cases.Case | None) -> Verdict:
        if case is None:
            name = request.node.callspec.params["version"]
            pytest.fail(config.stash[_LADDER].broken[name], pytrace=False)
        if config.getoption("--device"):
            return _judge_on_device(request, case)
        shared = config.stash[_JUDGE]
        selected = config.stash[_SELECTED]  # all of one build at once; mostly they were planned before
        shared.plan([c for c in selected if c.specialisation == case.specialisation] or [case], tools)
        futures = shared.futures(case)
        config.stash[_PROGRESS].wait(list(futures.values()))
        verdict = shared.verdict(case, tools)
        outcomes = [future.result() for future in futures.values()]
        request.node.user_properties.append(("tirx_ladder", _facts(case, verdict, outcomes)))
        if not verdict.clean:
            pytest.fail(verdict.report(shared.ladder), pytrace=False)
        return verdict

    return judge_case


def _judge_on_device(request: pytest.FixtureRequest, case: cases.Case) -> Verdict:
    bench = request.config.stash[_DEVICE]
    bench.plan([c for c in request.config.stash[_SELECTED] if c.specialisation == case.specialisation] or [case])
    found, seconds = bench.finding(case)
    verdict = Verdict(case, {"device": Finding(found.verdict, found.text)}, ("device",))
    outcome = Outcome("device", (), built=True, run_s=seconds)
    request.node.user_properties.append(("tirx_ladder", _facts(case, verdict, [outcome])))
    if not verdict.clean:
        again = f"again: the same command with -k {case.id}"
        pytest.fail(f"case {case.id}\ndevice: {found.verdict}\n  " + found.text + f"\n{again}", pytrace=False)
    return verdict


def _brief(verdict: Verdict) -> str:
    """The first objection to a case, in one line; empty if it is clean."""
    for tool in verdict.asked:
        finding = verdict.findings.get(tool)
        if finding is None or finding.verdict != CLEAN:
            said = f"{finding.verdict}, {(finding.text.splitlines() or ['no reason'])[0]}" if finding else "did not run"
            return f"{verdict.case.id}: {tool} {said}"
    return ""


def _facts(case: cases.Case, verdict: Verdict, outcomes: list[Outcome]) -> dict[str, Any]:
    """What the summary needs to know of a case, as JSON (it crosses processes under xdist)."""
    spec = case.specialisation
    return {
        "case": case.id,
        "reason": _brief(verdict),
        "version": spec.version,
        "spec": spec.id,
        "columns": sorted({cases.column(row) for row in spec.rows if row != "production"} | {case.inputs}),
        "objected": [tool for tool in verdict.asked if verdict.findings[tool].verdict != "clean"],
        "clean": verdict.clean,
        "built": sum(outcome.built for outcome in outcomes),
        "seconds": sum(outcome.build_s + outcome.run_s for outcome in outcomes),
    }


def pytest_collection_finish(session: pytest.Session) -> None:
    config = session.config
    selected = [
        case
        for item in session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "judge" in item.fixturenames
        and isinstance(case := item.callspec.params.get("case"), cases.Case)
    ]  # fmt: skip
    if not selected and not session.items and (elsewhere := config.stash.get(_ELSEWHERE, [])):
        pytest.exit(f"tirx-ladder: nothing is left to judge: {_not_here(config, elsewhere)}", returncode=2)
    if not selected or config.getoption("collectonly"):
        return
    under_xdist = hasattr(config, "workerinput")
    if not under_xdist and getattr(config.option, "numprocesses", None):
        return  # the controller of xdist runs no case itself
    config.stash[_SELECTED] = selected
    if config.getoption("--device"):
        bench = config.stash[_DEVICE] = device_matrix.Bench(
            config.stash[_LADDER], config.stash[_ARCH], torch=not config.getoption("--no-torch")
        )
        if not under_xdist:
            bench.plan(selected)
        return
    workers = 1 if under_xdist else default_workers()
    judge = config.stash[_JUDGE] = Judge(config.stash[_LADDER].spec, Pool(workers))
    config.stash[_PROGRESS] = Progress(config, judge.pool, len(selected))
    if not under_xdist:  # under xdist a worker is not told before which cases it gets
        tools = ("numerics",) if config.getoption("--quick") else TOOLS
        judge.plan(selected, tools)


def pytest_sessionfinish(session: pytest.Session) -> None:
    judge = session.config.stash.get(_JUDGE, None)
    if judge is not None:
        judge.pool.close()
    if (bench := session.config.stash.get(_DEVICE, None)) is not None:
        bench.close()
    if (record := session.config.stash.get(_RECORD, None)) is not None:
        record.write()


class Record:
    """Writes what was judged of which commit, from the reports of the tests: it is evidence for the gate."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._config = config
        self._file = file
        self._ladder = _ladder(config)
        self._where = correctness.checked_out(self._ladder)

    def write(self) -> None:
        """Write the file, also if no case ran."""
        commit, dirty = correctness.checked_out(self._ladder)
        where = commit, dirty or (commit, dirty) != self._where  # it may have changed while it was judged
        facts = _reported(self._config.pluginmanager.get_plugin("terminalreporter"))
        try:
            correctness.write(correctness.collect(self._ladder, _tier(self._config), where, facts), self._file)
        except ladder.UsageError as error:
            pytest.exit(f"tirx-ladder: {error}", returncode=2)


def _reported(reporter: Any) -> Iterator[dict[str, Any]]:
    """The facts of every case that was judged. A test that fails though its case is clean is not clean either."""
    for outcome in ("passed", "failed", "error"):
        for report in reporter.stats.get(outcome, ()) if reporter else ():
            for name, fact in getattr(report, "user_properties", ()):
                if name == "tirx_ladder":
                    failed = outcome != "passed" and fact["clean"]
                    yield fact | ({"clean": False, "reason": f"{fact['case']}: its test fails"} if failed else {})


class Progress:
    """Says what is being built, how long that usually takes and how many cases are left."""

    def __init__(self, config: pytest.Config, pool: Pool, total: int) -> None:
        self._reporter = None if hasattr(config, "workerinput") else config.pluginmanager.get_plugin("terminalreporter")
        capture = config.pluginmanager.get_plugin("capturemanager")
        self._uncaptured = capture.global_and_fixture_disabled if capture else nullcontext
        self._pool = pool
        self._total = total
        self._started = self._said = time.monotonic()
        self._stages: set[str] = set()
        self._say(f"{total} cases on {len(pool.workers)} worker processes")

    def wait(self, futures: list[Future[Outcome]]) -> None:
        """Wait for jobs, and speak up when a long stage begins or nothing was said for a while."""
        while pending(futures, timeout_s=0.5):
            doing = self._pool.activities()
            fresh = {f"{a.job.tool} {a.stage}" for a in doing if a.stage == "engine"} - self._stages
            if fresh or time.monotonic() - self._said > HEARTBEAT_S:
                self._stages |= fresh
                self._say(self._left() + "".join(f"; {describe(activity)}" for activity in doing))

    def _left(self) -> str:
        done = sum(len(self._reporter.stats.get(key, ())) for key in ("passed", "failed")) if self._reporter else 0
        return f"{done} of {self._total} cases done"

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        if self._reporter is not None:
            minutes, seconds = divmod(int(self._said - self._started), 60)
            with self._uncaptured():
                self._reporter.ensure_newline()
                self._reporter.write_line(f"[{minutes}:{seconds:02d}] {text}")


def _not_here(config: pytest.Config, versions: list[ladder.KernelVersion]) -> str:
    """Which versions this run does not judge, and what does."""
    names = ", ".join(version.name for version in versions)
    wanted = " and ".join(sorted({version.arch for version in versions}))
    if config.getoption("--device"):
        return f"{names}: for {wanted}, and this GPU is not"
    spec = config.stash[_LADDER].spec
    named = "" if spec == ladder.DEFAULT_LADDER else f" --ladder {spec}"
    return (
        f"{names}: the CPU simulator does not know their instructions; "
        f"on a GPU of {wanted}: nox -s correctness -- --device{named}"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    facts = list({fact["case"]: fact for fact in _reported(terminalreporter)}.values())
    if facts:
        terminalreporter.section("correctness matrix")
        for line in _table(facts):
            terminalreporter.write_line(line)
    if elsewhere := config.stash.get(_ELSEWHERE, []):
        terminalreporter.write_line(f"not judged here: {_not_here(config, elsewhere)}")


def _table(facts: list[dict[str, Any]]) -> Iterator[str]:
    """Version by column of the matrix: clean cases of all cases, builds, seconds of work."""
    columns = (*cases.COLUMNS, *cases.INPUTS)
    yield "version  kernels  " + "  ".join(f"{name:>8}" for name in columns) + "   built   work s"
    work: dict[str, dict[str, Any]] = {fact["spec"]: fact for fact in facts}
    for version in dict.fromkeys(fact["version"] for fact in facts):
        mine = [fact for fact in facts if fact["version"] == version]
        all_of, clean_of = Counter[str](), Counter[str]()
        for fact in mine:
            all_of.update(fact["columns"])
            clean_of.update(fact["columns"] if fact["clean"] else ())
        cells = (f"{clean_of[name]}/{all_of[name]}" if all_of[name] else "-" for name in columns)
        builds = [fact for fact in work.values() if fact["version"] == version]
        yield (
            f"{version:<7}  {len(builds):>7}  " + "  ".join(f"{cell:>8}" for cell in cells)
            + f"  {sum(fact['built'] for fact in builds):>6}  {sum(fact['seconds'] for fact in builds):>7.1f}"
        )  # fmt: skip
    clean = sum(fact["clean"] for fact in facts)
    yield (
        f"{clean} of {len(facts)} cases clean; {len(work)} kernels, "
        f"{sum(fact['built'] for fact in work.values())} builds, "
        f"{sum(fact['seconds'] for fact in work.values()):.0f} s of work"
    )
    objections = Counter(tool for fact in facts for tool in fact["objected"])
    if objections:
        yield "objections: " + ", ".join(f"{tool} {count}" for tool, count in objections.items())
