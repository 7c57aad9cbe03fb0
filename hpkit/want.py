"""What this node should have and be, resolved from the site's config, the catalogue and gres.conf."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from hpkit.model import Unread

if TYPE_CHECKING:
    from hpkit.config import SlurmConfig, WantConfig
    from hpkit.host import Host

DMI = "/sys/class/dmi/id"
# The second where slurmctld hands it out ("configless").
GRES = ("/etc/slurm/gres.conf", "/run/slurm/conf/gres.conf")
FOREIGN = ("/dev/dri/", "/dev/kfd", "/dev/neuron", "/dev/accel", "nvidia-caps")
"""Devices that gres.conf may call `gpu` and that are no whole NVIDIA GPU: AMD, Intel, Trainium, MIG parts."""


class Want(NamedTuple):
    """Expectations of one node; None means that nobody said. `source` tells where `gpus` came from.

    `memory_gib` is the instance type's nominal memory from the catalogue (GiB).
    """

    gpus: int | None = None
    gpus_source: str = ""
    mounts: tuple[str, ...] = ()
    instance_type: str = ""
    memory_gib: float | None = None


def resolve(config: WantConfig, slurm: SlurmConfig, host: Host) -> Want:
    """The expectations: the site's config first, then the catalogue by instance type, then gres.conf; never fails."""
    kind = config.instance_type or product(host)
    known = _catalogued(kind)
    want = Want(None, "", config.mounts, kind, known.memory_gib)
    if config.gpus is not None:
        return want._replace(gpus=config.gpus, gpus_source="config")
    if known.gpus is not None:
        return want._replace(gpus=known.gpus, gpus_source=f"instance type {kind}")
    listed = gres_gpus(host, slurm)
    return want if listed is None else want._replace(gpus=listed, gpus_source="gres.conf")


def product(host: Host) -> str:
    """The instance type that DMI tells: on Amazon EC2 (Nitro) it is the product name; "" anywhere else."""
    if _line(host, f"{DMI}/sys_vendor") != "Amazon EC2":
        return ""
    return _line(host, f"{DMI}/product_name")


def gres_gpus(host: Host, slurm: SlurmConfig) -> int | None:
    """How many GPUs gres.conf gives to this node; None when it does not say (no file, AutoDetect alone, MIG parts)."""
    beside = os.path.join(os.path.dirname(slurm.conf), "gres.conf") if slurm.conf else ""
    for path in filter(None, (slurm.gres_conf, beside, *GRES)):
        data = host.read(path)
        if not isinstance(data, Unread):
            return _gres_count(data.decode("utf-8", "replace"), host.node)
    return None


def _gres_count(text: str, node: str) -> int | None:
    """The sum over the lines that speak of GPUs and of this node; None as soon as one cannot be counted."""
    total: int | None = None
    for row in _gres_rows(text):
        if row.get("name", "").lower() != "gpu" or not _names(row.get("nodename", ""), node):
            continue
        counted = _row_count(row)
        if counted is None:
            return None
        total = (total or 0) + counted
    return total


def _gres_rows(text: str) -> Iterator[dict[str, str]]:
    """Each line as lower-case keys and values; a `#` begins a comment, a backslash at the end joins lines."""
    for line in text.replace("\\\n", " ").splitlines():
        words = (word.partition("=") for word in line.partition("#")[0].split())
        row = {key.lower(): value.strip('"') for key, equals, value in words if equals}
        if row:
            yield row


def _names(nodes: str, node: str) -> bool:
    """Whether a gres.conf line without NodeName, or with this node in it, is ours."""
    if not nodes:
        return True
    return node in _expand(nodes)


def _row_count(row: dict[str, str]) -> int | None:
    files = row.get("file", "")
    if any(part in files for part in FOREIGN) or "multiplefiles" in row:
        return None
    if row.get("autodetect", "nvml").lower() not in ("nvml", "nvidia", "off"):
        return None
    if "count" in row:
        return int(row["count"]) if row["count"].isdecimal() else None
    return len(_expand(files.replace("/", "_"))) or None  # a list of files is written as a list of hosts


def _expand(text: str) -> tuple[str, ...]:
    """The names of a host list; none when it is not understood."""
    from hpkit.hostlist import expand

    try:
        return expand(text)
    except ValueError:
        return ()


def _line(host: Host, path: str) -> str:
    data = host.read(path, 256)
    return "" if isinstance(data, Unread) else data.decode("utf-8", "replace").strip()


class _Known(NamedTuple):
    gpus: int | None = None
    memory_gib: float | None = None


def _catalogued(kind: str) -> _Known:
    if not kind:
        return _Known()
    from hpkit.catalog import instance

    row = instance(kind)
    return _Known(row.get("gpus"), row.get("memory_gib"))
