"""Faults that the sandbox can give a node: one literal row each, a change of the node's files or of its kernel log.

Texts of the kernel log follow NVIDIA's driver: `NVRM: Xid (PCI:0000:53:00): 79, …`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, MutableMapping
from typing import Any, NamedTuple

from hpkit.errors import UsageError
from hpkit.sandbox import healthy
from hpkit.sandbox.nodes import LINK, File, NodeState, current, document, healthy_files, uptime, with_record

Files = MutableMapping[str, File]
NVML = "tools/nvml/stdout"
LOST, UNKNOWN_ERROR = 15, 999  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_UNKNOWN
INJECTED = "injected"
HANG_S = 120  # longer than any hook may take

XID_TEXT = {  # what the driver writes after the code
    13: "pid=4242, name=python3, Graphics SM Warp Exception on (GPC 2, TPC 0, SM 1): Out Of Range Address",
    31: "pid=4242, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f4d_32000000",
    43: "pid=4242, name=python3, Ch 00000008",
    48: "pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE) has been detected on GPU",
    63: "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping, reset gpu to activate.",
    64: "pid='<unknown>', name=<unknown>, Row Remapper: Failed to write remapping entry",
    74: "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    94: "pid=4242, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
    95: "pid='<unknown>', name=<unknown>, Uncontained: LTC TAG (0x3,0x0). RST: Yes, D-RST: No",
    119: "pid=4242, name=python3, Timeout after 6s of waiting for RPC response from GPU GSP!",
}


class Fault(NamedTuple):
    """A row: `change` lays the fault over the node's files, `log` is what the kernel logs when it happens.

    `takes` says what may follow the colon and what it is when nothing does.
    """

    about: str
    takes: str = ""
    default: str = ""
    change: Callable[[Files, str], None] | None = None
    log: Callable[[NodeState, str], NodeState] | None = None


def gpu_lost(files: Files, arg: str) -> None:
    """A GPU that fell off the bus: its PCI function reads all ones, NVML tells that it is lost."""
    index = gpu_index(files, arg)
    folder = f"root/sys/bus/pci/devices/{healthy.pci(index)}"
    files[f"{folder}/config"] = File(b"\xff" * 64)
    files[f"{folder}/revision"] = File(b"0xff\n")
    change_nvml(files, lambda found: found["gpus"].__setitem__(index, lost_entry(index)))


def lost_entry(index: int) -> dict[str, Any]:
    """What NVML's child prints for a GPU that is lost."""
    return {"index": index, "error": "GPU is lost", "code": LOST}


def gpu_gone(files: Files, arg: str) -> None:
    """A GPU that did not come up at boot: no PCI function, one less in NVML."""
    index = gpu_index(files, arg)
    folder = f"root/sys/bus/pci/devices/{healthy.pci(index)}/"
    for path in [path for path in files if path.startswith(folder)]:
        del files[path]

    def change(found: dict[str, Any]) -> None:
        del found["gpus"][index]
        found["count"] = len(found["gpus"])

    change_nvml(files, change)


def ecc(files: Files, arg: str) -> None:
    """Uncorrectable memory errors that a GPU counted since the driver was loaded."""

    def change(found: dict[str, Any]) -> None:
        counters = found["gpus"][gpu_index(files, arg)]["ecc"]
        counters["volatile_uncorrected"] = counters["aggregate_uncorrected"] = 3

    change_nvml(files, change)


def remap(files: Files, arg: str) -> None:
    """A memory row that could not be remapped."""

    def change(found: dict[str, Any]) -> None:
        rows = found["gpus"][gpu_index(files, arg)]["remap"]
        rows["uncorrectable"], rows["failed"] = 1, True

    change_nvml(files, change)


def hang(files: Files, arg: str) -> None:
    """A tool that ignores SIGTERM and leaves a child that holds standard output."""
    files[f"tools/{arg}/hang"] = File(f"{HANG_S}\n".encode())
    files[f"tools/{arg}/ignore_term"] = File(b"")


def garbled(files: Files, arg: str) -> None:
    """A tool whose output nobody can parse."""
    files[f"tools/{arg}/stdout"] = File(b"Segmentation fault (core dumped)\n")


def mount_dead(files: Files, arg: str) -> None:
    """A mount whose server is gone: it is listed, and every look at it hangs."""
    change_space(files, arg, {"hang": HANG_S})


def mount_gone(files: Files, arg: str) -> None:
    """A mount that is not there."""
    change_lines(files, "root/proc/mounts", 1, arg, lambda line: "")
    change_lines(files, "root/proc/self/mountinfo", 4, arg, lambda line: "")
    change_space(files, arg, {"errno": 2})


def disk_full(files: Files, arg: str) -> None:
    """A file system without free space."""
    change_space(files, arg, healthy.room(healthy.SIZES.get(arg, healthy.SIZES["/"]), 0))


def disk_readonly(files: Files, arg: str) -> None:
    """A file system that the kernel set read-only after an error: its state is ro, its mount's options are not."""
    size = healthy.SIZES.get(arg, healthy.SIZES["/"])
    change_space(files, arg, healthy.room(size, size // 2, read_only=True))
    change_lines(files, "root/proc/mounts", 1, arg, lambda line: line.replace(" rw,", " ro,"))
    change_lines(files, "root/proc/self/mountinfo", 4, arg, lambda line: " ro,".join(line.rsplit(" rw,", 1)))


def memory_low(files: Files, arg: str) -> None:
    """Memory that something else than a job ate: `arg` GiB are left."""
    files["root/proc/meminfo"] = File(healthy.meminfo(2048 * healthy.GIB, int(arg) * healthy.GIB).encode())


def log_xid(state: NodeState, arg: str) -> NodeState:
    """The driver's line for an Xid; `79` or `79@3` for GPU 3."""
    code, _, index = arg.partition("@")
    if not code.isdigit() or (index and not index.isdigit()):
        raise UsageError(f"no Xid: {arg!r}", "write xid:79, or xid:79@3 for GPU 3")
    text = XID_TEXT.get(int(code), "pid='<unknown>', name=<unknown>, unknown error")
    address = healthy.pci(int(index or 0)).rpartition(".")[0]
    return with_record(state, f"NVRM: Xid (PCI:{address}): {int(code)}, {text}")


def log_lost(state: NodeState, arg: str) -> NodeState:
    """A GPU that falls off the bus while the driver runs is Xid 79."""
    return log_xid(state, f"79@{arg}")


def scroll(state: NodeState, arg: str) -> NodeState:
    """The kernel log's ring buffer has gone on: nothing of before is left in it."""
    return with_record(state._replace(log=()), "audit: type=1400 audit: backlog wait time: 0")


FAULTS: dict[str, Fault] = {
    "gpu-lost": Fault("a GPU stops answering", "GPU number", "3", gpu_lost),
    "gpu-off-bus": Fault(
        "a GPU stops answering and the driver logs Xid 79", "GPU number", "3", gpu_lost, log_lost
    ),
    "gpu-gone": Fault("a GPU is not there at all", "GPU number", "3", gpu_gone),
    "ecc": Fault("a GPU counts uncorrectable memory errors", "GPU number", "2", ecc),
    "remap": Fault("a GPU cannot remap a broken memory row", "GPU number", "2", remap),
    "xid": Fault("the driver logs an Xid", "code, or code@GPU", "79", None, log_xid),
    "scroll": Fault("the kernel log scrolls away", log=scroll),
    "hang": Fault("a vendor tool hangs and ignores SIGTERM", "tool", "nvml", hang),
    "garbled": Fault("a vendor tool prints what nobody can parse", "tool", "nvml", garbled),
    "mount-dead": Fault("a mount stops answering", "mount point", "/fsx", mount_dead),
    "mount-gone": Fault("a mount is not there", "mount point", "/fsx", mount_gone),
    "disk-full": Fault("a file system is full", "mount point", "/", disk_full),
    "disk-readonly": Fault("a file system became read-only", "mount point", "/", disk_readonly),
    "memory-low": Fault("hardly any memory is left", "GiB left", "1", memory_low),
    "bundle": Fault("everything as in a recorded bundle", "folder"),
}


def split(fault: str) -> tuple[str, str]:
    """("xid", "79") for `xid:79`, ("gpu-lost", "3") for `gpu-lost`; raises UsageError for what is no fault."""
    name, colon, arg = fault.partition(":")
    row = FAULTS.get(name)
    if row is None:
        raise UsageError(f"no such fault: {name!r}", f"one of: {', '.join(sorted(FAULTS))}")
    if colon and not row.takes:
        raise UsageError(f"{name} takes nothing after a colon")
    if not arg and not row.default and row.takes:
        raise UsageError(f"{name} needs a {row.takes}", f"write {name}:…")
    return name, arg or row.default


def inject(folder: str, state: NodeState, fault: str) -> NodeState:
    """The node's state after `fault`; raises UsageError when there is no such fault, before anything changed."""
    name, arg = split(fault)
    if name == "bundle":
        arg = keep_bundle(folder, arg, len(state.faults))
    row = FAULTS[name]
    changed = state if row.log is None else row.log(state, arg)
    changed = changed._replace(faults=(*state.faults, f"{name}:{arg}" if row.takes else name))
    broken_files(changed)  # a bad argument is found here, not half-way
    return changed


def broken_files(state: NodeState) -> dict[str, File]:
    """The node's files with all its faults laid over them, in order."""
    files = healthy_files(state)
    for fault in state.faults:
        name, arg = split(fault)
        change = FAULTS[name].change
        if name == "bundle":
            lay_bundle(files, arg, state)
        elif change is not None:
            change(files, arg)
    return files


def keep_bundle(folder: str, bundle: str, number: int) -> str:
    """Copy a bundle into the node folder, so that later changes do not depend on where it came from."""
    if not os.path.isfile(os.path.join(bundle, "meta.json")):
        raise UsageError(f"{bundle} is no bundle: it has no meta.json", "make one with: hpkit bundle PATH")
    target = os.path.join(folder, INJECTED, str(number))
    shutil.copytree(bundle, target, symlinks=True, dirs_exist_ok=True)
    return target


def lay_bundle(files: Files, bundle: str, state: NodeState) -> None:
    """Replace what the bundle speaks of: machine files, answers, tools. The boot id stays this node's."""
    found = bundle_files(bundle)
    boot_id = files["root/proc/sys/kernel/random/boot_id"]
    spoken = {path.split("/")[0] for path in found} - {"meta.json"}
    for path in [path for path in files if path.split("/")[0] in spoken]:
        del files[path]
    files.update({path: file for path, file in found.items() if path != "meta.json"})
    files["root/proc/sys/kernel/random/boot_id"] = boot_id
    if "root/dev/kmsg" in found:
        recorded = float(json.loads(found["meta.json"].data)["uptime"])
        moved = shifted(found["root/dev/kmsg"].data.decode(errors="replace"), state.booted - recorded)
        files["root/dev/kmsg"] = File(moved.encode(), 0o600)


def bundle_files(bundle: str) -> dict[str, File]:
    """What a bundle says of its machine, by relative path, without hpkit's own state and configuration in it."""
    found = {}
    for where, folders, names in os.walk(bundle):
        for name in (*names, *folders):
            full = os.path.join(where, name)
            path = os.path.relpath(full, bundle)
            told = path.startswith(("root/", "answers/", "tools/", "meta.json"))
            own = path.startswith(("root/etc/hpkit/", "root/run/", "root/var/lib/hpkit/"))
            plain = os.path.islink(full) or os.path.isfile(full)
            file = current(full) if told and plain and not own else None
            if file is not None:
                found[path] = file if file.mode == LINK else File(file.data)
    return found


def shifted(log: str, seconds: float) -> str:
    """Kernel log records moved in time: the bundle's machine had another uptime. Never before 0 or after now."""
    lines = []
    for line in log.splitlines():
        head, semicolon, text = line.partition(";")
        fields = head.split(",")
        if semicolon and len(fields) >= 3 and fields[2].isdigit():
            fields[2] = str(int(min(max(int(fields[2]) / 1e6 + seconds, 0), uptime()) * 1e6))
        lines.append(",".join(fields) + semicolon + text)
    return "".join(f"{line}\n" for line in lines)


def change_lines(files: Files, path: str, column: int, at: str, change: Callable[[str], str]) -> None:
    """Change the lines of a table whose `column` is the mount point `at`."""
    lines = files[path].data.decode().splitlines(keepends=True)
    files[path] = File(
        "".join(change(line) if line.split()[column] == at else line for line in lines).encode()
    )


def change_nvml(files: Files, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the document of the NVML child."""
    found = json.loads(files[NVML].data)
    change(found)
    files[NVML] = File(document(found))


def change_space(files: Files, path: str, answer: dict[str, Any]) -> None:
    """Change what is answered about one file system's space."""
    found = json.loads(files["answers/space.json"].data)
    found[path] = answer
    files["answers/space.json"] = File(document(found))


def gpu_index(files: Files, arg: str) -> int:
    """A GPU's number; raises UsageError when the node has no such GPU."""
    count = int(json.loads(files[NVML].data).get("count", 0))
    if not arg.isdigit() or int(arg) >= count:
        raise UsageError(f"no GPU {arg!r} on this node: it has {count}")
    return int(arg)
