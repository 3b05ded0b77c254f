"""Static figures of two builds → findings, by the margins of the policy. Nothing is timed here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..policy import Policy
from ..results import Figures
from .reasons import Finding


@dataclass(frozen=True)
class _Rule:
    """How a static figure is judged. read gives its value, limit the worst that passes for a value at base."""

    code: str
    read: Callable[[Figures], float | None]
    limit: Callable[[float, Policy], float]
    larger_is_worse: bool

    def worse(self, value: float, than: float) -> bool:
        """Whether value is worse than another, rounding of fractions aside."""
        gap = value - than if self.larger_is_worse else than - value
        return gap > 1e-9 * max(abs(value), abs(than))


RULES: dict[str, _Rule] = {
    "spill_bytes": _Rule("spill", lambda f: f.spill_bytes, lambda base, p: base + p.max_new_spill_bytes, True),
    "ctas_per_sm": _Rule("fewer-ctas", lambda f: f.ctas_per_sm, lambda base, p: base, False),
    "registers_per_thread": _Rule(
        "more-registers", lambda f: f.registers_per_thread, lambda base, p: base + p.max_register_growth, True
    ),
    "main_loop_instructions_per_k_tile": _Rule(
        "more-main-loop-instructions",
        lambda f: f.main_loop_instructions_per_k_tile,
        lambda base, p: base * (1 + p.max_main_loop_growth),
        True,
    ),
    "bytes_in_flight_per_sm": _Rule(
        "fewer-bytes-in-flight",
        lambda f: f.bytes_in_flight_per_sm,
        lambda base, p: base * (1 - p.max_bytes_in_flight_loss),
        False,
    ),
    "flops_per_load_byte": _Rule(
        "less-work-per-byte",
        lambda f: f.flops_per_load_byte,
        lambda base, p: base * (1 - p.max_work_per_byte_loss),
        False,
    ),
}
"""The static figures that are judged one by one; _cliffs judges registers and shared memory together with the CTAs."""

SMEM = "smem_bytes"
FIGURES = (*RULES, SMEM)
"""Every static figure that can regress."""


def judge_static(base: Figures, head: Figures, policy: Policy) -> tuple[Finding, ...]:
    """All findings on two builds: each figure by its rule, then the cliffs. No finding: no figure differs."""
    return (*_figures(base, head, policy), *_cliffs(base, head))


def _figures(base: Figures, head: Figures, policy: Policy) -> Iterator[Finding]:
    """Each static figure by its rule; a figure that is the same on both sides gives no finding."""
    for name, rule in RULES.items():
        before, after = rule.read(base), rule.read(head)
        if before is None and after is None:
            continue
        if before is None or after is None:
            yield Finding("figure-missing", name, before, after)
        elif not (math.isfinite(before) and math.isfinite(after)):  # NaN is neither better nor worse than anything
            yield Finding("not-finite", name)
        elif rule.worse(after, than=(limit := rule.limit(before, policy))):
            yield Finding(rule.code, name, before, after, limit)
        elif rule.worse(after, than=before):
            yield Finding("within-margin", name, before, after, limit)
        elif rule.worse(before, than=after):
            yield Finding("improved", name, before, after)
    loops = [f.main_loop_instructions is not None for f in (base, head)]
    unclear = [f.main_loop_instructions_per_k_tile is None for f in (base, head)]
    if loops[0] != loops[1] and all(unclear):
        yield Finding(
            "figure-missing", "main_loop_instructions", base.main_loop_instructions, head.main_loop_instructions
        )
    elif all(loops) and all(unclear):
        yield Finding(
            "main-loop-unclear", "main_loop_instructions", base.main_loop_instructions, head.main_loop_instructions
        )


def _cliffs(base: Figures, head: Figures) -> Iterator[Finding]:
    """Which resource that grew is what now allows an SM fewer CTAs."""
    if head.ctas_per_sm < base.ctas_per_sm:
        told = f"CTAs per SM {base.ctas_per_sm} → {head.ctas_per_sm}"
        for code, figure, resource in (
            ("register-cliff", "registers_per_thread", "registers"),
            ("smem-cliff", SMEM, "SMEM"),
        ):
            before, after = getattr(base, figure), getattr(head, figure)
            if resource in head.ctas_limited_by and after > before:
                yield Finding(code, figure, before, after, before, told)
