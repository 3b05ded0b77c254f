"""The oracle: inputs, the independent reference, and the rule by which D is compared with it.

Four kinds of input, each for a class of fault that the others cannot see:

exact    small integers, such that every partial sum is exact in fp32 and every result in fp16: D must match
         bit for bit, in whatever order the products are added.
normal   standard normal values; the tolerance of each element is derived from the arithmetic (`tolerance`).
marked   every K tile and every block of rows and columns carries its own signature, so that one that is
         dropped, doubled or swapped is named in the message.
special  inf, NaN, negative zero, subnormals, overflow and rounding ties; each result is what IEEE 754 says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ladder import KernelVersion, Problem, Schedule, Tile

Half = npt.NDArray[np.float16]
Double = npt.NDArray[np.float64]

EXACT_BOUND = 2048  # fp16 holds every integer up to 2**11; fp32 holds every sum on the way to it
FP16_MAX = 65504.0
_U16 = 2.0**-11  # unit roundoff of fp16: half an ulp of 1
_U32 = 2.0**-23  # fp32 ulp of 1: tensor cores truncate where they align, so a whole ulp is granted, not half
_HALF_SUBNORMAL = 2.0**-25  # half of fp16's smallest subnormal
EXPLAINED = 50_000  # wrong elements that a story is sought for, the first ones
SIGNATURE_BLOCK = 64  # rows or columns that share a signature: no kernel of the ladder moves fewer


def make_inputs(kind: str, problem: Problem, blk_k: int, *, seed: int = 0) -> tuple[Half, Half]:
    """A (m, k) and B (n, k) in fp16 of the given kind."""
    rng = np.random.default_rng([seed, problem.m, problem.n, problem.k])
    maker = {"exact": _exact, "normal": _normal, "marked": _marked, "special": _special}[kind]
    a, b = maker(problem, blk_k, rng)
    return a.astype(np.float16), b.astype(np.float16)


def _exact(problem: Problem, blk_k: int, rng: np.random.Generator) -> tuple[Double, Double]:
    """Integers with k_used * |a| * |b| <= EXACT_BOUND, so no sum of any subset of products exceeds it."""
    k_used = min(problem.k, EXACT_BOUND)
    amplitude = max(1, min(8, int((EXACT_BOUND / k_used) ** 0.5)))
    a = rng.integers(-amplitude, amplitude, (problem.m, problem.k), endpoint=True).astype(np.float64)
    b = rng.integers(-amplitude, amplitude, (problem.n, problem.k), endpoint=True).astype(np.float64)
    if problem.k > k_used:  # a row of A keeps k_used of its k values, in other places for every row
        drop = np.argpartition(rng.random((problem.m, problem.k)), k_used, axis=1)[:, k_used:]
        np.put_along_axis(a, drop, 0.0, axis=1)
    return a, b


def _normal(problem: Problem, blk_k: int, rng: np.random.Generator) -> tuple[Double, Double]:
    return rng.standard_normal((problem.m, problem.k)), rng.standard_normal((problem.n, problem.k))


def _marked(problem: Problem, blk_k: int, rng: np.random.Generator) -> tuple[Double, Double]:
    """Row i of A has one value, in K tile i % K_TILES; row j of B has one value per K tile.

    So D[i, j] = row_signature(i) * column_signature(j, i % K_TILES), one exact product: A holds powers of 4,
    one for each block of rows, and B odd integers below 2048, one for each block of columns and K tile.
    """
    rows, k_tiles = np.arange(problem.m), problem.k // blk_k
    a = np.zeros((problem.m, problem.k))
    a[rows, (rows % k_tiles) * blk_k + (rows // k_tiles) % blk_k] = _row_signature(rows)
    tiles = np.arange(problem.k) // blk_k
    return a, _column_signature(np.arange(problem.n)[:, None], tiles[None, :], k_tiles)


def _row_signature(row: npt.NDArray[np.int64]) -> Double:
    return np.asarray(4.0 ** (2 - (row // SIGNATURE_BLOCK) % 10), dtype=np.float64)


def _column_signature(col: npt.NDArray[np.int64], k_tile: npt.NDArray[np.int64], k_tiles: int) -> Double:
    return np.asarray(2.0 * ((col // SIGNATURE_BLOCK * k_tiles + k_tile) % 1024) + 1.0, dtype=np.float64)


_TINY = 2.0**-24  # fp16's smallest subnormal


def _special(problem: Problem, blk_k: int, rng: np.random.Generator) -> tuple[Double, Double]:
    """Sparse small integers, and in every 32 rows and 32 columns one of each special pattern.

    Each pattern sits in another K tile in the next 32 rows, so that every tile of K carries some.
    """
    m, n, k = problem.m, problem.n, problem.k
    a = rng.integers(-2, 2, (m, k), endpoint=True).astype(np.float64)
    a[rng.random((m, k)) >= 16 / k] = 0.0
    b = rng.integers(-2, 2, (n, k), endpoint=True).astype(np.float64)

    def put(matrix: Double, first: int, *values: float, alone: bool = False) -> None:
        """Put values into every 32nd row from `first`, at K positions that move with the row."""
        for row in range(first, matrix.shape[0], 32):
            if alone:
                matrix[row] = 0.0
            at = (row // 32 * blk_k + 5 * first + 7 * np.arange(len(values))) % k
            matrix[row, at] = values

    put(a, 1, np.inf)
    put(a, 3, -np.inf)
    put(a, 5, np.nan)
    put(a, 7, np.inf, -np.inf)
    put(a, 9, -0.0, -0.0, -0.0, alone=True)
    put(a, 11, 3 * _TINY, alone=True)  # a subnormal operand, and a subnormal result
    put(a, 13, 2.0**-14, -_TINY, alone=True)  # the smallest normal and a subnormal meet
    put(a, 15, FP16_MAX, FP16_MAX, alone=True)  # past fp16's range after the sum
    put(a, 17, 2048.0, 1.0, alone=True)  # ties between two fp16 values: round to even
    put(a, 19, 2048.0, 3.0, alone=True)
    put(a, 21, -4096.0, 2.0, 1.0, alone=True)
    put(a, 23, -_TINY, alone=True)  # with a subnormal of B: underflows to -0
    put(b, 2, np.inf)
    put(b, 4, np.nan)
    put(b, 6, -0.0, -0.0, -0.0, alone=True)
    put(b, 8, _TINY, _TINY, _TINY, alone=True)
    b[10::32] = 1.0  # these columns add up a row of A as it is
    b[12::32] = _TINY  # and these as subnormals
    return a, b


@dataclass(frozen=True)
class Expected:
    """What D must be: the value in float64, and how far each element may be from it (0: bit for bit)."""

    value: Double
    tolerance: Double | None
    any_zero_sign: bool


def reference(kind: str, a: Half, b: Half) -> Expected:
    """The reference for inputs of a kind: A·Bᵀ in float64, where every product of two fp16 values is exact."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        value = a64 @ b64.T
    if kind == "normal":
        return Expected(value, tolerance(value, np.abs(a64) @ np.abs(b64).T, a.shape[1]), False)
    return Expected(value, None, kind == "special")


def tolerance(value: Double, magnitude: Double, k: int) -> Double:
    """How far D may be from the exact A·Bᵀ, element by element; magnitude is |A|·|B|ᵀ, k the number of terms.

    The k products are exact in fp32 (11 bits times 11). Adding them, in any order, errs by at most
    ((1 + u)^k - 1) * magnitude (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2), where u is
    a whole fp32 ulp, since tensor cores truncate; rounding the sum to fp16 adds half an ulp of it, or half the
    smallest subnormal.
    """
    gamma = np.expm1(k * np.log1p(_U32))
    summed = gamma * magnitude
    return np.asarray(summed + _U16 * (np.abs(value) + summed) + _HALF_SUBNORMAL, dtype=np.float64)


@dataclass(frozen=True)
class Mismatch:
    """Where D differs from the reference, and what that looks like."""

    wrong: int
    never_written: int
    total: int
    index: tuple[int, int]
    tile: Tile
    place: str
    got: str
    want: str
    explanation: str | None

    def __str__(self) -> str:
        share = f"{self.wrong} of {self.total} elements of D differ"
        if self.never_written:
            share += f", {self.never_written} of them never written"
        lines = [
            share,
            f"first at D[{self.index[0]}, {self.index[1]}], output tile {self.tile}, {self.place}",
            f"got {self.got}, wanted {self.want}",
        ]
        if self.explanation:
            lines.append(self.explanation)
        return "\n".join(lines)


def compare(
    kind: str, d: Half, a: Half, b: Half, version: KernelVersion, schedule: Schedule, clusters: tuple[int, ...] | None
) -> Mismatch | None:
    """Compare D, NaN wherever nothing was written, with the reference. None if it is right.

    With clusters, only the tiles that those clusters visit are expected; the rest must not have been touched.
    """
    bad = np.zeros(d.shape, dtype=np.bool_)
    if clusters is None:
        expected = reference(kind, a, b)
        bad = differs(d, expected)
    else:
        bad = ~np.isnan(d)
        for rows, cols in _regions(version, schedule, clusters):
            bad[rows, cols] = differs(d[rows, cols], reference(kind, a[rows], b[cols]))
    if not bad.any():
        return None
    first = np.unravel_index(int(bad.argmax()), bad.shape)
    i, j = int(first[0]), int(first[1])
    want = reference(kind, a[i : i + 1], b[j : j + 1])
    tile = (i // version.tile[0], j // version.tile[1])
    return Mismatch(
        wrong=int(bad.sum()),
        never_written=int((bad & np.isnan(d)).sum()) if kind != "special" else 0,
        total=int(d.size),
        index=(i, j),
        tile=tile,
        place=_place(version, schedule, tile),
        got=_show(d[i, j]),
        want=_wanted(want) if _is_owned(schedule, clusters, tile) else "no write: the tile is not this launch's part",
        explanation=_explain(d, bad, a.shape[1] // version.blk_k) if kind == "marked" else None,
    )


def differs(d: Half, expected: Expected) -> npt.NDArray[np.bool_]:
    """Where D is not what is expected."""
    if expected.tolerance is not None:
        close = np.abs(d.astype(np.float64) - expected.value) <= expected.tolerance
        return np.asarray(~close)  # a NaN in D is close to nothing
    with np.errstate(over="ignore"):
        want = expected.value.astype(np.float16)
    same = (d.view(np.uint16) == want.view(np.uint16)) | (np.isnan(d) & np.isnan(want))
    if expected.any_zero_sign:  # the sign of an exact zero sum depends on the order of summation
        same |= (expected.value == 0) & (d == 0)
    return np.asarray(~same)


def _regions(version: KernelVersion, schedule: Schedule, clusters: tuple[int, ...]) -> Iterator[tuple[slice, slice]]:
    tile_m, tile_n = version.tile
    for cluster in clusters:
        for row, col in schedule[cluster]:
            yield slice(row * tile_m, (row + 1) * tile_m), slice(col * tile_n, (col + 1) * tile_n)


def _is_owned(schedule: Schedule, clusters: tuple[int, ...] | None, tile: Tile) -> bool:
    return clusters is None or any(tile in schedule[cluster] for cluster in clusters)


def _place(version: KernelVersion, schedule: Schedule, tile: Tile) -> str:
    """Which CTAs computed a tile, and which of their tiles it was."""
    for cluster, visited in enumerate(schedule):
        if tile in visited:
            first = cluster * version.cluster
            cta = f"CTA {first}" if version.cluster == 1 else f"CTAs {first} to {first + version.cluster - 1}"
            return f"{cta}, tile {visited.index(tile) + 1} of {len(visited)} there"
    return "which no CTA of this launch owns"


def _show(value: np.float16) -> str:
    return "NaN (D starts as NaN: never written, or a NaN result)" if np.isnan(value) else f"{float(value):g}"


def _wanted(expected: Expected) -> str:
    value = float(expected.value[0, 0])
    if expected.tolerance is None:
        with np.errstate(over="ignore"):
            return f"{float(expected.value.astype(np.float16)[0, 0]):g}"
    return f"{value:g} within {float(expected.tolerance[0, 0]):.2g}"


def _explain(d: Half, bad: npt.NDArray[np.bool_], k_tiles: int) -> str | None:
    """Name what happened to marked inputs: the one story that fits most of the wrong elements."""
    i, j = (axis[:EXPLAINED].astype(np.int64) for axis in np.nonzero(bad))
    got, t = d[i, j].astype(np.float64), i % k_tiles
    row_blocks, col_blocks = -(-d.shape[0] // SIGNATURE_BLOCK), -(-d.shape[1] // SIGNATURE_BLOCK)
    row, col = _row_signature(i), _column_signature(j, t, k_tiles)
    stories: list[tuple[str, npt.NDArray[np.bool_]]] = [("was never written", np.isnan(got))]
    for k in range(k_tiles):
        here = t == k
        stories.append((f"K tile {k} is missing", here & (got == 0)))
        stories.append((f"K tile {k} was counted twice", here & (got == 2 * row * col)))
        stories.extend(
            (
                f"A of K tile {k} met B of K tile {other}",
                here & (got == row * _column_signature(j, t * 0 + other, k_tiles)),
            )
            for other in range(k_tiles)
            if other != k and k_tiles <= 32
        )
    stories.extend(
        (f"it holds rows of block {block} of A (blocks of {SIGNATURE_BLOCK} rows)",
         (i // SIGNATURE_BLOCK != block)
         & (got == _row_signature(i * 0 + block * SIGNATURE_BLOCK)
            * _column_signature(j, (block * SIGNATURE_BLOCK + i % SIGNATURE_BLOCK) % k_tiles, k_tiles)))
        for block in range(row_blocks)
    )  # fmt: skip
    stories.extend(
        (f"it holds columns of block {block} of B (blocks of {SIGNATURE_BLOCK} rows of B)",
         (j // SIGNATURE_BLOCK != block)
         & (got == row * _column_signature(j * 0 + block * SIGNATURE_BLOCK, t, k_tiles)))
        for block in range(col_blocks)
    )  # fmt: skip
    story, fits = max(stories, key=lambda entry: int(entry[1].sum()))
    count = int(fits.sum())
    if not count:
        return "the signatures fit no single dropped, doubled or swapped block"
    at = int(fits.argmax())
    return (
        f"by its signatures, {story} (fits {count} of {len(got)} wrong elements, "
        f"the first at D[{i[at]}, {j[at]}], rows of block {i[at] // SIGNATURE_BLOCK})"
    )
