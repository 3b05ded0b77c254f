"""A bundle: a compiled version in a folder, to be run later on a GPU machine that has no compiler.

library.so   TVM's host code, which launches the kernel (it also holds the CUDA source, not needed to run)
kernel.cubin what its tvm_callback_cuda_compile has to return there
manifest.json what was compiled for what, and the hashes of the two
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import elf, git, records
from .build import Build, BuildError, Launch
from .ladder import KernelVersion, Problem, UsageError

SCHEMA = 3
LIBRARY, CUBIN, MANIFEST = "library.so", "kernel.cubin", "manifest.json"


@dataclass(frozen=True)
class FileRecord:
    """A file of a bundle: SHA-256 in hexadecimal, and size."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Shape:
    """What the oracle and the schedule need to know of a version; the words are those of KernelVersion."""

    tile: tuple[int, int]
    blk_k: int
    pipe_depth: int
    cluster: int
    persistent: bool
    l2_group: int
    sms: int


@dataclass(frozen=True)
class Source:
    """Where the version that was compiled comes from: its ladder's name, and the commit of the checkout, if any."""

    ladder: str
    commit: str | None
    dirty: bool


@dataclass(frozen=True)
class Manifest:
    """What a bundle holds.

    function:  what to call in the library, with the tensors A, B and D
    behaviour: elf.behaviour_digest of the cubin
    options:   what NVRTC was given
    toolchain: distribution → version
    """

    schema: int
    version: str
    shape: Shape
    source: Source
    problem: Problem
    sm_count: int
    arch: str
    function: str
    launch: Launch
    behaviour: str
    options: tuple[str, ...]
    toolchain: dict[str, str]
    files: dict[str, FileRecord]

    def kernel_version(self) -> KernelVersion:
        """The version as the oracle takes it, on a machine where the ladder itself cannot be imported."""
        fields = {name: getattr(self.shape, name) for name in Shape.__dataclass_fields__}
        return KernelVersion(name=self.version, adds="", build=_no_build, arch=self.arch, **fields)


def _no_build(*_: object, **__: object) -> None:
    raise BuildError("a version read from a bundle's manifest cannot be built")


def export(build: Build, folder: Path) -> Manifest:
    """Write a bundle to a folder that does not exist yet or is empty; it appears whole or not at all.

    Raises UsageError if the folder cannot be written or holds something, BuildError if the library does not link.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not empty: name a new folder for the bundle")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise UsageError(f"{folder.parent} cannot be written: {error.strerror}") from None
    try:
        made.chmod(0o755)
        try:
            build.executable.export_library(str(made / LIBRARY))
        except (RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[-300:]
            raise BuildError(
                f"{build.version.name}: its library does not link (a C++ compiler is wanted): {reason}"
            ) from None
        (made / CUBIN).write_bytes(build.cubin.image)
        manifest = Manifest(
            SCHEMA,
            build.version.name,
            Shape(**{name: getattr(build.version, name) for name in Shape.__dataclass_fields__}),
            _source(build.version),
            build.problem,
            build.sm_count,
            build.arch,
            build.function,
            build.launch,
            elf.behaviour_digest(build.cubin.image, build.launch.entry),
            build.cubin.options,
            build.cubin.toolchain,
            {name: record(made / name) for name in (LIBRARY, CUBIN)},
        )
        records.write(manifest, made / MANIFEST)
        made.replace(folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return manifest


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a bundle, its keys and types checked. Raises UsageError naming what is wrong."""
    manifest = records.read(Manifest, folder / MANIFEST, SCHEMA)
    if set(manifest.files) != {LIBRARY, CUBIN}:
        raise UsageError(
            f"{folder / MANIFEST}, files: {', '.join(sorted(manifest.files))}; {LIBRARY} and {CUBIN} are wanted"
        )
    return manifest


def verify(folder: Path) -> Manifest:
    """The manifest of a bundle whose files are those that it names. Nothing of the bundle is loaded.

    Raises UsageError naming the file or key that does not match. The hashes protect against damage and mix-ups,
    not against someone who can write the manifest as well.
    """
    manifest = load_manifest(folder)
    for name, wanted in manifest.files.items():
        path = folder / name
        try:
            regular = stat.S_ISREG(path.lstat().st_mode)
            found = record(path) if regular else None
        except OSError as error:
            raise UsageError(f"bundle {folder}: {name} cannot be read: {error.strerror}") from None
        if found is None:
            raise UsageError(f"bundle {folder}: {name} is not a plain file")
        if found.bytes != wanted.bytes:
            raise UsageError(f"bundle {folder}: {name} has {found.bytes} bytes, its manifest says {wanted.bytes}")
        if found.sha256 != wanted.sha256:
            raise UsageError(f"bundle {folder}: {name} has SHA-256 {found.sha256}, its manifest says {wanted.sha256}")
    image, entry = (folder / CUBIN).read_bytes(), manifest.launch.entry
    if entry not in elf.kernels(image):
        held = ", ".join(elf.kernels(image)) or "none"
        raise UsageError(f"bundle {folder}: {CUBIN} holds no kernel {entry}, which the manifest names; it has {held}")
    if elf.behaviour_digest(image, entry) != manifest.behaviour:
        raise UsageError(f"bundle {folder}: behaviour of {CUBIN} is not what the manifest says")
    return manifest


def _source(version: KernelVersion) -> Source:
    try:
        commit, dirty = git.state(version.source)
    except UsageError:  # a ladder outside any checkout is no fault
        commit, dirty = None, False
    return Source(version.ladder_name, commit, dirty)


def record(path: Path) -> FileRecord:
    """Hash and size of a file."""
    with path.open("rb") as file:
        return FileRecord(hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size)
