"""The correctness matrix as data: which problems and launches a version must be right on, and why.

A *row* is a promise ("K_TILES is one more than PIPE_DEPTH", "three output tiles per cluster, an odd number
of barrier rounds in each"). Building a kernel costs far more than running it, so one specialisation keeps
several promises at once, and takes every kind of input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle

from .ladder import KernelVersion, Problem, Tile, UsageError

INPUTS = ("exact", "normal", "marked", "special")
"""Kinds of input; `oracle` says what each is and how its D is judged."""

COLUMNS = ("shape", "K_TILES", "reuse", "launch")
"""The groups of rows, which are the columns of the summary."""

PRODUCTION = Problem(4096, 4096, 4096)


@dataclass(frozen=True)
class Specialisation:
    """One version compiled for one problem and launch, and the rows that it covers.

    sm_count is the launch of a persistent version, None for the others. clusters limits the run to some
    clusters of the launch (None: all of them).
    """

    version: str
    problem: Problem
    sm_count: int | None
    rows: frozenset[str]
    clusters: tuple[int, ...] | None = None

    @property
    def id(self) -> str:
        launch = "" if self.sm_count is None else f"-sm{self.sm_count}"
        return f"{self.version}-{self.problem}{launch}"


@dataclass(frozen=True)
class Case:
    """A row of the matrix as pytest sees it: a specialisation and one kind of input."""

    specialisation: Specialisation
    inputs: str

    @property
    def id(self) -> str:
        return f"{self.specialisation.id}-{self.inputs}"


def k_tiles_rows(version: KernelVersion) -> dict[str, int]:
    """The K_TILES that a version must be tried with, by the reason for each."""
    p = version.pipe_depth
    wanted = {
        "K=1": 1, "K=2": 2, "K=P-1": p - 1, "K=P": p, "K=P+1": p + 1, "K=2P-1": 2 * p - 1, "K=2P": 2 * p,
        "K=2P+1": 2 * p + 1, "K=3P+1": 3 * p + 1, "K>=16": max(16, 3 * p + 2),
    }  # fmt: skip
    limit = version.max_k_tiles or max(wanted.values())
    return {row: k for row, k in wanted.items() if 1 <= k <= limit}


def promised_rows(version: KernelVersion) -> frozenset[str]:
    """Every row that applies to a version."""
    rows = set(k_tiles_rows(version)) | {"one tile"}
    if version.max_tiles is None:
        rows |= {"2x1", "1x2", "odd grid", "tall", "wide"}
    if version.persistent:
        rows |= {"1 tile each", "some idle", "sm=tiles", "sm>tiles"}
    if version.persistent and version.max_tiles is None:
        rows.add("sm<tiles")
        parities = {_PARITIES[k % 2] for k in k_tiles_rows(version).values()}
        rows |= {f"{reuse}, {parity} rounds" for reuse in _REUSE for parity in parities}
    return frozenset(rows)


def column(row: str) -> str:
    """Which of COLUMNS a row belongs to."""
    if row.startswith("K"):
        return "K_TILES"
    if row.startswith("sm"):
        return "launch"
    return "reuse" if row.endswith(("each", "idle", "rounds")) else "shape"


_PARITIES = ("even", "odd")
_REUSE = ("2 tiles each", "3 tiles each", "uneven")


def rows_of(version: KernelVersion, problem: Problem, sm_count: int | None) -> frozenset[str]:
    """The promised rows that a problem and launch keep."""
    k = version.k_tiles(problem)
    rows = {row for row, value in k_tiles_rows(version).items() if value == k}
    grid = version.grid(problem)
    tiles = grid[0] * grid[1]
    if tiles == 1:
        rows.add("one tile")
    elif grid[0] % 2 and grid[1] % 2:
        rows.add("odd grid")
    rows |= {f"{m}x{n}" for m, n in ((2, 1), (1, 2)) if grid == (m, n)}
    rows |= {name for name, holds in (("tall", problem.m > problem.n), ("wide", problem.m < problem.n)) if holds}
    if version.persistent and sm_count is not None:
        counts = sorted({len(visited) for visited in version.schedule(problem, sm_count)})
        clusters = sm_count // version.cluster
        order = (clusters > tiles) - (clusters < tiles)
        rows.add(("sm=tiles", "sm>tiles", "sm<tiles")[order])
        if counts[0] == 0:
            rows.add("some idle")
        elif len(counts) > 1:
            rows.add(f"uneven, {_PARITIES[k % 2]} rounds")
        elif counts == [1]:
            rows.add("1 tile each")
        else:
            rows.add(f"{counts[0]} tiles each, {_PARITIES[k % 2]} rounds")
    return frozenset(rows & promised_rows(version))


def default_tier(version: KernelVersion) -> tuple[Specialisation, ...]:
    """The specialisations that together keep every promise to a version.

    The dear dimensions never meet: many output tiles go with few K tiles, and long K with one tile.
    """
    plan = list(_persistent_plan(version) if version.persistent else _one_wave_plan(version))
    chosen: dict[tuple[Problem, int | None], Specialisation] = {}
    for (tiles_m, tiles_n), k, clusters in plan:
        problem = version.problem(tiles_m, tiles_n, k)
        sm_count = None if clusters is None else clusters * version.cluster
        chosen[problem, sm_count] = Specialisation(version.name, problem, sm_count, rows_of(version, problem, sm_count))
    return tuple(chosen.values())


Plan = Iterable[tuple[Tile, int, int | None]]
"""Grid of output tiles, K_TILES and number of clusters (None: one for each tile)."""


def _shapes(version: KernelVersion) -> list[Tile]:
    """Grids of output tiles, dearest first, among them one taller and one wider than square in elements."""
    if version.max_tiles is not None:
        return [(1, 1)]
    tile_m, tile_n = version.tile
    tall, wide = (tile_n // tile_m + 1, 1), (1, tile_m // tile_n + 1)
    return [(3, 3), (2, 1), (1, 2), *sorted({tall, wide} - {(2, 1), (1, 2), (1, 1)}), (1, 1)]


def _one_wave_plan(version: KernelVersion) -> Plan:
    *grids, one = _shapes(version)
    ks = sorted(set(k_tiles_rows(version).values()))
    short, longest = ks[:-1] or ks, ks[-1]
    for i in range(max(len(grids), len(short))):
        yield grids[i] if i < len(grids) else one, short[i % len(short)], None
    yield one, longest, None


def _persistent_plan(version: KernelVersion) -> Plan:
    ks = sorted(set(k_tiles_rows(version).values()))
    *shapes, one = _shapes(version)
    used: set[int] = set()
    if version.max_tiles is None:
        cheap = version.tile[0] * version.tile[1] <= 2**14
        past_a_group = max(3, version.l2_group + 1)  # a second, shorter group of the scheduler
        grids: dict[int, list[tuple[Tile, int]]] = {
            1: [((3, 3), 2), ((3, 1), 1), ((2, 1), 1)],
            0: [((past_a_group, 1), past_a_group - 1) if cheap else ((3, 1), 2), ((1, 3), 1), ((1, 2), 1)],
        }
        for parity, launches in grids.items():
            short = [k for k in ks if k % 2 == parity and k < 16]
            for (grid, clusters), k in zip(launches, cycle(short or ks[:1]), strict=False):
                used.add(k)
                yield grid, k, clusters
        for grid in shapes[3:]:
            if max(grid) > 3:  # a tile so far from square that the grids above were not
                yield grid, 1, 1
    long = [k for k in ks if k not in used]
    for i, k in enumerate([1] * (2 - len(long)) + long):
        yield one, k, 1 + i % 2  # one cluster with one tile, or two of which one is idle


def quick_tier(version: KernelVersion) -> tuple[Specialisation, ...]:
    """One small problem: the first of the default tier that is not the dearest grid."""
    return (min(default_tier(version), key=lambda spec: (-len(spec.rows), spec.problem.flops)),)


def production_tier(version: KernelVersion) -> tuple[Specialisation, ...]:
    """The kernel that will be timed, run on the first, a middle and the last cluster of its launch.

    Empty for a version that does not accept so large a problem.
    """
    sm_count = version.default_sm_count
    try:
        version.check(PRODUCTION, sm_count)
    except UsageError:
        return ()
    clusters = len(version.schedule(PRODUCTION, sm_count))
    return (
        Specialisation(
            version.name,
            PRODUCTION,
            sm_count if version.persistent else None,
            frozenset({"production"}),
            clusters=(0, clusters // 2, clusters - 1),
        ),
    )
