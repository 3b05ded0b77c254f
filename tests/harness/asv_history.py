"""A small repository with asv's configuration and suite as they are here, and result sets of its commits."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from result_sets import entry, result

from tirx_ladder import asv_results, results
from tirx_ladder.results import Process, Samples

HERE = Path(__file__).parents[2]


def git(*words):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(place, commits):
    """A repository of that many commits in a folder that becomes the current one; their hashes, oldest first."""
    os.chdir(place)
    shutil.copy(HERE / "asv.conf.json", place)
    shutil.copytree(HERE / "benchmarks", place / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
    git("init", "--quiet")
    hashes = []
    for i in range(commits):
        git("commit", "--quiet", "--allow-empty", "-m", f"commit {i}")
        hashes.append(git("rev-parse", "HEAD"))
    return hashes


def measured(seconds, *, processes=7, marks=(), **changes):
    """A measured entry: its processes differ by a thousandth of that many seconds."""
    made = tuple(Process((seconds * (1 + i / 1000),) * 3, (), i, tuple(marks)) for i in range(processes))
    return entry(samples=Samples("s", True, 1, None, made), **changes)


def result_set(commit, *entries, **changes):
    """The file of a result set of a commit."""
    path = Path(f"{commit[:12]}.json")
    results.write(dataclasses.replace(result(*entries, commit=commit, **changes)), path)
    return path


def filed(commit, *entries, **changes):
    """What asv has of a commit after import."""
    return json.loads(asv_results.add(asv_results.read(result_set(commit, *entries, **changes))).read_text())


def asv(*words):
    """Run asv; what it printed and its exit code."""
    command = [sys.executable, "-m", "asv", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)
