"""Strict structuring: nothing is converted, every fault is told with its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from hpkit.structure import key, structure


class Inner(NamedTuple):
    name: str
    share: float = 0.5


class Outer(NamedTuple):
    count: int = 1
    on: bool = False
    limit: int | None = None
    names: tuple[str, ...] = ()
    inner: Inner = Inner("a")
    tables: Mapping[str, Mapping[str, Any]] = {}
    lists: Mapping[str, tuple[str, ...]] = {}
    free: Any = None


GOOD: list[tuple[dict[str, Any], Outer]] = [
    ({}, Outer()),
    ({"count": 3, "on": True, "limit": 4, "names": ["x", "y"]}, Outer(3, True, 4, ("x", "y"))),
    ({"limit": None}, Outer()),
    ({"inner": {"share": 1}}, Outer(inner=Inner("a", 1.0))),
    ({"inner": {"name": "b"}}, Outer(inner=Inner("b", 0.5))),
    (
        {"tables": {"a.b": {"x": 1}}, "lists": {"s": ["a"]}},
        Outer(tables={"a.b": {"x": 1}}, lists={"s": ("a",)}),
    ),
    ({"free": [1, "a"]}, Outer(free=[1, "a"])),
]

BAD: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"count": "3"}, ("count: expected int, found str",)),
    ({"count": True}, ("count: expected int, found bool",)),
    ({"count": 3.0}, ("count: expected int, found float",)),
    ({"on": 1}, ("on: expected bool, found int",)),
    ({"limit": "no"}, ("limit: expected int, found str",)),
    ({"names": "x"}, ("names: expected list, found str",)),
    ({"names": ["x", 3]}, ("names[1]: expected str, found int",)),
    ({"inner": 3}, ("inner: expected table, found int",)),
    ({"inner": {"share": True}}, ("inner.share: expected float, found bool",)),
    ({"inner": {"share": float("nan")}}, ("inner.share: expected a finite number",)),
    ({"inner": {"share": 10**400}}, ("inner.share: expected a finite number",)),
    ({"inner": {"nam": "x"}}, ("inner.nam: unknown key (did you mean name?)",)),
    ({"tables": {"a.b": 3}}, ('tables."a.b": expected table, found int',)),
    ({"lists": {"s": [[]]}}, ("lists.s[0]: expected str, found list",)),
    ({"zzz": {}}, ("zzz: unknown key",)),
    (
        {"count": "3", "on": 1, "q": 0},
        ("q: unknown key", "count: expected int, found str", "on: expected bool, found int"),
    ),
]


@pytest.mark.parametrize(("given", "wanted"), GOOD)
def test_good_values(given: dict[str, Any], wanted: Outer) -> None:
    value, problems = structure(Outer, given, "")
    assert (value, problems) == (wanted, ())


@pytest.mark.parametrize(("given", "wanted"), BAD)
def test_every_problem_has_its_path(given: dict[str, Any], wanted: tuple[str, ...]) -> None:
    _, problems = structure(Outer, given, "")
    assert problems == wanted


def test_a_float_becomes_a_float() -> None:
    value, _ = structure(Inner, {"name": "x", "share": 2}, "")
    assert type(value.share) is float


def test_a_field_without_default_must_be_given_unless_there_is_a_base() -> None:
    assert structure(Inner, {}, "at")[1] == ("at.name: missing",)
    assert structure(Inner, {}, "at", Inner("base", 0.1)) == (Inner("base", 0.1), ())


@pytest.mark.parametrize(
    ("path", "name", "wanted"),
    [
        ("", "mode", "mode"),
        ("checks", "gpu.ecc", 'checks."gpu.ecc"'),
        ('checks."gpu.ecc"', "corrected_warn", 'checks."gpu.ecc".corrected_warn'),
        ("a", 'q"\\', 'a."q\\"\\\\"'),
        ("a", "", 'a.""'),
    ],
)
def test_keys_are_quoted_as_in_toml(path: str, name: str, wanted: str) -> None:
    assert key(path, name) == wanted
