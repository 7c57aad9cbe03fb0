"""Garbage and cut-off sources: never a traceback, never a pass where the fault was cut off."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpkit.config import SlurmConfig, WantConfig
from hpkit.model import Finding
from hpkit.probes import kmsg
from hpkit.proc import Ran
from hpkit.want import Want, resolve
from tests.support.machine import MEMINFO, ROOT, Machine, gpu, lost, no_nvml, nvml, whole
from tests.support.rounds import findings

FIXED = settings(
    derandomize=True, deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow]
)
EIGHT = Want(gpus=8, gpus_source="config", mounts=("/fsx",))
FAULTY = nvml([gpu(n, volatile_uncorrected=3 if n == 7 else 0) for n in range(8)]).stdout
LOST = nvml([gpu(n) for n in range(7)] + [lost(7)]).stdout
LOG = (
    "6,0,0,-;Linux version 6.8\n"
    "3,1,49000000000,-;NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    " SUBSYSTEM=pci\n"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def sound(found: tuple[Finding, ...]) -> None:
    """No finding speaks of a fault of hpkit's own."""
    assert found
    assert [f.message for f in found if "own fault" in f.message] == []


def answer(stdout: bytes) -> Machine:
    return whole(tools={"nvml": Ran(("nvml",), 0, stdout, b"", 0.1)})


def test_cut_nvml_answer_never_passes() -> None:
    for whole_answer in (FAULTY, LOST):
        for length in range(0, len(whole_answer), 7):
            found = findings(answer(whole_answer[:length]), "gpu.count", "gpu.ecc", want=EIGHT)
            sound(found)
            assert {f.status.value for f in found} == {"error"}, length


@FIXED
@given(st.integers(0, len(FAULTY) - 1), st.binary(min_size=1, max_size=4))
def test_overwritten_nvml_answer(at: int, bytes_: bytes) -> None:
    sound(findings(answer(FAULTY[:at] + bytes_ + FAULTY[at + len(bytes_) :]), "gpu.*", want=EIGHT))


@FIXED
@given(
    st.sampled_from(["index", "pci", "uuid", "mig", "ecc", "remap", "errors", "name", "error", "code"]), JSON
)
def test_nvml_field_of_any_kind(field: str, value: Any) -> None:
    broken = gpu(0, volatile_uncorrected=2)
    broken[field] = value
    found = findings(
        answer(json.dumps({**json.loads(FAULTY), "gpus": [broken], "count": 1}).encode()),
        "gpu.*",
        want=Want(),
    )
    sound(found)


@FIXED
@given(st.sampled_from(["mode", "volatile_uncorrected", "volatile_corrected"]), JSON)
def test_counter_of_any_kind_is_never_zero(field: str, value: Any) -> None:
    broken = gpu(0)
    broken["ecc"][field] = value
    (found,) = findings(whole(tools={"nvml": nvml([broken])}), "gpu.ecc")
    sound((found,))
    good = value in ("on",) if field == "mode" else type(value) is int and 0 <= value <= 10_000_000
    off = field == "mode" and value in ("off", "n/a")
    assert (found.status.value == "pass") == (good and (field != "volatile_uncorrected" or value == 0))
    assert (found.status.value == "skip") == off


@FIXED
@given(JSON)
def test_nvml_document_of_any_kind(document: Any) -> None:
    found = findings(answer(json.dumps(document).encode()), "gpu.count", "gpu.ecc", want=EIGHT)
    sound(found)
    assert "pass" not in {f.status.value for f in found}


@FIXED
@given(st.binary(max_size=200), st.integers(-300, 300))
def test_nvml_garbage(stdout: bytes, rc: int) -> None:
    ran = Ran(("nvml",), rc, stdout, stdout, 0.1)
    found = findings(whole(tools={"nvml": ran}), "gpu.count", "gpu.ecc", want=EIGHT)
    sound(found)
    assert {f.status.value for f in found} == {"error"}


@FIXED
@given(st.integers(0, 10**40), st.integers(0, 10**5000))
def test_numbers_of_any_size(number: int, code: int) -> None:
    log = f"3,1,{number},-;NVRM: Xid (PCI:0000:3a:00): {str(code % 10**4000)[:3000]}, x\n"
    sound(
        findings(
            whole(files={"/dev/kmsg": log, "/proc/meminfo": f"MemTotal: {number} kB\nMemFree: 1 kB\n"}), "*"
        )
    )


def test_cut_kernel_log_never_passes() -> None:
    raw = LOG.encode()
    begin = raw.index(b"3,1,")
    for length in range(begin + 1, raw.index(b"\n", begin) + 1):
        found = findings(whole(files={"/dev/kmsg": raw[:length]}), "gpu.xid", want=EIGHT)
        sound(found)
        assert "pass" not in {f.status.value for f in found}, raw[:length]


@FIXED
@given(st.integers(0, len(LOG) - 1), st.binary(min_size=1, max_size=6))
def test_overwritten_kernel_log(at: int, bytes_: bytes) -> None:
    raw = LOG.encode()
    sound(
        findings(
            whole(files={"/dev/kmsg": raw[:at] + bytes_ + raw[at + len(bytes_) :]}), "gpu.xid", want=EIGHT
        )
    )


PIECES = st.sampled_from([
    "NVRM: Xid (PCI:0000:3a:00): 79", f"3,1,{'9' * 30},-;NVRM: Xid (PCI:0000:3a:00): 79, x\n", "9" * 5000,
    "NVRM:", "NVRM", "3,1,", "9" * 30, ",-;", "[", "]", "[  12.5]", "\n", " ", ";", ":", "\x00",
    "[Sun Feb 30 16:24:18 2025]", "2026-02-30T10:00:00+9999 n kernel: ", "May 19 07:08:57 n kernel: ", "(0000:18:00): 154,",
    "changed from 0x0 (None) to 0xffffffffffffffff", "\u0661\u0662", "GPU has fallen off the bus",
])  # fmt: skip


@FIXED
@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_kernel_log_of_any_kind(text: str) -> None:
    sound(findings(whole(files={"/dev/kmsg": text.encode("utf-8", "replace")}), "gpu.xid", want=EIGHT))
    kmsg.parse(text, 0.0)


def files_of(text: str) -> Machine:
    names = (
        "/proc/self/mountinfo",
        "/proc/mounts",
        "/proc/meminfo",
        "/etc/slurm/gres.conf",
        "/proc/bus/pci/devices",
    )
    return Machine(
        dict.fromkeys(names, text.encode("utf-8", "surrogateescape")), tools={"nvml": no_nvml("x", 12)}
    )


@FIXED
@given(
    st.sampled_from([ROOT, MEMINFO, "Name=gpu File=/dev/nvidia[0-3]\n"]),
    st.integers(0, 120),
    st.text(max_size=6),
)
def test_text_files_of_any_kind(start: str, at: int, more: str) -> None:
    host = files_of(start[:at] + more + start[at + 2 :])
    sound(findings(host, "*", want=resolve(WantConfig(mounts=("/fsx",)), SlurmConfig(), host)))


@FIXED
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    host = files_of(text.encode("utf-8", "replace").decode())
    sound(findings(host, "*", want=resolve(WantConfig(mounts=(text,)), SlurmConfig(), host)))
