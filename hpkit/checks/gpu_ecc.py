"""gpu.ecc: uncorrected memory errors since the accepted baseline, rows that wait for a reset, many corrected errors.

What cannot be read is never 0: with a double-bit error pending a GPU tells N/A for every counter. A board without ECC,
or with ECC switched off, is skipped. A counter smaller than its baseline was reset with the device: it counts from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hpkit.checks.gpu_names import Names, none_here
from hpkit.checks.model import Seen
from hpkit.model import NO_DATA, Action, Finding, Status, View
from hpkit.past import Past
from hpkit.probes import nvml as nvml_probe
from hpkit.probes import pci as pci_probe
from hpkit.probes import place as place_probe
from hpkit.probes.nvml import Gpu, Nvml
from hpkit.want import Want

NAME = "gpu.ecc"
ABSENT = ("Not Supported", "Function Not Found")
"""NVML's words for a board, or a library, that does not have a value at all (nvmlErrorString)."""
RESET_HINT = "let the jobs end, then reset the GPU (nvidia-smi --gpu-reset) or reboot"


class EccOptions(NamedTuple):
    """`corrected_warn`: corrected errors since the baseline from which on a GPU is a warning. Peers warn at 20 million
    (AzNHC, DRAM) and 50 million (gcm); half of the smaller one is early enough to plan."""

    corrected_warn: int = 10_000_000


def judge(seen: Seen, want: Want, past: Past, options: EccOptions) -> Iterable[Finding]:
    """One finding for each GPU, or one for the node when NVML tells nothing."""
    place, pci, nvml = seen(place_probe.probe), seen(pci_probe.probe), seen(nvml_probe.probe)
    why = none_here(pci, nvml, want)
    if why:
        yield _finding("", Status.SKIP, why)
    elif nvml.state != "ok":
        yield _no_nvml(nvml, want, place.view is View.STEP)
    elif not nvml.gpus:
        yield _finding("", Status.SKIP, "NVML shows no GPU here; gpu.count says whether that is right")
    else:
        names = Names(pci, nvml)
        for gpu in nvml.gpus:
            hidden = gpu.code == nvml_probe.NO_PERMISSION and not place.sees_all
            yield _gpu(gpu, names(gpu.pci, gpu.number), hidden, past, options)


def _no_nvml(nvml: Nvml, want: Want, step: bool) -> Finding:
    """NVML tells nothing: an error where it ought to."""
    why = nvml.why.removeprefix("NVML: ")
    if step and nvml.state != "failed":
        return _finding("", Status.SKIP, f"NVML is not to be had in this step: {why}")
    if want.gpus or nvml.driver_here:
        hint = "run nvidia-smi by hand; if it hangs too, the node needs a reboot"
        return _finding("", Status.ERROR, f"ECC counters could not be read: {why}", hint=hint)
    return _finding("", Status.SKIP, "no NVIDIA driver is loaded, and no GPU is wanted")


def _gpu(gpu: Gpu, name: str, hidden: bool, past: Past, options: EccOptions) -> Finding:
    """The worst that one GPU's counters and rows say."""
    if gpu.error:
        if hidden:
            return _finding(name, Status.SKIP, "this GPU is not ours to read")
        return _finding(name, Status.ERROR, f"its ECC counters could not be read: {gpu.error}")
    data = {"pci": gpu.pci, "uuid": gpu.uuid, "counters": _counters(gpu)}
    found = [*_rows(gpu, name, data), *_errors(gpu, name, past, options, data)]
    return min(found, key=lambda f: (f.status.rank, -f.action.weight))


def _rows(gpu: Gpu, name: str, data: dict[str, Any]) -> Iterable[Finding]:
    """Remapped rows: failed, pending, or done long ago are different things."""
    if gpu.remap is None:
        why = gpu.errors.get("remap", "")
        if why and why not in ABSENT:
            yield _finding(name, Status.ERROR, f"its remapped rows could not be read: {why}", data=data)
    elif gpu.remap.failed:
        hint = "the GPU has no spare rows left: replace it"
        yield _finding(name, Status.FAIL, "a memory row could not be remapped", Action.REPLACE, hint, data)
    elif gpu.remap.pending:
        text = "a remapped memory row waits for a reset of the GPU"
        yield _finding(name, Status.FAIL, text, Action.RESET, RESET_HINT, data)


def _errors(gpu: Gpu, name: str, past: Past, options: EccOptions, data: dict[str, Any]) -> Iterable[Finding]:
    """The counters since the baseline."""
    if gpu.ecc.mode != "on":
        yield _off(gpu, name, data)
        return
    new = {kind: _since(gpu, kind, past) for kind in ("volatile_uncorrected", "volatile_corrected")}
    unread = [kind.replace("_", " ") for kind, value in new.items() if value is None]
    uncorrected, corrected = new["volatile_uncorrected"] or 0, new["volatile_corrected"] or 0
    if uncorrected:
        text = f"{uncorrected} uncorrected ECC errors since {past.accepted_why or 'boot'}"
        yield _finding(name, Status.FAIL, text, Action.RESET, RESET_HINT, data)
    if unread:
        why = gpu.errors.get(unread[0].replace(" ", "_"), "no reason given")
        yield _finding(name, Status.ERROR, f"counter {unread[0]} could not be read: {why}", data=data)
    if corrected > options.corrected_warn:
        text = f"{corrected} corrected ECC errors since {past.accepted_why or 'boot'}"
        yield _finding(name, Status.WARN, text, Action.OPERATOR, "plan a memory test of this GPU", data)
    if not unread:
        yield _finding(name, Status.PASS, f"no new uncorrected ECC error{_history(gpu)}", data=data)


def _off(gpu: Gpu, name: str, data: dict[str, Any]) -> Finding:
    """ECC is off, not there, or its mode could not be read."""
    why = gpu.errors.get("ecc_mode", "")
    if gpu.ecc.mode == "off":
        return _finding(name, Status.SKIP, "ECC is switched off", data=data)
    if why and why not in ABSENT:
        return _finding(name, Status.ERROR, f"its ECC mode could not be read: {why}", data=data)
    return _finding(name, Status.SKIP, "this GPU has no ECC", data=data)


def _history(gpu: Gpu) -> str:
    """What is known of former times, as a note."""
    rows = gpu.remap.correctable + gpu.remap.uncorrectable if gpu.remap else 0
    return f"; {rows} rows remapped in the past" if rows else ""


def _key(gpu: Gpu, kind: str) -> str:
    """The counter's name in the past: by the board's own identity, so that a replaced GPU starts from 0."""
    return f"{NAME}/{gpu.uuid or gpu.pci or gpu.number}/{kind}"


def _counters(gpu: Gpu) -> dict[str, int]:
    """The counters that acceptance takes as the new baseline."""
    values = gpu.ecc._asdict()
    return {
        _key(gpu, k): values[k]
        for k in ("volatile_uncorrected", "volatile_corrected")
        if values[k] is not None
    }


def _since(gpu: Gpu, kind: str, past: Past) -> int | None:
    """A counter's growth since the baseline; None when it could not be read."""
    value: int | None = getattr(gpu.ecc, kind)
    if value is None:
        return None
    baseline = past.counters.get(_key(gpu, kind), 0)
    return value - baseline if value >= baseline else value


def _finding(
    subject: str, status: Status, text: str, action: Action = Action.NONE, hint: str = "", data: Any = NO_DATA
) -> Finding:
    return Finding(NAME, subject, status, action, text, hint, data=data)
