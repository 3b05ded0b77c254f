"""Dataclasses ↔ JSON, strictly: an unknown key, a missing one, a wrong type or a NaN is refused by name."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import Any

from .ladder import UsageError


def to_plain(value: Any) -> Any:
    """Dataclasses, tuples and dicts as plain JSON data."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def from_plain[T](record: type[T], data: Any, where: str) -> T:
    """A dataclass from plain JSON data; where names the data in errors (a file). Raises UsageError."""
    return typing.cast(T, _read(record, data, where))


def read[T](record: type[T], path: Path, schema: int) -> T:
    """A dataclass from a JSON file whose "schema" is the one given. Raises UsageError for any other."""
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON: {error}") from None
    found = data.get("schema") if isinstance(data, dict) else None
    if found != schema or isinstance(found, bool):
        raise UsageError(f"{path}: schema {found!r}, and this tirx-ladder reads schema {schema}: make the file again")
    return from_plain(record, data, str(path))


def write(value: Any, path: Path) -> None:
    """Write a dataclass as JSON. Raises UsageError if the file cannot be written."""
    text = json.dumps(to_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _read(kind: Any, data: Any, where: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if data is None and type(None) in args:
            return None
        (kind,) = (arg for arg in args if arg is not type(None))
        return _read(kind, data, where)
    if dataclasses.is_dataclass(kind):
        return _record(kind, data, where)
    if origin is dict:
        return {key: _read(args[1], item, f"{where}, {key}") for key, item in _want(data, dict, where).items()}
    if origin is tuple:
        items = _want(data, list, where)
        if args[-1] is Ellipsis:
            return tuple(_read(args[0], item, f"{where}, number {i}") for i, item in enumerate(items))
        if len(items) != len(args):
            raise UsageError(f"{where}: {len(items)} values, {len(args)} are wanted")
        return tuple(_read(arg, item, where) for arg, item in zip(args, items, strict=True))
    if kind is float:
        number = float(_want(data, (int, float), where))
        if not math.isfinite(number):
            raise UsageError(f"{where}: {data!r}, a finite number is wanted")
        return number
    return _want(data, kind, where)


def _record(kind: Any, data: Any, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    found = _want(data, dict, where)
    for key in found:
        if key not in fields:
            raise UsageError(f"{where}: unknown key {key!r}; known are {', '.join(fields)}")
    for key in fields:
        if key not in found:
            raise UsageError(f"{where}: key {key!r} is missing")
    return kind(**{key: _read(hints[key], found[key], f"{where}, {key}") for key in fields})


_WORDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    (int, float): "a number",
    bool: "a truth",
}


def _want(data: Any, kind: Any, where: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise UsageError(f"{where}: {json.dumps(data)[:60]}, {_WORDS[kind]} is wanted")
    return data
