"""The simulator's toolchain: cargo and rustc, its cache, and an environment under which the cache is reused."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .ladder import UsageError

RUSTC_WANTED = (1, 89)
"""Oldest rustc that builds tirx-harness 0.1.2's engines (edition 2024, its rust-version)."""

GENERATED_OPT_LEVEL = "1"
"""Optimisation of a kernel's generated code. Measured on V1 to V9: level 0 builds in a quarter of the time, but
runs 2 times (TMA kernels) to 6 times (thread copies) longer, in every later run; 3 needs engines of its own,
compiled for this very CPU, which a restored cache could not use elsewhere."""

_ENTRY_KINDS = ("artifacts", "compile/entries")
"""Parts of the cache with one entry per specialisation and tool, which may be dropped one by one."""


def cache_root() -> Path:
    """Where the simulator keeps engines and built kernels: NUMSIM_CACHE_DIR, else in the user's cache."""
    explicit = os.environ.get("NUMSIM_CACHE_DIR")
    if explicit:
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache").resolve() / "tirx-ladder" / "numsim"


def worker_environment() -> dict[str, str]:
    """Variables for a process that builds or runs simulated kernels.

    The simulator's cache key includes PATH, so a PATH that names a virtual environment would rebuild the
    engines for every checkout: name only where the toolchain is. One folder for both of its caches saves a
    second copy of every built kernel; stripped libraries are a third smaller.
    """
    root = str(cache_root())
    tools = [shutil.which(tool) for tool in (_rust_tool("cargo"), _rust_tool("rustc"), "cc")]
    folders = [str(Path(tool).parent) for tool in tools if tool] + ["/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": os.pathsep.join(dict.fromkeys(folders)),
        "NUMSIM_CACHE_DIR": root,
        "NUMSIM_BUILD_CACHE_DIR": root,
        "NUMSIM_GENERATED_OPT_LEVEL": os.environ.get("NUMSIM_GENERATED_OPT_LEVEL", GENERATED_OPT_LEVEL),
        "NUMSIM_GENERATED_STRIP": "symbols",
        # The engine allocates and frees large buffers without end: keep them mapped (a quarter less run time).
        "MALLOC_MMAP_THRESHOLD_": str(2**32),
        "MALLOC_TRIM_THRESHOLD_": str(2**33),
        "MALLOC_TOP_PAD_": str(2**26),
        "OPENBLAS_NUM_THREADS": "1",
    }


def _rust_tool(name: str) -> str:
    """The tool that the simulator itself will take: NUMSIM_CARGO, ~/.cargo/bin/cargo, or the one on PATH."""
    home = Path.home() / ".cargo" / "bin" / name
    return os.environ.get(f"NUMSIM_{name.upper()}") or (str(home) if home.is_file() else name)


def require() -> None:
    """Raise UsageError unless cargo, a recent rustc and a usable cache are there."""
    for tool in ("cargo", "rustc"):
        if shutil.which(_rust_tool(tool)) is None:
            raise UsageError(
                f"{_rust_tool(tool)} is not there: the simulator compiles with Rust {_dotted(RUSTC_WANTED)} or later; "
                "install it with rustup (https://rustup.rs) or put it on PATH"
            )
    try:
        done = subprocess.run([_rust_tool("rustc"), "--version"], capture_output=True, text=True, check=False)
        said = done.stdout, done.stderr
    except OSError as error:
        said = "", str(error)
    found = re.search(r"rustc (\d+)\.(\d+)", said[0])
    if found is None:
        raise UsageError(f"rustc --version failed: {(said[1] or said[0]).strip()!r}; repair the Rust toolchain")
    version = (int(found[1]), int(found[2]))
    if version < RUSTC_WANTED:
        raise UsageError(
            f"rustc {_dotted(version)} is too old: the simulator wants {_dotted(RUSTC_WANTED)} or later; "
            "run 'rustup update stable'"
        )
    require_cache(cache_root())


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def require_cache(root: Path) -> None:
    """Raise UsageError unless the cache is a folder of this user's, writable by no one else, with room in it."""
    where = f"simulator cache {root} (NUMSIM_CACHE_DIR)"
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(b"\0" * 4096)
    except OSError as error:
        raise UsageError(f"{where} cannot be written: {error.strerror}; name a folder that can be") from None
    status = root.stat()
    if status.st_uid != os.getuid():
        raise UsageError(f"{where} belongs to user {status.st_uid}: one of your own is wanted, since its code is run")
    if status.st_mode & 0o022:
        raise UsageError(f"{where} can be written by others, and its code is run: 'chmod go-w {root}'")
    for name in ("artifacts", "compile", "cargo-target", "dependencies", "engines", "locks", "tmp"):
        if (root / name).exists() and not (root / name).is_dir():
            raise UsageError(f"{where} is damaged: {name} is not a folder; 'tirx-ladder cache --clear' empties it")


@contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Hold the cache for a run: many runs may, and none of what they use is pruned meanwhile."""
    with (root / "in-use.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def touch(entry: Path) -> None:
    """Note that a cache entry was used now, so that pruning takes the least recently used first."""
    try:
        os.utime(entry)
    except OSError:
        pass  # pruned or replaced meanwhile: then its age does not matter


@dataclass(frozen=True)
class CacheUse:
    """What is in the cache, in bytes."""

    engines: int
    kernels: int
    entries: int
    other: int

    @property
    def total(self) -> int:
        return self.engines + self.kernels + self.other


def cache_use(root: Path) -> CacheUse:
    """Measure the cache."""
    entries = _entries(root)
    kernels = sum(size for _, size, _ in entries)
    engines = sum(_size(root / name) for name in ("cargo-target", "dependencies", "engines"))
    return CacheUse(engines, kernels, len(entries), max(0, _size(root) - engines - kernels))


def prune(root: Path, max_bytes: int) -> CacheUse:
    """Drop built kernels, least recently used first, until the cache fits; engines stay, they cost the most.

    Raises UsageError while a run uses the cache, or if the engines alone do not fit.
    """
    with _alone(root):
        _remove(root / "tmp")
        use = cache_use(root)
        excess = use.total - max_bytes
        for _, size, path in sorted(_entries(root)):
            if excess <= 0:
                break
            _remove(path)
            excess -= size
    if excess > 0:
        raise UsageError(
            f"the simulator's engines take {use.engines + use.other} bytes, more than the {max_bytes} allowed: "
            "allow more, or use --clear (they take minutes to build again)"
        )
    return cache_use(root)


def clear(root: Path) -> None:
    """Empty the cache. Raises UsageError while a run uses it, or if it does not look like a simulator cache."""
    with _alone(root):
        for path in root.iterdir():
            if path.name != "in-use.lock":
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _alone(root: Path) -> Iterator[None]:
    if not root.is_dir():
        raise UsageError(f"there is no simulator cache at {root}: nothing to do")
    known = {"artifacts", "compile", "cargo-target", "dependencies", "engines", "locks", "tmp", "in-use.lock"}
    strange = sorted(path.name for path in root.iterdir() if path.name not in known)
    if strange:
        raise UsageError(f"{root} also holds {', '.join(strange[:3])}: not a simulator cache, nothing was removed")
    with (root / "in-use.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(f"a run is using the simulator cache {root}: wait for it, then call again") from None
        yield


def _entries(root: Path) -> list[tuple[float, int, Path]]:
    """Entries that may be dropped: when last used, bytes, path."""
    found = []
    for kind in _ENTRY_KINDS:
        folder = root / kind
        for path in folder.iterdir() if folder.is_dir() else ():
            found.append((path.stat().st_mtime, _size(path), path))
    return found


def _size(path: Path) -> int:
    """Bytes on disk under a path."""
    if not path.exists():
        return 0
    total = path.lstat().st_blocks * 512
    for folder, names, files in os.walk(path):
        for name in names + files:
            try:
                total += (Path(folder) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total
