"""A cubin's own ELF: sections, the notes in .nv.info, and a digest of what decides how the kernel behaves.

Layout of ELF: the System V ABI. Layout of .nv.info (records of a format byte, an attribute byte and a
value) is not documented by NVIDIA; it was read off cuobjdump -elf, which prints the same records by name.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from .ladder import UsageError

RESERVED_SMEM_BYTES = 1024
"""Shared memory that CUDA keeps for itself in every CTA (Blackwell and Hopper tuning guides, shared memory). ptxas
for sm_90 and later counts it in .nv.shared.<kernel>, and its -v output does not."""

_NOBITS, _SYMTAB = 8, 2
_ALLOC, _EXEC = 0x2, 0x4

# Attributes of .nv.info, by the names that cuobjdump -elf prints (EIATTR_…).
_MAX_THREADS, _PARAM_CBANK, _FRAME_SIZE, _PARAM_SIZE = 0x05, 0x0A, 0x11, 0x19
_REGCOUNT, _API_VERSION, _NUM_BARRIERS = 0x2F, 0x37, 0x4C

_NOT_BEHAVIOUR = {_PARAM_CBANK, _API_VERSION}  # a symbol's index; the compiler's version


@dataclass(frozen=True)
class Section:
    """A section of an ELF file; data is empty where the file holds none (SHT_NOBITS), size is what it takes up."""

    name: str
    kind: int
    flags: int
    size: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class KernelNotes:
    """What a cubin says of its kernel: registers per thread, stack and static SMEM in bytes, threads at most."""

    entry: str
    registers: int
    stack_bytes: int
    static_smem_bytes: int
    max_threads: int
    named_barriers: int
    parameter_bytes: int
    code_bytes: int


def sections(image: bytes) -> list[Section]:
    """The sections of a 64-bit little-endian ELF file. Raises UsageError if it is none."""
    try:
        if image[:6] != b"\x7fELF\x02\x01":
            raise UsageError("not a cubin: a 64-bit little-endian ELF file is wanted")
        segments, table = struct.unpack_from("<QQ", image, 0x20)
        segment_size, segment_count, size, count, names = struct.unpack_from("<HHHHH", image, 0x36)
        if max(segments + segment_size * segment_count, table + size * count) > len(image):
            raise UsageError("not a whole cubin: it ends before its tables do")
        heads = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
        start = heads[names][4]
        found = []
        for name, kind, flags, _, offset, length, *_ in heads:
            end = image.index(b"\0", start + name)
            data = b"" if kind == _NOBITS else image[offset : offset + length]
            if kind != _NOBITS and len(data) != length:
                raise UsageError("not a whole cubin: it ends before its sections do")
            found.append(Section(image[start + name : end].decode(), kind, flags, length, data))
    except (struct.error, IndexError, ValueError):
        raise UsageError("not a whole cubin: its section table cannot be read") from None
    return found


def kernels(image: bytes) -> list[str]:
    """The kernels of a cubin: those with a section .nv.info of their own."""
    return [s.name.removeprefix(".nv.info.") for s in sections(image) if s.name.startswith(".nv.info.")]


def notes(image: bytes, entry: str) -> KernelNotes:
    """What the cubin notes of a kernel. Raises UsageError if it holds no such kernel."""
    by_name = {section.name: section for section in sections(image)}
    if f".text.{entry}" not in by_name or f".nv.info.{entry}" not in by_name:
        raise UsageError(f"the cubin holds no kernel {entry}: it has {', '.join(kernels(image)) or 'none'}")
    symbols = _symbols(by_name)
    of_symbol = {}
    for attribute, value in _records(by_name[".nv.info"].data):
        if attribute in (_REGCOUNT, _FRAME_SIZE) and len(value) == 8:
            index, figure = struct.unpack("<II", value)
            of_symbol[attribute, symbols[index]] = figure
    own = dict(_records(by_name[f".nv.info.{entry}"].data))
    shared = by_name.get(f".nv.shared.{entry}")
    threads = struct.unpack("<III", own[_MAX_THREADS]) if _MAX_THREADS in own else (0, 0, 0)
    return KernelNotes(
        entry,
        of_symbol[_REGCOUNT, entry],
        of_symbol.get((_FRAME_SIZE, entry), 0),
        max(0, shared.size - RESERVED_SMEM_BYTES) if shared else 0,
        threads[0] * threads[1] * threads[2],
        own.get(_NUM_BARRIERS, b"\0")[0],
        int.from_bytes(own.get(_PARAM_SIZE, b""), "little"),
        by_name[f".text.{entry}"].size,
    )


def behaviour_digest(image: bytes, entry: str) -> str:
    """SHA-256 of what decides how a kernel behaves: its code, the constants it uses, and its resources.

    In: code sections, relocations of code, the kernel's constant banks and the size of its shared memory,
    its notes in .nv.info (registers, threads, barriers, parameters, …). If the code has relocations, also
    the tables that they may lead to. Out: symbols, debug and compiler notes, and the globals that headers
    bring along unused. The kernel's name is not part of it.
    """
    found = sections(image)
    digest = hashlib.sha256()

    def add(name: str, size: int, data: bytes) -> None:
        head = f"{name.replace(entry, '<kernel>')}:{size}:{len(data)}:".encode()
        digest.update(head + data)

    relocated = any(s.name.startswith((".rela.text.", ".rel.text.")) and s.size for s in found)
    for section in sorted(found, key=lambda s: s.name):
        code = bool(section.flags & _EXEC)
        own = entry in section.name and bool(section.flags & _ALLOC)
        table = relocated and (section.name.startswith((".nv.global", ".nv.constant", ".rela.text.", ".rel.text.")))
        if section.name.startswith((".nv.merc", ".nv.capmerc", ".debug")):
            continue  # a second form of the same code, for finalizers of later GPUs
        if code or own or table:
            add(section.name, section.size, section.data)
    for attribute, value in _records(next(s.data for s in found if s.name == f".nv.info.{entry}")):
        if attribute not in _NOT_BEHAVIOUR:
            add(f"note {attribute:#x}", len(value), value)
    add("registers", notes(image, entry).registers, b"")
    return digest.hexdigest()


def _symbols(by_name: dict[str, Section]) -> list[str]:
    table = next(section for section in by_name.values() if section.kind == _SYMTAB)
    names = by_name[".strtab"].data
    found = []
    for at in range(0, table.size, 24):
        (name,) = struct.unpack_from("<I", table.data, at)
        found.append(names[name : names.index(b"\0", name)].decode())
    return found


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Attribute and value of each record: format 4 has a 16-bit length and as many bytes, the others two bytes."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, length = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == 4:
            yield attribute, data[at : at + length]
            at += length
        else:
            yield attribute, data[at - 2 : at]
