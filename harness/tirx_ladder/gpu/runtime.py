"""A bundle on a GPU with TVM's runtime only: libtvm_runtime.so, libtvm_runtime_cuda.so and tvm_ffi, no compiler.

Needs cuda-bindings and numpy beside them; keeps torch out of the process unless the caller brought it in.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import bundle
from ..ladder import Problem, UsageError
from .jobs import brief

LIBRARIES = ("libtvm_runtime.so", "libtvm_runtime_cuda.so")
CUDART = "libcudart.so.13"  # what libtvm_runtime_cuda.so of apache-tvm 0.27 is linked against
NAN16 = 0x7E00  # a quiet NaN in fp16

Half = npt.NDArray[np.float16]


class DeviceError(Exception):
    """A CUDA call failed, or a launch: the driver's name for it and its text. The context may be lost."""


@lru_cache(maxsize=1)
def driver() -> Any:
    """The CUDA driver API, initialised. Raises UsageError if there is no driver."""
    try:
        api = importlib.import_module("cuda.bindings.driver")
        (code,) = api.cuInit(0)
    except ImportError:
        raise UsageError("cuda-bindings is not installed: 'pip install tirx-ladder[gpu]'") from None
    except Exception as error:  # its versions raise different errors where libcuda.so.1 is missing
        raise UsageError(f"no CUDA driver here ({brief(error)}): run this on a machine with a GPU") from None
    if int(code):
        raise UsageError(f"no usable GPU here: cuInit says {_name(api, code)}")
    return api


def call(result: Any) -> Any:
    """What a call of cuda.bindings.driver returned, without its error code. Raises DeviceError if it is not success."""
    code, *values = result
    if int(code):
        raise DeviceError(_name(driver(), code))
    return values[0] if len(values) == 1 else tuple(values)


def _name(api: Any, code: Any) -> str:
    parts = []
    for ask in (api.cuGetErrorName, api.cuGetErrorString):
        status, text = ask(code)
        parts.append(text.decode() if not int(status) and text else str(code))
    return ": ".join(parts)


def capability(ordinal: int = 0) -> tuple[int, int]:
    """Compute capability of a GPU, without making a context. Raises UsageError if there is no such GPU."""
    count = call(driver().cuDeviceGetCount())
    if not 0 <= ordinal < count:
        raise UsageError(f"no GPU {ordinal} here: the driver sees {count}")
    return attribute("COMPUTE_CAPABILITY_MAJOR", ordinal), attribute("COMPUTE_CAPABILITY_MINOR", ordinal)


def attribute(name: str, ordinal: int = 0) -> int:
    """An attribute of a GPU, by the end of its name in CUdevice_attribute; makes no context."""
    api = driver()
    key = getattr(api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call(api.cuDeviceGetAttribute(key, call(api.cuDeviceGet(ordinal)))))


def pci_bus_id(ordinal: int = 0) -> str:
    """PCI bus id of a GPU, by which NVML knows it as well (the order of the two may differ)."""
    api = driver()
    raw = call(api.cuDeviceGetPCIBusId(32, call(api.cuDeviceGet(ordinal))))
    return bytes(raw).split(b"\0")[0].decode()


def runs_on(arch: str, found: tuple[int, int]) -> bool:
    """Whether a cubin for an architecture runs on a GPU of a compute capability.

    sm_90a runs on 9.0 only, sm_100f on 10.0 and later 10.x, sm_80 on 8.0 and later 8.x (CUDA C++ programming
    guide, compute capabilities: architecture-specific and family-specific features; binary compatibility).
    """
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    if match is None:
        return False
    wanted = int(match[1]), int(match[2])
    return found == wanted if match[3] == "a" else found[0] == wanted[0] and found[1] >= wanted[1]


def require(arch: str, ordinal: int = 0) -> None:
    """Raise UsageError, in one line, unless a GPU is here that runs cubins of an architecture."""
    found = capability(ordinal)
    if not runs_on(arch, found):
        raise UsageError(
            f"GPU {ordinal} has compute capability {found[0]}.{found[1]}, and {arch} does not run on it: "
            "use bundles built for it, or another machine"
        )


@lru_cache(maxsize=1)
def load() -> Any:
    """tvm_ffi, with TVM's CUDA runtime loaded beside it. Raises UsageError naming what is missing.

    tvm_ffi imports torch where it is installed, which costs seconds, and asks it for the GPU, which must not
    happen before a fork: it is hidden meanwhile.
    """
    hidden = sys.modules.get("torch")
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        tvm_ffi = importlib.import_module("tvm_ffi")
    except ImportError as error:
        raise UsageError(f"tvm_ffi cannot be imported: {error}; see docs/measuring.md, the runtime folder") from None
    finally:
        del sys.modules["torch"]
        if hidden is not None:
            sys.modules["torch"] = hidden
    _load_cudart()
    for name in LIBRARIES:
        try:
            ctypes.CDLL(str(_library(name)), ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise UsageError(f"{name} cannot be loaded: {error}; it wants a CUDA driver and {CUDART}") from None
    return tvm_ffi


def _library(name: str) -> Path:
    spec = importlib.util.find_spec("tvm")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (found := Path(folder) / "lib" / name).is_file():
            return found
    raise UsageError(f"{name} is not there: apache-tvm, or a runtime folder on PYTHONPATH, is wanted")


def _load_cudart() -> None:
    """Have libcudart in the process; the loader then takes it for whatever else wants one of that name."""
    try:
        importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib("cudart")
    except Exception:  # no pathfinder, or it finds none: the loader's own search is left
        try:
            ctypes.CDLL(CUDART, ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise UsageError(f"{CUDART} is not there: {error}; 'pip install nvidia-cuda-runtime'") from None


class Gpu:
    """A GPU with its primary context, which TVM, torch and NVBench in this process share."""

    def __init__(self, ordinal: int = 0) -> None:
        """Raises UsageError if there is no such GPU, DeviceError if its context cannot be made."""
        capability(ordinal)
        self.ordinal = ordinal
        self.api = driver()
        self.device = call(self.api.cuDeviceGet(ordinal))
        call(self.api.cuCtxSetCurrent(call(self.api.cuDevicePrimaryCtxRetain(self.device))))
        self.ffi = load()
        self._allocate = self.ffi.get_global_func("runtime.TVMTensorAllocWithScope")

    def empty(self, shape: Sequence[int]) -> Any:
        """An fp16 tensor on the device, as TVM allocates it (cudaMalloc); what is in it is undefined."""
        device = self.ffi.device(f"cuda:{self.ordinal}")
        return self._guard(self._allocate, self.ffi.Shape(tuple(shape)), self.ffi.dtype("float16"), device, None)

    def upload(self, array: Half) -> Any:
        """A copy of a host array on the device."""
        tensor = self.empty(array.shape)
        self.copy_in(tensor, array)
        return tensor

    def copy_in(self, tensor: Any, array: Half) -> None:
        """Copy a host array into a tensor of the same shape."""
        assert array.flags.c_contiguous
        assert array.dtype == np.float16
        assert tuple(tensor.shape) == array.shape
        call(self.api.cuMemcpyHtoD(tensor.data_ptr(), array.ctypes.data, array.nbytes))

    def download(self, tensor: Any) -> Half:
        """A copy of a tensor on the host. Waits for the device; raises DeviceError for what went wrong there."""
        found = np.empty(tuple(tensor.shape), np.float16)
        call(self.api.cuMemcpyDtoH(found.ctypes.data, tensor.data_ptr(), found.nbytes))
        return found

    def poison(self, tensor: Any) -> None:
        """Fill a tensor with NaN."""
        call(self.api.cuMemsetD16(tensor.data_ptr(), NAN16, tensor.numel()))

    def wait(self) -> None:
        """Wait for the device. Raises DeviceError for what went wrong there since."""
        call(self.api.cuCtxSynchronize())

    def open(self, folder: Path) -> Kernel:
        """Load a bundle that is whole. Raises UsageError if it is not, or is for another GPU."""
        manifest = bundle.verify(folder)
        require(manifest.arch, self.ordinal)
        return Kernel(self, manifest, folder)

    def _guard(self, function: Any, *arguments: Any) -> Any:
        """Call into TVM, whose errors carry the name of the CUDA error and a trace of their own."""
        try:
            return function(*arguments)
        except Exception as error:
            raise DeviceError(brief(error)) from None


_image: bytes | None = None
"""The cubin that TVM is to be handed next, since its callback is told no more than the source."""


class Kernel:
    """A loaded bundle."""

    def __init__(self, gpu: Gpu, manifest: bundle.Manifest, folder: Path) -> None:
        global _image
        self.gpu, self.manifest = gpu, manifest
        self.problem: Problem = manifest.problem
        asked = []

        def compiled(source: str, *target: Any) -> bytes:
            asked.append(len(source))
            if _image is None:
                raise RuntimeError("tirx-ladder: a kernel was to be compiled that no bundle holds")
            return _image

        gpu.ffi.register_global_func("tvm_callback_cuda_compile", compiled, override=True)
        _image = (folder / bundle.CUBIN).read_bytes()
        try:
            self._module = gpu._guard(gpu.ffi.load_module, str((folder / bundle.LIBRARY).absolute()))
            self._function = gpu._guard(self._module.get_function, manifest.function)
        finally:
            _image = None
        if len(asked) != 1 or self._function is None:
            raise DeviceError(f"bundle {folder}: its library asked for {len(asked)} cubins, one is wanted")

    def launch(self, a: Any, b: Any, d: Any) -> None:
        """Start the kernel on tensors A (m, k), B (n, k) and D (m, n), on the current stream; does not wait."""
        self.gpu._guard(self._function, a, b, d)

    def launcher(self, a: Any, b: Any, d: Any) -> Any:
        """The launch as a call without arguments, as little Python as can be, for the timer."""
        function = self._function
        return lambda: function(a, b, d)

    def stream(self, handle: int) -> Any:
        """A context in which launches go to a CUDA stream, given by its address."""
        return self.gpu.ffi.use_raw_stream(self.gpu.ffi.device(f"cuda:{self.gpu.ordinal}"), handle)
