"""Suspect notes: how a user tells root that this node may be bad. Their only effect is that a round runs.

The folder is writable by everybody, so everything in it is hostile: nothing is followed, nothing is opened that is no
small regular file with one name, and each round does a bounded amount of work. Where users may mount (FUSE), even to
look at a name may hang: a child with a deadline reads and removes, and this process only lists names.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from typing import NamedTuple

from hpkit import files, log, proc
from hpkit.paths import Paths

FOLDER_MODE = 0o1733  # anybody may create, nobody but root may list, only owners may remove
NOTE_LIMIT = 4096
READ_S = 1.0  # to read 512 notes takes a hundredth of it
CLEAR_S = 3.0  # to remove 20,000 takes a tenth of it
READ_MAX = 512  # notes read in one round: the inodes of the notes' own file system
CLEAR_MAX = 20_000  # names removed in one round
ANSWERS_MAX = 1024  # jobs remembered in answered/
UIDS_MAX = 16  # owners remembered for one job id: any user can name any job
MOUNT_OPTIONS = "size=1m,nr_inodes=512,mode=1733,nosuid,nodev,noexec"


class Note(NamedTuple):
    """One name in the folder; `uid` is -1 and `job` empty when it is no readable note."""

    name: str
    uid: int = -1
    job: str = ""


def prepare(paths: Paths, boot_id: str) -> None:
    """Make the folder; on a real machine as root give it a small file system of its own when that is possible.

    Notes cannot fill /run then, nor be hard links to other files. Without it a plain folder does, and the next try is
    made after a boot. Raises OSError when there can be no folder at all.
    """
    files.ensure_dir(paths.run)
    mounted = os.path.ismount(paths.suspects)
    files.ensure_dir(paths.suspects, FOLDER_MODE)
    if paths.base or mounted or os.geteuid() != 0 or any_left(paths):
        return
    tried = f"{paths.run}/suspects-plain"
    if files.read_small(tried) == boot_id.encode():
        return
    argv = ("mount", "-t", "tmpfs", "-o", MOUNT_OPTIONS, "hpkit-suspects", paths.suspects)
    ran = proc.run(argv, timeout_s=5.0)
    if not ran.ok:
        files.write_atomic(tried, boot_id, durable=False)
        log.warning(
            "notes-plain-folder", path=paths.suspects, why=ran.stderr.decode("utf-8", "replace").strip()
        )


def any_left(paths: Paths) -> bool:
    """Whether there is any note: one look at the folder, however many names it holds."""
    try:
        with os.scandir(paths.suspects) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


def take(paths: Paths) -> tuple[Note, ...]:
    """The notes that are there now; the round that follows answers them. At most `CLEAR_MAX`, the first read.

    When reading them hangs they count all the same, and name no job.
    """
    try:
        fd = os.open(paths.suspects, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        names = _names(fd, CLEAR_MAX)
    finally:
        os.close(fd)
    if not names:
        return ()
    read = _apart(paths, lambda fd: json.dumps([_read(fd, n) for n in names[:READ_MAX]]), READ_S)
    known = [Note(*fields) for fields in json.loads(read or b"[]")]
    return (*known, *map(Note, names[len(known) :]))


def consume(paths: Paths, notes: tuple[Note, ...]) -> None:
    """Remove these notes after the round that answered them, and remember which jobs were answered for whom."""
    for note in notes:
        if note.job:
            _remember(paths, note)
    if any(note.job for note in notes):
        _make_room(f"{paths.run}/answered")
    if not notes:
        return
    told = _apart(paths, lambda fd: _clear(fd, [n.name for n in notes]), CLEAR_S)
    if told != b"":
        log.warning("notes-not-removed", why=(told or b"it took too long").decode("utf-8", "replace"))


def answered(paths: Paths, job: str) -> frozenset[int]:
    """The uids that left a note naming this job here and were answered; the job's own uid must be among them."""
    if not _is_job(job):
        return frozenset()
    return frozenset(_owners(f"{paths.run}/answered/{job}"))


def naming(paths: Paths, job: str) -> frozenset[int]:
    """The uids that left a note naming this job here, answered or not yet."""
    return answered(paths, job) | {note.uid for note in take(paths) if note.job == job}


def forget(paths: Paths, job: str) -> None:
    """The job is over on this node: its answer is not needed any more."""
    if _is_job(job):
        files.remove(f"{paths.run}/answered/{job}")


def due_in(paths: Paths, interval_s: float, uptime: float) -> float:
    """Seconds until a note may cause a round again: at most one such round in `interval_s` seconds."""
    try:
        last = float(files.read_small(f"{paths.run}/note-round", 64) or b"-inf")
    except ValueError:
        return 0.0
    if not last <= uptime:  # of a former boot: not every /run is empty then
        return 0.0
    return max(0.0, last + interval_s - uptime)


def mark(paths: Paths, uptime: float) -> None:
    """A note causes a round now. Raises OSError."""
    files.write_atomic(f"{paths.run}/note-round", f"{uptime:.3f}", durable=False)


def _names(fd: int, limit: int) -> list[str]:
    found: list[str] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) >= limit:
                break
    return found


def _read(fd: int, name: str) -> Note:
    small = files.read_owned(name, NOTE_LIMIT, dir_fd=fd)
    if small is None:
        return Note(name)
    try:
        document = json.loads(small.data)
    except (ValueError, RecursionError):
        return Note(name, small.uid)
    job = document.get("job") if isinstance(document, dict) else None
    return Note(name, small.uid, job if isinstance(job, str) and _is_job(job) else "")


def _is_job(text: str) -> bool:
    """A Slurm job id is a 32-bit number, and as such a safe file name."""
    return text.isascii() and text.isdecimal() and 0 < len(text) <= 10


def _remember(paths: Paths, note: Note) -> None:
    folder = f"{paths.run}/answered"
    known = answered(paths, note.job)
    if note.uid in known or len(known) >= UIDS_MAX:
        return
    try:
        files.ensure_dir(folder)
        _put(folder, note.job, {*known, note.uid})
    except OSError as error:
        log.error("answer-not-kept", job=note.job, why=error)


def _owners(path: str) -> set[int]:
    words = (files.read_small(path) or b"").decode("ascii", "replace").split()
    return {int(word) for word in words if word.isdecimal()}


def _put(folder: str, job: str, uids: set[int]) -> None:
    files.write_atomic(f"{folder}/{job}", " ".join(map(str, sorted(uids))), durable=False)


def _make_room(folder: str) -> None:
    """Beyond `ANSWERS_MAX` jobs, who named the most of them loses some: nobody pushes another user's answer out."""
    try:
        names = [name for name in os.listdir(folder) if _is_job(name)]
        if len(names) <= ANSWERS_MAX:
            return
        owners = {name: _owners(f"{folder}/{name}") or {-1} for name in names}
        by_uid: dict[int, list[str]] = {}
        for name in sorted(names, key=int, reverse=True):  # old jobs have the small numbers: they go first
            for uid in owners[name]:
                by_uid.setdefault(uid, []).append(name)
        while len(owners) > ANSWERS_MAX:
            _, most = max((len(jobs), uid) for uid, jobs in by_uid.items())
            name = by_uid[most].pop()
            owners[name].discard(most)
            if not owners[name]:
                del owners[name]
                files.remove(f"{folder}/{name}")
            else:
                _put(folder, name, owners[name])
    except OSError as error:
        log.error("answers-not-thinned", why=error)


def _apart(paths: Paths, work: Callable[[int], str], timeout_s: float) -> bytes | None:
    """What `work` returns for a descriptor of the notes' folder, done in a child; None when it failed or hung."""

    def child() -> bytes:
        fd = os.open(paths.suspects, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        return work(fd).encode()

    try:
        ran = proc.apart(child, timeout_s=timeout_s)
    except OSError as error:
        log.error("notes-not-read", why=error)
        return None
    return ran.stdout if ran.ok else None


def _clear(fd: int, names: list[str]) -> str:
    """Remove names, whatever they are; "" or what could not be removed.

    A folder's content is moved up and removed like the rest: no recursion.
    """
    left = CLEAR_MAX
    failures: list[str] = []
    while names and left > 0:
        name = names.pop()
        left -= 1
        try:
            if not _unlinked(fd, name):
                names.extend(_flatten(fd, name, left))
        except FileNotFoundError:
            continue
        except OSError as error:  # a folder that its owner is still filling: the next round sees it
            failures.append(f"{name}: {error.strerror}")
    return f"{len(failures)}, first {failures[0]}" if failures else ""


def _unlinked(fd: int, name: str) -> bool:
    """Remove a name that is no folder, or an empty one; False for a folder that holds something. Looks at nothing."""
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return False
    return True


def _flatten(top: int, name: str, limit: int) -> list[str]:
    """Empty a folder of the notes' folder and remove it; returns the new names of the folders that were in it."""
    moved: list[str] = []
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for inner in _names(fd, limit):
            if not _unlinked(fd, inner):
                fresh = f"folder-{os.urandom(8).hex()}"
                os.rename(inner, fresh, src_dir_fd=fd, dst_dir_fd=top)
                moved.append(fresh)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)
    return moved
