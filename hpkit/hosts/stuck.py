"""Programs that could not be killed, by tool: while one lives, it is not started a second time."""

from __future__ import annotations

import json

from hpkit.files import BROKEN, read_small, write_atomic
from hpkit.proc import NO_STATUS, Ran, Stamp, alive


class Stuck:
    """The list, in memory and in `path` as far as that can be written ({tool: [pid, started]})."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, Stamp] | None = None

    def answer(self, argv: tuple[str, ...], tool: str) -> Ran | None:
        """The answer of a tool that still hangs from before; None when it may be started."""
        known = self._load()
        process = known.get(tool)
        if process is None:
            return None
        if alive(process):
            return Ran(argv, NO_STATUS, b"", b"", 0.0, "stuck", pid=process.pid, started=process.started)
        del known[tool]
        self._save(known)
        return None

    def note(self, tool: str, ran: Ran) -> None:
        """Remember how a tool's run ended, if it is stuck."""
        if ran.failure == "stuck":
            known = self._load()
            known[tool] = Stamp(ran.pid, ran.started)
            self._save(known)

    def _load(self) -> dict[str, Stamp]:
        if self._known is None:
            self._known = _parse(read_small(self._path) or b"{}")
        return self._known

    def _save(self, known: dict[str, Stamp]) -> None:
        try:
            write_atomic(self._path, json.dumps(known), durable=False)
        except OSError:
            return  # an ordinary user, a full disk: what we know in memory still holds for this round


def _parse(data: bytes) -> dict[str, Stamp]:
    """What the file says; a file that we did not write like that says nothing."""
    try:
        document = json.loads(data)
        return {str(tool): Stamp(int(pid), int(started)) for tool, (pid, started) in document.items()}
    except BROKEN:
        return {}
