"""A version on a problem → TIRx → CUDA source → cubin, with its launch and what each step cost the host."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from . import cubin, tir
from .cuda_errors import CudaError
from .ladder import KernelVersion, Problem, UsageError

Dim3 = tuple[int, int, int]
"""x, y, z."""


class BuildError(Exception):
    """A version does not build: a verdict on that version. The text names the step, and the lines if they are known."""


@dataclass(frozen=True)
class Launch:
    """How the host launches the kernel.

    grid:        CTAs, in all (not clusters)
    block:       threads of a CTA
    cluster:     CTAs of a cluster; (1, 1, 1) without clusters
    tensor_maps: for each TMA descriptor, in the order of the kernel's parameters, what it is encoded with:
                 sizes and strides of the tensor, box, element strides, then swizzle, L2 promotion and the like
    """

    entry: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_smem_bytes: int
    tensor_maps: tuple[str, ...] = ()

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_ctas(self) -> int:
        """CTAs of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def to_dict(self) -> dict[str, Any]:
        """The launch as plain JSON data."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


@dataclass(frozen=True)
class Seconds:
    """Host time of a build, in seconds; cubin is what NVRTC took when the cubin was compiled (not a cache's time)."""

    tir: float
    codegen: float
    cubin: float


@dataclass(frozen=True)
class Build:
    """A version compiled for a problem.

    function: what the host function is called in the library
    kernel:   its TIRx, as the version wrote it; lowered: the same in PTX calls, after host and device were split
    """

    version: KernelVersion
    problem: Problem
    sm_count: int
    arch: str
    cuda: str = field(repr=False)
    function: str
    launch: Launch
    cubin: cubin.Cubin
    seconds: Seconds
    kernel: Any = field(repr=False, compare=False)
    lowered: Any = field(repr=False, compare=False)
    executable: Any = field(repr=False, compare=False)


def build(version: KernelVersion, problem: Problem, *, sm_count: int | None = None, arch: str | None = None) -> Build:
    """Compile a version for a problem. Needs neither GPU nor CUDA toolkit; takes 2 to 4 s, under 1 s from the cache.

    Raises UsageError for a problem that the version does not accept or a missing wheel, BuildError for a
    version that does not build.
    """
    sm_count = version.default_sm_count if sm_count is None else sm_count
    arch = version.arch if arch is None else arch
    version.check(problem, sm_count)
    if not re.fullmatch(r"sm_\d{2,3}[af]?", arch):
        raise UsageError(f"arch {arch!r} is not a GPU architecture: one like sm_100a or sm_90a is wanted")
    import tvm  # before the clock starts: its import is no cost of the version

    began = time.perf_counter()
    try:
        kernel = version.build(problem, sm_count=sm_count)
    except (Exception, SystemExit) as error:  # whatever a version's builder raises is that version's verdict
        raise BuildError(f"{version.name} on {problem}: its build fails: {_brief(error)}") from error
    built = time.perf_counter()
    packed = _Packed()
    target = tvm.target.Target({"kind": "cuda", "arch": arch})
    try:
        with _as_without_gpu(), tvm.transform.PassContext(instruments=[_watching(packed)]):
            executable = tvm.compile(tvm.IRModule({"main": kernel}), target=target, tir_pipeline="tirx")
        cuda = str(executable.mod.imports[0].inspect_source("cuda"))
    except Exception as error:
        raise BuildError(f"{version.name} on {problem}: no CUDA from its TIRx: {_brief(error)}") from error
    generated = time.perf_counter()
    launch, lowered = _launch(version, packed.module)
    (host,) = (f for f in packed.module.functions.values() if not f.same_as(lowered))
    function = str(host.attrs["global_symbol"]).removeprefix("__tvm_ffi_")
    try:
        compiled = cubin.compile_cubin(cuda, arch)
    except CudaError as error:
        raise BuildError(f"{version.name} on {problem}: {error}{_blame(kernel, error)}") from error
    seconds = Seconds(built - began, generated - built, compiled.seconds)
    return Build(
        version, problem, sm_count, arch, cuda, function, launch, compiled, seconds, kernel, lowered, executable
    )


def _brief(error: BaseException) -> str:
    """An error on one line: of a TVM diagnostic its last lines hold the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[-3:])}" if lines else type(error).__name__


@contextmanager
def _as_without_gpu() -> Iterator[None]:
    """Have TVM generate source only, as it does where there is no CUDA driver.

    Where there is one it compiles the source itself, for which it wants a CUDA toolkit, and puts the cubin in
    the library. Without this function it cannot, and a bundle is the same wherever it was made.
    """
    import tvm_ffi

    name = "ffi.Module.create.cuda"
    hidden = tvm_ffi.get_global_func(name, allow_missing=True)
    if hidden is None:
        yield
        return
    tvm_ffi.registry.remove_global_func(name)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(name, hidden, override=True)


@dataclass
class _Packed:
    """The module just after host and device were split: the host part still launches by name, in TIR."""

    module: Any = None


def _watching(packed: _Packed) -> Any:
    from tvm.ir.instrument import pass_instrument

    @pass_instrument
    class Watch:
        def run_after_pass(self, module: Any, info: Any) -> None:
            if info.name == "tirx.MakePackedAPI":
                packed.module = module

    return Watch()


def _launch(version: KernelVersion, module: Any) -> tuple[Launch, Any]:
    """The one launch that the host function makes, and the kernel that it launches."""
    maps: dict[str, str] = {}
    launches = []
    for function in module.functions.values():
        for call in _calls(function):
            name = tir.op_name(call)
            if name == "tirx.tensormap_encode_tiled":
                numbers = " ".join(str(arg) for arg in call.args[2:])
                maps[call.args[0].name] = f"{numbers} {call.attrs}"
            elif name == "tirx.call_ffi_kernel":
                launches.append(call)
    if len(launches) != 1:
        raise BuildError(f"{version.name}: its host function makes {len(launches)} launches, one is wanted")
    (call,) = launches
    tags = [str(tag) for tag in call.attrs.launch_params]
    rest = list(call.args)[1 : len(call.args) - len(tags)]
    extents = {}
    for tag, value in zip(tags, list(call.args)[len(call.args) - len(tags) :], strict=True):
        if (extent := tir.constant(value)) is None:
            raise BuildError(f"{version.name}: {tag} of its launch is {value}, a constant is wanted")
        extents[tag] = extent

    def dim3(name: str) -> Dim3:
        return extents.get(f"{name}.x", 1), extents.get(f"{name}.y", 1), extents.get(f"{name}.z", 1)

    entry = str(call.args[0].value)
    (lowered,) = (f for name, f in module.functions.items() if name.name_hint == entry)
    launch = Launch(
        entry,
        dim3("blockIdx"),
        dim3("threadIdx"),
        dim3("clusterCtaIdx"),
        extents.get("tirx.use_dyn_shared_memory", 0),
        tuple(maps[arg.name] for arg in rest if getattr(arg, "name", None) in maps),
    )
    return launch, lowered


def _calls(function: Any) -> Iterator[Any]:
    for statement in tir.statements(function.body):
        if (call := tir.call_of(statement)) is not None:
            yield call


def _blame(kernel: Any, error: CudaError) -> str:
    """The kernel's own lines that a generated line stems from, where a name on that line tells.

    Generated CUDA carries no line numbers of the kernel. It does carry names: those of variables, of the
    functions that T.cuda.func_call names, and of operations (tvm_builtin_ptx_tcgen05_alloc_… is that of
    tirx.ptx.tcgen05_alloc). The longest name found decides; a name on more than three lines says nothing.
    """
    words = set(re.findall(r"[A-Za-z_]\w+", error.line)) | {error.function}
    found: dict[int, dict[tir.Place, None]] = {}
    for statement in tir.statements(kernel.body):
        where = tir.place(getattr(statement, "span", None))
        if where is None:
            continue
        for name in _names(statement):
            if len(name) > 2 and (name in words or any(f"tvm_builtin_{name}" in word for word in words)):
                found.setdefault(len(name), {})[where] = None
    if not found or len(places := found[max(found)]) > 3:
        return ""
    return "; in the kernel " + "; or ".join(str(place) for place in places)


def _names(statement: Any) -> Iterator[str]:
    kind = type(statement).__name__
    if kind == "Bind":
        yield str(statement.var.name)
    elif kind in ("AllocBuffer", "DeclBuffer", "BufferStore"):
        yield str(statement.buffer.name)
    for call in tir.calls(statement) if not tir.children(statement) else ():
        yield tir.op_name(call).removeprefix("tirx.").replace(".", "_")
        yield from tir.words(call)
