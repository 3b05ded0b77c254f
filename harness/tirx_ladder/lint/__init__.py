"""A structural check of a kernel's TIRx, on every path: what the simulator's runs cannot see."""

from __future__ import annotations

from typing import Any

from .checker import Checker
from .rules import RULES, Violation

__all__ = ["RULES", "Violation", "lint"]


def lint(kernel: Any) -> list[Violation]:
    """Every rule that does not hold in a kernel (a PrimFunc as its builder returns it)."""
    return Checker(kernel).run()
