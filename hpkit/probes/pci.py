"""NVIDIA's GPUs on the PCI bus, from sysfs: there without any driver, library or permission."""

from __future__ import annotations

import re
from typing import NamedTuple

from hpkit.host import Host
from hpkit.model import Unread
from hpkit.want import Want

NVIDIA = 0x10DE
CLASSES = (0x0300, 0x0302)
"""VGA controller and 3D controller (PCI code and ID assignment): NVSwitches, audio and USB functions are neither."""
DEVICES = "/sys/bus/pci/devices"
TABLE = "/proc/bus/pci/devices"
_ADDRESS = r"([0-9a-fA-F]{1,8}):([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?\Z"


class Function(NamedTuple):
    """One GPU on the bus. `alive` is False when its configuration space answers only ones (it fell off the bus).

    `driver` is the kernel driver that holds it, "" when there is none or it is not told.
    """

    address: str
    alive: bool = True
    driver: str = ""


class Pci(NamedTuple):
    """The GPUs in order of address; `unread` says why the bus could not be read ("" when it could)."""

    gpus: tuple[Function, ...] = ()
    unread: str = ""


def normalise(address: str) -> str:
    """`00000000:53:00.0`, `0000:53:00` or `53:00.0` as `0000:53:00.0`; "" for what is no PCI address."""
    text = address.strip()
    found = re.match(_ADDRESS, text if text.count(":") == 2 else f"0:{text}")
    if not found:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function or 0}"


def probe(host: Host, _want: Want) -> Pci:
    """The GPUs on the bus; a machine without a PCI bus, or with a closed sysfs, says so in `unread`."""
    if vendor_listed(host) is False:
        return Pci()
    names = host.list(DEVICES)
    if isinstance(names, Unread):
        return Pci((), f"{names.path}: {names.why}")
    found = (_function(host, name) for name in names)
    return Pci(tuple(sorted((f for f in found if f is not None), key=lambda f: bus_order(f.address))))


def vendor_listed(host: Host) -> bool | None:
    """Whether the kernel's table of all PCI functions names NVIDIA: one read; None when there is no such table."""
    table = host.read(TABLE)
    if isinstance(table, Unread) or not table.strip():
        return None
    return any(
        row.split(b"\t", 2)[1:2] and row.split(b"\t", 2)[1].startswith(b"10de") for row in table.splitlines()
    )


def bus_order(address: str) -> tuple[int, int, int]:
    """Sort key of a normalised address: domains of more than four digits come last, as the kernel counts them."""
    domain, bus, rest = address.split(":")
    return int(domain, 16), int(bus, 16), int(rest.replace(".", ""), 16)


def _function(host: Host, name: str) -> Function | None:
    """The GPU in one device folder, None for every other device."""
    folder = f"{DEVICES}/{name}"
    address = normalise(name)
    if not address or _number(host, f"{folder}/vendor") != NVIDIA:
        return None
    kind = _number(host, f"{folder}/class")
    if kind is None or kind >> 8 not in CLASSES:
        return None
    driver = host.link(f"{folder}/driver")
    return Function(
        address, _alive(host, folder), "" if isinstance(driver, Unread) else driver.rsplit("/", 1)[-1]
    )


def _alive(host: Host, folder: str) -> bool:
    """Whether the function answers. sysfs keeps vendor and class of a dead one; its configuration space reads as ff."""
    config = host.read(f"{folder}/config", 64)
    if not isinstance(config, Unread) and len(config) >= 4:
        return config[:4] != b"\xff\xff\xff\xff"
    return _number(host, f"{folder}/revision") != 0xFF


def _number(host: Host, path: str) -> int | None:
    """A hexadecimal number from a sysfs file."""
    data = host.read(path, 64)
    if isinstance(data, Unread):
        return None
    try:
        return int(data.decode("ascii").strip(), 16)
    except ValueError:
        return None
