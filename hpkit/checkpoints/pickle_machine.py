"""What reading a pickle works on: inert values, a stack, a memo. No opcode is known here, and nothing can be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Broken(Exception):
    """Not a whole, well-formed pickle: the text says what is wrong."""


class Stub:
    """The name of something that a pickle wants to import: inert."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class Pairs(list[Any]):
    """A dict of the pickle as a flat list key, value, key, value: building one hashes nothing."""

    __slots__ = ()

    def get(self, key: str) -> Any:
        """The last value under a text key; None when there is none."""
        for position in range(len(self) - 2, -1, -2):
            if isinstance(self[position], str) and self[position] == key:
                return self[position + 1]
        return None


class _Mark:
    __slots__ = ()


MARK = _Mark()
Observer = Callable[[str, Any], None]


def ignore(_name: str, _value: Any) -> None:
    """An observer that is not interested."""


class Machine:
    """The state of one reading: stack, memo, and `position`, the offset of the next byte in the data."""

    def __init__(
        self,
        data: bytes,
        start: int = 0,
        *,
        built: Observer = ignore,
        persistent: Callable[[Any], None] = lambda _pid: None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self.position = start
        self.data = data
        self.built = built
        self.persistent = persistent
        self.tick = tick
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._stubs: dict[str, Stub] = {}

    def take(self, length: int) -> bytes:
        """The next bytes of the pickle; IndexError when there are fewer."""
        end = self.position + length
        if length < 0 or end > len(self.data):
            raise IndexError
        part = self.data[self.position : end]
        self.position = end
        return part

    def line(self) -> bytes:
        """The next bytes up to a line end, which is dropped."""
        end = self.data.find(b"\n", self.position)
        if end < 0:
            raise IndexError
        part = self.data[self.position : end]
        self.position = end + 1
        return part

    def pop(self) -> Any:
        """Take the value on top; IndexError when there is none (a mark is none)."""
        value = self.stack.pop()
        if value is MARK:
            raise IndexError
        return value

    def top(self) -> Any:
        """The value on top, left there."""
        value = self.stack[-1]
        if value is MARK:
            raise IndexError
        return value

    def to_mark(self) -> list[Any]:
        """Take the values above the last mark, and the mark."""
        stack = self.stack
        for position in range(len(stack) - 1, -1, -1):
            if stack[position] is MARK:
                items = stack[position + 1 :]
                del stack[position:]
                return items
        raise IndexError

    def stub(self, name: str) -> None:
        """Push the stub of a name: one object for each name."""
        found = self._stubs.get(name)
        if found is None:
            found = self._stubs[name] = Stub(name)
        self.stack.append(found)
