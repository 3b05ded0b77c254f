"""CUDA source → cubin, from PyPI wheels alone and without a GPU, with the options that TVM itself uses at run time.

TVM compiles a kernel when its library is loaded: tvm_callback_cuda_compile calls compile_cuda(source,
target_format="cubin", compiler="nvrtc") (tvm/support/nvcc.py). This module makes that same call, tells it
where the wheels are, and keeps what came out under a key of all that went in.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import shlex
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cuda_errors import explain
from .ladder import UsageError

ENTRY_SCHEMA = 1

WHEELS = {  # distribution: a file of it that the compiler cannot do without
    "nvidia-cuda-nvrtc": "/lib/libnvrtc.so.",
    "nvidia-cuda-runtime": "/include/cuda_runtime.h",
    "nvidia-cuda-cccl": "/include/cccl/cuda/std/cstdint",
    "nvidia-cuda-crt": "/include/crt/host_defines.h",
}

SETTINGS = ("TVM_CUDA_PTXAS_REG_LEVEL", "TVM_CUDA_PTXAS_EXTRA_OPTS", "TVM_CUDA_NVRTC_EXTRA_OPTS")
"""Variables by which TVM's run-time compile call may be changed (tvm/support/nvcc.py): what they say is kept to."""

_ONE_AT_A_TIME = threading.Lock()  # the call below reads the process's environment


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel and how it came to be.

    options:   what NVRTC was given, without the include paths, which differ from machine to machine
    ptxas:     what ptxas -v said of it
    toolchain: distribution → version
    key:       what it is cached under
    seconds:   what NVRTC took when it was compiled, now or for an earlier call
    cached:    it came from the cache
    """

    image: bytes = field(repr=False)
    arch: str
    options: tuple[str, ...]
    ptxas: str
    toolchain: dict[str, str]
    key: str
    seconds: float
    cached: bool


def cache_root() -> Path:
    """Where cubins are kept: TIRX_LADDER_CUBIN_CACHE, else in the user's cache."""
    explicit = os.environ.get("TIRX_LADDER_CUBIN_CACHE")
    if explicit:
        return Path(explicit).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache").resolve() / "tirx-ladder" / "cubin"


def wheel_file(distribution: str, part: str) -> Path:
    """A file of an installed wheel, by a part of its path. Raises UsageError if wheel or file is not there."""
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        found = Path(str(file.locate()))
        if part in f"/{file}" and found.is_file():
            return found.resolve()
    raise UsageError(
        f"the wheel {distribution} is not installed, or lacks {part.lstrip('/')}: 'pip install tirx-ladder[cubin]'"
    )


def toolchain() -> dict[str, str]:
    """The distributions that decide what a cubin holds, with their versions. Raises UsageError if one is missing.

    cuda-bindings only passes calls on to NVRTC, and is not among them.
    """
    return {name: version_of(name) for name in ("apache-tvm", *WHEELS)}


def version_of(distribution: str) -> str:
    """The version of an installed distribution. Raises UsageError if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        raise UsageError(f"{distribution} is not installed: 'pip install tirx-ladder[cubin]'") from None


def cuda_home() -> Path:
    """The folder that the CUDA wheels share (nvidia/cu13). Raises UsageError if one is missing or lies elsewhere."""
    homes = {}
    for distribution, part in WHEELS.items():
        file = wheel_file(distribution, part)
        depth = part.count("/") - (1 if part.endswith("/") else 0)
        homes[distribution] = file.parents[depth - 1]
    if len(set(homes.values())) > 1:
        listed = ", ".join(f"{name} in {home}" for name, home in homes.items())
        raise UsageError(f"the CUDA wheels are of different CUDA versions: {listed}; install those of one")
    return next(iter(homes.values()))


def compile_cubin(source: str, arch: str) -> Cubin:
    """The cubin of a CUDA source for an architecture such as sm_100a, from the cache where it is there.

    Raises CudaError for what the compiler refuses, UsageError if wheels are missing or the cache cannot be used.
    """
    versions = toolchain()
    settings = {name: os.environ.get(name, "") for name in SETTINGS}
    asked = json.dumps([ENTRY_SCHEMA, source, arch, settings, versions], sort_keys=True)
    key = hashlib.sha256(asked.encode()).hexdigest()
    entry = _cache_folder() / f"{key}.cubin"
    found = _read(entry, key, arch, versions)
    if found is not None:
        return found
    began = time.perf_counter()
    image, seen = _compile(source, arch)
    cubin = Cubin(
        image,
        arch,
        tuple(option for option in seen.options if not option.startswith("-I")),
        "\n".join(line.rstrip() for line in seen.log.splitlines() if line.startswith("ptxas") and "time" not in line),
        versions,
        key,
        time.perf_counter() - began,
        cached=False,
    )
    _write(entry, cubin)
    return cubin


@dataclass
class _Seen:
    """What passes through NVRTC in a compile call of TVM's, and what TVM throws away."""

    source: str = ""
    options: tuple[str, ...] = ()
    log: str = ""


def _compile(source: str, arch: str) -> tuple[bytes, _Seen]:
    home = cuda_home()
    try:
        nvrtc = importlib.import_module("cuda.bindings.nvrtc")
        _, *loaded = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise UsageError(f"NVRTC cannot be loaded: {error}; 'pip install tirx-ladder[cubin]'") from None
    installed = importlib.metadata.version("nvidia-cuda-nvrtc")
    if installed.split(".")[:2] != [str(part) for part in loaded]:
        raise UsageError(
            f"NVRTC {'.'.join(map(str, loaded))} is loaded, and the wheel nvidia-cuda-nvrtc is {installed}: another "
            "CUDA comes before it, see LD_LIBRARY_PATH and what this process imported"
        )
    from tvm.support import nvcc

    with _ONE_AT_A_TIME, _wheels_only(home), _watched(nvrtc) as seen:
        try:
            image = bytes(nvcc.compile_cuda(source, target_format="cubin", arch=arch, compiler="nvrtc"))
        except RuntimeError as error:
            raise explain(seen.log or str(error), seen.source, source) from None
    return image, seen


@contextmanager
def _wheels_only(home: Path) -> Iterator[None]:
    """Have TVM take the wheels' headers, whatever toolkit is on the machine; the environment is put back."""
    include = shlex.quote(f"-I{home / 'include' / 'cccl'}")
    asked = os.environ.get("TVM_CUDA_NVRTC_EXTRA_OPTS", "")
    wanted = {
        "CUDA_PATH": str(home),  # what TVM 0.27's find_cuda_path reads
        "CUDA_HOME": str(home),  # what other versions and cuda-pathfinder read
        "TVM_CUDA_NVRTC_EXTRA_OPTS": f"{include} {asked}".strip(),  # the user's come last, and so prevail
    }
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _watched(nvrtc: Any) -> Iterator[_Seen]:
    """Note source, options and log of the NVRTC program that TVM makes.

    TVM drops the log of a success, which holds ptxas -v's count of spilled bytes, and puts lines of its own
    before the source, by which the line numbers of errors are off.
    """
    seen = _Seen()
    create, build, destroy = nvrtc.nvrtcCreateProgram, nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram

    def on_create(source: bytes, *rest: Any) -> Any:
        seen.source = source.decode()
        return create(source, *rest)

    def on_build(program: Any, count: int, options: list[bytes]) -> Any:
        seen.options = tuple(option.decode() for option in options)
        return build(program, count, options)

    def on_destroy(program: Any) -> Any:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = bytearray(size)
        nvrtc.nvrtcGetProgramLog(program, log)
        seen.log = log.decode(errors="replace").rstrip("\0")
        return destroy(program)

    nvrtc.nvrtcCreateProgram, nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram = on_create, on_build, on_destroy
    try:
        yield seen
    finally:
        nvrtc.nvrtcCreateProgram, nvrtc.nvrtcCompileProgram, nvrtc.nvrtcDestroyProgram = create, build, destroy


def _cache_folder() -> Path:
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UsageError(f"cubin cache {root} (TIRX_LADDER_CUBIN_CACHE) cannot be made: {error.strerror}") from None
    return root


def _write(entry: Path, cubin: Cubin) -> None:
    """Put a cubin in the cache in one step: a reader sees a whole entry or none, and of two writers the last stays."""
    about = {
        "schema": ENTRY_SCHEMA,
        "key": cubin.key,
        "options": cubin.options,
        "ptxas": cubin.ptxas,
        "seconds": cubin.seconds,
    }
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(dir=entry.parent, prefix=".", delete=False) as file:
            temporary = Path(file.name)
            content = json.dumps(about).encode() + b"\n" + cubin.image
            file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
        temporary.replace(entry)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise UsageError(
            f"cubin cache {entry.parent} (TIRX_LADDER_CUBIN_CACHE) cannot be written: {error.strerror}"
        ) from None


def _read(entry: Path, key: str, arch: str, versions: dict[str, str]) -> Cubin | None:
    """A cubin from the cache; None if it is not there, or not as it was written."""
    try:
        digest, _, content = entry.read_bytes().partition(b"\n")
        if digest.decode() != hashlib.sha256(content).hexdigest():
            return None
        head, _, image = content.partition(b"\n")
        about = json.loads(head)
        if (about["schema"], about["key"]) != (ENTRY_SCHEMA, key):
            return None
        options, ptxas, seconds = tuple(map(str, about["options"])), str(about["ptxas"]), float(about["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Cubin(image, arch, options, ptxas, versions, key, seconds, cached=True)
