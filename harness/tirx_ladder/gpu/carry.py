"""What a GPU machine without compiler and network needs, in one folder: TVM's runtime, cuda-bench, this package.

With the folder on PYTHONPATH, Python of the same version with numpy, rich, cuda-bindings and nvidia-ml-py runs
bundles and measures them; libtvm_compiler.so, 260 MB, stays behind.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..ladder import UsageError

PARTS: dict[str, Callable[[str], bool]] = {  # distribution → which of its files, by path
    "apache-tvm": lambda path: path.startswith("tvm/lib/libtvm_runtime") and "extra" not in path,
    "apache-tvm-ffi": lambda path: (
        path.startswith(("tvm_ffi/", "apache_tvm_ffi"))
        and not path.startswith(("tvm_ffi/include/", "tvm_ffi/3rdparty/", "tvm_ffi/src/", "tvm_ffi/cython/"))
    ),
    "cuda-bench": lambda path: (
        path.startswith(("cuda/bench/", "cuda_bench"))
        and not path.startswith(("cuda/bench/cu12/", "cuda/bench/scripts/"))
        and "/include/" not in path
        and "/cmake/" not in path
        and not path.endswith(".a")
    ),
    "nvidia-ml-py": lambda path: path == "pynvml.py",
    "typing-extensions": lambda path: path == "typing_extensions.py",  # tvm_ffi wants it
}


def assemble(out: Path) -> int:
    """Write the folder, which must not be there yet; it appears whole or not at all. Returns its size in bytes.

    Raises UsageError if a distribution is not installed or the folder cannot be written.
    """
    out = out.absolute()
    if out.exists():
        raise UsageError(f"{out} is there already: name a new folder for the runtime")
    files = {name: _files(name, wanted) for name, wanted in PARTS.items()}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    except OSError as error:
        raise UsageError(f"{out.parent} cannot be written: {error.strerror}") from None
    try:
        made.chmod(0o755)
        for found in files.values():
            for relative, path in found.items():
                (made / relative).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, made / relative)
        own = Path(__file__).parents[1]
        shutil.copytree(own, made / own.name, ignore=shutil.ignore_patterns("__pycache__"))
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        made.replace(out)
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return size


def _files(distribution: str, wanted: Callable[[str], bool]) -> dict[str, Path]:
    try:
        listed = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"{distribution} is not installed: 'pip install tirx-ladder[measure]'") from None
    found = {
        str(file): Path(str(file.locate()))
        for file in listed
        if "__pycache__" not in file.parts and ".." not in file.parts and wanted(str(file))
    }
    if not found:
        raise UsageError(f"{distribution} holds none of the files wanted of it: another version is wanted")
    return found
