"""The record of a run: one append-only file of JSON lines per job, across its requeues.

Every line is written in one piece under a lock and synced, so two attempts that overlap for a moment do not spoil it; a
line that a crash tore is passed over. A job id that Slurm gives out again begins a new run in the same file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from hpkit.resume import loops
from hpkit.resume.facts import Past

SCHEMA = "hpkit.attempt/1"
READ_LIMIT = 16 << 20
LOCK_S = 5.0
WORDS_MAX, WORD_MAX = 64, 256


class Key(NamedTuple):
    """Which run: the cluster, and the job as Slurm wants it named (`123`, array task `120_7`)."""

    cluster: str
    job: str

    @property
    def file(self) -> str:
        """The record's file name."""
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in self.cluster)
        return f"{safe or 'cluster'}-{self.job}.jsonl"


class Read(NamedTuple):
    """A record's lines of the latest run, oldest first; `trouble` when it exists and cannot be read."""

    events: tuple[Mapping[str, Any], ...] = ()
    trouble: str = ""


def key_of(env: Mapping[str, str]) -> Key:
    """The present job from its environment; array tasks by `A_T`, which is what scontrol must be told."""
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    job = f"{array}_{task}" if array and task else env.get("SLURM_JOB_ID") or env.get("SLURM_JOBID", "")
    return Key(env.get("SLURM_CLUSTER_NAME", "cluster"), job)


def home_folder(env: Mapping[str, str]) -> str:
    """The folder of last resort, where each run leaves at least a link: $XDG_STATE_HOME/hpkit/runs."""
    state = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as its specification wants it
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "hpkit", "runs")


def folders(state_dir: str, checkpoint_dir: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Where a record may be, best first.

    Beside the checkpoint folder, not in it: some trainers refuse an output folder that is not empty.
    """
    if state_dir:
        return (os.path.abspath(state_dir),)
    beside = (
        os.path.join(os.path.dirname(os.path.abspath(checkpoint_dir)), ".hpkit") if checkpoint_dir else ""
    )
    return tuple(filter(None, (beside, home_folder(env))))


def brief(argv: Sequence[str]) -> list[str]:
    """A command line for the record: long ones are cut, so that many attempts of them can still be read back."""
    kept = [word if len(word) <= WORD_MAX else word[:WORD_MAX] + "…" for word in argv[:WORDS_MAX]]
    return kept + ["…"] * (len(argv) > WORDS_MAX)


class Record:
    """One run's record. `append` and `read` never raise: `trouble` tells what went wrong last."""

    def __init__(self, key: Key, choices: Sequence[str], restart: int) -> None:
        self.key = key
        self.restart = restart
        self.trouble = ""
        self.path = self._place(choices)

    def _place(self, choices: Sequence[str]) -> str:
        """The first folder that can be written; a record that is already there wins."""
        for folder in choices:
            if os.path.exists(os.path.join(folder, self.key.file)):
                return os.path.join(folder, self.key.file)
        for folder in choices:
            try:
                os.makedirs(folder, exist_ok=True)
            except OSError as error:
                self.trouble = f"{folder}: {error.strerror}"
                continue
            if os.access(folder, os.W_OK | os.X_OK):
                return os.path.join(folder, self.key.file)
            self.trouble = f"{folder}: not writable"
        return os.path.join(choices[-1], self.key.file)

    def link(self, folder: str) -> None:
        """Leave a link to the record in the user's own folder, so that `hpkit attempts` finds it by the job's id."""
        name = os.path.join(folder, self.key.file)
        if os.path.abspath(name) == os.path.abspath(self.path):
            return
        try:
            os.makedirs(folder, exist_ok=True)
            if os.path.islink(name):
                os.unlink(name)
            os.symlink(self.path, name)  # not over a record of its own, which stays
        except OSError as error:
            self.trouble = f"{name}: {error.strerror}"

    def append(self, event: str, **facts: Any) -> bool:
        """Write one event and sync it; False when that failed."""
        line = {"schema": SCHEMA, "event": event, "at": round(time.time(), 3), "job": self.key.job,
                "restart": self.restart, **facts}  # fmt: skip
        try:
            _append(self.path, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            self.trouble = f"{self.path}: {error.strerror}"
            return False
        return True

    def read(self) -> Read:
        """The lines of the latest run."""
        return read(self.path)


def read(path: str) -> Read:
    """The latest run in a record."""
    try:
        with open(_open(path, os.O_RDONLY), "rb") as file:
            data = file.read(READ_LIMIT + 1)
    except FileNotFoundError:
        return Read()
    except OSError as error:
        return Read((), f"{path}: {error.strerror}")
    if len(data) > READ_LIMIT:
        return Read((), f"{path}: longer than {READ_LIMIT >> 20} MiB")
    events = tuple(_lines(data))
    if data.strip() and not events:
        return Read((), f"{path}: no readable line")
    begins = [i for i, event in enumerate(events) if event["event"] == "run"]
    return Read(events[begins[-1] :] if begins else events)


def other_run(events: Sequence[Mapping[str, Any]], restart: int, start_at: float | None) -> bool:
    """Whether the record is of an earlier job with the same id: a job that was never restarted has no past.

    `start_at` is this start of the job (wall seconds, None when not known).
    """
    if restart or not events:
        return False
    if any(e["event"] == "requeue" or e.get("restart") for e in events):
        return True
    known = [e["job_start"] for e in events if isinstance(e.get("job_start"), (int, float))]
    return start_at is not None and any(abs(k - start_at) > 1 for k in known)


def past_of(found: Read, restart: int) -> Past:
    """What this run has used up; a record that cannot be read counts as if every restart by Slurm had been ours."""
    if found.trouble:
        return Past(restart + 1, restart, restart, frozenset(), found.trouble, loops.unseen(restart))
    earlier = {e.get("restart") for e in found.events if e["event"] == "start"} - {restart}
    asked = [e for e in found.events if e["event"] == "requeue" and e.get("state") == "asked"]
    done = [e for e in asked if not _refused(found.events, e)]
    excluded = {str(n) for e in done for n in e.get("excluded", ())}
    unknown = sum(1 for e in done if e.get("cause") == "unknown")
    return Past(len(earlier) + 1, len(done), unknown, frozenset(excluded))


def switched_off(events: Sequence[Mapping[str, Any]], restart: int) -> bool:
    """Whether hp-srun switched the job's requeue off in this start of it, and did not switch it on again."""
    states = [e.get("state") for e in events if e["event"] == "no_requeue" and e.get("restart") == restart]
    return states[-1:] == ["done"]


def _refused(events: Sequence[Mapping[str, Any]], asked: Mapping[str, Any]) -> bool:
    """Whether this request for a requeue failed in the end; one that nobody answered for counts as made."""
    return any(
        e["event"] == "requeue" and e.get("state") == "refused" and e.get("of") == asked.get("id")
        for e in events
    )


def _lines(data: bytes) -> Iterator[Mapping[str, Any]]:
    for line in data.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and event.get("schema") == SCHEMA and _sound(event):
            yield event


def _sound(event: Mapping[str, Any]) -> bool:
    """Whether the facts that are reckoned with later are of the kind that we write."""
    lists = (event.get(name, []) for name in ("nodes", "excluded"))
    return (
        isinstance(event.get("event"), str)
        and isinstance(event.get("at"), (int, float))
        and isinstance(event.get("restart"), int)
        and all(isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists)
    )


def _open(path: str, flags: int) -> int:
    """A descriptor of a regular file; raises OSError, also for anything else, and never waits."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return fd


def _append(path: str, line: bytes) -> None:
    """Append a whole line, after a newline when the last one was torn. Raises OSError."""
    fd = _open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        _lock(fd)
        end = os.lseek(fd, 0, os.SEEK_END)
        if end and os.pread(fd, 1, end - 1) != b"\n":
            line = b"\n" + line
        if os.write(fd, line) < len(line):
            raise OSError(errno.ENOSPC, "only a part was written", path)
        os.fsync(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> None:
    """Lock when the file system can; a lock that somebody holds too long must not hold a training."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                return
            time.sleep(0.05)
        except OSError:  # no locks here (some network file systems): one write in append mode has to do
            return
