"""Simulated nodes: bundle folders whose files follow from a small state, so that every fault is a change of data.

`files(state)` is pure: the healthy rows below with the node's faults laid over them. `apply` makes a folder equal to
it, one atomic replacement per file that differs, while hooks of the real cluster read it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from hpkit.files import ensure_dir, remove, write_atomic
from hpkit.paths import paths
from hpkit.sandbox import healthy

STATE = "state.json"
OWNED = ("root/proc", "root/sys", "root/dev/kmsg", "root/etc/slurm", "answers", "tools")
"""What `apply` owns in a node folder. Configuration, device files, hpkit's own state and bin/ are not among it."""


LINK = stat.S_IFLNK | 0o777


class NodeState(NamedTuple):
    """One simulated node. `log` are kernel log records, `faults` what was broken, in order; `booted` is uptime."""

    name: str
    gpus: int
    boot_id: str
    booted: float
    log: tuple[str, ...]
    faults: tuple[str, ...] = ()


class File(NamedTuple):
    """A file of a node folder; with mode LINK a symbolic link, and `data` is where it points."""

    data: bytes
    mode: int = 0o644


def boot(name: str, gpus: int) -> NodeState:
    """A healthy node that has just booted: new boot id, kernel log with nothing but the boot in it."""
    now = uptime()
    records = tuple(record(text, now, number, 6) for number, text in enumerate(healthy.boot_log(gpus)))
    return NodeState(name, gpus, str(uuid.uuid4()), now, records)


def uptime() -> float:
    """Seconds since this machine booted: a simulated node has the machine's clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def record(text: str, at: float, number: int, level: int = 3) -> str:
    """One record as /dev/kmsg gives it: priority, sequence number, microseconds, flags; text."""
    return f"{level},{number},{int(at * 1e6)},-;{text}"


def with_record(state: NodeState, text: str) -> NodeState:
    """The state after the kernel logged `text` just now."""
    number = 1 + max((int(line.split(",")[1]) for line in state.log), default=-1)
    return state._replace(log=(*state.log, record(text, uptime(), number)))


def healthy_files(state: NodeState) -> dict[str, File]:
    """The node's files when nothing is broken; paths are relative to the node folder."""
    texts = healthy.machine(state.name, state.gpus)
    made = {f"root{path}": File(text.encode()) for path, text in texts.items()}
    made["root/proc/sys/kernel/random/boot_id"] = File(f"{state.boot_id}\n".encode())
    made["root/dev/kmsg"] = File("".join(f"{line}\n" for line in state.log).encode(), 0o600)
    for index in range(state.gpus):
        folder = f"root/sys/bus/pci/devices/{healthy.pci(index)}"
        made.update({f"{folder}/{name}": File(data) for name, data in healthy.pci_function().items()})
        made[f"{folder}/driver"] = File(b"../../../../bus/pci/drivers/nvidia", LINK)
    made["answers/space.json"] = File(document(healthy.space()))
    made["tools/nvml/stdout"] = File(document(healthy.nvml(state.name, state.gpus)))
    made["tools/nvml/rc"] = File(b"0\n")
    return made


def document(content: Any) -> bytes:
    """JSON for a file of a node folder."""
    return (json.dumps(content, indent=1) + "\n").encode()


def meta(state: NodeState) -> File:
    """The node folder's meta.json: it is a bundle, taken from a machine that lives."""
    content = {
        "schema": "hpkit.bundle/1",
        "node": state.name,
        "wall": time.time(),
        "uptime": uptime(),
        "boot_id": state.boot_id,
        "uid": 0,
        "view": "node",
        "versions": {"sandbox": "1"},
    }
    return File(document(content))


def create(folder: str, state: NodeState, config: str) -> None:
    """A new node folder, complete: device files, configuration, hpkit's own folders, players, machine files."""
    ensure_dir(f"{folder}/root/dev")
    for index in range(state.gpus):
        make_device(f"{folder}/root/dev/nvidia{index}")
    own = paths(folder)
    ensure_dir(f"{own.etc}/conf.d")
    ensure_dir(own.lib)
    write_atomic(f"{own.etc}/hpkit.toml", config, durable=False)
    for path in ("fsx", "scratch", "tmp", "dev/shm", "var/log"):
        ensure_dir(f"{folder}/root/{path}")
    ensure_dir(f"{folder}/bin")
    with open(os.path.join(os.path.dirname(__file__), "data", "play"), encoding="utf-8") as file:
        write_atomic(f"{folder}/bin/nvml", file.read(), 0o755, durable=False)
    fresh_run(folder)
    save(folder, state)


def make_device(path: str) -> None:
    """A GPU's device file, for Slurm: a character device with /dev/null's numbers, so that opening it does no harm.

    A plain file where we may make no device; Slurm counts that one, too.
    """
    if os.path.exists(path):
        return
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        put(path, File(b""))
    os.chmod(path, 0o666)


def fresh_run(folder: str) -> None:
    """hpkit's state of one boot, as a boot leaves it: nothing but the folder for suspect notes."""
    own = paths(folder)
    if os.path.isdir(own.run):
        gone = f"{own.run}.gone.{os.urandom(4).hex()}"
        os.rename(own.run, gone)  # at once: a hook sees the old folder or none, never half of it
        shutil.rmtree(gone)
    ensure_dir(own.run)
    ensure_dir(own.suspects, 0o1733)


def load(folder: str) -> NodeState:
    """The state of a node folder."""
    with open(os.path.join(folder, STATE), encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return NodeState(
        found["name"],
        found["gpus"],
        found["boot_id"],
        found["booted"],
        tuple(found["log"]),
        tuple(found["faults"]),
    )


def save(folder: str, state: NodeState) -> None:
    """Remember a state and make the folder's files follow from it."""
    from hpkit.sandbox.faults import broken_files

    write_atomic(os.path.join(folder, STATE), document(state._asdict()), durable=False)
    apply(folder, {**broken_files(state), "meta.json": meta(state)})


def apply(folder: str, wanted: Mapping[str, File]) -> None:
    """Make the owned part of a node folder equal to `wanted`; what is right already is not touched."""
    for path in sorted(present(folder) - set(wanted)):
        remove(os.path.join(folder, path))
    for path, file in wanted.items():
        full = os.path.join(folder, path)
        if current(full) != file:
            ensure_dir(os.path.dirname(full))
            put(full, file)
    for owned in OWNED:
        drop_empty(os.path.join(folder, owned))


def put(path: str, file: File) -> None:
    """Write a file, or make a link, in place of whatever has that name."""
    if file.mode != LINK:
        write_atomic(path, file.data, file.mode, durable=False)
        return
    temporary = f"{path}.{os.getpid()}"
    os.symlink(file.data.decode(), temporary)
    os.rename(temporary, path)


def present(folder: str) -> set[str]:
    """Every file that is in the owned part now, relative to the node folder."""
    found = {path for path in OWNED if os.path.isfile(os.path.join(folder, path))}
    for owned in OWNED:
        for where, folders, names in os.walk(os.path.join(folder, owned)):
            names += [name for name in folders if os.path.islink(os.path.join(where, name))]
            found.update(os.path.relpath(os.path.join(where, name), folder) for name in names)
    return found


def current(path: str) -> File | None:
    """A file as it is, None when there is none."""
    try:
        if os.path.islink(path):
            return File(os.readlink(path).encode(), LINK)
        with open(path, "rb") as file:
            return File(file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except OSError:
        return None


def drop_empty(folder: str) -> None:
    """Remove folders that no longer hold anything, deepest first: a vanished PCI function leaves no folder."""
    for where, _, _ in os.walk(folder, topdown=False):
        if where != folder and not os.listdir(where):
            os.rmdir(where)
