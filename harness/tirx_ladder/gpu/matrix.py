"""The correctness matrix of a ladder as a folder of bundles with an index, for a GPU machine without a compiler.

FOLDER/index.json and FOLDER/<specialisation>/ for each bundle; FOLDER.tar.xz holds the same in a tenth of the
bytes, since the cubins of a ladder are much alike.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .. import build, bundle, cases, records
from ..ladder import Ladder, UsageError

SCHEMA = 1
INDEX = "index.json"
PACKED = ".tar.xz"


@dataclass(frozen=True)
class Row:
    """A specialisation of the matrix: the folder of its bundle (None: it does not build, for a reason), its inputs."""

    id: str
    version: str
    inputs: tuple[str, ...]
    folder: str | None
    failed: str | None


@dataclass(frozen=True)
class Index:
    """All rows of a matrix: what is not judged of them is not clean."""

    schema: int
    ladder: str
    arch: str
    rows: tuple[Row, ...]


def specialisations(ladder: Ladder, *, production: bool) -> list[cases.Specialisation]:
    """The matrix for a GPU: the default tier, and on demand the kernels that are timed, on their whole launch."""
    chosen: list[cases.Specialisation] = []
    for version in ladder.versions:
        chosen += cases.default_tier(version)
        chosen += cases.production_tier(version) if production else ()
    return chosen


def export(ladder: Ladder, out: Path, *, production: bool = False, say: Callable[[str], None] = print) -> Index:
    """Build the matrix of a ladder into a folder, or a file that ends in .tar.xz; it appears whole or not at all.

    Raises UsageError if the place is taken or cannot be written, or wheels are missing.
    """
    out = out.absolute()
    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder or {PACKED} file for the matrix")
    arch = ladder.arch
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        made.chmod(0o755)
    except OSError as error:
        raise UsageError(f"{out.parent} cannot be written: {error.strerror}") from None
    try:
        rows = []
        wanted = specialisations(ladder, production=production)
        for i, spec in enumerate(wanted):
            say(f"building {spec.id} ({i + 1} of {len(wanted)})")
            rows.append(_build(ladder, spec, made))
        rows += [Row(f"{name}-broken", name, (), None, why) for name, why in ladder.broken.items()]
        index = Index(SCHEMA, ladder.spec, arch, tuple(rows))
        records.write(index, made / INDEX)
        if out.name.endswith(PACKED):
            packed = made.with_name(f"{made.name}{PACKED}")
            with tarfile.open(packed, "w:xz") as file:
                for path in sorted(made.iterdir()):
                    file.add(path, path.name)
            packed.replace(out)
        else:
            made.replace(out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
        made.with_name(f"{made.name}{PACKED}").unlink(missing_ok=True)
    return index


def _build(ladder: Ladder, spec: cases.Specialisation, folder: Path) -> Row:
    version = ladder[spec.version]
    try:
        built = build.build(version, spec.problem, sm_count=spec.sm_count)
        bundle.export(built, folder / spec.id)
    except build.BuildError as error:
        return Row(spec.id, spec.version, cases.INPUTS, None, str(error))
    return Row(spec.id, spec.version, cases.INPUTS, spec.id, None)


@contextmanager
def opened(place: Path) -> Iterator[tuple[Index, Path]]:
    """The index of a matrix, and the folder with its bundles: the place itself, or one unpacked for a while.

    A folder that is a single bundle counts as a matrix of one row. Raises UsageError if it is neither.
    """
    if place.is_dir():
        yield _index(place), place
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            with tarfile.open(place, "r:xz") as file:
                file.extractall(folder, filter="data")
        except FileNotFoundError:
            raise UsageError(f"no bundles at {place}: a folder or a {PACKED} file is wanted") from None
        except (tarfile.TarError, OSError, EOFError) as error:
            raise UsageError(f"{place} cannot be unpacked: {error}") from None
        yield _index(Path(folder)), Path(folder)


def _index(folder: Path) -> Index:
    if (folder / bundle.MANIFEST).is_file():
        manifest = bundle.load_manifest(folder)
        name = f"{manifest.version}-{manifest.problem}-sm{manifest.sm_count}"
        return Index(SCHEMA, "", manifest.arch, (Row(name, manifest.version, cases.INPUTS, ".", None),))
    index = records.read(Index, folder / INDEX, SCHEMA)
    for row in index.rows:
        if (row.folder is None) == (row.failed is None):
            raise UsageError(f"{folder / INDEX}, {row.id}: either a folder or why there is none is wanted")
        if row.folder is not None and (Path(row.folder).name != row.folder or row.folder in ("", "..")):
            raise UsageError(f"{folder / INDEX}, {row.id}: folder {row.folder!r} is no plain name")
    if not index.rows:
        raise UsageError(f"{folder / INDEX} lists no bundles: there is nothing to judge")
    return index
