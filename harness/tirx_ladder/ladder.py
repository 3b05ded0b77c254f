"""Ladder, KernelVersion, Problem: the vocabulary of the harness. Imports nothing of the rest."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

INT32_MAX = 2**31 - 1
GRID_Y_MAX = 65_535  # CUDA C++ programming guide, technical specifications: y-dimension of a grid
B200_SMS = 148
DEFAULT_LADDER = "blackwell_gemm"


class UsageError(Exception):
    """What was asked for cannot be done as asked. Its text is the one line that a user sees; exit code 2."""


class BrokenVersionError(Exception):
    """A version's module cannot be imported. A verdict on that version, not on the others."""


Tile = tuple[int, int]
"""Row and column of an output tile in the grid of tiles."""

Schedule = tuple[tuple[Tile, ...], ...]
"""For each cluster of the launch (a CTA counts as a cluster of one), the output tiles it visits, in order."""


@dataclass(frozen=True, order=True)
class Problem:
    """One GEMM D = A·Bᵀ: A (m, k), B (n, k), D (m, n), all fp16 and row-major, accumulated in fp32.

    Raises UsageError for a size that is not a positive integer, or a matrix too large for int32 indexing.
    """

    m: int
    n: int
    k: int

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise UsageError(f"{name.upper()} = {value!r}: a positive integer is wanted")
        for name, rows, cols in (("A", self.m, self.k), ("B", self.n, self.k), ("D", self.m, self.n)):
            if rows * cols > INT32_MAX:
                raise UsageError(
                    f"{name} has {rows} x {cols} = {rows * cols} elements, and kernels index with int32: "
                    f"at most {INT32_MAX} are wanted, so make the problem {self} smaller"
                )

    @property
    def flops(self) -> int:
        """Floating-point operations: 2·m·n·k, a multiplication and an addition for each product."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        return f"{self.m}x{self.n}x{self.k}"


@dataclass(frozen=True)
class KernelVersion:
    """One kernel of a ladder: how to build it, and what the harness needs to know of its shape.

    build:        build(problem, *, sm_count) -> PrimFunc with buffers A, B and D
    tile:         (rows, columns) of D that one CTA, or one cluster, computes at a time
    blk_k:        elements of K in one K tile
    pipe_depth:   stages of the SMEM ring
    cluster:      CTAs in a cluster
    persistent:   sm_count CTAs loop over output tiles; otherwise one cluster is launched for each tile
    l2_group:     rows of tiles that the persistent scheduler visits together (group-major order)
    max_tiles, max_k_tiles: what the version is limited to (None: no limit)
    arch, sms:    the GPU that it is written for, and how many SMs that has
    simulated:    the CPU simulator knows all its instructions; if not, the matrix judges it on a GPU only
    """

    name: str
    adds: str
    build: Callable[..., Any]
    tile: tuple[int, int]
    blk_k: int
    pipe_depth: int = 1
    cluster: int = 1
    persistent: bool = False
    l2_group: int = 8
    max_tiles: int | None = None
    max_k_tiles: int | None = None
    arch: str = "sm_100a"
    sms: int = B200_SMS
    simulated: bool = True

    @property
    def default_sm_count(self) -> int:
        """The SMs of its GPU, or the next smaller count that clusters divide."""
        return self.sms // self.cluster * self.cluster

    def k_tiles(self, problem: Problem) -> int:
        """K_TILES of a problem."""
        return problem.k // self.blk_k

    def grid(self, problem: Problem) -> tuple[int, int]:
        """Rows and columns of output tiles."""
        return problem.m // self.tile[0], problem.n // self.tile[1]

    def problem(self, tiles_m: int, tiles_n: int, k_tiles: int) -> Problem:
        """The problem with that many output tiles and K tiles."""
        return Problem(tiles_m * self.tile[0], tiles_n * self.tile[1], k_tiles * self.blk_k)

    def check(self, problem: Problem, sm_count: int | None = None) -> None:
        """Raise UsageError, naming dimension, value and multiple, unless the version accepts the problem and launch."""
        sm_count = self.default_sm_count if sm_count is None else sm_count
        for name, value, multiple in (
            ("M", problem.m, self.tile[0]),
            ("N", problem.n, self.tile[1]),
            ("K", problem.k, self.blk_k),
        ):
            if value % multiple:
                raise UsageError(
                    f"{self.name}: {name} = {value} is not a multiple of {multiple}; "
                    f"the nearest that are: {_neighbours(value, multiple)}"
                )
        tiles_m, tiles_n = self.grid(problem)
        if self.max_tiles is not None and tiles_m * tiles_n > self.max_tiles:
            raise UsageError(
                f"{self.name}: {problem.m} x {problem.n} is {tiles_m * tiles_n} output tiles of "
                f"{self.tile[0]} x {self.tile[1]}, and this version computes at most {self.max_tiles}: "
                f"use M = {self.tile[0]}, N = {self.tile[1]}, or a later version"
            )
        if self.max_k_tiles is not None and self.k_tiles(problem) > self.max_k_tiles:
            raise UsageError(
                f"{self.name}: K = {problem.k} is {self.k_tiles(problem)} K tiles of {self.blk_k}, and this version "
                f"takes at most {self.max_k_tiles}: use K = {self.max_k_tiles * self.blk_k}, or a later version"
            )
        if isinstance(sm_count, bool) or not isinstance(sm_count, int) or sm_count <= 0 or sm_count % self.cluster:
            raise UsageError(
                f"{self.name}: sm_count = {sm_count!r} is not a positive multiple of the cluster size {self.cluster}; "
                f"the nearest that are: {_neighbours(sm_count, self.cluster)}"
            )
        if not self.persistent and tiles_n > GRID_Y_MAX:
            raise UsageError(
                f"{self.name}: N = {problem.n} makes a grid of {tiles_n} CTAs in y, at most {GRID_Y_MAX} are possible: "
                f"use N <= {GRID_Y_MAX * self.tile[1]}, or a persistent version"
            )

    def schedule(self, problem: Problem, sm_count: int | None = None) -> Schedule:
        """Which cluster computes which output tiles, in what order."""
        sm_count = self.default_sm_count if sm_count is None else sm_count
        rows, cols = self.grid(problem)
        if not self.persistent:  # CTA (bx, by) has the linear id bx + by * rows
            return tuple(((i % rows, i // rows),) for i in range(rows * cols))
        order = list(_group_major(rows, cols, self.l2_group))
        clusters = sm_count // self.cluster
        return tuple(tuple(order[c::clusters]) for c in range(clusters))

    @property
    def ladder_name(self) -> str:
        """The name of the package or file that the ladder is."""
        package = self.source.parent
        return package.name if (package / "__init__.py").is_file() else self.source.stem

    @property
    def source(self) -> Path:
        """The file that the kernel is written in."""
        return Path(inspect.getsourcefile(self.build) or "<unknown>")


def _neighbours(value: Any, multiple: int) -> str:
    """The positive multiples around a value, as text."""
    if not isinstance(value, int) or value < multiple:
        return str(multiple)
    return f"{value // multiple * multiple} and {(value // multiple + 1) * multiple}"


def _group_major(rows: int, cols: int, group: int) -> Iterator[Tile]:
    """Tiles in the order of TVM's ClusterPersistentScheduler2D: `group` rows at a time, column by column."""
    for first in range(0, rows, group):
        for col in range(cols):
            for row in range(first, min(first + group, rows)):
                yield row, col


@dataclass(frozen=True)
class Ladder:
    """An ordered list of versions of one kernel.

    spec names it again in another process; broken maps the name of a version whose module cannot be
    imported to the reason.
    """

    spec: str
    versions: tuple[KernelVersion, ...]
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def arch(self) -> str:
        """The one GPU architecture that its versions are written for. Raises UsageError if there is none, or two."""
        found = sorted({version.arch for version in self.versions})
        if len(found) != 1:
            raise UsageError(f"ladder {self.spec!r} is for {' and '.join(found) or 'no architecture'}: one is wanted")
        return found[0]

    def __getitem__(self, name: str) -> KernelVersion:
        for version in self.versions:
            if version.name == name:
                return version
        if name in self.broken:
            raise BrokenVersionError(self.broken[name])
        known = ", ".join(version.name for version in self.versions)
        raise UsageError(f"unknown version {name!r} of ladder {self.spec!r}: it has {known}")


def load(spec: str = DEFAULT_LADDER) -> Ladder:
    """Load a ladder from an importable package, or from the path of a Python file or of a package folder.

    The module's LADDER lists its versions in order: KernelVersion records, or names of submodules that each
    hold one as VERSION. Raises UsageError if there is no such ladder.
    """
    module, spec = _import_ladder(spec)
    listed = getattr(module, "LADDER", None)
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise UsageError(f"ladder {spec!r} has no LADDER: a list of KernelVersion records or of module names is wanted")
    versions: list[KernelVersion] = []
    broken: dict[str, str] = {}
    for entry in listed:
        if isinstance(entry, KernelVersion):
            versions.append(entry)
            continue
        try:
            version = importlib.import_module(f"{module.__name__}.{entry}").VERSION
        except (Exception, SystemExit) as error:  # whatever a kernel's module raises is that version's verdict
            name = str(entry).split("_")[0]
            if name in broken:
                raise UsageError(f"ladder {spec!r} has two versions of one name: {name}") from None
            broken[name] = f"{entry} cannot be imported: {_brief(error)}"
            continue
        if not isinstance(version, KernelVersion):
            raise UsageError(f"ladder {spec!r}: VERSION of {entry} is {version!r}, a KernelVersion is wanted")
        versions.append(version)
    names = [version.name for version in versions] + list(broken)
    if len(set(names)) != len(names):
        raise UsageError(f"ladder {spec!r} has two versions of one name: {', '.join(names)}")
    return Ladder(spec, tuple(versions), broken)


def _import_ladder(spec: str) -> tuple[ModuleType, str]:
    path = Path(spec)
    if path.suffix == ".py" or path.is_dir() or len(path.parts) > 1:
        path = path.resolve()
        if not path.exists():
            raise UsageError(f"no ladder at {path}: a Python file or a package folder is wanted")
        file = path / "__init__.py" if path.is_dir() else path
        if not file.is_file():
            raise UsageError(f"{path} holds no ladder: an __init__.py with a LADDER is wanted")
        name = (
            f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"  # two folders of one name may be loaded
        )
        return _import_file(file, name, package=path if path.is_dir() else None), str(path)
    try:
        return importlib.import_module(spec), spec
    except ModuleNotFoundError as error:
        if error.name is not None and f"{spec}.".startswith(f"{error.name}."):
            raise UsageError(f"no ladder {spec!r}: an importable package, a file or a folder is wanted") from None
        raise UsageError(f"ladder {spec!r} cannot be imported: {error}") from error
    except Exception as error:
        raise UsageError(f"ladder {spec!r} cannot be imported: {_brief(error)}") from error


def _brief(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _import_file(file: Path, name: str, package: Path | None) -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(
        name, file, submodule_search_locations=[str(package)] if package else None
    )
    if module_spec is None or module_spec.loader is None:
        raise UsageError(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"ladder {file} cannot be imported: {_brief(error)}") from error
    return module
