"""What the gate lets pass: the table [tool.tirx-ladder.gate] of a pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .ladder import UsageError

TABLE = "tool.tirx-ladder.gate"

FEWEST_PROCESSES = 8
"""With fewer pairs there is none to spare for trimming; 8 suffice to pass most versions that are no slower
(docs/false-alarms.md)."""


@dataclass(frozen=True)
class Policy:
    """The margins of the gate. Fewer CTAs per SM are a regression under any policy. Raises UsageError, naming the key.

    max_new_spill_bytes:      bytes per thread, stores and loads together
    max_register_growth:      registers per thread, where occupancy stays; they are handed out in steps of 8
    max_main_loop_growth:     fraction of the base's main-loop instructions per K tile
    max_bytes_in_flight_loss: fraction of the base's bytes in flight per SM
    max_work_per_byte_loss:   fraction of the base's flops per byte loaded into shared memory
    max_slowdown:             fraction of the base's time; where the machine's null pair shows more, that is the margin
    min_processes:            processes that must have measured each side, FEWEST_PROCESSES or more
    max_processes:            as many may be measured where fewer cannot tell; one number for all looks at the samples
    require_measured:         changed code that was not measured is undecided, whatever its static figures
    """

    max_new_spill_bytes: int = 0
    max_register_growth: int = 16
    max_main_loop_growth: float = 0.05
    max_bytes_in_flight_loss: float = 0.0
    max_work_per_byte_loss: float = 0.0
    max_slowdown: float = 0.005
    min_processes: int = FEWEST_PROCESSES
    max_processes: int = 32
    require_measured: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), type(field.default))
        if self.max_processes < self.min_processes:
            wanted = f"min_processes ({self.min_processes}) or more is wanted"
            raise UsageError(f"[{TABLE}] max_processes = {self.max_processes}: {wanted}")


def _check(name: str, value: Any, kind: type) -> None:
    def refuse(wanted: str) -> UsageError:
        return UsageError(f"[{TABLE}] {name} = {value!r}: {wanted} is wanted")

    if kind is bool:
        if not isinstance(value, bool):
            raise refuse("true or false")
    elif kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:  # NaN is refused too
            raise refuse("a fraction from 0 up to, not including, 1 (0.05 is 5 %)")
    else:
        least = FEWEST_PROCESSES if name.endswith("_processes") else 0
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise refuse(f"an integer of {least} or more")


def read(path: Path) -> Policy:
    """The policy of a pyproject.toml; defaults where it says nothing. Raises UsageError, naming what is wrong."""
    try:
        data: Any = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # of UTF-8 or of TOML
        raise UsageError(f"{path} is not TOML: {error}") from None
    above = ""
    for key in TABLE.split("."):
        above = f"{above}.{key}".lstrip(".")
        data = data.get(key, {})
        if not isinstance(data, dict):
            raise UsageError(f"{path}: {above} = {data!r}: a table is wanted")
    known = [field.name for field in fields(Policy)]
    for key in data:
        if key not in known:
            raise UsageError(f"{path}: [{TABLE}] unknown key {key!r}; known are {', '.join(known)}")
    try:
        return Policy(**data)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
