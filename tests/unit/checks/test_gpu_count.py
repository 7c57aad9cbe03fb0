"""gpu.count: which source is short, and what cannot be told."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit.model import View
from hpkit.proc import Ran
from hpkit.want import Want
from tests.support.machine import Machine, address, function, gpu, lost, no_nvml, nvml, pci_files, whole
from tests.support.rounds import findings

EIGHT = Want(gpus=8, gpus_source="config")
STEP: dict[str, Any] = {"view": View.STEP, "uid": 1000}


def gpus(*numbers: int) -> list[dict[str, Any]]:
    """These GPUs, numbered anew as NVML does."""
    return [gpu(n, index=i) for i, n in enumerate(numbers)]


def hang(failure: str) -> Ran:
    return Ran(("nvml",), -9, b"", b"", 15.0, failure)


def without(number: int) -> dict[str, Any]:
    """A node that was booted without this GPU: not on the bus, not in NVML."""
    files = {p: d for p, d in pci_files(8).items() if address(number) not in p}
    machine = whole(tools={"nvml": nvml(gpus(*(n for n in range(8) if n != number)))})
    machine.files = {p: d for p, d in machine.files.items() if "/sys/bus/pci" not in p} | files
    return {"host": machine}


NODE = [
    ("healthy", whole(), EIGHT, "pass", "none", "8 GPUs in NVML, 8 on the PCI bus"),
    ("nothing expected", whole(), Want(), "pass", "none", "no number is configured"),
    ("nvml short", whole(tools={"nvml": nvml(gpus(*range(7)))}), EIGHT, "fail", "reboot", "NVML shows 7 of 8 GPUs: 0000:8f:00.0"),
    ("lost", whole(tools={"nvml": nvml([*gpus(0, 1), lost(2), *(gpu(n) for n in range(3, 8))])}), EIGHT,
     "fail", "reboot", "NVML shows 7 of 8 GPUs: 0000:3a:00.0 (GPU is lost)"),
    ("lost, nothing expected", whole(tools={"nvml": nvml([*gpus(0, 1), lost(2), *(gpu(n) for n in range(3, 8))])}), Want(),
     "fail", "reboot", "0000:3a:00.0 (GPU is lost)"),
    ("unknown error", whole(tools={"nvml": nvml([*gpus(*range(7)), lost(7, "Unknown Error", 999)])}), EIGHT,
     "fail", "reboot", "0000:8f:00.0 (Unknown Error)"),
    ("needs a reset", whole(tools={"nvml": nvml([*gpus(*range(7)), lost(7, "GPU requires restart", 16)])}), EIGHT,
     "fail", "reset", "0000:8f:00.0 (GPU requires restart)"),
    ("needs a reset, another lost", whole(tools={"nvml": nvml([*gpus(*range(6)), lost(6), lost(7, "GPU requires restart", 16)])}),
     EIGHT, "fail", "reboot", "NVML shows 6 of 8"),
    ("no permission for root", whole(tools={"nvml": nvml([*gpus(*range(7)), lost(7, "Insufficient Permissions", 4)])}), EIGHT,
     "error", "none", "Insufficient Permissions"),
    ("dead on the bus", whole(files=pci_files(8, dead=(3,)), tools={"nvml": nvml(gpus(0, 1, 2, 4, 5, 6, 7))}), EIGHT,
     "fail", "reboot", "PCI shows 7 of 8 GPUs: 0000:4b:00.0 no longer answers"),
    ("dead on the bus, nothing expected", whole(files=pci_files(8, dead=(3,)), tools={"nvml": nvml(gpus(0, 1, 2, 4, 5, 6, 7))}),
     Want(), "fail", "reboot", "0000:4b:00.0 no longer answers"),
    ("missing from the bus too", without(4)["host"], EIGHT, "fail", "reboot", "PCI shows 7 of 8 GPUs"),
    ("missing from the bus, nothing expected", without(4)["host"], Want(), "pass", "none", "7 GPUs in NVML"),
    ("hang", whole(tools={"nvml": hang("timeout")}), EIGHT, "error", "none", "NVML: it did not answer within 15 s"),
    ("stuck", whole(tools={"nvml": hang("stuck")}), EIGHT, "error", "none", "hangs in the kernel"),
    ("hang, nothing expected", whole(tools={"nvml": hang("timeout")}), Want(), "error", "none", "did not answer"),
    ("hang and dead on the bus", whole(files=pci_files(8, dead=(0,)), tools={"nvml": hang("timeout")}), EIGHT,
     "fail", "reboot", "0000:18:00.0 no longer answers (reads as ff); NVML: it did not answer"),
    ("garbage", whole(tools={"nvml": Ran(("nvml",), 0, b"<html>", b"", 0.1)}), EIGHT, "error", "none", "not understood"),
    ("crash", whole(tools={"nvml": Ran(("nvml",), 1, b"", b"Traceback\nValueError: x\n", 0.1)}), EIGHT,
     "error", "none", "it ended with 1: ValueError: x"),
    ("child missing", whole(tools={"nvml": Ran(("nvml",), -1000, b"", b"", 0.0, "missing")}), EIGHT, "error", "none", "could not be run"),
    ("fewer told than counted", whole(tools={"nvml": nvml(gpus(*range(7)), count=8)}), EIGHT, "error", "none", "not understood"),
    ("no library", whole(tools={"nvml": no_nvml("NVML Shared Library Not Found", 12)}), EIGHT, "error", "none", "Library Not Found"),
    ("no library, driver loaded", whole(tools={"nvml": no_nvml("NVML Shared Library Not Found", 12)}), Want(),
     "error", "none", "Library Not Found"),
    ("driver not loaded", whole(tools={"nvml": no_nvml("Driver Not Loaded", 9)}), EIGHT, "fail", "retest", "driver is not loaded"),
    ("upgraded without reboot", whole(tools={"nvml": no_nvml("RM has detected an NVML/RM version mismatch.", 18)}), EIGHT,
     "fail", "reboot", "different releases"),
    ("more than wanted", whole(), Want(gpus=4, gpus_source="config"), "warn", "operator", "8 GPUs found, but 4 wanted"),
    ("more than gres.conf offers", whole(), Want(gpus=4, gpus_source="gres.conf"), "pass", "none", "8 GPUs in NVML"),
    ("wanted, and none is there", Machine(tools={"nvml": no_nvml("NVML Shared Library Not Found", 12)},
     files=function("0000:00:05.0", "0x1d0f", "0x020000", b"")), EIGHT, "fail", "reboot", "PCI shows 0 of 8 GPUs"),
    ("no bus to read, root", Machine(tools={"nvml": no_nvml("Driver Not Loaded", 9)}), Want(gpus=1), "fail", "retest",
     "the PCI bus cannot be read"),
    ("nothing here", Machine(), Want(), "skip", "none", "no NVIDIA GPU found, and none is wanted"),
    ("none wanted", Machine(), Want(gpus=0, gpus_source="config"), "skip", "none", "no GPU is wanted here"),
    ("nothing on a PCI bus", Machine(function("0000:00:05.0", "0x1d0f", "0x020000", b"")), Want(), "skip", "none", "no NVIDIA GPU"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("host", "want", "status", "action", "text"), [n[1:] for n in NODE], ids=[n[0] for n in NODE]
)
def test_on_the_host(host: Machine, want: Want, status: str, action: str, text: str) -> None:
    (found,) = findings(host, "gpu.count", want=want)
    assert (found.status.value, found.action.value) == (status, action), found.message
    assert text in found.message
    assert (found.subject, bool(found.hint)) == ("", status in ("warn", "error", "fail"))


def laptop(driver: str) -> Machine:
    """One GPU, no NVIDIA driver in the kernel."""
    at = address(0)
    links = {f"/sys/bus/pci/devices/{at}/driver": f"../../../bus/pci/drivers/{driver}"} if driver else {}
    tools = {"nvml": no_nvml("NVML Shared Library Not Found", 12)}
    return Machine(
        function(at, "0x10de", "0x030000", b"\xde\x10\x30\x23"), links=links, tools=tools, uid=1000
    )


@pytest.mark.parametrize("driver", ["nouveau", "", "vfio-pci"])
def test_laptop_without_nvidia_driver_is_not_broken(driver: str) -> None:
    (found,) = findings(laptop(driver), "gpu.count")
    assert found.status.value == "skip"
    assert "no NVIDIA driver is loaded" in found.message


def test_switched_off_laptop_gpu_is_not_broken() -> None:
    host = laptop("")
    host.files[f"/sys/bus/pci/devices/{address(0)}/config"] = b"\xff" * 64
    assert findings(host, "gpu.count")[0].status.value == "skip"


def test_gpu_lent_to_a_virtual_machine_needs_the_operator() -> None:
    host = whole(tools={"nvml": nvml(gpus(*range(7)))})
    host.links[f"/sys/bus/pci/devices/{address(7)}/driver"] = "../../../../bus/pci/drivers/vfio-pci"
    (found,) = findings(host, "gpu.count", want=EIGHT)
    assert (found.status.value, found.action.value) == ("fail", "operator")
    assert "0000:8f:00.0 (held by the driver vfio-pci)" in found.message
    assert findings(host, "gpu.count")[0].status.value == "pass"


def test_gpu_without_a_driver_is_only_worth_a_look_where_none_is_wanted() -> None:
    (found,) = findings(whole(tools={"nvml": nvml(gpus(*range(7)))}), "gpu.count")
    assert (found.status.value, found.action.value) == ("warn", "operator")
    assert "0000:8f:00.0 (no driver holds it)" in found.message


def test_mig_parts_bridges_and_audio_are_not_counted() -> None:
    host = whole(
        files=function("0000:1a:00.1", "0x10de", "0x040300", b""),
        tools={"nvml": nvml([gpu(n, mig="on") for n in range(8)])},
    )
    (found,) = findings(host, "gpu.count", want=EIGHT)
    assert found.data == {"pci": 8, "nvml": 8, "want": 8}


STEPS = [
    ("all of the node", gpus(*range(8)), {"SLURM_STEP_GPUS": "0,1,2,3,4,5,6,7"}, "pass", "8 of them in this step"),
    ("two of eight", gpus(2, 3), {"SLURM_STEP_GPUS": "2,3"}, "pass", "8 GPUs on the PCI bus, 2 of them in this step"),
    ("devices not constrained", gpus(*range(8)), {"SLURM_STEP_GPUS": "2"}, "pass", "8 of them"),
    ("no GRES", [], {}, "pass", "sees none of them in NVML"),
    ("no GRES, inherited job variable", [], {"SLURM_JOB_GPUS": "0-7", "CUDA_VISIBLE_DEVICES": "0,1"}, "pass", "sees none"),
    ("no GRES, inherited step variable", [], {"SLURM_STEP_GPUS": "0-7"}, "pass", "sees none"),
    ("hidden ones have no permission", [gpu(0), lost(1, "Insufficient Permissions", 4)], {"SLURM_STEP_GPUS": "0"}, "pass", "1 of them"),
    ("hidden ones have an unknown error", [gpu(0), lost(1, "Unknown Error", 999)], {"SLURM_STEP_GPUS": "0"}, "pass", "1 of them"),
    ("smaller step in a job", gpus(0), {"SLURM_JOB_GPUS": "0-7"}, "error", "1 of the 8 GPUs of this step (SLURM_JOB_GPUS)"),
    ("MIG parts", gpus(0), {"CUDA_VISIBLE_DEVICES": "MIG-GPU-1/2/3,MIG-GPU-1/2/4"}, "pass", "1 of them"),
    ("short", gpus(0, 1, 2), {"SLURM_STEP_GPUS": "0-3"}, "fail", "NVML shows 3 of the 4 GPUs of this step"),
    ("lost", [gpu(0), lost(1)], {"SLURM_STEP_GPUS": "0,1"}, "fail", "index 1: GPU is lost"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("listed", "env", "status", "text"), [s[1:] for s in STEPS], ids=[s[0] for s in STEPS]
)
def test_in_a_step(listed: list[dict[str, Any]], env: dict[str, str], status: str, text: str) -> None:
    (found,) = findings(whole(tools={"nvml": nvml(listed)}, env=env, **STEP), "gpu.count", want=EIGHT)
    assert found.status.value == status, found.message
    assert text in found.message


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (no_nvml("NVML Shared Library Not Found", 12), "pass"),
        (no_nvml("Driver Not Loaded", 9), "pass"),
        (hang("timeout"), "error"),
    ],
)
def test_step_without_a_usable_nvml(answer: Ran, status: str) -> None:
    (found,) = findings(whole(tools={"nvml": answer}, **STEP), "gpu.count", want=EIGHT)
    assert found.status.value == status, found.message


def test_step_without_gres_and_expectation_is_skipped() -> None:
    (found,) = findings(whole(tools={"nvml": nvml([])}, **STEP), "gpu.count")
    assert found.status.value == "skip"


def test_step_sees_a_dead_function_on_the_bus() -> None:
    host = whole(files=pci_files(8, dead=(6,)), tools={"nvml": nvml([])}, **STEP)
    (found,) = findings(host, "gpu.count", want=EIGHT)
    assert (found.status.value, found.action.value) == ("fail", "reboot")


def test_user_on_the_host_does_not_blame_what_is_closed_to_him() -> None:
    host = whole(tools={"nvml": nvml([*gpus(*range(7)), lost(7, "Insufficient Permissions", 4)])}, uid=1000)
    assert findings(host, "gpu.count", want=EIGHT)[0].status.value == "pass"


def test_unreadable_bus_in_a_step_is_nobodys_fault() -> None:
    (found,) = findings(Machine(tools={"nvml": nvml([])}, **STEP), "gpu.count", want=EIGHT)
    assert found.status.value == "skip"
