"""Small result sets for the tests of compare and gate: a good entry, and what is changed of it."""

import dataclasses
import hashlib

from tirx_ladder.ladder import Problem
from tirx_ladder.results import SCHEMA, Entry, Figures, Origin, Process, ResultSet, Samples

P = Problem(4096, 4096, 4096)
Q = Problem(8192, 8192, 8192)

FIGURES = Figures(
    registers_per_thread=90, spill_store_bytes=0, spill_load_bytes=0, stack_bytes=0, smem_bytes=100_000,
    tmem_columns=256, threads=256, ctas_per_sm=2, ctas_limited_by=("SMEM", "TMEM"), instructions=900,
    main_loop_instructions=160, main_loop_k_tiles=4, flops_per_load_byte=128.0, bytes_in_flight_per_sm=196_608,
)  # fmt: skip

_OF_FIGURES = {field.name for field in dataclasses.fields(Figures)}


def entry(version="v9", code="old", problem=P, **changes):
    """An entry with code of that name; changes are of its fields or of its figures."""
    figures = dataclasses.replace(FIGURES, **{k: v for k, v in changes.items() if k in _OF_FIGURES})
    rest = {k: v for k, v in changes.items() if k not in _OF_FIGURES}
    good = Entry(version, problem, 148, hashlib.sha256(code.encode()).hexdigest(), figures, None, None, None)
    return dataclasses.replace(good, **rest)


def broken(version="v9", problem=None, why="nvrtc: error"):
    """An entry of a version that does not build: for one problem, or for none (None)."""
    return Entry(version, problem, None, None, None, None, why, None)


WOBBLE = (0.3, -0.4, 0.1, -0.2, 0.5, -0.1, -0.3, 0.1)
"""What the processes of one side differ by from each other, in units of their spread."""


def samples(
    side="base", *, processes=8, slower=0.0, faster_clock=0.0, spread=0.001, clock_hz=1.5e9, last=None, **changes
):
    """Samples of some processes that ran in turn with those of the other side; head's spread around 100 µs.

    slower is of head's cycles, faster_clock of its clock, spread of its times, all fractions; last holds changes of the
    last process, the rest are of the samples.
    """
    made = []
    for i in range(processes):
        rank = 2 * i + (i % 2 == (side == "base"))
        wobble = 1 + spread * WOBBLE[i % 8] if side == "head" else 1.0
        clock = clock_hz * (1 + faster_clock)
        seconds = 1e-4 * (1 + slower) * wobble / (1 + faster_clock)
        made.append(Process((seconds * 0.99, seconds, seconds * 1.02), (clock,) * 3, rank, ()))
    if made and last:
        made[-1] = dataclasses.replace(made[-1], **last)
    return dataclasses.replace(Samples("s", True, 1, 0.002, tuple(made)), **changes)


def result(*entries, side="a", **changes):
    """A result set; side is the digit that its commit consists of. changes are of the set or of its origin."""
    of_origin = {k: v for k, v in changes.items() if k in ("commit", "dirty", "machine", "toolchain")}
    origin = Origin(side * 40, False, "b200-1", {"apache-tvm": "0.27.0", "nvidia-cuda-nvrtc": "13.2.78"})
    rest = {k: v for k, v in changes.items() if k not in of_origin}
    good = ResultSet(SCHEMA, "blackwell_gemm", "sm_100a", dataclasses.replace(origin, **of_origin), tuple(entries))
    return dataclasses.replace(good, **rest)
