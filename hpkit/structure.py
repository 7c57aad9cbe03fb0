"""Plain values (TOML, JSON) into NamedTuples: strict, no coercion, every problem at once, each with its path."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")
_WORDS = {"NoneType": "nothing", "list": "list", "dict": "table"}


def key(path: str, name: str) -> str:
    """`path` extended by a key, quoted as TOML wants it when it is no bare key."""
    quoted = name if _BARE.match(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{path}.{quoted}" if path else quoted


def structure(
    cls: type[T], mapping: Mapping[str, Any], path: str, base: T | None = None
) -> tuple[T, tuple[str, ...]]:
    """A `cls` (a NamedTuple class) from a mapping, and every problem, as `path.key: expected int, found str`.

    Keys that are absent keep the value of `base`, else the field's default. The value is usable only when there are no
    problems; with problems the faulty keys hold their defaults. A number for a float may be an int; nothing else is
    converted.
    """
    problems: list[str] = []
    fields: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]  # every NamedTuple class has it
    defaults: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]  # every NamedTuple class has it
    hints = get_type_hints(cls)
    values: dict[str, Any] = {}
    problems.extend(_unknown(key(path, str(n)), str(n), fields) for n in mapping if n not in fields)
    for name in fields:
        start = getattr(base, name) if base is not None else defaults.get(name)
        values[name] = start
        if name in mapping:
            values[name] = _value(hints[name], mapping[name], key(path, name), start, problems)
        elif base is None and name not in defaults:
            problems.append(f"{key(path, name)}: missing")
    return cls(**values), tuple(problems)


def _value(hint: Any, value: Any, path: str, start: Any, problems: list[str]) -> Any:
    """`value` as the annotation wants it; on a problem, which is noted, `start`."""
    if hint is Any:
        return value
    origin = get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, value, path, start, problems)
    if hasattr(hint, "_fields"):
        if not isinstance(value, Mapping):
            return _wrong("table", value, path, start, problems)
        made, found = structure(hint, value, path, start)
        problems.extend(found)
        return made
    if hint is float and type(value) in (int, float):
        return _number(value, path, start, problems)
    if type(value) is hint:
        return value
    return _wrong(hint.__name__, value, path, start, problems)


def _generic(hint: Any, origin: Any, value: Any, path: str, start: Any, problems: list[str]) -> Any:
    """`tuple[T, ...]`, `Mapping[str, T]` and `T | None`."""
    args = get_args(hint)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            return _wrong("list", value, path, start, problems)
        return tuple(_value(args[0], v, f"{path}[{i}]", None, problems) for i, v in enumerate(value))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            return _wrong("table", value, path, start, problems)
        made: dict[str, Any] = {}
        for name, item in value.items():
            before = len(problems)
            got = _value(args[1], item, key(path, name), None, problems)
            if len(problems) == before:
                made[name] = got
        return made
    if value is None and type(None) in args:
        return None
    inner = next(a for a in args if a is not type(None))
    return _value(inner, value, path, start, problems)


def _number(value: float, path: str, start: Any, problems: list[str]) -> Any:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isfinite(number):
        return number
    problems.append(f"{path}: expected a finite number")
    return start


def _wrong(wanted: str, value: Any, path: str, start: Any, problems: list[str]) -> Any:
    found = type(value).__name__
    problems.append(f"{path}: expected {wanted}, found {_WORDS.get(found, found)}")
    return start


def _unknown(where: str, name: str, fields: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, fields, n=1)
    return f"{where}: unknown key" + (f" (did you mean {near[0]}?)" if near else "")
