"""Reads a pickle without executing anything: a small interpreter of pickle's opcodes that knows data only.

No name is imported and nothing is called. A class or function is a `Stub` that carries its name; calling or building
one (REDUCE, NEWOBJ, BUILD, …) is only told to an observer. Nothing read from the pickle is hashed, compared, or
walked through, so nested tuples and shared references cost no more than the bytes that name them; time and memory are
linear in the pickle's length, which the caller bounds.

Opcodes: CPython's pickletools.py, protocols 0 to 5.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from hpkit.checkpoints.pickle_machine import MARK, Broken, Machine, Pairs, Stub

__all__ = ["Broken", "Pairs", "Reader", "Stub"]

MAX_NUMBER = 16
"""Bytes of an integer that are converted (sizes and offsets have 8); a longer one becomes None."""
_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})")
_CONSTRUCTORS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__")
"""What protocols 0 and 1 call to make an object: the class is the first argument."""
_TICK = 1 << 14
"""Opcodes between two looks at the clock."""


def _sized(format: str) -> Callable[[Machine], bytes]:
    packer = struct.Struct(format)

    def take(reader: Machine) -> bytes:
        return reader.take(packer.unpack(reader.take(packer.size))[0])

    return take


_SIZED_1, _SIZED_4, _SIZED_8, _SIZED_I = _sized("<B"), _sized("<I"), _sized("<Q"), _sized("<i")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def _escaped(line: bytes) -> str:
    """Protocol 0's text: latin-1 with escapes. By hand, because Python imports a module for this codec."""
    return _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), line.decode("latin-1"))


def _number(data: bytes) -> int | None:
    return int.from_bytes(data, "little", signed=True) if len(data) <= MAX_NUMBER else None


def _decimal(line: bytes) -> int | bool | None:
    digits = line.rstrip(b"L")
    if digits in (b"00", b"01"):
        return digits == b"01"
    return int(digits) if len(digits) <= 2 * MAX_NUMBER else None


def _push(read: Callable[[Machine], Any]) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.stack.append(read(reader))

    return act


def _skip(length: int) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.take(length)

    return act


def _fixed(format: str) -> Callable[[Machine], None]:
    packer = struct.Struct(format)
    size = packer.size

    def act(reader: Machine) -> None:
        reader.stack.append(packer.unpack(reader.take(size))[0])

    return act


def _tuple_of(count: int) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        items = [reader.pop() for _ in range(count)]
        reader.stack.append(tuple(reversed(items)))

    return act


def _collect(make: Callable[[list[Any]], Any]) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.stack.append(make(reader.to_mark()))

    return act


def _extend(reader: Machine) -> None:
    """APPENDS, SETITEMS, ADDITEMS: more items for the container below the mark; anything else is left alone."""
    items = reader.to_mark()
    target = reader.top()
    if isinstance(target, list):
        target += items


def _append(reader: Machine) -> None:
    item = reader.pop()
    target = reader.top()
    if isinstance(target, list):
        target.append(item)


def _set_item(reader: Machine) -> None:
    value, key = reader.pop(), reader.pop()
    target = reader.top()
    if isinstance(target, list):
        target += (key, value)


def _get(read: Callable[[Machine], int]) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.stack.append(reader.memo[read(reader)])

    return act


def _put(read: Callable[[Machine], int]) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.memo[read(reader)] = reader.top()

    return act


def _byte(reader: Machine) -> int:
    return reader.take(1)[0]


def _four(reader: Machine) -> int:
    return int.from_bytes(reader.take(4), "little")


def _index_line(reader: Machine) -> int:
    value = _decimal(reader.line())
    if value is None:
        raise IndexError
    return int(value)


def _memoize(reader: Machine) -> None:
    reader.memo[len(reader.memo)] = reader.top()


def _global(reader: Machine) -> None:
    module = _text(reader.line())
    reader.stub(f"{module}.{_text(reader.line())}")


def _stack_global(reader: Machine) -> None:
    name, module = reader.pop(), reader.pop()
    if not (isinstance(name, str) and isinstance(module, str)):
        raise Broken("a class name that is no text")
    reader.stub(f"{module}.{name}")


def _name_of(value: Any) -> str:
    return value.name if isinstance(value, Stub) else ""


def _make(reader: Machine, maker: Any, arguments: Any) -> None:
    """What a call of `maker` would have made: the same Stub again, and the observer is told."""
    if _name_of(maker) in _CONSTRUCTORS and isinstance(arguments, tuple) and arguments:
        maker, arguments = arguments[0], arguments[1:]
    reader.built(_name_of(maker), arguments)
    reader.stack.append(maker if isinstance(maker, Stub) else None)


def _reduce(reader: Machine) -> None:
    arguments = reader.pop()
    _make(reader, reader.pop(), arguments)


def _new_extended(reader: Machine) -> None:
    reader.pop()
    _reduce(reader)


def _object(reader: Machine) -> None:
    items = reader.to_mark()
    if not items:
        raise IndexError
    _make(reader, items[0], tuple(items[1:]))


def _instance(reader: Machine) -> None:
    _global(reader)
    stub = reader.stack.pop()
    _make(reader, stub, tuple(reader.to_mark()))


def _build(reader: Machine) -> None:
    state = reader.pop()
    reader.built(_name_of(reader.top()), state)


def _persistent_line(reader: Machine) -> None:
    reader.persistent(_text(reader.line()))
    reader.stack.append(None)


def _persistent_item(reader: Machine) -> None:
    reader.persistent(reader.pop())
    reader.stack.append(None)


def _extension(length: int) -> Callable[[Machine], None]:
    def act(reader: Machine) -> None:
        reader.stub(f"copyreg.extension {int.from_bytes(reader.take(length), 'little')}")

    return act


def _drop(reader: Machine) -> None:
    reader.stack.pop()


def _drop_to_mark(reader: Machine) -> None:
    reader.to_mark()


def _duplicate(reader: Machine) -> None:
    reader.stack.append(reader.top())


def _nothing(_reader: Machine) -> None:
    """READONLY_BUFFER: the top of the stack stays."""


_OPCODES: dict[int, Callable[[Machine], None]] = {
    ord("("): _push(lambda _r: MARK),
    ord("0"): _drop,
    ord("1"): _drop_to_mark,
    ord("2"): _duplicate,
    ord("N"): _push(lambda _r: None),
    0x88: _push(lambda _r: True),
    0x89: _push(lambda _r: False),
    ord("I"): _push(lambda r: _decimal(r.line())),
    ord("L"): _push(lambda r: _decimal(r.line())),
    ord("J"): _fixed("<i"),
    ord("K"): _fixed("<B"),
    ord("M"): _fixed("<H"),
    0x8A: _push(lambda r: _number(_SIZED_1(r))),
    0x8B: _push(lambda r: _number(_SIZED_I(r))),
    ord("F"): _push(lambda r: float(r.line())),
    ord("G"): _fixed(">d"),
    ord("S"): _push(lambda r: r.line()[1:-1].decode("latin-1")),
    ord("V"): _push(lambda r: _escaped(r.line())),
    ord("T"): _push(_SIZED_I),
    ord("U"): _push(_SIZED_1),
    ord("B"): _push(_SIZED_4),
    ord("C"): _push(_SIZED_1),
    0x8E: _push(_SIZED_8),
    0x96: _push(_SIZED_8),
    ord("X"): _push(lambda r: _text(_SIZED_4(r))),
    0x8C: _push(lambda r: _text(_SIZED_1(r))),
    0x8D: _push(lambda r: _text(_SIZED_8(r))),
    ord("}"): _push(lambda _r: Pairs()),
    ord("]"): _push(lambda _r: []),
    ord(")"): _push(lambda _r: ()),
    0x8F: _push(lambda _r: []),
    0x85: _tuple_of(1),
    0x86: _tuple_of(2),
    0x87: _tuple_of(3),
    ord("t"): _collect(tuple),
    ord("l"): _collect(list),
    ord("d"): _collect(Pairs),
    0x91: _collect(tuple),
    ord("a"): _append,
    ord("e"): _extend,
    0x90: _extend,
    ord("s"): _set_item,
    ord("u"): _extend,
    ord("g"): _get(_index_line),
    ord("h"): _get(_byte),
    ord("j"): _get(_four),
    ord("p"): _put(_index_line),
    ord("q"): _put(_byte),
    ord("r"): _put(_four),
    0x94: _memoize,
    ord("c"): _global,
    0x93: _stack_global,
    0x82: _extension(1),
    0x83: _extension(2),
    0x84: _extension(4),
    ord("R"): _reduce,
    0x81: _reduce,
    0x92: _new_extended,
    ord("b"): _build,
    ord("o"): _object,
    ord("i"): _instance,
    ord("P"): _persistent_line,
    ord("Q"): _persistent_item,
    0x80: _skip(1),
    0x95: _skip(8),
    0x97: _push(lambda _r: b""),
    0x98: _nothing,
}


class Reader(Machine):
    """One pickle in `data` from `start`; after `load`, `position` is the offset behind its STOP."""

    def load(self) -> Any:
        """The pickle's value, made of plain data, Pairs and Stubs. Raises Broken, and whatever `tick` raises."""
        count = 0
        try:
            while True:
                count += 1
                if not count % _TICK:
                    self.tick()
                code = self.data[self.position]
                self.position += 1
                if code == 0x2E:  # STOP
                    return self.pop()
                _OPCODES[code](self)
        except IndexError as error:
            raise Broken("the pickle ends too early or is not well-formed") from error
        except KeyError as error:
            raise Broken("not a pickle: unknown opcode or reference") from error
        except (ValueError, struct.error) as error:
            raise Broken("the pickle holds a value that cannot be read") from error
