"""What is known of a commit: its profiles and its correctness, each from a clean checkout of its own.

One harness, this one, judges both sides, so a figure means the same on both; only the kernels come from the commit.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import build, bundle, correctness, ladder, profile, results, toolchain
from .correctness import Correctness
from .git import worktree
from .gpu import matrix
from .ladder import Problem, UsageError
from .results import Entry, Origin

Say = Callable[[str], None]
"""Is told what is being done."""

MATRIX = "def test_matrix(version, case, judge):\n    judge(case)\n"


def result_set(
    repository: Path,
    commit: str,
    kernels: str,
    problems: Sequence[Problem],
    *,
    arch: str | None = None,
    say: Say = lambda text: None,
) -> results.ResultSet:
    """Profile the ladder in the folder `kernels` of a commit, on each problem.

    Raises UsageError if the commit has no such ladder.
    """
    with _ladder_at(repository, commit, kernels) as place:
        loaded = ladder.load(str(place))
        found = [profile.profile_ladder(loaded, problem, arch=arch, say=say) for problem in problems]
    name = Path(kernels).stem  # not the checkout's path, which differs on both sides
    sets = [results.from_profiles(replace(p, ladder=name), Origin(commit, False, None, p.toolchain)) for p in found]
    return results.together(problems, sets)


def pack(
    repository: Path,
    commit: str,
    kernels: str,
    entries: Mapping[Path, Entry],
    *,
    arch: str | None = None,
    say: Say = lambda text: None,
) -> None:
    """Bundles of a commit's versions, from a clean checkout; entries: what is to be where.

    Raises UsageError if one does not build or link.
    """
    with _ladder_at(repository, commit, kernels) as place:
        loaded = ladder.load(str(place))
        for place_of, entry in entries.items():
            assert entry.problem is not None, "what builds has a problem"
            say(f"bundle of {entry.version} on {entry.problem}")
            try:
                built = build.build(loaded[entry.version], entry.problem, sm_count=entry.sm_count, arch=arch)
                bundle.export(built, place_of)
            except build.BuildError as error:
                raise UsageError(f"{commit[:12]}: {error}") from None


def pack_matrix(
    repository: Path, commit: str, kernels: str, versions: Collection[str], out: Path, *, say: Say = lambda text: None
) -> tuple[str, ...]:
    """Of some versions of a commit those that the simulator cannot judge, and the GPU's matrix of them as bundles."""
    with _ladder_at(repository, commit, kernels) as place:
        loaded = ladder.load(str(place))
        left = tuple(v for v in loaded.versions if v.name in versions and not v.simulated)
        if left:
            matrix.export(replace(loaded, versions=left, broken={}), out, say=say)
    return tuple(version.name for version in left)


def judge(
    repository: Path, commit: str, kernels: str, versions: Collection[str], log: Path, *, say: Say = lambda text: None
) -> Correctness:
    """Put some versions of a commit through the default matrix on the simulator, in a process of its own.

    log gets all that is printed. Raises UsageError if the simulator is not installed, or no result came.
    """
    require_simulator()
    with _ladder_at(repository, commit, kernels) as place, tempfile.TemporaryDirectory() as folder:
        test, report = Path(folder) / "test_matrix.py", Path(folder) / "correctness.json"
        test.write_text(MATRIX)  # not the commit's own tests, which a change could weaken
        (Path(folder) / "pytest.ini").write_text("[pytest]\n")
        wanted = " or ".join(f"[{version}-" for version in versions)
        command = [sys.executable, "-m", "pytest", "-q", "-k", wanted, "--ladder", str(place)]
        command += ["--correctness-report", str(report), "-p", "no:cacheprovider", str(test)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTEST_ADDOPTS"}
        with (
            log.open("w") as kept,
            subprocess.Popen(
                command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as running,
        ):
            try:
                for line in running.stdout or ():
                    kept.write(line)
                    if line.startswith("["):  # the plugin's progress
                        say(line.strip())
            except BaseException:
                running.terminate()
                raise
        if not report.is_file():
            raise UsageError(f"the correctness matrix came to no result: {log} says why")
        return correctness.read(report)


def require_simulator() -> None:
    """Raise UsageError unless the correctness matrix can run here."""
    for name in ("tirx_harness", "pytest"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(
                f"{name} is not installed, and the versions whose code changed must be put through the simulator: "
                "pip install 'tirx-ladder[sim]', or give --correctness FILE of a run at that commit"
            )
    toolchain.require()


@contextmanager
def _ladder_at(repository: Path, commit: str, kernels: str) -> Iterator[Path]:
    """The ladder in a clean checkout of a commit."""
    with worktree(repository, commit) as place:
        if not (place / kernels).exists():
            raise UsageError(f"commit {commit[:12]} has no {kernels}: a ladder's folder or file is wanted")
        yield place / kernels
