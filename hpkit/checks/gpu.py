"""The rows of the GPU checks. The kernel log comes first: it still tells when NVML hangs and eats the budget."""

from __future__ import annotations

from hpkit.checks import gpu_count, gpu_ecc, gpu_xid
from hpkit.checks.model import Check
from hpkit.probes import kmsg, nvml, pci, place

CHECKS = (
    Check(
        gpu_xid.NAME,
        (place.probe, pci.probe, kmsg.for_nvidia),
        gpu_xid.judge,
        "No Xid error of the NVIDIA driver in the kernel log since boot or since the node was accepted anew.",
        options=gpu_xid.XidOptions,
        latch=True,
        expect_s=0.1,
    ),
    Check(
        gpu_count.NAME,
        (place.probe, pci.probe, nvml.probe),
        gpu_count.judge,
        "Every wanted GPU is on the PCI bus, answers there, and is known to NVML.",
        expect_s=1.0,
    ),
    Check(
        gpu_ecc.NAME,
        (place.probe, pci.probe, nvml.probe),
        gpu_ecc.judge,
        "No new uncorrected memory error, no memory row that waits for a reset or could not be remapped.",
        options=gpu_ecc.EccOptions,
        expect_s=1.0,
    ),
)
