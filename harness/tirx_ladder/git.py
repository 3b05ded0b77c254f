"""What the harness asks git: commits, their messages and files, clean checkouts, and what is checked out now."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .ladder import UsageError


@dataclass(frozen=True)
class Commit:
    """Full hash, date (YYYY-MM-DD) and title."""

    hash: str
    date: str
    title: str


def git(repository: Path, *words: str) -> str:
    """What a git command prints. Raises UsageError with git's own words if it fails."""
    command = ["git", "-C", str(repository), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}") from None
    if done.returncode:
        raise UsageError(f"git {' '.join(words)}: {' '.join(done.stderr.split()) or 'failed'}")
    return done.stdout


def commit_of(repository: Path, revision: str) -> str:
    """The full hash of the commit that a revision names."""
    return git(repository, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").strip()


def messages(repository: Path, base: str, head: str) -> list[str]:
    """The messages of the commits that head has and base has not, newest first."""
    return [text for text in git(repository, "log", "--format=%B%x00", f"{base}..{head}").split("\0") if text.strip()]


def first_parents(repository: Path, commit: str) -> list[Commit]:
    """A commit, its first parent, and so on, oldest first."""
    log = git(repository, "log", "--first-parent", "--reverse", "--format=%H%x09%cs%x09%s", commit)
    return [Commit(*line.split("\t", 2)) for line in log.split("\n") if line]


def file_at(repository: Path, commit: str, path: str) -> str | None:
    """A file's text as a commit has it; None if it has none."""
    if path not in git(repository, "ls-tree", "-r", "--name-only", commit, "--", path).splitlines():
        return None
    return git(repository, "show", f"{commit}:{path}")


def state(place: Path) -> tuple[str, bool]:
    """The commit checked out around a file or folder, and whether anything there is not as that commit has it.

    A new file counts if it lies in the folder. Raises UsageError where there is no commit.
    """
    folder = place if place.is_dir() else place.parent
    changed = git(folder, "status", "--porcelain", "--untracked-files=no") + git(folder, "status", "--porcelain", ".")
    return commit_of(folder, "HEAD"), bool(changed.strip())


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
