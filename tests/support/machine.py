"""A machine in memory: files, links, free space and tools as plain data, with the clock it is given."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Generator, Mapping
from typing import Any

from hpkit.model import Clock, Space, Unread, View
from hpkit.proc import Ran

GIB = 1 << 30
ROOT = "30 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw\n"
MEMINFO = "MemTotal:  2113929216 kB\nMemFree: 2000000000 kB\nMemAvailable: 2000000000 kB\nBuffers: 1000 kB\n"
BUSES = (0x18, 0x29, 0x3A, 0x4B, 0x5C, 0x6D, 0x7E, 0x8F)


class Machine:
    """Implements Host. A file or space given as an int is that errno; a tool that is absent is missing."""

    def __init__(
        self,
        files: Mapping[str, str | bytes | int] | None = None,
        *,
        links: Mapping[str, str] | None = None,
        space: Mapping[str, Space | int] | None = None,
        tools: Mapping[str, Ran] | None = None,
        env: Mapping[str, str] | None = None,
        view: View = View.NODE,
        uid: int = 0,
    ) -> None:
        self.files = dict(files or {})
        self.links = dict(links or {})
        self.spaces = {"/": Space(500 * GIB, 300 * GIB, 1000, 900, False), **(space or {})}
        self.tools = dict(tools or {})
        self.env: Mapping[str, str] = dict(env or {})
        self.view, self.uid, self.node = view, uid, "n1"
        self.clock = Clock(1_772_366_400.0, 50_000.0, "boot-1")
        self.calls: list[str] = []

    def now(self) -> Clock:
        return self.clock

    def read(self, path: str, limit: int = 1 << 20) -> bytes | Unread:
        self.calls.append(f"read {path}")
        data = self.files.get(path, errno.ENOENT)
        if isinstance(data, int):
            return Unread(path, data, os.strerror(data))
        return (data.encode() if isinstance(data, str) else data)[:limit]

    def list(self, path: str) -> tuple[str, ...] | Unread:
        inside = {f[len(path) + 1 :].split("/")[0] for f in self.files if f.startswith(path + "/")}
        return tuple(sorted(inside)) if inside else Unread(path, errno.ENOENT, "No such file or directory")

    def link(self, path: str) -> str | Unread:
        return self.links.get(path) or Unread(path, errno.EINVAL, "Invalid argument")

    def space(self, path: str, timeout_s: float) -> Space | Unread:
        self.calls.append(f"space {path} {timeout_s:g}")
        found = self.spaces.get(path, errno.ENOENT)
        return Unread(path, found, os.strerror(found)) if isinstance(found, int) else found

    def run(self, tool: str, *args: str, timeout_s: float) -> Ran:
        self.calls.append(f"run {tool} {timeout_s:g}")
        return self.tools.get(tool) or Ran((tool, *args), -1000, b"", b"", 0.0, "missing")

    def stream(self, tool: str, *args: str, timeout_s: float) -> Generator[str, None, Ran]:
        ran = self.run(tool, *args, timeout_s=timeout_s)
        yield from ran.text.splitlines()
        return ran


def address(number: int) -> str:
    """The PCI address of GPU `number`."""
    return f"0000:{BUSES[number]:02x}:00.0"


def pci_files(count: int, dead: tuple[int, ...] = ()) -> dict[str, str | bytes | int]:
    """sysfs of `count` NVIDIA GPUs, an NVSwitch and a network card, and the loaded driver."""
    made: dict[str, str | bytes | int] = {"/proc/driver/nvidia/version": "NVRM version: 570.86\n"}
    for number in range(count):
        config = b"\xff" * 64 if number in dead else b"\xde\x10\x30\x23" + bytes(60)
        made.update(function(address(number), "0x10de", "0x030200", config))
    made.update(function("0000:c1:00.0", "0x10de", "0x068000", b"\xde\x10\xa3\x22" + bytes(60)))
    made.update(function("0000:00:05.0", "0x1d0f", "0x020000", b"\x0f\x1d\x20\xec" + bytes(60)))
    return made


def function(at: str, vendor: str, kind: str, config: bytes) -> dict[str, str | bytes | int]:
    """One PCI function."""
    folder = f"/sys/bus/pci/devices/{at}"
    return {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n", f"{folder}/config": config}


def gpu(number: int, **changes: Any) -> dict[str, Any]:
    """One healthy GPU of the child's document; keys of `ecc` and `remap` may be given directly."""
    found: dict[str, Any] = {
        "index": number,
        "pci": address(number),
        "uuid": f"GPU-{number:04d}",
        "serial": f"165{number}",
        "name": "NVIDIA H100 80GB HBM3",
        "mig": "off",
        "ecc": {
            "mode": "on",
            **{f"{k}_{t}": 0 for k in ("volatile", "aggregate") for t in ("uncorrected", "corrected")},
        },
        "remap": {"correctable": 0, "uncorrectable": 0, "pending": False, "failed": False},
        "errors": {},
    }
    for key, value in changes.items():
        part = next((p for p in ("ecc", "remap") if isinstance(found[p], dict) and key in found[p]), None)
        (found[part] if part else found)[key] = value
    return found


def lost(number: int, error: str = "GPU is lost", code: int = 15) -> dict[str, Any]:
    """A GPU that gives no handle."""
    return {"index": number, "error": error, "code": code}


def nvml(gpus: list[dict[str, Any]], **changes: Any) -> Ran:
    """The child's answer."""
    document = {
        "schema": "hpkit.nvml/1",
        "driver": "570.86",
        "count": len(gpus),
        "gpus": gpus,
        "error": "",
        **changes,
    }
    return Ran(("nvml",), 0, json.dumps(document).encode(), b"", 0.1)


def no_nvml(error: str, code: int) -> Ran:
    """The child's answer when NVML cannot be started."""
    return Ran(
        ("nvml",), 0, json.dumps({"schema": "hpkit.nvml/1", "error": error, "code": code}).encode(), b"", 0.1
    )


def whole(**parts: Any) -> Machine:
    """A healthy 8-GPU node; `files` and `tools` are laid over it."""
    files = {
        "/proc/self/mountinfo": ROOT,
        "/proc/meminfo": MEMINFO,
        "/dev/kmsg": "6,1,1000000,-;Linux version 6.8\n",
        **pci_files(8),
        **parts.pop("files", {}),
    }
    tools = {"nvml": nvml([gpu(n) for n in range(8)]), **parts.pop("tools", {})}
    return Machine(files, tools=tools, **parts)
