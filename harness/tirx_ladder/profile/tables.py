"""Profiles as tables: Markdown for a report, rich for the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.table import Table

from .. import records
from . import SOURCES, Profile, ProfileSet

COLUMNS: dict[str, Callable[[Profile], object]] = {
    "version": lambda p: p.version,
    "problem": lambda p: p.problem,
    "regs": lambda p: p.registers,
    "spill st/ld": lambda p: f"{p.spill_store_bytes}/{p.spill_load_bytes}",
    "SMEM KiB": lambda p: f"{(p.static_smem_bytes + p.dynamic_smem_bytes) / 1024:g}",
    "TMEM cols": lambda p: p.tmem_columns,
    "threads": lambda p: p.threads,
    "CTAs/SM": lambda p: p.ctas_per_sm,
    "limited by": lambda p: ", ".join(p.ctas_limited_by),
    "SASS": lambda p: p.instructions,
    "main loop": lambda p: p.main_loop.instructions if p.main_loop else "-",
    "K tiles": lambda p: _shown(p.main_loop.k_tiles if p.main_loop else None),
    "per K tile": lambda p: _shown(p.main_loop.per_k_tile if p.main_loop else None),
    "tensor": lambda p: p.main_loop.counts["tensor"] if p.main_loop else "-",
    "barrier": lambda p: p.main_loop.counts["barrier"] if p.main_loop else "-",
    "load loop per K tile": lambda p: _shown(p.load_loop.per_k_tile if p.load_loop else None),
    "load KiB/K tile": lambda p: _shown(_load_kib(p)),
    "flop/B": lambda p: _shown(p.intensity),
    "stages": lambda p: _shown(p.stages),
    "in flight KiB/SM": lambda p: f"{p.bytes_in_flight_per_sm / 1024:g}",
    "cubin KiB": lambda p: f"{p.cubin_bytes / 1024:.0f}",
    "code hash": lambda p: p.code_hash[:12],
}
"""The columns of the tables of a ladder's profiles."""


def _load_kib(p: Profile) -> float | None:
    if p.tma_load_bytes is None or p.copy_load_bytes is None:
        return None
    return (p.tma_load_bytes + p.copy_load_bytes) / 1024


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.4g}"


def markdown(profiles: ProfileSet) -> str:
    """The profiles as a Markdown table, a version a row."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS)]
    rows += [[str(show(p)) for show in COLUMNS.values()] for p in profiles.profiles]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    lines += [f"\n{name}: {reason}" for name, reason in profiles.failed.items()]
    return "\n".join(lines) + "\n"


def table(profiles: ProfileSet) -> Table:
    """The profiles for the terminal: a figure a row and a version a column, so that nine versions fit."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("figure", no_wrap=True)
    for p in profiles.profiles:
        shown.add_column(p.version, justify="right")
    for name, show in list(COLUMNS.items())[1:]:
        shown.add_row(name, *(str(show(p)) for p in profiles.profiles))
    return shown


def details(p: Profile) -> Table:
    """One version's profile for the terminal: every figure with its source."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("figure", no_wrap=True)
    shown.add_column("value", overflow="fold")
    shown.add_column("source", overflow="fold", style="dim")
    for name, value in records.to_plain(p).items():
        if isinstance(value, dict):
            for part, inner in value.items():
                nonzero = {k: v for k, v in inner.items() if v} if isinstance(inner, dict) else inner
                source = SOURCES.get(f"loop.{part}", SOURCES[name]) if name.endswith("loop") else SOURCES[name]
                shown.add_row(f"{name}.{part}", _plain(nonzero), source)
        else:
            shown.add_row(name, _plain(value), SOURCES[name])
    return shown


def _plain(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {v}" for k, v in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return "-" if value is None else str(value)
