"""Writes tests/fixtures/bundles: `python -m tests.support.make_bundles`. Each bundle says in expect.json what is right.

All of it is made up; the formats are those of the kernel, of NVIDIA's driver and of hpkit's own NVML child.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.machine import BUSES, GIB, MEMINFO, ROOT, address, function, gpu, lost, pci_files

FOLDER = Path(__file__).parents[1] / "fixtures" / "bundles"
META = {
    "schema": "hpkit.bundle/1", "node": "n1", "wall": 1_772_366_400.0, "uptime": 50_000.0,
    "boot_id": "0c8f9d2e-5b1a-4f6e-9c57-3f1f6a2b7d10", "uid": 0, "view": "node", "versions": {"hpkit": "0.1.0"},
}  # fmt: skip
FSX = "40 30 0:51 / /fsx rw,noatime shared:9 - lustre 10.0.1.17@tcp:/fsx rw,flock\n"
BOOT = "6,0,0,-;Linux version 6.8.0-1021-aws\n6,301,5000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15\n"
EIGHT = '[want]\ngpus = 8\nmounts = ["/fsx"]\n'
PASS = {
    ("host.disk", "/"): "pass", ("host.disk", "/fsx"): "pass", ("host.mounts", "/fsx"): "pass", ("host.memory", ""): "pass",
    ("gpu.xid", ""): "pass", ("gpu.count", ""): "pass", **{("gpu.ecc", f"gpu{n}"): "pass" for n in range(8)},
}  # fmt: skip
NO_GPU = {("gpu.xid", ""): "skip", ("gpu.count", ""): "skip", ("gpu.ecc", ""): "skip"}
NO_ECC = {("gpu.ecc", f"gpu{n}"): None for n in range(8)}


def room(total: int, used: float, read_only: bool = False) -> dict[str, Any]:
    """Free space: `total` GiB, percent used."""
    avail = int(total * GIB * (100 - used) / 100)
    return {
        "total": total * GIB,
        "avail": avail,
        "inodes": 10**7,
        "inodes_free": 9 * 10**6,
        "read_only": read_only,
    }


def xid(uptime: float, number: int, text: str) -> str:
    """A record of the driver about GPU `number`."""
    return f"3,{int(uptime)},{int(uptime * 1e6)},-,caller=T1946;NVRM: Xid (PCI:0000:{BUSES[number]:02x}:00): {text}\n"


def document(gpus: list[dict[str, Any]]) -> str:
    """What the NVML child prints."""
    found = {"schema": "hpkit.nvml/1", "driver": "570.86.15", "count": len(gpus), "gpus": gpus, "error": ""}
    return json.dumps(found) + "\n"


def write(
    name: str,
    about: str,
    expect: dict[tuple[str, str], str | None],
    *,
    verdict: str,
    action: str = "none",
    says: tuple[str, ...] = (),
    files: dict[str, Any] | None = None,
    answers: dict[str, Any] | None = None,
    tools: dict[str, str] | None = None,
    meta: dict[str, Any] | None = None,
) -> None:
    """One bundle. In `expect` None takes a finding away; `says` are texts that the messages must contain."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    for path, data in (files or {}).items():
        put(folder / "root" / path.lstrip("/"), data)
    for path, data in (tools or {}).items():
        put(folder / "tools" / path, data)
    for path, data in (answers or {}).items():
        put(folder / "answers" / f"{path}.json", json.dumps(data, indent=1) + "\n")
    put(folder / "meta.json", json.dumps({**META, **(meta or {})}, indent=1) + "\n")
    rows = [[check, subject, status] for (check, subject), status in expect.items() if status]
    told = {"about": about, "verdict": verdict, "action": action, "findings": rows, "says": says}
    put(folder / "expect.json", json.dumps(told, indent=1) + "\n")


def put(path: Path, data: str | bytes) -> None:
    """Write one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def node(
    name: str,
    about: str,
    changes: dict[tuple[str, str], str | None] | None = None,
    *,
    log: str = "",
    gpus: list[dict[str, Any]] | None = None,
    nvml: str | None = None,
    files: dict[str, Any] | None = None,
    space: dict[str, Any] | None = None,
    **more: Any,
) -> None:
    """A node with eight H100, Lustre on /fsx, and something that differs from a healthy one."""
    expect = {**PASS, **(changes or {})}
    healthy = {
        "/proc/self/mountinfo": ROOT + FSX, "/proc/meminfo": MEMINFO, "/dev/kmsg": BOOT + log,
        "/etc/hpkit/hpkit.toml": EIGHT, **pci_files(8),
    }  # fmt: skip
    links = {
        f"/sys/bus/pci/devices/{address(n)}/driver": "../../../../bus/pci/drivers/nvidia" for n in range(8)
    }
    answers = {"space": {"/": room(500, 40), "/fsx": room(14400, 60), **(space or {})}, "links": links}
    answers.update(more.pop("answers", {}))
    listed = document(gpus if gpus is not None else [gpu(n) for n in range(8)]) if nvml is None else nvml
    tools = {"nvml/stdout": listed, "nvml/rc": "0\n", **more.pop("tools", {})}
    write(name, about, expect, files={**healthy, **(files or {})}, answers=answers, tools=tools, **more)


def bare() -> None:
    """Machines that nobody has set up for hpkit."""
    snaps = "".join(
        f"{n} 30 7:{n} / /snap/x/{n} ro,nodev - squashfs /dev/loop{n} ro\n" for n in range(50, 53)
    )
    tables = ROOT + snaps + "60 30 0:40 / /tmp rw,nosuid - tmpfs tmpfs rw,size=16G\n"
    own = {("host.disk", "/"): "pass", ("host.mounts", ""): "skip", ("host.memory", ""): "pass", **NO_GPU}
    write(
        "laptop-nouveau", "A laptop whose NVIDIA GPU runs on nouveau; a user looks at it, and may not read the kernel log.",
        {**own, ("host.disk", "/tmp"): "pass"}, verdict="healthy", says=("no NVIDIA driver is loaded",),
        files={"/proc/self/mountinfo": tables, "/proc/meminfo": MEMINFO,
               **function("0000:01:00.0", "0x10de", "0x030200", b"\xde\x10\x5f\x1f"),
               **function("0000:00:02.0", "0x8086", "0x030000", b"\x86\x80\x00\x00")},
        answers={"space": {"/": room(900, 60), "/tmp": room(16, 1)}, "unread": {"/dev/kmsg": {"errno": 1}},
                 "links": {"/sys/bus/pci/devices/0000:01:00.0/driver": "../../../bus/pci/drivers/nouveau"}},
        tools={"nvml/stdout": json.dumps({"schema": "hpkit.nvml/1", "error": "NVML Shared Library Not Found", "code": 12})},
        meta={"uid": 1000},
    )  # fmt: skip
    write(
        "container", "Root in a container: overlay, no /dev/kmsg, no PCI bus.", {**own, ("host.disk", "/"): "skip"}, verdict="healthy",
        files={"/proc/self/mountinfo": "1 0 0:90 / / ro,relatime - overlay overlay ro,lowerdir=/l\n", "/proc/meminfo": MEMINFO},
        answers={"space": {"/": room(50, 30, True)}},
    )  # fmt: skip
    write(
        "vm", "A small virtual machine without a GPU.", own, verdict="healthy",
        files={"/proc/self/mountinfo": ROOT, "/proc/meminfo": "MemTotal: 2097152 kB\nMemFree: 90000 kB\nMemAvailable: 700000 kB\n",
               "/proc/bus/pci/devices": "0008\t1af41000\tb\t0\n0010\t1af41001\tb\t0\n", "/dev/kmsg": "6,0,0,-;Linux\n"},
        answers={"space": {"/": room(20, 55)}},
    )  # fmt: skip


def broken() -> None:
    """GPU nodes that are broken, or look as if they were."""
    node("h100-healthy", "Nothing is wrong.", verdict="healthy", says=("8 GPUs in NVML, 8 on the PCI bus",))
    node(
        "h100-gpu-lost", "GPU 3 gives no handle any more; the bus still answers and the driver logged nothing.",
        {("gpu.count", ""): "fail", ("gpu.ecc", "gpu3"): "error"},
        gpus=[lost(n) if n == 3 else gpu(n) for n in range(8)], verdict="unhealthy", action="reboot",
        says=("NVML shows 7 of 8 GPUs: 0000:4b:00.0 (GPU is lost)",),
    )  # fmt: skip
    node(
        "h100-xid79", "GPU 5 fell off the bus: Xid 79, its configuration space reads ff, NVML lists seven.",
        {("gpu.count", ""): "fail", ("gpu.xid", ""): None, ("gpu.xid", "gpu5"): "fail", ("gpu.ecc", "gpu5"): None},
        gpus=[gpu(n, index=i) for i, n in enumerate((0, 1, 2, 3, 4, 6, 7))], files=pci_files(8, dead=(5,)),
        log=xid(49_000, 5, "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        verdict="unhealthy", action="reboot", says=("Xid 79: GPU has fallen off the bus", "0000:6d:00.0 no longer answers"),
    )  # fmt: skip
    node(
        "h100-ecc", "A double-bit error on GPU 1, and GPU 6 tells N/A for everything while a row waits for a reset.",
        {("gpu.ecc", "gpu1"): "fail", ("gpu.ecc", "gpu6"): "fail", ("gpu.xid", ""): None, ("gpu.xid", "gpu1"): "fail"},
        gpus=[gpu(n) for n in range(1)] + [gpu(1, volatile_uncorrected=2, aggregate_uncorrected=2)] + [gpu(n) for n in range(2, 6)]
        + [gpu(6, mode="n/a", volatile_uncorrected=None, volatile_corrected=None, pending=True,
               errors={"ecc_mode": "Unknown Error", "volatile_uncorrected": "Unknown Error"}), gpu(7)],
        log=xid(40_000, 1, "48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)")
        + xid(40_000.1, 1, "63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping")
        + xid(40_000.2, 1, "94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No, D-RST: No"),
        verdict="unhealthy", action="reset", says=("2 uncorrected ECC errors since boot", "waits for a reset", "also Xid 63, 94"),
    )  # fmt: skip
    node(
        "h100-recovered", "An Xid 79 and two ECC errors from before the last good deep check.",
        {("gpu.ecc", "gpu1"): "pass"}, gpus=[gpu(n, volatile_uncorrected=2 if n == 1 else 0) for n in range(8)],
        log=xid(20_000, 1, "79, GPU has fallen off the bus."), verdict="healthy", says=("no Xid since deep",),
        files={"/var/lib/hpkit/past.json": json.dumps({
            "schema": "hpkit.past/1", "boot_id": META["boot_id"], "accepted_at": 1_772_346_400.0, "accepted_uptime": 30_000.0,
            "accepted_why": "deep", "counters": {"gpu.ecc/GPU-0001/volatile_uncorrected": 2}, "latched": [], "blind": {}})},
    )  # fmt: skip
    node(
        "h100-user-xids", "A program crashed: Xid 31 and 43 just now, Xid 13 hours ago. The node is good.",
        {("gpu.xid", ""): None, ("gpu.xid", "gpu2"): "warn", ("gpu.xid", "gpu4"): "pass"},
        log=xid(10_000, 4, "13, pid='<unknown>', name=<unknown>, Graphics Exception")
        + xid(49_900, 2, "31, pid=4111, name=a, b:c, Ch 00000008, MMU Fault") + xid(49_901, 2, "43, pid=4111, name=a"),
        verdict="degraded", says=("Xid 31: GPU memory page fault", "only noted: Xid 13"),
    )  # fmt: skip
    node(
        "h100-nvml-hang", "NVML hangs, and the kernel log knows why.",
        {**NO_ECC, ("gpu.ecc", ""): "error", ("gpu.count", ""): "error", ("gpu.xid", ""): None, ("gpu.xid", "gpu4"): "fail"},
        log=xid(49_000, 4, "119, pid=20, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP!"),
        tools={"nvml/hang": "3600\n"}, verdict="unhealthy", action="reset", says=("did not answer", "Xid 119"),
    )  # fmt: skip
    node(
        "h100-nvml-garbage", "The NVML child's answer is cut off.",
        {**NO_ECC, ("gpu.ecc", ""): "error", ("gpu.count", ""): "error"},
        nvml=document([gpu(n, volatile_uncorrected=n // 7) for n in range(8)])[:-90], verdict="unknown", says=("not understood",),
    )  # fmt: skip


def elsewhere() -> None:
    """Mounts, disks, and what a job step sees."""
    node(
        "dead-mount", "The Lustre server is gone: the mount is listed and does not answer.",
        {("host.mounts", "/fsx"): "fail", ("host.disk", "/fsx"): None}, space={"/fsx": {"errno": 110, "why": "no answer in 2 s"}},
        verdict="unhealthy", action="retest", says=("/fsx (lustre) does not answer: no answer in 2 s",),
    )  # fmt: skip
    node(
        "read-only-root", "The kernel turned / read-only after an I/O error, and it is nearly full besides.",
        {("host.disk", "/"): "fail"}, files={"/proc/self/mountinfo": ROOT.replace("nvme0n1p1 rw", "nvme0n1p1 ro") + FSX},
        space={"/": room(500, 97, True)}, verdict="unhealthy", action="operator", says=("has become read-only",),
    )  # fmt: skip
    step = {"view": "step", "uid": 1000}
    closed = {"unread": {"/dev/kmsg": {"errno": 1}}}
    node(
        "step-without-gres", "A step without GPUs on a good node; the environment still has the batch script's variables.",
        {**NO_ECC, ("gpu.ecc", ""): "skip", ("gpu.xid", ""): "skip"}, gpus=[], verdict="healthy", answers=closed,
        meta={**step, "env": {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1,2,3,4,5,6,7", "CUDA_VISIBLE_DEVICES": "0,1"}},
        says=("this step sees none of them in NVML", "only root may read the kernel log"),
    )  # fmt: skip
    node(
        "step-with-two", "A step with two of the node's GPUs.",
        {**NO_ECC, ("gpu.ecc", "gpu2"): "pass", ("gpu.ecc", "gpu3"): "pass", ("gpu.xid", ""): "skip"},
        gpus=[gpu(2, index=0), gpu(3, index=1)], verdict="healthy", answers=closed,
        meta={**step, "env": {"SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "2,3"}}, says=("2 of them in this step",),
    )  # fmt: skip
    node(
        "step-lost-gpu", "A step whose second GPU is lost.",
        {**NO_ECC, ("gpu.ecc", "gpu2"): "pass", ("gpu.ecc", "nvml1"): "error", ("gpu.xid", ""): "skip", ("gpu.count", ""): "fail"},
        gpus=[gpu(2, index=0), lost(1)], verdict="unhealthy", action="reboot", answers=closed,
        meta={**step, "env": {"SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "2,3"}}, says=("index 1: GPU is lost",),
    )  # fmt: skip


def main() -> None:
    """Write them all anew."""
    bare()
    broken()
    elsewhere()


if __name__ == "__main__":
    main()
