"""The stub unpickler: right about plain data, inert and quick on everything hostile."""

from __future__ import annotations

import os
import pickle
import pickletools
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.checkpoints.stub_pickle import Broken, Pairs, Reader, Stub
from tests.support import make_checkpoints as make

PLAIN = [
    None,
    True,
    -1,
    255,
    65536,
    -(1 << 40),
    1.5,
    "text \u00e9\u4e2d",
    b"bytes" * 100,
    (),
    (1,),
    (1, 2, (3, 4, 5, 6)),
    [1, [2, [3]]],
    "x" * 70000,
]
WATCHED = ("import", "exec", "compile", "os.", "subprocess.", "open", "pickle.find_class", "ctypes.")
_events: list[str] = []
_watching = [False]


def _watch(event: str, _arguments: tuple[Any, ...]) -> None:
    if _watching[0] and event.startswith(WATCHED):
        _events.append(event)


@pytest.fixture(scope="module", autouse=True)
def hook() -> Iterator[None]:
    """Python's own audit events: what the interpreter imports, opens or starts while a pickle is read."""
    sys.addaudithook(_watch)
    yield
    _watching[0] = False


def load_inert(data: bytes) -> Any:
    """Read a pickle and fail if anything was imported, opened or started meanwhile."""
    _events.clear()
    _watching[0] = True
    try:
        return Reader(data).load()
    finally:
        _watching[0] = False
        assert not _events


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", PLAIN, ids=lambda v: repr(v)[:20])
def test_plain_data_is_read_as_pickle_reads_it(value: object, protocol: int) -> None:
    assert (isinstance(value, bytes) and protocol < 3) or load_inert(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_dicts_become_pairs_with_the_last_value_of_a_key(protocol: int) -> None:
    found = load_inert(pickle.dumps({"a": 1, "b": {"c": 2}, 3: 4}, protocol))
    assert isinstance(found, Pairs)
    assert found.get("a") == 1
    assert found.get("b").get("c") == 2
    assert found.get("absent") is None
    assert Pairs(["a", 1, "a", 2]).get("a") == 2


@pytest.mark.parametrize("protocol", range(6))
def test_the_observer_sees_what_would_have_been_built(protocol: int) -> None:
    seen: list[tuple[str, Any]] = []
    data = make.dcp_metadata({"__0_0.distcp": [5, 6]}, protocol)
    reader = Reader(data, built=lambda name, state: seen.append((name, state)))
    top = reader.load()
    assert isinstance(top, Stub)
    infos = [s for name, s in seen if name.endswith("._StorageInfo") and isinstance(s, Pairs)]
    assert [(i.get("relative_path"), i.get("offset"), i.get("length")) for i in infos] == [
        ("__0_0.distcp", 0, 5),
        ("__0_0.distcp", 5, 6),
    ]
    assert reader.position == len(data)


class _Evil:
    def __init__(self, call: Callable[..., Any], *arguments: Any) -> None:
        self._made = (call, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._made


def _evil(target: Path) -> dict[str, bytes]:
    """Pickles that would create `target` if anything in them were carried out."""
    command = f"touch {target}"
    text = f"X{''}".encode() + struct.pack("<I", len(command)) + command.encode()
    found = {f"reduce {p}": pickle.dumps(_Evil(os.system, command), p) for p in range(6)}
    found |= {
        "inst": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "obj": b"(cos\nsystem\n" + text + b"o.",
        "newobj": b"\x80\x02cos\nsystem\n" + text + b"\x85\x81.",
        "newobj_ex": b"\x80\x04cos\nsystem\n" + text + b"\x85}\x92.",
        "build": b"cos\nsystem\n}X\x0c\x00\x00\x00__setstate__cos\nsystem\nsb" + text + b"b.",
        "eval": pickle.dumps(_Evil(eval, f"open({str(target)!r}, 'w')"), 4),
        "persistent": b"P" + command.encode() + b"\n.",
        "extension": b"\x82\x01" + text + b"\x85R.",
        "nested": pickle.dumps({"a": [_Evil(os.system, command)] * 3, "b": (_Evil(os.system, command),)}, 4),
    }
    return found


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "executed"
    pickles = _evil(target)
    for data in pickles.values():
        load_inert(data)
    assert not target.exists()
    pickle.loads(pickles["reduce 4"])
    assert target.exists()  # the same bytes do act in the real unpickler: the test can fail


HEAVY = {
    "a memo bomb": b"\x80\x04)\x94" + b"".join(b"h\x00h\x00\x86q\x00" for _ in range(5000)) + b".",
    "a memo bomb as a key": b"}K\x01q\x00" + b"h\x00h\x00\x86q\x00" * 5000 + b"h\x00s.",
    "nested tuples": b"N" + b"\x85" * 300_000 + b".",
    "nested lists": b"]" * 300_000 + b"a" * 299_999 + b".",
    "nested dicts": b"}" + b"N}" * 300_000 + b"s" * 300_000 + b".",
    "a huge memo index": b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff.",
    "a huge number": b"\x8b" + struct.pack("<i", 1 << 22) + b"\x7f" * (1 << 22) + b".",
    "a number of many digits": b"I" + b"9" * 3_000_000 + b"\n.",
    "a list in itself": b"]q\x00(" + b"h\x00" * 1000 + b"e.",
    "many marks": b"(" * 200_000 + b"N.",
}
BROKEN = {
    "nothing": b"",
    "no stop": b"N",
    "stop on nothing": b".",
    "a mark as the value": b"(.",
    "an unknown opcode": b"\xff.",
    "an unknown reference": b"h\x07.",
    "bytes longer than the file": b"\x8e" + struct.pack("<Q", 1 << 60) + b"abc.",
    "a negative length": b"T" + struct.pack("<i", -5) + b"abcdefgh.",
    "a negative long": b"\x8b" + struct.pack("<i", -5) + b"abcdefgh.",
    "a tuple without mark": b"NNt.",
    "a float of words": b"Fnot a number\n.",
    "a class name that is no text": b"K\x01K\x02\x93.",
    "a memo index of many digits": b"Np" + b"9" * 100 + b"\n.",
    "text that is no UTF-8": b"X\x02\x00\x00\x00\xff\xff.",
}


@pytest.mark.parametrize("data", HEAVY.values(), ids=HEAVY)
def test_heavy_pickles_cost_no_more_than_their_length(data: bytes) -> None:
    load_inert(data)


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_broken_pickles_are_told(data: bytes) -> None:
    with pytest.raises(Broken):
        load_inert(data)


@pytest.mark.parametrize("protocol", (2, 4, 5))
def test_every_truncation_is_told(protocol: int) -> None:
    data = make.dcp_metadata({"__0_0.distcp": [5], "__1_0.distcp": [7, 8]}, protocol)
    for length in range(len(data)):
        with pytest.raises(Broken):
            Reader(data[:length]).load()


@settings(derandomize=True, max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_are_a_value_or_broken(data: st.DataObject) -> None:
    whole = bytearray(make.dcp_metadata({"__0_0.distcp": [5]}))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    for candidate in (bytes(whole), data.draw(st.binary(max_size=200))):
        try:
            load_inert(candidate)
        except Broken:
            continue


def test_every_opcode_of_this_python_is_known() -> None:
    from hpkit.checkpoints import stub_pickle

    known = {*stub_pickle._OPCODES, ord(".")}
    assert {ord(op.code) for op in pickletools.opcodes} <= known


def test_the_deadline_passes_through() -> None:
    class Late(Exception):
        pass

    def tick() -> None:
        raise Late

    with pytest.raises(Late):
        Reader(b"N0" * 20_000 + b"N.", tick=tick).load()
