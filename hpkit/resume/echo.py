"""srun's standard error, passed through as it comes and read along: srun's own lines tell which task failed first.

That is needed for the step's own code: -K1 ends the other tasks with SIGTERM, and srun exits with the highest code of
all tasks, so one task's `exit 3` comes out of srun as 143 (measured on 22.05.8).
"""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from typing import NamedTuple

CHUNK = 1 << 16
LINE_LIMIT = 4096
LINGER_S = 1.0  # how long the end of the stream may come after srun's own end
KILLED = frozenset({128 + signal.SIGTERM, 128 + signal.SIGKILL})
_TASK = re.compile(rb"srun: error: (\S+): tasks? ([0-9,\-\[\]]+): (.+?)\s*\Z")
_EXITED = re.compile(r"Exited with exit code (\d+)")


class TaskEnd(NamedTuple):
    """What srun said of a failed task: on which node(s), which task(s), and its exit code as a shell shows it."""

    node: str
    task: str
    code: int


def task_end(line: bytes) -> TaskEnd | None:
    """The failed task that a line of srun's tells of; None for any other line."""
    match = _TASK.search(line)
    if match is None:
        return None
    node, task, text = (part.decode("utf-8", "replace") for part in match.groups())
    exited = _EXITED.match(text)
    if exited:
        return TaskEnd(node, task, int(exited[1]))
    number = _signal_of(text.replace(" (core dumped)", ""))
    return TaskEnd(node, task, 128 + number) if number else None


def own_code(code: int, first: TaskEnd | None) -> int:
    """The step's own code: that of the task that failed first, where srun's is only that of the tasks ended for it."""
    return first.code if first is not None and first.code and code in KILLED else code


class Echo:
    """A pipe for srun's standard error, emptied by a thread into ours."""

    def __init__(self, target: int = 2) -> None:
        self.first: TaskEnd | None = None
        self._target = target
        self._reader, self.writer = os.pipe()
        self._thread = threading.Thread(target=self._pump, daemon=True)

    def start(self) -> None:
        """Begin to pass on; call once srun has its end of the pipe."""
        os.close(self.writer)
        self._thread.start()

    def finish(self) -> None:
        """Pass on what is left; something that keeps srun's end open does not hold us."""
        self._thread.join(LINGER_S)

    def drop(self) -> None:
        """srun did not start: there is nothing to pass on."""
        os.close(self.writer)
        os.close(self._reader)

    def _pump(self) -> None:
        line, broken = b"", False
        while piece := os.read(self._reader, CHUNK):
            broken = broken or not self._write(piece)
            if self.first is None:
                *whole, line = (line + piece).split(b"\n")
                self.first = next(filter(None, map(task_end, whole)), None)
                line = line[-LINE_LIMIT:]
        os.close(self._reader)

    def _write(self, piece: bytes) -> bool:
        """False when our standard error is gone; srun's must be emptied all the same."""
        view = memoryview(piece)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:  # somebody made it non-blocking: wait until it takes more
                select.select((), (self._target,), ())
            except OSError:
                return False
        return True


def _signal_of(text: str) -> int:
    """The number of the signal with this description, 0 for none."""
    return next((s for s in signal.valid_signals() if signal.strsignal(s) == text), 0)
