"""Reads NVML and prints one JSON document (`hpkit.nvml/1`); a program of its own because NVML can hang in the kernel.

Run as a script by host.py (tool "nvml") as `PYTHON -I -S nvml_child.py FOLDER`, or `PYTHON -I nvml_child.py` where only
site knows the folder that holds pynvml; so it imports nothing of hpkit. Each field is read on its own: what one GPU,
an old library or an old board cannot tell is in that GPU's `errors`, and the others are still told. Exit code 0
whenever a document was printed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:  # not typing's: to import it would cost as much as to ask eight GPUs
    from collections.abc import Callable
    from typing import Any


def _load() -> Any:
    """pynvml, without what it imports and does not use: its start is most of what this program costs.

    It takes `find_library` from ctypes.util, which brings subprocess, tempfile and shutil, and has no use for it on
    Linux. It gets one that is looked up when it is called after all.
    """

    def find_library(name: str) -> str | None:
        from ctypes.util import find_library as found

        return found(name)

    lean = ModuleType("ctypes.util")
    vars(lean)["find_library"] = find_library
    sys.modules["ctypes.util"] = lean
    try:
        import pynvml
    finally:
        del sys.modules["ctypes.util"]
    return pynvml


if __name__ == "__main__":
    gc.disable()  # it lives for a moment, and pynvml's hundreds of classes are no garbage
    sys.path += sys.argv[1:2]
pynvml = _load()

SCHEMA = "hpkit.nvml/1"
LOST = str(pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST))


def main() -> int:
    """Print the document of this machine."""
    sys.stdout.write(json.dumps(document()) + "\n")  # dumps is the fast one
    sys.stdout.flush()
    return 0


def document() -> dict[str, Any]:
    """Everything NVML tells; `error` and `code` instead when it cannot be started or does not count."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        return {"schema": SCHEMA, "error": str(error), "code": error.value}
    errors: dict[str, str] = {}
    driver = field(errors, "driver", pynvml.nvmlSystemGetDriverVersion)
    gpus = [gpu(index) for index in range(count)]
    return {"schema": SCHEMA, "driver": driver or "", "count": count, "gpus": gpus, "error": ""}


def gpu(index: int) -> dict[str, Any]:
    """One GPU, or why it gave no handle."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        return {"index": index, "error": str(error), "code": error.value}
    errors: dict[str, str] = {}
    info = field(errors, "pci", lambda: pynvml.nvmlDeviceGetPciInfo(handle).busId)
    found: dict[str, Any] = {
        "index": index,
        "pci": address(info) if info else "",
        "uuid": field(errors, "uuid", lambda: pynvml.nvmlDeviceGetUUID(handle)) or "",
        "serial": field(errors, "serial", lambda: pynvml.nvmlDeviceGetSerial(handle)) or "",
        "name": field(errors, "name", lambda: pynvml.nvmlDeviceGetName(handle)) or "",
        "mig": mode(errors, "mig", lambda: pynvml.nvmlDeviceGetMigMode(handle)[0], "N/A"),
        "ecc": ecc(errors, handle),
        "remap": remap(errors, handle),
    }
    if LOST in errors.values():  # it gave a handle and was lost, or was lost while we read
        return {"index": index, "pci": found["pci"], "error": LOST, "code": pynvml.NVML_ERROR_GPU_IS_LOST}
    found["errors"] = errors
    return found


def ecc(errors: dict[str, str], handle: Any) -> dict[str, Any]:
    """ECC mode and the four totals; null for a total that could not be read."""
    found: dict[str, Any] = {
        "mode": mode(errors, "ecc_mode", lambda: pynvml.nvmlDeviceGetEccMode(handle)[0], "n/a")
    }
    for counter, kind in (("volatile", pynvml.NVML_VOLATILE_ECC), ("aggregate", pynvml.NVML_AGGREGATE_ECC)):
        for name, memory in (
            ("uncorrected", pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            ("corrected", pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        ):
            key = f"{counter}_{name}"
            found[key] = field(errors, key, total(handle, memory, kind))
    return found


def total(handle: Any, memory: int, kind: int) -> Callable[[], int]:
    """The call that reads one total."""
    return lambda: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, memory, kind))


def remap(errors: dict[str, str], handle: Any) -> dict[str, Any] | None:
    """Remapped rows; null when the board or the library has none."""
    found = field(errors, "remap", lambda: pynvml.nvmlDeviceGetRemappedRows(handle))
    if found is None:
        return None
    correctable, uncorrectable, pending, failed = found
    return {
        "correctable": int(correctable),
        "uncorrectable": int(uncorrectable),
        "pending": bool(pending),
        "failed": bool(failed),
    }


def mode(errors: dict[str, str], name: str, read: Callable[[], int], absent: str) -> str:
    """`on`, `off`, or `absent` when the board does not have it or it could not be read (then with an error)."""
    value = field(errors, name, read)
    return absent if value is None else ("on" if value else "off")


def field(errors: dict[str, str], name: str, read: Callable[[], Any]) -> Any:
    """One value, or None and the reason in `errors`. Broken board memory gives strings that are no text."""
    try:
        return read()
    except (pynvml.NVMLError, UnicodeDecodeError) as error:
        errors[name] = str(error)
        return None


def address(bus_id: bytes | str) -> str:
    """NVML's `00000000:53:00.0` as sysfs writes it, `0000:53:00.0`."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    domain, colon, rest = text.lower().partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if colon else text


if __name__ == "__main__":
    os._exit(main())  # taking the interpreter and the driver's library down costs time, and one may hang
