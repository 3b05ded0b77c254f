"""Reading a kernel's TIRx: its statements, the lines they stand on, and which line waits on which barrier."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Place:
    """A line of a kernel."""

    file: Path
    line: int

    def __str__(self) -> str:
        lines = _lines(self.file)
        text = lines[self.line - 1].strip() if 0 < self.line <= len(lines) else ""
        shown = os.path.relpath(self.file) if self.file.is_relative_to(Path.cwd()) else str(self.file)
        return f"at {shown}:{self.line}: {text}"


@lru_cache
def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def place(span: Any) -> Place | None:
    """The line that a TVM span begins on: the kernel's own, where it leads through a helper of TVM."""
    if span is None:
        return None
    spans = getattr(span, "spans", None)
    if spans is not None:
        return place(spans[0]) if len(spans) else None
    return Place(Path(str(span.source_name.name)), int(span.line))


def statements(root: Any) -> Iterator[Any]:
    """Every statement below and including one, in program order."""
    yield root
    for child in children(root):
        yield from statements(child)


def children(statement: Any) -> list[Any]:
    """The statements directly inside one."""
    found = list(getattr(statement, "seq", None) or ())
    found += [getattr(statement, name, None) for name in ("body", "then_case", "else_case")]
    return [child for child in found if child is not None]


def call_of(statement: Any) -> Any | None:
    """The call that an Evaluate statement makes, if it is one."""
    value = getattr(statement, "value", None)
    return value if type(statement).__name__ == "Evaluate" and hasattr(value, "op") else None


def op_name(call: Any) -> str:
    return str(getattr(call.op, "name", call.op))


@dataclass(frozen=True)
class Wait:
    """A line that waits on mbarriers within [first, last) bytes of the CTA's shared memory."""

    first: int
    last: int
    place: Place


def waits(kernel: Any) -> list[Wait]:
    """Every mbarrier wait of a kernel, by the shared memory that its barriers lie in."""
    found = []
    for statement in statements(kernel.body):
        call = call_of(statement)
        if call is None or op_name(call) != "tirx.cuda.mbarrier_wait":
            continue
        buffer = addressed(call.args[0])
        where = place(statement.span)
        if buffer is not None and where is not None:
            first = 8 * int(buffer.elem_offset or 0)
            found.append(Wait(first, first + 8 * int(buffer.shape[0]), where))
    return found


def addressed(pointer: Any) -> Any | None:
    """The buffer that address_of(buffer[i]) points into."""
    args: Any = getattr(pointer, "args", ())
    return getattr(args[0], "source", None) if len(args) else None


_AWAITS = re.compile(
    r"warp (?P<warp>\d+) awaits (?:mbarrier\S* key mbarrier\[allocation#\d+\+(?P<byte>\d+)\]\S*(?P<phase> phase \d)"
    r"|(?P<other>\S+) key)[^;]*;.*?arrival_count=(?P<arrivals>\d+/\d+)(?:, transactions=(?P<bytes>\d+/\d+))?"
)


def explain_deadlock(message: str, kernel: Any) -> str:
    """The simulator's account of a deadlock, with the kernel's lines in place of addresses."""
    lines = waits(kernel)
    blocked: dict[str, list[int]] = {}
    for match in _AWAITS.finditer(message):
        arrived = f"{match['arrivals']} arrivals" + (f", {match['bytes']} bytes" if match["bytes"] else "")
        if match["byte"]:
            here = [str(wait.place) for wait in lines if wait.first <= int(match["byte"]) < wait.last]
            text = f"wait for the mbarrier at SMEM byte {match['byte']},{match['phase']} ({arrived}) "
            text += "; or ".join(dict.fromkeys(here))
        else:
            text = f"wait in {match['other']} ({arrived})"
        blocked.setdefault(text, []).append(int(match["warp"]))
    if not blocked:
        return message
    rows = [f"  warp {ranges(warps)} {text}" for text, warps in blocked.items()]
    return "\n".join(["deadlock: no warp can go on", *rows])


def ranges(numbers: list[int]) -> str:
    """Numbers as text: 0-3, 7."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def words(call: Any) -> tuple[str, ...]:
    """The words of a PTX call's spelling: its string arguments."""
    return tuple(str(arg.value) for arg in call.args if type(arg).__name__ == "StringImm")


def constant(expression: Any) -> int | None:
    """The value of an integer constant, None for anything else."""
    return int(expression.value) if type(expression).__name__ == "IntImm" else None


def variables(expression: Any) -> list[Any]:
    """The variables that an expression mentions, buffers before the indices they are read at."""
    import tvm_ffi
    from tvm.ir import Var

    found: list[Any] = []
    tvm_ffi.structural_walk(expression, [(Var, found.append)], order="pre")
    return found


def loads(expression: Any) -> list[Any]:
    """The loads from buffers that an expression makes."""
    import tvm_ffi
    from tvm.ir.expr import TensorLoad

    found: list[Any] = []
    tvm_ffi.structural_walk(expression, [(TensorLoad, found.append)], order="pre")
    return found


def calls(expression: Any) -> list[Any]:
    """The calls that an expression makes."""
    import tvm_ffi
    from tvm.ir import Call

    found: list[Any] = []
    tvm_ffi.structural_walk(expression, [(Call, found.append)], order="pre")
    return found
