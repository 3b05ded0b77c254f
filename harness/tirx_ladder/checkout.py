"""Result sets of commits: each is profiled from a clean checkout of its own, by this very harness.

One harness reads both sides, so a figure means the same on both; only the kernels come from the commit.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import ladder, profile, results
from .ladder import Problem, UsageError
from .results import Origin


def git(repository: Path, *words: str) -> str:
    """What a git command prints. Raises UsageError with git's own words if it fails."""
    command = ["git", "-C", str(repository), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"git {' '.join(words)}: {' '.join(done.stderr.split()) or 'failed'}")
    return done.stdout


def commit_of(repository: Path, revision: str) -> str:
    """The full hash of the commit that a revision names."""
    return git(repository, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").strip()


def messages(repository: Path, base: str, head: str) -> list[str]:
    """The messages of the commits that head has and base has not, newest first."""
    return [text for text in git(repository, "log", "--format=%B%x00", f"{base}..{head}").split("\0") if text.strip()]


def file_at(repository: Path, commit: str, path: str) -> str | None:
    """A file's text as a commit has it; None if it has none."""
    if path not in git(repository, "ls-tree", "-r", "--name-only", commit, "--", path).splitlines():
        return None
    return git(repository, "show", f"{commit}:{path}")


@contextmanager
def worktree(repository: Path, commit: str) -> Iterator[Path]:
    """A clean checkout of a commit, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="tirx-ladder-") as folder:
        place = Path(folder) / commit[:12]
        git(repository, "worktree", "add", "--detach", "--quiet", str(place), commit)
        try:
            yield place
        finally:
            git(repository, "worktree", "remove", "--force", str(place))


def result_set(
    repository: Path,
    commit: str,
    kernels: str,
    problem: Problem,
    *,
    arch: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> results.ResultSet:
    """Profile the ladder in the folder `kernels` of a commit.

    Raises UsageError if the commit has no such ladder.
    """
    with worktree(repository, commit) as place:
        if not (place / kernels).exists():
            raise UsageError(f"commit {commit[:12]} has no {kernels}: a ladder's folder or file is wanted")
        loaded = ladder.load(str(place / kernels))
        found = profile.profile_ladder(loaded, problem, arch=arch, say=lambda text: say(f"{commit[:12]}: {text}"))
    named = replace(found, ladder=Path(kernels).stem)  # not the checkout's path, which differs on both sides
    return results.from_profiles(named, Origin(commit, False, None, found.toolchain))
