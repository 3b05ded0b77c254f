"""SASS of a kernel: its instructions by class, and its loops.

nvdisasm reads the cubin (NVIDIA, CUDA Binary Utilities). Opcodes and what they do: the same manual, the
tables "Hopper Instruction Set" and "Blackwell Instruction Set".
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..ladder import UsageError

INSTRUCTION_BYTES = 16  # Volta and later

CLASSES: dict[str, str] = {  # class: opcodes, as a pattern on the part before the first dot; the first that fits
    "tensor": r"UT[CI]\w*MMA|[HQIBDO]G?MMA",
    "tma_load": r"UTMALDG|UBLKCP|UBLKPF|UTMAPF",
    "tma_store": r"UTMASTG|UTMAREDG|UBLKRED",
    "barrier": r"SYNCS|BAR|B2R|UTCBAR|UCGABAR_\w+|DEPBAR|LDGDEPBAR|WARPGROUP|WARPGROUPSET|WARPSYNC|MEMBAR|FENCE|ERRBAR"
    r"|CGAERRBAR|NANOSLEEP|ARRIVES|ACQBULK|CCTL|UTMACMDFLUSH",
    "tmem_load": r"LDTM",
    "tmem_store": r"STTM|UTCCP|UTCSHIFT",
    "local": r"LDL|STL",
    "shared": r"LDS|STS|LDSM|STSM|MOVM|STAS|ATOMS|REDAS|UTCATOMSWS",
    "global": r"LDG|STG|LD|ST|LDGSTS|LDGMC|ATOM|ATOMG|RED|REDG|UREDGR?",
    "constant": r"U?LDCU?",
    "branch": r"BRA|BRX|BRXU|JMP|JMX|JMXU|CALL|RET|EXIT|BSSY|BSYNC|BREAK|BMOV|YIELD|KILL|BPT|RTT|ACQSHMINIT",
    "move": r"U?MOV|MOV32I|R2UR|UR2R|S2R|S2UR|CS2R|CS2UR|U?SEL|SHFL|R2P|P2R|UR2UP|UP2UR|U?PRMT",
    "float": r"F2FP?|F2I|I2FP?|F2IP|I2IP?|U?F(ADD|MUL|FMA|SET|SETP|SEL|MNMX|RND|CHK)\w*|MUFU|FSWZADD|UF2\w+|UI2\w+"
    r"|U?[HD](ADD|MUL|FMA|SET|SETP|MNMX)2?",
    "integer": r"U?(IADD|IMAD|IABS|ISETP|IMNMX|ISCADD|IDP|IMUL|VIADD|VIMNMX|VIADDMNMX|VABSDIFF|LOP|LEA|SHF|SHL|SHR|BMSK"
    r"|BREV|FLO|POPC|SGXT|PLOP|PSETP|IADD64|VOTE|REDUX|CREDUX)\w*|UVOTE\w*|VOTEU|ELECT",
}
"""Classes of instructions; what fits none is 'other' (NOP among them)."""

_SPUN = "BRA.U.ANY"
"""Ends the loop by which ptxas has the lanes of a warp issue a uniform instruction one after another. It stands for
one statement of the kernel, so it is no loop of the kernel's."""


@dataclass(frozen=True)
class Instruction:
    """One instruction; offset is in bytes from the start of the code section."""

    offset: int
    opcode: str
    operands: str = ""
    predicate: str = ""

    @property
    def base(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @property
    def target(self) -> int | None:
        """The code offset that a branch or a BSSY names."""
        found = re.search(r"(?:^|,)`?\(?(0x[0-9a-f]+)\)?$", self.operands)
        return int(found[1], 16) if found else None


@dataclass(frozen=True)
class Loop:
    """A natural loop: the instructions that can be between two passes through its first one (of a wait, also those
    that ptxas moved out of line for when the barrier is not ready yet)."""

    header: int
    instructions: tuple[Instruction, ...]
    spun: bool = False

    @property
    def tensor(self) -> int:
        """Its tensor-core instructions."""
        return sum(is_tensor(i) for i in self.instructions)

    @property
    def tma_loads(self) -> int:
        """Its TMA load instructions."""
        return sum(is_tma_load(i) for i in self.instructions)


def disassemble(image: bytes, entry: str, nvdisasm: Path) -> list[Instruction]:
    """The instructions of a kernel, without the NOPs after its last one that fill the section up.

    Raises UsageError if nvdisasm cannot read the cubin.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(image)
        file.flush()
        try:
            done = subprocess.run([nvdisasm, "-json", file.name], capture_output=True, text=True, check=False)
        except OSError as error:
            raise UsageError(f"{nvdisasm} cannot be run: {error.strerror}") from None
    try:
        functions = json.loads(done.stdout)[1]
        (kernel,) = (function for function in functions if function["function-name"] == entry)
        start = int(kernel["start"])
        found = [
            Instruction(start + i * INSTRUCTION_BYTES, raw["opcode"], raw.get("operands", ""), raw.get("predicate", ""))
            for i, raw in enumerate(kernel["sass-instructions"])
        ]
    except (ValueError, KeyError, IndexError, TypeError):
        said = " ".join((done.stderr or done.stdout).split())[:200]
        raise UsageError(f"nvdisasm cannot read kernel {entry} of the cubin: {said}") from None
    while found and found[-1].opcode == "NOP":
        found.pop()
    if found and found[-1].opcode == "BRA" and found[-1].target == found[-1].offset:
        found.pop()  # ptxas ends a section with an instruction that branches to itself
    return found


@cache
def class_of(opcode: str) -> str:
    """The class of an opcode, modifiers or none."""
    base = opcode.split(".")[0]
    return next((name for name, pattern in CLASSES.items() if re.fullmatch(pattern, base)), "other")


def counts(instructions: Sequence[Instruction]) -> dict[str, int]:
    """Instructions by class, every class named."""
    found = Counter(class_of(i.opcode) for i in instructions)
    return {name: found[name] for name in (*CLASSES, "other")}


def is_tensor(instruction: Instruction) -> bool:
    """Whether an instruction has the tensor cores multiply."""
    return class_of(instruction.opcode) == "tensor"


def is_tma_load(instruction: Instruction) -> bool:
    """Whether an instruction has TMA load."""
    return class_of(instruction.opcode) == "tma_load"


_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


def local_bytes(instructions: Sequence[Instruction]) -> tuple[int, int]:
    """Bytes that a thread's loads from and stores to local memory move, each instruction counted once."""
    moved = {"LDL": 0, "STL": 0}
    for i in instructions:
        if i.base in moved:
            moved[i.base] += next((_WIDTHS[part] for part in i.opcode.split(".") if part in _WIDTHS), 4)
    return moved["LDL"], moved["STL"]


def main_loop(instructions: Sequence[Instruction]) -> Loop | None:
    """The innermost loop that contains tensor-core instructions; None if there is none.

    Of several (ptxas leaves the rest of an unrolled loop behind in a second one), that with the most of them.
    """
    return _innermost(instructions, is_tensor)


def load_loop(instructions: Sequence[Instruction]) -> Loop | None:
    """The innermost loop that loads by TMA: the main loop, or the producer's if warps are specialised; None without."""
    return _innermost(instructions, is_tma_load)


def _innermost(instructions: Sequence[Instruction], wanted: Callable[[Instruction], bool]) -> Loop | None:
    having = [loop for loop in loops(instructions) if any(map(wanted, loop.instructions)) and not loop.spun]
    inner = [a for a in having if not any(set(b.instructions) < set(a.instructions) for b in having)]
    return max(inner, key=lambda loop: (sum(map(wanted, loop.instructions)), -loop.header), default=None)


def loops(instructions: Sequence[Instruction]) -> list[Loop]:
    """The natural loops of a kernel, by their first instruction.

    A backward branch alone does not make a loop: ptxas puts the slow path of a wait behind the kernel's
    end, and it branches back. So this is the textbook way (Aho, Lam, Sethi, Ullman, section 9.6): a branch
    from n to h closes a loop if every way to n leads through h; the loop is h and all that reaches n
    without passing h. Branches by a register (BRX) are taken to lead nowhere; ptxas makes none here.
    """
    order = {i.offset: index for index, i in enumerate(instructions)}
    blocks, follows = _blocks(instructions, order)
    before: list[set[int]] = [set() for _ in blocks]
    for source, targets in enumerate(follows):
        for target in targets:
            before[target].add(source)
    reached = _reach(0, follows)
    dominators = _dominators(before, reached)
    bodies: dict[int, set[int]] = {}
    spun: dict[int, bool] = {}
    for source in sorted(reached):
        for header in follows[source]:
            if dominators[source] >> header & 1:
                body = bodies.setdefault(header, {header})
                todo = [source]
                while todo:
                    if (block := todo.pop()) not in body:
                        body.add(block)
                        todo += before[block] & reached
                ends = instructions[blocks[source][-1]].opcode == _SPUN
                spun[header] = spun.get(header, True) and ends
    return [
        Loop(
            instructions[blocks[header][0]].offset,
            tuple(instructions[i] for block in sorted(body) for i in blocks[block]),
            spun[header],
        )
        for header, body in sorted(bodies.items())
    ]


def _blocks(instructions: Sequence[Instruction], order: dict[int, int]) -> tuple[list[range], list[set[int]]]:
    """Basic blocks as ranges of instruction numbers, and for each the blocks that may follow it."""
    steps = [_steps(index, instructions, order) for index in range(len(instructions))]
    leaders = {0} | {t for index, targets in enumerate(steps) for t in targets if t != index + 1}
    leaders |= {index + 1 for index, targets in enumerate(steps) if targets != {index + 1}} - {len(instructions)}
    starts = sorted(leaders)
    number = {start: block for block, start in enumerate(starts)}
    blocks = [range(a, b) for a, b in zip(starts, [*starts[1:], len(instructions)], strict=True)]
    return blocks, [{number[target] for target in steps[block[-1]]} for block in blocks]


def _steps(index: int, instructions: Sequence[Instruction], order: dict[int, int]) -> set[int]:
    """The instructions that may come next, by number."""
    i = instructions[index]
    after = {index + 1} if index + 1 < len(instructions) else set()
    if i.base in ("BRA", "JMP"):
        target = order.get(i.target if i.target is not None else -1)
        always = not i.predicate and "," not in i.operands  # BRA.U and BRA.DIV have their condition among the operands
        return ({target} if target is not None else set()) | (set() if always else after)
    if i.base in ("EXIT", "RET", "BRX", "BRXU", "JMX", "JMXU", "KILL"):
        return after if i.predicate else set()
    if i.base == "BSYNC":  # its warp goes on where the BSSY of the same register said
        barrier = i.operands.split(",")[0]
        said = {
            order[b.target]
            for b in instructions
            if b.base == "BSSY" and b.operands.startswith(f"{barrier},") and b.target in order
        }
        return after if not said or after & said else said
    return after


def _reach(start: int, follows: list[set[int]]) -> set[int]:
    reached, todo = {start}, [start]
    while todo:
        for target in follows[todo.pop()] - reached:
            reached.add(target)
            todo.append(target)
    return reached


def _dominators(before: list[set[int]], reached: set[int]) -> list[int]:
    """For each block, a bit mask of the blocks that every way to it leads through."""
    everything = (1 << len(before)) - 1
    found = [everything] * len(before)
    found[0] = 1
    changed = True
    while changed:
        changed = False
        for block in sorted(reached - {0}):
            mask = everything
            for source in before[block] & reached:
                mask &= found[source]
            mask |= 1 << block
            if mask != found[block]:
                found[block], changed = mask, True
    return found
