"""Inputs for timed kernels and what D must be in some rows, made once and kept in files that processes share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .. import oracle
from ..ladder import Problem, UsageError

KINDS = ("normal", "zeros")
"""Random normal values; zeros only to show how much faster they run (fewer bits toggle, so the clock stays higher)."""

INFINITY16 = 0x7C00
ROW_STEP = 64  # one row of every 64 is checked, at another place in each 64: every output tile has some


@dataclass(frozen=True)
class Inputs:
    """A (m, k), B (n, k), and of D = A·Bᵀ the rows that are checked: what they must be, and how exactly."""

    problem: Problem
    a: oracle.Half
    b: oracle.Half
    rows: npt.NDArray[np.int64]
    want: oracle.Double
    tolerance: oracle.Double


def _place(store: Path, problem: Problem, kind: str, seed: int) -> Path:
    return store / f"{problem}-{kind}-{seed}"


def prepare(store: Path, problem: Problem, kind: str, seed: int) -> None:
    """Make the inputs for a problem, unless they are there. They appear whole or not at all."""
    if kind not in KINDS:
        raise UsageError(f"inputs {kind!r}: one of {', '.join(KINDS)} is wanted")
    place = _place(store, problem, kind, seed)
    if place.is_dir():
        return
    if kind == "zeros":
        a, b = np.zeros((problem.m, problem.k), np.float16), np.zeros((problem.n, problem.k), np.float16)
    else:
        a, b = _normal(problem, seed)
    rows = _rows(problem.m, seed)
    want, magnitude = (np.concatenate(list(parts)) for parts in zip(*_references(a[rows], b), strict=True))
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=store, ignore_cleanup_errors=True) as folder:
        made = Path(folder) / "made"
        made.mkdir()
        tolerance = oracle.tolerance(want, magnitude, problem.k)
        for name, array in (("a", a), ("b", b), ("rows", rows), ("want", want), ("tolerance", tolerance)):
            np.save(made / f"{name}.npy", array)
        try:
            made.replace(place)
        except OSError:  # another process was first
            if not place.is_dir():
                raise


def _normal(problem: Problem, seed: int) -> tuple[oracle.Half, oracle.Half]:
    """Standard normal values; drawn in fp32, which is twice as fast as the oracle's and as good for timing."""
    rng = np.random.default_rng([seed, problem.m, problem.n, problem.k])

    def draw(rows: int, cols: int) -> oracle.Half:
        return rng.standard_normal((rows, cols), dtype=np.float32).astype(np.float16)

    return draw(problem.m, problem.k), draw(problem.n, problem.k)


def _rows(m: int, seed: int) -> npt.NDArray[np.int64]:
    starts = np.arange(0, m, ROW_STEP)
    offsets = np.random.default_rng(seed).integers(0, ROW_STEP, len(starts))
    return np.minimum(starts + offsets, m - 1)


def _references(a: oracle.Half, b: oracle.Half) -> Iterator[tuple[oracle.Double, oracle.Double]]:
    """A·Bᵀ and |A|·|B|ᵀ in float64, some rows at a time."""
    wide = b.astype(np.float64).T
    magnitude = np.abs(wide)
    for first in range(0, len(a), 256):
        part = a[first : first + 256].astype(np.float64)
        yield part @ wide, np.abs(part) @ magnitude


def load(store: Path, problem: Problem, kind: str, seed: int) -> Inputs:
    """Inputs that were prepared; A and B are mapped, not read. Raises UsageError if they are not there."""
    place = _place(store, problem, kind, seed)
    try:
        arrays = [np.load(place / f"{name}.npy", mmap_mode="r") for name in ("a", "b", "rows", "want", "tolerance")]
    except (OSError, ValueError) as error:
        raise UsageError(f"no prepared inputs at {place}: {error}") from None
    return Inputs(problem, *arrays)


def wrong(inputs: Inputs, d: oracle.Half) -> str | None:
    """What is wrong with D, poisoned with NaN before the launch, or None: every element written, checked rows right."""
    size = d.view(np.uint16) & 0x7FFF  # of fp16, without the sign: above infinity there is only NaN
    if size.max() > INFINITY16:
        return f"{int((size > INFINITY16).sum())} of {d.size} elements of D are NaN or were never written"
    found = d[inputs.rows].astype(np.float64)
    bad = ~(np.abs(found - inputs.want) <= inputs.tolerance)
    if not bad.any():
        return None
    row, col = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    return (
        f"{int(bad.sum())} of {bad.size} checked elements of D differ, first D[{int(inputs.rows[row])}, {col}]: "
        f"got {found[row, col]:g}, wanted {inputs.want[row, col]:g} within {inputs.tolerance[row, col]:.2g}"
    )


def default_store() -> Path:
    """A folder for prepared inputs: in memory where the machine has /dev/shm, so that mapping them is cheap."""
    base = Path("/dev/shm")  # noqa: S108
    root = base if os.access(base, os.W_OK) else Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix="tirx-ladder-inputs-", dir=root))
