"""What a healthy simulated node shows: the rows of an 8-GPU training machine (p5.48xlarge: NVIDIA H100 80GB)."""

from __future__ import annotations

import zlib
from typing import Any

GIB = 1 << 30
BUSES = (0x53, 0x64, 0x75, 0x86, 0x97, 0xA8, 0xB9, 0xCA)  # one PCI bus per GPU, as such machines number them
VENDOR, DEVICE, CLASS = 0x10DE, 0x2330, 0x030200  # NVIDIA, H100 SXM5 80GB, 3D controller
DRIVER = "550.163.01"
NAME = "NVIDIA H100 80GB HBM3"

MOUNTS = (  # source, mount point, type, options, device number
    ("/dev/nvme0n1p1", "/", "ext4", "rw,relatime", "259:1"),
    ("tmpfs", "/dev/shm", "tmpfs", "rw,nosuid,nodev", "0:22"),
    ("/dev/nvme1n1", "/scratch", "xfs", "rw,noatime", "259:5"),
    ("10.0.1.17@tcp:/fsx", "/fsx", "lustre", "rw,noatime,flock", "0:51"),
)
SIZES = {"/": 500 * GIB, "/dev/shm": 1000 * GIB, "/scratch": 28000 * GIB, "/fsx": 14400 * GIB}


def number(node: str) -> int:
    """A number of its own for each node, from which serial numbers and the like are made."""
    return zlib.crc32(node.encode())


def pci(index: int) -> str:
    """The PCI address of GPU `index`; beyond eight, further PCI domains."""
    return f"{index // len(BUSES):04x}:{BUSES[index % len(BUSES)]:02x}:00.0"


def pci_function() -> dict[str, bytes]:
    """The sysfs files of a GPU's PCI function that answers."""
    config = bytearray(64)
    config[0:4] = VENDOR.to_bytes(2, "little") + DEVICE.to_bytes(2, "little")
    config[4:8] = b"\x06\x05\x10\x00"  # command, status
    config[8:12] = b"\xa1" + CLASS.to_bytes(3, "little")
    return {
        "vendor": f"{VENDOR:#06x}\n".encode(),
        "device": f"{DEVICE:#06x}\n".encode(),
        "class": f"{CLASS:#08x}\n".encode(),
        "revision": b"0xa1\n",
        "config": bytes(config),
        "enable": b"1\n",
        "numa_node": b"0\n",
    }


def machine(node: str, gpus: int) -> dict[str, str]:
    """Text files by their path on the node: identity, memory, mounts, driver, Slurm's GRES."""
    numbered = list(enumerate(MOUNTS, start=30))
    span = f"[0-{gpus - 1}]" if gpus > 1 else "0"
    made = {
        "/proc/meminfo": meminfo(2048 * GIB, 1980 * GIB),
        "/proc/mounts": "".join(
            f"{src} {at} {kind} {opts} 0 0\n" for _, (src, at, kind, opts, _) in numbered
        ),
        "/proc/self/mountinfo": "".join(
            f"{n} {n if at == '/' else 30} {dev} / {at} {opts} shared:{n} - {kind} {src} {opts}\n"
            for n, (src, at, kind, opts, dev) in numbered
        ),
        "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        "/sys/class/dmi/id/product_name": "p5.48xlarge\n",
        "/sys/class/dmi/id/board_asset_tag": f"i-0f3a9c55e{number(node):08x}\n",
        "/etc/slurm/gres.conf": f"Name=gpu File=/dev/nvidia{span}\n" if gpus else "",
    }
    if gpus:
        made["/proc/driver/nvidia/version"] = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}\n"
    return made


def meminfo(total: int, available: int) -> str:
    """/proc/meminfo with these sizes in bytes."""
    kib = {
        "MemTotal": total >> 10,
        "MemFree": (available >> 10) * 9 // 10,
        "MemAvailable": available >> 10,
        "Buffers": 262144,
        "Cached": (available >> 10) // 10,
        "SwapTotal": 0,
        "SwapFree": 0,
    }
    rows = "".join(f"{name + ':':<16}{size:>12} kB\n" for name, size in kib.items())
    return rows + "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\n"


def space() -> dict[str, dict[str, Any]]:
    """Free space by mount point."""
    return {path: room(total, total * 7 // 10) for path, total in SIZES.items()}


def room(total: int, avail: int, *, read_only: bool = False) -> dict[str, Any]:
    """One file system's space in bytes."""
    inodes = total >> 15
    return {
        "total": total,
        "avail": avail,
        "inodes": inodes,
        "inodes_free": inodes * 9 // 10,
        "read_only": read_only,
    }


def nvml(node: str, gpus: int) -> dict[str, Any]:
    """The document that hpkit's NVML child prints when every GPU answers."""
    if not gpus:
        return {"schema": "hpkit.nvml/1", "error": "library not found", "code": 12}
    return {
        "schema": "hpkit.nvml/1",
        "driver": DRIVER,
        "count": gpus,
        "gpus": [gpu(node, index) for index in range(gpus)],
        "error": "",
    }


def gpu(node: str, index: int) -> dict[str, Any]:
    """One healthy GPU in that document."""
    return {
        "index": index,
        "pci": pci(index),
        "uuid": f"GPU-{number(node):08x}-91c2-4be7-b2d3-{index:012x}",
        "serial": f"1{number(node):010d}{index:02d}",
        "name": NAME,
        "mig": "off",
        "ecc": {
            "mode": "on",
            "volatile_uncorrected": 0,
            "volatile_corrected": 0,
            "aggregate_uncorrected": 0,
            "aggregate_corrected": 0,
        },
        "remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failed": False},
        "errors": {},
    }


def boot_log(gpus: int) -> tuple[str, ...]:
    """The kernel's lines of a boot without trouble."""
    lines = ["Linux version 6.8.0-1021-aws (buildd@build) #23-Ubuntu SMP", "Command line: ro console=ttyS0"]
    if gpus:
        lines += [f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {DRIVER}"]
        lines += [f"nvidia {pci(index)}: enabling device (0000 -> 0002)" for index in range(gpus)]
    return tuple(lines)
