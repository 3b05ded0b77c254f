"""What a statement of a TIRx kernel does, in the terms of the rules: one kind of event, on which buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import tir


@dataclass(frozen=True)
class Event:
    """One thing that a statement does.

    kind is one of the names below; target is what it acts on (a register array, an SMEM or TMEM buffer, a
    barrier), reads are the SMEM buffers it reads through the async proxy, count a number that goes with it
    (for named-sync the expression of the barrier's id, which may differ from warp to warp).

    registers  read-registers(target), write-registers(target)
    TMEM       tmem-load(target: registers), wait-ld, mma(reads), commit(target: barrier), alloc, dealloc
    wgmma      wgmma(target: registers), wgmma-operand(reads), wgmma-fence, wgmma-commit, wgmma-wait(count: groups left)
    mbarriers  init(target), init-fence, wait(target), arrive(target)
    syncs      cta-sync, cluster-sync, named-sync(count: the id)
    fences     proxy-fence, before-thread-sync, after-thread-sync
    bulk       bulk-load(target: SMEM, barrier), bulk-store(reads, count: pieces that the SMEM has of that
               size), bulk-commit, bulk-wait(count: groups left)
    SMEM       smem-write(target), through the generic proxy
    """

    kind: str
    place: tir.Place | None
    target: str = ""
    reads: tuple[str, ...] = ()
    barrier: str = ""
    count: Any = None
    cta_group: int = 1
    columns: Any = None
    """For mma and tmem-load on 32-bit TMEM buffers: first column and number of columns, as expressions."""


def events_by_statement(kernel: Any) -> dict[Any, tuple[Event, ...]]:
    """The events of every simple statement of a kernel."""
    names = Names()
    simple = (s for s in tir.statements(kernel.body) if not tir.children(s))
    return {statement: found for statement in simple if (found := tuple(events(statement, names)))}


@dataclass
class Names:
    """Which allocation a buffer belongs to: views, remote mappings and pointers lead back to it by name."""

    parent: dict[str, str] = field(default_factory=dict)
    keys: dict[Any, str] = field(default_factory=dict)

    def key(self, var: Any) -> str:
        """A name for a variable that no other variable has."""
        return self.keys.setdefault(var, f"{var.name}#{len(self.keys)}")

    def root(self, var: Any) -> str:
        """The allocation that a buffer or pointer variable leads back to."""
        name = self.key(var)
        while name in self.parent:
            name = self.parent[name]
        return name

    def link(self, var: Any, source: Any) -> None:
        """Note that a variable is a view of, or points into, what source does."""
        if self.key(var) != self.root(source):
            self.parent[self.key(var)] = self.root(source)


_SIMPLE = {
    "tirx.ptx.tcgen05_wait": {"wait::ld": "wait-ld"},
    "tirx.ptx.tcgen05_fence": {
        "fence::before_thread_sync": "before-thread-sync",
        "fence::after_thread_sync": "after-thread-sync",
    },
    "tirx.ptx.fence_proxy": {"async": "proxy-fence"},
    "tirx.ptx.fence_mbarrier_init": {"mbarrier_init": "init-fence"},
    "tirx.ptx.cp_async_bulk_commit_group": {"commit_group": "bulk-commit"},
    "tirx.ptx.wgmma_fence": {"fence": "wgmma-fence"},
    "tirx.ptx.wgmma_commit_group": {"commit_group": "wgmma-commit"},
    "tirx.cuda.cta_sync": {"": "cta-sync"},
    "tirx.cuda.cluster_sync": {"": "cluster-sync"},
}


def events(statement: Any, names: Names) -> Iterator[Event]:
    """The events of one statement that holds no other statements."""
    kind = type(statement).__name__
    where = tir.place(getattr(statement, "span", None))
    if kind == "DeclBuffer":
        _declare(statement, names)
    elif kind == "Bind":
        _bind(statement, names)
    elif kind == "TilePrimitiveCall":
        yield from _tile(statement, names, where)
    elif kind == "BufferStore":
        yield from _reads(statement.value, names, where)
        if statement.buffer.scope().startswith("shared"):
            yield Event("smem-write", where, names.root(statement.buffer))
    elif (call := tir.call_of(statement)) is not None:
        yield from _call(call, names, where)


def _declare(statement: Any, names: Names) -> None:
    """A view of registers, or of a peer CTA's barriers; the pool's buffers are allocations of their own."""
    owners = tir.variables(statement.data) if statement.data is not None else []
    if owners and not statement.buffer.scope().startswith("shared.dyn"):
        names.link(statement.buffer, owners[0])


def _bind(statement: Any, names: Names) -> None:
    owners = tir.variables(statement.value)
    if owners and type(statement.var.ty).__name__ == "PointerType":
        names.link(statement.var, owners[0])


def _tile(statement: Any, names: Names, where: tir.Place | None) -> Iterator[Event]:
    op = str(statement.op.name).rsplit(".", 1)[-1]
    regions = [arg for arg in statement.args if hasattr(arg, "source") and hasattr(arg, "region")]
    if not regions:
        return
    scopes = [region.source.scope() for region in regions]
    roots = [names.root(region.source) for region in regions]
    barrier = statement.config.get("mbar") if statement.config else None
    if op == "gemm_async":
        shared = tuple(root for root, scope in zip(roots, scopes, strict=True) if scope.startswith("shared"))
        group = int(statement.config.get("cta_group", 1)) if statement.config else 1
        yield Event("mma", where, roots[0], shared, cta_group=group, columns=_columns(regions[0]))
    elif op == "copy_async" and scopes[0] == "local" and scopes[1] == "tmem":
        yield Event("tmem-load", where, roots[0], columns=_columns(regions[1]))
    elif op == "copy_async" and scopes[0].startswith("shared") and barrier is not None:
        target = tir.addressed(barrier)
        yield Event("bulk-load", where, roots[0], barrier=names.root(target) if target is not None else "")
    elif op == "copy_async" and scopes[1].startswith("shared"):
        yield Event("bulk-store", where, reads=(roots[1],), count=_pieces(regions[1]))
    else:
        for scope, root in list(zip(scopes, roots, strict=True))[1:]:
            if scope == "local":
                yield Event("read-registers", where, root)
        if scopes[0].startswith("shared"):
            yield Event("smem-write", where, roots[0])
        elif scopes[0] == "local":
            yield Event("write-registers", where, roots[0])


def _pieces(region: Any) -> int:
    """How many regions like this one a buffer has along its first dimension."""
    whole, part = tir.constant(region.source.shape[0]), tir.constant(next(iter(region.region)).extent)
    return whole // part if whole and part else 1


def _columns(region: Any) -> tuple[Any, Any] | None:
    """First column and number of columns of a region of TMEM, whose columns hold 32 bits each."""
    buffer = region.source
    if not str(buffer.dtype).endswith("32"):
        return None
    last = list(region.region)[-1]
    return last.min + (buffer.allocated_addr[0] if len(buffer.allocated_addr or ()) else 0), last.extent


def _call(call: Any, names: Names, where: tir.Place | None) -> Iterator[Event]:
    name, words = tir.op_name(call), tir.words(call)
    group = 2 if "cta_group::2" in words else 1
    if name in _SIMPLE:
        for word, kind in _SIMPLE[name].items():
            if not word or word in words:
                yield Event(kind, where)
    elif name.startswith("tirx.ptx.mapa"):
        if owners := tir.variables(call.args[1]):
            names.link(call.args[0].source, owners[0])
    elif name == "tirx.cuda.mbarrier_wait":
        yield Event("wait", where, _barrier(call.args[0], names))
    elif name.startswith("tirx.ptx.mbarrier_init"):
        yield Event("init", where, _barrier(call.args[0], names))
    elif name.startswith("tirx.ptx.mbarrier_arrive"):
        yield Event("arrive", where, _barrier(call.args[0], names))
    elif name.startswith("tirx.ptx.tcgen05_commit"):
        yield Event("commit", where, _barrier(call.args[0], names), cta_group=group)
    elif name.startswith("tirx.ptx.tcgen05_alloc"):
        yield Event("alloc", where, count=tir.constant(call.args[1]), cta_group=group)
    elif name.startswith("tirx.ptx.tcgen05_dealloc"):
        yield Event("dealloc", where, count=tir.constant(call.args[1]), cta_group=group)
    elif name.startswith("tirx.ptx.tcgen05_ld"):
        for var in dict.fromkeys(names.root(arg.source) for arg in call.args if _is_local(arg)):
            yield Event("tmem-load", where, var)
    elif name.startswith("tirx.ptx.tcgen05_mma"):
        yield Event("mma", where, cta_group=group)
    elif name.startswith("tirx.ptx.cp_async_bulk_wait_group"):
        yield Event("bulk-wait", where, count=tir.constant(call.args[0]))
    elif name.startswith("tirx.ptx.wgmma_wait_group"):
        yield Event("wgmma-wait", where, count=tir.constant(call.args[0]))
    elif name.startswith("tirx.ptx.wgmma_"):
        yield Event("wgmma", where, names.root(call.args[0].source))
    elif name == "tirx.cuda.wgmma_encode_matrix_descriptor":
        if owners := tir.variables(call.args[1]):
            yield Event("wgmma-operand", where, reads=(names.root(owners[0]),))
    elif name == "tirx.cuda.warpgroup_sync":
        yield Event("named-sync", where, count=call.args[0])
    else:
        yield from _reads(call, names, where)


def _is_local(arg: Any) -> bool:
    return hasattr(arg, "source") and hasattr(arg.source, "scope") and arg.source.scope() == "local"


def _reads(expression: Any, names: Names, where: tir.Place | None) -> Iterator[Event]:
    for load in tir.loads(expression):
        if _is_local(load) and int(load.source.shape[0]) > 1:
            yield Event("read-registers", where, names.root(load.source))


def _barrier(pointer: Any, names: Names) -> str:
    """The barrier array that an address leads to; empty if that cannot be told."""
    found = tir.variables(pointer)
    return names.root(found[0]) if found else ""
