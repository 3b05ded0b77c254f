"""The rules applied: each warp's paths are followed, and what may be pending on one of them is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .. import tir
from . import flow
from .events import Event, events_by_statement
from .rules import SMEM_LIMIT, TMEM_COLUMNS, Violation

Marks = dict[str, tir.Place | None]
"""What may be pending on some path, by name, and where it began."""


@dataclass
class Known:
    """What may hold at a point of a warp's path: each of these is taken as pending if it is so on any path."""

    loading: Marks = field(default_factory=dict)  # registers that a tcgen05.ld has yet to fill
    uncommitted: Marks = field(default_factory=dict)  # MMAs that no commit has followed
    storing: Marks = field(default_factory=dict)  # SMEM that a bulk store may read where it is written next
    undrained: Marks = field(default_factory=dict)  # SMEM that any bulk store may still read
    ungrouped: Marks = field(default_factory=dict)  # bulk stores that no commit_group has followed
    unfenced: Marks = field(default_factory=dict)  # SMEM written through the generic proxy
    touched: Marks = field(default_factory=dict)  # TMEM used since the last CTA or cluster sync: "cta", "cluster"
    hidden: Marks = field(default_factory=dict)  # mbarrier inits that are not visible: "fence", "sync"
    waited: Marks = field(default_factory=dict)  # barriers waited on since the last fence::after_thread_sync
    loaded: Marks = field(default_factory=dict)  # tcgen05.ld since the last fence::before_thread_sync
    read_back: Marks = field(default_factory=dict)  # any tcgen05.ld so far
    accessed: Marks = field(default_factory=dict)  # registers of wgmmas, used otherwise since the last wgmma.fence
    multiplying: Marks = field(default_factory=dict)  # registers that a wgmma has yet to fill
    unbatched: Marks = field(default_factory=dict)  # the same, by wgmmas that no commit_group has followed
    unwaited: Marks = field(default_factory=dict)  # wgmmas since the last wait_group
    frees: tuple[int, int] = (0, 0)  # least and most deallocations on a path

    def copy(self) -> Known:
        same = Known(frees=self.frees)
        for theirs, mine in zip(same._marks(), self._marks(), strict=True):
            theirs.update(mine)
        return same

    def join(self, other: Known) -> bool:
        new = False
        for mine, theirs in zip(self._marks(), other._marks(), strict=True):
            for name, place in theirs.items():
                if name not in mine:
                    mine[name] = place
                    new = True
        frees = min(self.frees[0], other.frees[0]), min(3, max(self.frees[1], other.frees[1]))
        new |= frees != self.frees
        self.frees = frees
        return new

    def _marks(self) -> tuple[Marks, ...]:
        return (
            self.loading, self.uncommitted, self.storing, self.undrained, self.ungrouped, self.unfenced, self.touched,
            self.hidden, self.waited, self.loaded, self.read_back, self.accessed, self.multiplying, self.unbatched,
            self.unwaited,
        )  # fmt: skip


class Checker:
    """Applies the rules to one kernel."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._events = events_by_statement(kernel)
        self._found: dict[tuple[str, tir.Place | None], Violation] = {}
        every = [event for group in self._events.values() for event in group]
        self._all = every
        self._cluster = flow.cluster_size(kernel)
        self._async_read = {name for event in every for name in event.reads}
        self._committed = {event.target for event in every if event.kind == "commit"}
        self._has_tmem = any(event.kind in ("alloc", "mma", "tmem-load") for event in every)
        self._wgmma_registers = {event.target for event in every if event.kind == "wgmma"}
        self._pieces: dict[str, int] = {}  # of each buffer that is stored: how many pieces it is stored in
        self._named: dict[int, dict[int, tir.Place | None]] = {}
        self._handed_back = self._barriers_after_loads()

    def run(self) -> list[Violation]:
        """Every violation, once a rule and place."""
        self._whole_kernel()
        frees = [0, 0]
        last_free: tir.Place | None = None
        for warp in flow.warps(self._kernel):
            ends = [self._follow(warp, ids) for ids in flow.lanes(warp)]
            end = ends[0]
            for other in ends[1:]:
                end.join(other)
            self._at_end(end)
            frees = [frees[0] + end.frees[0], frees[1] + end.frees[1]]
        last_free = next((e.place for e in self._all if e.kind == "dealloc"), None)
        allocations = [event for event in self._all if event.kind == "alloc"]
        if frees != [len(allocations)] * 2:
            least, most = (f"{n if n < 3 else 'many'}" for n in frees)
            times = f"{least} times" if least == most else f"{least} to {most} times"
            place = last_free or allocations[0].place
            self._report("tmem-free-once", f"TMEM is allocated {len(allocations)} times and freed {times}", place)
        return list(self._found.values())

    def _follow(self, warp: flow.Warp, ids: dict[Any, flow.Interval]) -> Known:
        """What may be pending at the end of some lanes' paths."""
        self._walk = flow.Walk[Known](warp, ids, self._stepper(warp), self._skip)
        start = Known(accessed={event.target: None for event in self._all if event.kind == "wgmma"})
        return self._walk.run(self._kernel.body, start)

    def _report(self, rule: str, text: str, place: tir.Place | None, other: tir.Place | None = None) -> None:
        self._found.setdefault((rule, place), Violation(rule, text, place, other))

    # ---- rules about the kernel as a whole

    def _whole_kernel(self) -> None:
        for statement in tir.statements(self._kernel.body):
            if getattr(statement, "attr_key", "") == "tirx.dyn_smem_bytes":
                used = tir.constant(statement.value) or 0
                if used > SMEM_LIMIT:
                    text = f"{used} bytes of SMEM, {used - SMEM_LIMIT} more than there are"
                    self._report("smem-limit", text, None)
        waited = {event.target for event in self._all if event.kind == "wait"}
        for event in self._all:
            if event.kind == "commit" and event.target and event.target not in waited:
                self._report("commit-wait", "no one waits on the mbarrier of this commit", event.place)
            if event.kind == "alloc" and event.count is not None:
                columns = int(event.count)
                if columns < 32 or columns > TMEM_COLUMNS or columns & (columns - 1):
                    self._report("tmem-columns", f"{columns} columns are allocated", event.place)

    def _barriers_after_loads(self) -> set[str]:
        """Barriers on which threads that load from TMEM arrive: whoever waits on one may overwrite TMEM."""
        loads = any(event.kind == "tmem-load" for event in self._all)
        fed = {event.barrier for event in self._all if event.kind == "bulk-load"}
        arrived = {event.target for event in self._all if event.kind == "arrive"} if loads else set()
        return arrived - fed - self._committed

    # ---- rules along the paths of a warp

    def _stepper(self, warp: flow.Warp) -> Callable[[Any, Known, bool], None]:
        def step(statement: Any, known: Known, split: bool) -> None:
            for event in self._events.get(statement, ()):
                self._step(event, known, split, warp)

        return step

    def _skip(self, statement: Any, known: Known) -> None:
        """A part that this warp does not execute: another may free TMEM there while this one still uses it."""
        for child in tir.statements(statement):
            for event in self._events.get(child, ()):
                if event.kind == "dealloc":
                    self._before_free(event, known)

    def _before_free(self, event: Event, known: Known) -> None:
        level = "cluster" if event.cta_group == 2 else "cta"
        if level in known.touched:
            text = f"TMEM is freed with no {level} sync since it was last used"
            self._report("tmem-free-sync", text, event.place, known.touched[level])

    def _step(self, event: Event, known: Known, split: bool, warp: flow.Warp) -> None:
        if split and event.kind in ("tmem-load", "wait-ld", "alloc", "dealloc"):
            self._report("whole-warp", f"{event.kind} where only some lanes of the warp may be", event.place)
        if event.kind in ("init", "wait", "arrive", "commit", "bulk-load"):
            self._barrier_use(event, known)
        handler = getattr(self, "_on_" + event.kind.replace("-", "_"), None)
        if handler is not None:
            handler(event, known, warp)

    def _barrier_use(self, event: Event, known: Known) -> None:
        if event.kind == "init":
            known.hidden = {"fence": event.place, "sync": event.place}
        elif known.hidden:
            missing = "fence.mbarrier_init" if "fence" in known.hidden else self._sync_name()
            text = f"an mbarrier is used with no {missing} since its init"
            self._report("init-visible", text, event.place, next(iter(known.hidden.values())))

    def _sync_name(self) -> str:
        return "cluster sync" if self._cluster > 1 else "CTA sync"

    def _on_init_fence(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.hidden.pop("fence", None)

    def _check_columns(self, event: Event) -> None:
        allocated = [alloc.count for alloc in self._all if alloc.kind == "alloc"]
        if event.columns is None or not allocated or None in allocated:
            return
        first, number = (self._walk.number(expression) for expression in event.columns)
        if first is not None and number is not None and first + number > sum(allocated):
            text = f"columns {first} to {first + number - 1} are used, and {sum(allocated)} are allocated"
            self._report("tmem-range", text, event.place)

    def _on_tmem_load(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._check_columns(event)
        for barrier, place in known.waited.items():
            if barrier in self._committed:
                text = "tcgen05.ld with no tcgen05.fence::after_thread_sync since the wait for the MMA"
                self._report("fence-after", text, event.place, place)
        known.loading[event.target] = event.place
        known.loaded["load"] = known.read_back["load"] = event.place
        known.touched = {"cta": event.place, "cluster": event.place}

    def _on_wait_ld(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.loading.clear()

    def _on_read_registers(self, event: Event, known: Known, warp: flow.Warp) -> None:
        if event.target in known.loading:
            text = "registers are read with no tcgen05.wait::ld since the tcgen05.ld that fills them"
            self._report("ld-wait", text, event.place, known.loading[event.target])
        self._on_write_registers(event, known, warp)

    def _on_write_registers(self, event: Event, known: Known, warp: flow.Warp) -> None:
        if event.target not in self._wgmma_registers:
            return
        if event.target in known.multiplying:
            text = "registers of a wgmma are used with no wgmma.wait_group(0) since it was committed"
            self._report("wgmma-wait", text, event.place, known.multiplying[event.target])
        known.accessed[event.target] = event.place

    def _on_wgmma_fence(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.accessed.clear()

    def _on_wgmma_operand(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._async_reads(event, known)

    def _on_wgmma(self, event: Event, known: Known, warp: flow.Warp) -> None:
        if event.target in known.accessed:
            text = "a wgmma with no wgmma.fence since its registers were used otherwise, or ever"
            self._report("wgmma-fence", text, event.place, known.accessed[event.target])
        known.multiplying[event.target] = known.unbatched[event.target] = event.place
        known.unwaited["wgmma"] = event.place

    def _on_wgmma_commit(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.unbatched.clear()

    def _on_wgmma_wait(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.unwaited.clear()
        if event.count == 0:
            known.multiplying = dict(known.unbatched)

    def _on_mma(self, event: Event, known: Known, warp: flow.Warp) -> None:
        for barrier, place in known.waited.items():
            if barrier in self._handed_back or barrier == "sync":
                text = "tcgen05.mma with no tcgen05.fence::after_thread_sync since TMEM was handed back"
                self._report("fence-after", text, event.place, place)
        self._async_reads(event, known)
        self._check_columns(event)
        known.uncommitted["mma"] = event.place
        known.touched = {"cta": event.place, "cluster": event.place}

    def _on_commit(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.uncommitted.clear()

    def _on_wait(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.waited[event.target] = event.place

    def _on_arrive(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._hand_over(event, known)
        for place in known.unwaited.values():
            text = "SMEM is handed back with no wgmma.wait_group since the wgmmas that read it"
            self._report("wgmma-wait", text, event.place, place)
        if event.target in self._handed_back:
            for place in known.loaded.values():
                text = "TMEM is handed back with no tcgen05.fence::before_thread_sync since the tcgen05.ld"
                self._report("fence-before", text, event.place, place)

    def _on_after_thread_sync(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.waited.clear()

    def _on_before_thread_sync(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.loaded.clear()

    def _on_smem_write(self, event: Event, known: Known, warp: flow.Warp) -> None:
        if event.target in known.storing:
            text = "SMEM is written while a bulk store may still read it"
            self._report("store-drain", text, event.place, known.storing[event.target])
        known.unfenced[event.target] = event.place

    def _on_proxy_fence(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.unfenced.clear()

    def _async_reads(self, event: Event, known: Known) -> None:
        for name in event.reads:
            if name in known.unfenced:
                text = "the async proxy reads SMEM with no fence.proxy.async since it was written"
                self._report("proxy-fence", text, event.place, known.unfenced[name])

    def _hand_over(self, event: Event, known: Known) -> None:
        for name, place in known.unfenced.items():
            if name in self._async_read:
                text = "SMEM that the async proxy reads is handed over with no fence.proxy.async since it was written"
                self._report("proxy-fence", text, event.place, place)

    def _on_bulk_store(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._async_reads(event, known)
        for name in event.reads:
            known.storing[name] = known.undrained[name] = known.ungrouped[name] = event.place
            self._pieces[name] = min(event.count or 1, self._pieces.get(name, event.count or 1))

    def _on_bulk_commit(self, event: Event, known: Known, warp: flow.Warp) -> None:
        known.ungrouped.clear()

    def _on_bulk_wait(self, event: Event, known: Known, warp: flow.Warp) -> None:
        if event.count == 0:
            known.storing, known.undrained = dict(known.ungrouped), dict(known.ungrouped)
        elif event.count is not None:  # of a ring of pieces, the one that is written next has been read
            for name in [n for n in known.storing if self._pieces[n] > event.count and n not in known.ungrouped]:
                del known.storing[name]

    def _on_cta_sync(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._sync(event, known, ("cta", "cluster") if self._cluster == 1 else ("cta",))

    def _on_cluster_sync(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._sync(event, known, ("cta", "cluster"))

    def _on_named_sync(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._hand_over(event, known)
        number = self._walk.number(event.count)
        if number is None:
            return
        users = self._named.setdefault(number, {})
        users.setdefault(warp.warpgroup, event.place)
        if len(users) > 1:
            text = f"warpgroups {', '.join(map(str, sorted(users)))} share the named barrier {number}"
            self._report("named-barrier", text, event.place)

    def _sync(self, event: Event, known: Known, levels: tuple[str, ...]) -> None:
        self._hand_over(event, known)
        for level in levels:
            known.touched.pop(level, None)
        if "cluster" in levels:
            known.hidden.pop("sync", None)
        if known.read_back:
            known.waited["sync"] = event.place  # what was loaded before may now be overwritten by an MMA

    def _on_alloc(self, event: Event, known: Known, warp: flow.Warp) -> None:
        pass

    def _on_dealloc(self, event: Event, known: Known, warp: flow.Warp) -> None:
        self._before_free(event, known)
        known.frees = known.frees[0] + 1, min(3, known.frees[1] + 1)

    def _at_end(self, known: Known) -> None:
        for place in known.loading.values():
            self._report("ld-wait", "the kernel may end with no tcgen05.wait::ld after a tcgen05.ld", place)
        for place in known.uncommitted.values():
            self._report("commit-wait", "no tcgen05.commit follows this MMA", place)
        for place in known.multiplying.values():
            self._report("wgmma-wait", "the kernel may end with no wgmma.wait_group(0) after this wgmma", place)
        for name, place in known.undrained.items():
            missing = "commit_group" if name in known.ungrouped else "wait_group"
            text = f"the kernel may end with no cp.async.bulk.{missing} after this bulk store"
            self._report("store-drain", text, place)
