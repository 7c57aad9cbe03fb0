"""What NVIDIA's management library says of each GPU, read by a child process that may hang in the kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from hpkit.host import Host
from hpkit.model import NO_DATA, Unread
from hpkit.probes.pci import DEVICES, normalise, vendor_listed
from hpkit.proc import Ran
from hpkit.want import Want

SCHEMA = "hpkit.nvml/1"
TIMEOUT_S = 15.0
"""Without persistence mode the driver starts each GPU anew, about a second each; the round's budget bounds it too."""
DRIVER = "/proc/driver/nvidia"

NO_PERMISSION, NO_DRIVER, NO_LIBRARY, VERSION_MISMATCH = 4, 9, 12, 18
"""nvmlReturn_t of nvml.h: NVML_ERROR_NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH."""


class Ecc(NamedTuple):
    """ECC of one GPU: `mode` is on, off or n/a; a counter is None when it could not be read (never 0 for that)."""

    mode: str = "n/a"
    volatile_uncorrected: int | None = None
    volatile_corrected: int | None = None
    aggregate_uncorrected: int | None = None
    aggregate_corrected: int | None = None


class Remap(NamedTuple):
    """Remapped memory rows: how many, whether one waits for a reset, whether one could not be remapped."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


class Gpu(NamedTuple):
    """One GPU by NVML's index (`number`).

    `error` and `code` are set when the GPU gave no handle; `errors` has the unread fields.
    """

    number: int
    pci: str = ""
    uuid: str = ""
    serial: str = ""
    name: str = ""
    mig: str = "N/A"
    ecc: Ecc = Ecc()
    remap: Remap | None = None
    errors: Mapping[str, str] = NO_DATA
    error: str = ""
    code: int = 0


class Nvml(NamedTuple):
    """NVML's answer: the GPUs, or why there is none.

    `state` is "ok", "not asked" (nothing suggests NVIDIA here), "no library", "no driver", "mismatch" (library and
    driver are of different releases) or "failed" (no usable answer); `why` is the reason for the last four.
    `driver_here` tells whether the kernel driver is loaded.
    """

    state: str
    why: str = ""
    driver: str = ""
    gpus: tuple[Gpu, ...] = ()
    driver_here: bool = False

    @property
    def answering(self) -> tuple[Gpu, ...]:
        """The GPUs that gave a handle."""
        return tuple(g for g in self.gpus if not g.error)


def suggested(host: Host, want: Want) -> bool:
    """Whether anything here suggests an NVIDIA GPU: it is wanted, its driver is loaded, or the PCI bus shows one."""
    if want.gpus or not isinstance(host.list(DRIVER), Unread):
        return True
    listed = vendor_listed(host)
    if listed is not None:
        return listed
    names = host.list(DEVICES)
    if isinstance(names, Unread):
        return False
    return any(host.read(f"{DEVICES}/{name}/vendor", 64) == b"0x10de\n" for name in names)


def probe(host: Host, want: Want) -> Nvml:
    """NVML's answer. A hang, a crash and garbage are told in `state`: PCI alone may prove the fault all the same."""
    if not suggested(host, want):
        return Nvml("not asked")
    here = not isinstance(host.list(DRIVER), Unread)
    ran = host.run("nvml", timeout_s=TIMEOUT_S)
    why = _unusable(ran)
    if why:
        return Nvml("failed", why, driver_here=here)
    try:
        document = json.loads(ran.stdout)
        return _facts(document, here)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Nvml(
            "failed",
            f"its answer is not understood ({type(error).__name__}: {error})"[:160],
            driver_here=here,
        )


def _unusable(ran: Ran) -> str:
    """Why the child's output must not be read, "" when it may."""
    if ran.failure in ("timeout", "stuck"):
        return (
            f"it did not answer within {ran.seconds:.0f} s"
            if ran.failure == "timeout"
            else "it hangs in the kernel"
        )
    if ran.failure:
        return f"it could not be run ({ran.failure})"
    if ran.rc:
        last = ran.stderr.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1]
        return f"it ended with {ran.rc}: {last[:120]}"
    return "its answer is too long" if ran.truncated else ""


def _facts(document: Any, here: bool) -> Nvml:
    """The facts of a whole document; raises ValueError, KeyError or TypeError for anything else."""
    if not isinstance(document, dict) or document["schema"] != SCHEMA:
        raise ValueError("not an hpkit.nvml/1 document")
    if document["error"]:
        code = _int(document["code"])
        state = {NO_LIBRARY: "no library", NO_DRIVER: "no driver", VERSION_MISMATCH: "mismatch"}.get(
            code, "failed"
        )
        return Nvml(state, f"NVML: {_text(document['error'])} (code {code})", driver_here=here)
    gpus = tuple(_gpu(item) for item in document["gpus"])
    if len({g.number for g in gpus}) != _int(document["count"]):
        raise ValueError(f"{len(gpus)} GPUs in a document of {document['count']}")
    return Nvml("ok", "", _text(document["driver"]), gpus, here)


def _gpu(item: Mapping[str, Any]) -> Gpu:
    index = _int(item["index"])
    pci = normalise(_text(item.get("pci", "")))
    if item.get("error"):
        return Gpu(index, pci, error=_text(item["error"]), code=_int(item["code"]))
    ecc = item["ecc"]
    if ecc["mode"] not in ("on", "off", "n/a"):
        raise ValueError(f"ECC mode {ecc['mode']!r}")
    remap = item["remap"]
    return Gpu(
        index,
        pci,
        _text(item["uuid"]),
        _text(item["serial"]),
        _text(item["name"]),
        _text(item["mig"]),
        Ecc(ecc["mode"], *(_count(ecc[name]) for name in Ecc._fields[1:])),
        None if remap is None else _remap(remap),
        {_text(k): _text(v) for k, v in item["errors"].items()},
    )


def _remap(item: Mapping[str, Any]) -> Remap:
    return Remap(
        _int(item["correctable"]), _int(item["uncorrectable"]), _bool(item["pending"]), _bool(item["failed"])
    )


def _int(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no count")
    return value


def _count(value: Any) -> int | None:
    return None if value is None else _int(value)


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value
