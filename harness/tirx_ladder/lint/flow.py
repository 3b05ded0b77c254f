"""What each warp of a CTA may do, path by path: an abstract run of a kernel's TIRx.

One warp is followed at a time. Its ids are known, so `if warp_id == 3` is decided; what is not known (a lane's
id, an elected thread, a scheduler's state) is followed both ways. Short loops of known length are unrolled,
others run until nothing new is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from .. import tir

Interval = tuple[int, int]
"""Least and greatest value that an integer may have."""

UNROLLED = 16
"""Loops of at most that many passes are followed pass by pass, since conditions may ask for one of them."""

WARP = 32


class State(Protocol):
    """What is known at a point of the program; a rule's own business."""

    def copy(self) -> Self: ...

    def join(self, other: Self) -> bool:
        """Take in what may hold on another path; True if that was new."""


@dataclass(frozen=True)
class Warp:
    """One warp of a CTA: its number, and the interval of each id that the kernel asks for."""

    number: int
    ids: dict[Any, Interval] = field(hash=False, compare=False)

    @property
    def warpgroup(self) -> int:
        return self.number // 4

    def __str__(self) -> str:
        return f"warp {self.number}"


# tvm.tirx.exec_scope: the values of ScopeBinding, and for each the threads that one id of it stands for
_THREADS_EACH = {("cta", "warpgroup"): 128, ("cta", "warp"): 32, ("cta", "thread"): 1}
_BINDINGS = {
    2: ("cluster", "cta"), 3: ("cta", "warpgroup"), 4: ("cta", "warp"), 5: ("warpgroup", "warp"),
    6: ("warp", "thread"), 7: ("cta", "thread"), 8: ("warpgroup", "thread"),
}  # fmt: skip


def warps(kernel: Any) -> tuple[Warp, ...]:
    """The warps of a CTA of the kernel."""
    found = []
    threads = 0
    for statement in tir.statements(kernel.body):
        if type(statement).__name__ == "ScopeIdDefStmt":
            definition = getattr(statement, "def")
            binding = _BINDINGS.get(int(definition.scope), ("", ""))
            extents = [tir.constant(extent) for extent in definition.extents or ()]
            found.append((binding, list(definition.def_ids), extents))
            if binding in _THREADS_EACH and extents and extents[0] is not None:
                threads = max(threads, extents[0] * _THREADS_EACH[binding])
    return tuple(
        Warp(number, {
            var: interval
            for binding, ids, extents in found
            if (interval := _interval(binding, number, extents)) is not None
            for var in ids
        })
        for number in range(max(1, threads // WARP))
    )  # fmt: skip


def lanes(warp: Warp) -> tuple[dict[Any, Interval], ...]:
    """The ids as a warp's first lane has them, and as the others do: a lane takes `if tid == 0` always or never."""
    by_lane = {var for var, (low, high) in warp.ids.items() if high - low == WARP - 1}
    if not by_lane:
        return (warp.ids,)
    first = {var: (low, low if var in by_lane else high) for var, (low, high) in warp.ids.items()}
    others = {var: (low + (var in by_lane), high) for var, (low, high) in warp.ids.items()}
    return first, others


def cluster_size(kernel: Any) -> int:
    """CTAs in a cluster of the kernel."""
    size = 1
    for statement in tir.statements(kernel.body):
        if type(statement).__name__ == "ScopeIdDefStmt":
            definition = getattr(statement, "def")
            if _BINDINGS.get(int(definition.scope)) == ("cluster", "cta"):
                for extent in definition.extents or ():
                    size *= tir.constant(extent) or 1
    return size


def _interval(binding: tuple[str, str], warp: int, extents: list[int | None]) -> Interval | None:
    """What an id is in a warp."""
    first = warp * WARP
    return {
        ("cta", "warpgroup"): (warp // 4, warp // 4),
        ("cta", "warp"): (warp, warp),
        ("warpgroup", "warp"): (warp % 4, warp % 4),
        ("warp", "thread"): (0, WARP - 1),
        ("cta", "thread"): (first, first + WARP - 1),
        ("warpgroup", "thread"): (first % 128, first % 128 + WARP - 1),
        ("cluster", "cta"): (0, extents[0] - 1) if extents and extents[0] else None,
    }.get(binding)


def value(expression: Any, ids: dict[Any, Interval], warp: int) -> Interval | None:
    """The interval of an integer or condition in a warp (a condition is 0, 1 or both); None if not known."""
    kind = type(expression).__name__
    if kind == "IntImm":
        return int(expression.value), int(expression.value)
    if kind == "Var":
        return ids.get(expression)
    if kind == "Call" and tir.op_name(expression) == "tirx.cuda.thread_rank":
        return warp * WARP, warp * WARP + WARP - 1
    if kind == "Not":
        inner = value(expression.a, ids, warp)
        return None if inner is None else (1 - inner[1], 1 - inner[0])
    if not hasattr(expression, "a") or not hasattr(expression, "b"):
        return None
    a, b = value(expression.a, ids, warp), value(expression.b, ids, warp)
    if kind == "And" and (0, 0) in (a, b):
        return 0, 0
    if kind == "Or" and (1, 1) in (a, b):
        return 1, 1
    if a is None or b is None:
        return None
    return _combine(kind, a, b)


def _combine(kind: str, a: Interval, b: Interval) -> Interval | None:
    """The interval of `a kind b`."""
    truths = {  # certain, impossible
        "EQ": (a == b and a[0] == a[1], a[1] < b[0] or b[1] < a[0]),
        "NE": (a[1] < b[0] or b[1] < a[0], a == b and a[0] == a[1]),
        "LT": (a[1] < b[0], a[0] >= b[1]),
        "LE": (a[1] <= b[0], a[0] > b[1]),
        "GT": (a[0] > b[1], a[1] <= b[0]),
        "GE": (a[0] >= b[1], a[1] < b[0]),
        "And": (a[0] == 1 == b[0], 0 in (a[1], b[1])),
        "Or": (1 in (a[0], b[0]), a[1] == 0 == b[1]),
    }
    if kind in truths:
        certain, impossible = truths[kind]
        return int(certain), int(not impossible)
    if kind == "Add":
        return a[0] + b[0], a[1] + b[1]
    if kind == "Sub":
        return a[0] - b[1], a[1] - b[0]
    if kind == "Mul":
        products = [x * y for x in a for y in b]
        return min(products), max(products)
    if kind in ("FloorDiv", "FloorMod") and a[0] == a[1] and b[0] == b[1] and b[0] > 0:
        result = a[0] // b[0] if kind == "FloorDiv" else a[0] % b[0]
        return result, result
    return None


class Walk[S: State]:
    """Follows lanes of one warp, with their ids, through a kernel.

    `step` is called with each simple statement that they may execute, and whether all lanes of the warp do;
    `skip` with each statement that they certainly do not, so that a rule can look at the state there too.
    """

    def __init__(
        self, warp: Warp, ids: dict[Any, Interval], step: Callable[[Any, S, bool], None], skip: Callable[[Any, S], None]
    ) -> None:
        self.warp = warp
        self._step = step
        self._skip = skip
        self._ids = dict(ids)
        self._split = 0  # depth of conditions that some lanes of the warp may pass and others not

    def run(self, statement: Any, state: S) -> S:
        """Follow a statement from a state; the state after it."""
        kind = type(statement).__name__
        if kind == "IfThenElse":
            return self._branch(statement, state)
        if kind == "For":
            return self._for(statement, state)
        if kind == "While":
            return self._repeat(statement.body, state, at_least_once=False)
        nested = tir.children(statement)
        if not nested:
            self._step(statement, state, self._split > 0)
        for child in nested:
            state = self.run(child, state)
        return state

    def number(self, expression: Any) -> int | None:
        """The value of an expression in this warp, if it has just one."""
        found = value(expression, self._ids, self.warp.number)
        return found[0] if found is not None and found[0] == found[1] else None

    def _branch(self, statement: Any, state: S) -> S:
        holds = self.number(statement.condition)
        splits = _by_lane(statement.condition, self.warp)
        if holds is not None:
            taken, other = statement.then_case, statement.else_case
            if not holds:
                taken, other = other, taken
            if other is not None:
                self._skip(other, state)
            self._split += splits
            state = self.run(taken, state) if taken is not None else state
            self._split -= splits
            return state
        self._split += splits
        passed = self.run(statement.then_case, state.copy())
        if statement.else_case is not None:
            state = self.run(statement.else_case, state)
        self._split -= splits
        state.join(passed)
        return state

    def _for(self, statement: Any, state: S) -> S:
        extent = value(statement.extent, self._ids, self.warp.number)
        first = self.number(statement.min) or 0
        if extent is not None and extent[0] == extent[1] <= UNROLLED:
            for i in range(extent[0]):
                self._ids[statement.loop_var] = (first + i, first + i)
                state = self.run(statement.body, state)
        else:
            self._ids.pop(statement.loop_var, None)
            state = self._repeat(statement.body, state, at_least_once=extent is not None and extent[0] > 0)
        self._ids.pop(statement.loop_var, None)
        return state

    def _repeat(self, body: Any, state: S, *, at_least_once: bool) -> S:
        entry = state.copy()
        after = self.run(body, state)
        while entry.join(after):
            after = self.run(body, entry.copy())
        if not at_least_once:
            after.join(entry)
        return after


def _by_lane(condition: Any, warp: Warp) -> bool:
    """Whether lanes of a warp may differ on a condition."""
    if any("elect_sync" in tir.op_name(call) or "thread_rank" in tir.op_name(call) for call in tir.calls(condition)):
        return True
    return any(
        warp.ids.get(var, (0, 0))[1] - warp.ids.get(var, (0, 0))[0] == WARP - 1 for var in tir.variables(condition)
    )
