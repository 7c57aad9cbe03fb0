"""srun's standard error, passed through as it comes and read along: srun's own lines tell which task failed first.

That is needed for the step's own code: -K1 ends the other tasks with SIGTERM, and srun exits with the highest code of
all tasks, so one task's `exit 3` comes out of srun as 143 (measured on 22.05.8).

It is also the only sign of a task that was never started: srun says so, counts the task as ended, and exits with 0 when
the others ended well or there were none (measured on 22.05.8). An srun inside the user's program may say the same
through the step's standard error. That cannot be told apart and is taken for our own srun's: if the program ends with 0
all the same, the job is run once more from its last checkpoint, while the other mistake would lose a training. With
`--label` the lines of inner programs carry their task's number, and are not taken for srun's.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import threading
from typing import NamedTuple

CHUNK = 1 << 16
LINE_LIMIT = 4096
LINGER_S = 1.0  # how long the end of the stream may come after srun's own end
STUCK_S = 30.0  # and how long our standard error may take nothing of what is left then
LEFT_MAX = 1 << 18  # more than a pipe and a piece hold: somebody else goes on writing
BITE = 4096  # written at once, so that a slow reader is seen to take something
UNLAUNCHED_CODE = 1
KILLED = frozenset({128 + signal.SIGTERM, 128 + signal.SIGKILL})
_TASK = re.compile(rb"(?<!\d: )srun: error: (\S+): tasks? ([0-9,\-\[\]]+): (.+?)\s*\Z")
# step_launch.c and launch.c, the same from 22.05 to 26.05. The last kind: a step that the controller refused is the
# user's mistake or the end of the job, but one that it never heard of is not.
_UNLAUNCHED = re.compile(
    rb"(?<!\d: )srun: error: ("
    rb"task \d+ launch failed: .+|Application launch (?:add )?failed: .+|Task launch for \S+ failed on node .+"
    rb"|Unable to create step for job \d+: .*(?i:contact|communicat|connect|timed out|transmi).*"
    rb")"
)
_LOST = re.compile(rb"(?<!\d: )srun: error: Node failure on (\S+)")
_SIGN, _SRUN_SIGN = b"error: ", b"srun: error: "
# slurmstepd's, when somebody else than our srun ends the step; a node failure or a time limit adds "DUE TO …". From
# 25.05 on it names the signal, and in 26.05 it begins with the time and no name (measured on 26.05.5).
_CANCELLED = re.compile(
    rb"(?:slurmstepd\S*:|\[[\d:T.-]+\]) error: \*\*\* STEP \S+ ON \S+ CANCELLED AT \S+ (?:DUE to SIGNAL [\w ]+ )?\*\*\*"
)
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


def unlaunched(line: bytes) -> str:
    """What srun says of tasks that it could not start; "" for any other line."""
    match = _UNLAUNCHED.search(line)
    return match[1].decode("utf-8", "replace").strip() if match else ""


def own_code(code: int, first: TaskEnd | None, unlaunched: str = "") -> int:
    """The step's own code: that of the task that failed first, where srun's is only that of the tasks ended for it.

    A step with tasks that were never started is not done, whatever srun says.
    """
    if unlaunched and not code:
        return UNLAUNCHED_CODE
    return first.code if first is not None and first.code and code in KILLED else code


class Echo:
    """A pipe for srun's standard error, emptied by a thread into ours."""

    def __init__(self, target: int = 2) -> None:
        self.first: TaskEnd | None = None
        self.unlaunched = (
            ""  # srun's words about tasks that it could not start, unless a task had failed before
        )
        self.cancelled = False  # somebody ended the step, before srun complained of anything
        self.lost = ""  # the node that failed, as Slurm told srun
        self._trouble = False
        self._target = target
        self._reader, self.writer = map(_away, os.pipe())
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._taken = 0  # bytes that our standard error took
        self._full = False  # waiting for it to take more

    @staticmethod
    def possible() -> Echo | None:
        """An echo, None where limits leave no room for one: srun then keeps our own standard error."""
        probe = threading.Thread(target=int)
        try:
            probe.start()
            probe.join()  # before srun is started: no thread may run when that forks
            return Echo()
        except (OSError, RuntimeError):
            return None

    def start(self) -> None:
        """Begin to pass on; call once srun has its end of the pipe."""
        os.close(self.writer)
        self._thread.start()

    def finish(self) -> None:
        """Pass on what is left, as slowly as it is taken; something that keeps srun's end open does not hold us."""
        before = taken = self._taken
        idle_s = 0.0
        while idle_s < (STUCK_S if self._full else LINGER_S) and taken - before <= LEFT_MAX:
            self._thread.join(LINGER_S)
            if not self._thread.is_alive():
                return
            idle_s = idle_s + LINGER_S if self._taken == taken else 0.0
            taken = self._taken

    def drop(self) -> None:
        """srun did not start: there is nothing to pass on."""
        os.close(self.writer)
        os.close(self._reader)

    def _pump(self) -> None:
        line = b""
        while piece := os.read(self._reader, CHUNK):
            self._write(piece)
            if self.first is None:
                *whole, line = (line + piece).split(b"\n")
                for each in whole:
                    self._learn(each)
                line = line[-LINE_LIMIT:]
        self._learn(line)
        os.close(self._reader)

    def _learn(self, line: bytes) -> None:
        """Take from a line what it tells, while nothing is known of a task that failed."""
        if self.first is None and _SIGN in line:
            self.first = task_end(line)
            self.unlaunched = self.unlaunched or unlaunched(line)
            lost = _LOST.search(line)
            self.lost = self.lost or (lost[1].decode("utf-8", "replace") if lost else "")
            self._trouble = self._trouble or _SRUN_SIGN in line
            self.cancelled = self.cancelled or (not self._trouble and bool(_CANCELLED.search(line)))

    def _write(self, piece: bytes) -> None:
        """What our standard error refuses is lost: it may be gone, or full for now; srun's must be emptied anyway."""
        view = memoryview(piece)
        self._full = True
        while view:
            try:
                count = os.write(self._target, view[:BITE])
            except BlockingIOError:  # somebody made it non-blocking: wait until it takes more
                select.select((), (self._target,), ())
            except OSError:
                break
            else:
                self._taken += count
                view = view[count:]
        self._full = False


def _away(fd: int) -> int:
    """The descriptor with a number above the standard streams', which may be closed and must then stay closed."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def _signal_of(text: str) -> int:
    """The number of the signal with this description, 0 for none."""
    return next((s for s in signal.valid_signals() if signal.strsignal(s) == text), 0)
