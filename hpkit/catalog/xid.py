"""Xid codes of NVIDIA's kernel driver: what each means and what would cure it.

Sources: NVIDIA's Xid catalogue for r580 (2025-10), column "immediate action", as mirrored by leptonai/gpud at
4a8de33 (components/accelerator/nvidia/xid/catalog_generated.go); for codes 162 and up, which that sheet leaves blank,
gpud's own suggestion at the same commit. How the catalogue's words are read here:

RESET_GPU → fail, reset · RESTART_BM, RESTART_VM → fail, reboot · CHECK_MECHANICALS → fail, operator ·
RESTART_APP → warn: a program's own fault or a contained one, never a reason to take a node out ·
CONTACT_SUPPORT, UPDATE_SWFW and blank → warn, operator · IGNORE → pass: noted only.
"""

from __future__ import annotations

from typing import NamedTuple

from hpkit.model import Action, Status


class Xid(NamedTuple):
    """What a code means. PASS means that it is noted and nothing more."""

    name: str
    status: Status
    action: Action = Action.NONE


_FAIL, _WARN, _NOTE = Status.FAIL, Status.WARN, Status.PASS
_RESET, _REBOOT, _OPERATOR = Action.RESET, Action.REBOOT, Action.OPERATOR

RECOVERY = 154
"""GPU_RECOVERY_ACTION_CHANGED: judged by the hexadecimal code in its text, whose words differ between drivers."""
NVLINK5 = frozenset(range(144, 151))
"""NVLink 5 events: their own text says `Fatal` or `Nonfatal`."""
FELL_OFF = 79

RECOVERIES = {
    0: Xid("no recovery is needed any more", _NOTE),
    1: Xid("the driver asks for a GPU reset", _FAIL, _RESET),
    2: Xid("the driver asks for a reboot", _FAIL, _REBOOT),
    3: Xid("the driver asks to drain peer-to-peer traffic", _WARN, _OPERATOR),
    4: Xid("the driver asks to drain and to reset the GPU", _FAIL, _RESET),
}
"""nvmlDeviceGpuRecoveryAction_t of nvml.h (NONE, GPU_RESET, NODE_REBOOT, DRAIN_P2P, DRAIN_AND_RESET)."""

CODES = {
    8: Xid("GPU stopped processing", _WARN),
    11: Xid("invalid push buffer stream", _WARN),
    13: Xid("graphics engine exception", _WARN),
    25: Xid("illegal push buffer stream", _WARN),
    31: Xid("GPU memory page fault", _WARN),
    32: Xid("corrupted push buffer stream", _WARN),
    37: Xid("driver firmware error", _NOTE),
    38: Xid("driver firmware watchdog", _NOTE),
    43: Xid("a program's channel was reset", _NOTE),
    44: Xid("fault during context switch", _NOTE),
    45: Xid("preemptive cleanup after an earlier error", _WARN),
    46: Xid("GPU stopped processing, timeout", _FAIL, _RESET),
    48: Xid("uncorrectable double-bit ECC error", _FAIL, _RESET),
    54: Xid("auxiliary power is not connected", _FAIL, _OPERATOR),
    56: Xid("display channel exception", _WARN, _OPERATOR),
    57: Xid("frame buffer link training failed", _WARN, _OPERATOR),
    58: Xid("frame buffer memory error", _WARN, _OPERATOR),
    60: Xid("video processor exception", _WARN),
    61: Xid("micro-controller breakpoint", _WARN, _OPERATOR),
    62: Xid("internal micro-controller halt", _FAIL, _RESET),
    63: Xid("memory row marked for remapping", _NOTE),
    64: Xid("memory row could not be remapped", _FAIL, _RESET),
    65: Xid("video encoder exception", _WARN, _OPERATOR),
    66: Xid("illegal access by driver", _NOTE),
    67: Xid("illegal access by driver", _NOTE),
    68: Xid("video decoder exception", _WARN),
    69: Xid("graphics engine class error", _WARN),
    73: Xid("video encoder exception", _WARN, _OPERATOR),
    74: Xid("NVLink error", _FAIL, _RESET),
    78: Xid("vGPU start error", _WARN, _OPERATOR),
    79: Xid("GPU has fallen off the bus", _FAIL, _REBOOT),
    80: Xid("corrupted data sent to GPU", _WARN),
    81: Xid("VGA subsystem error", _WARN, _OPERATOR),
    92: Xid("high single-bit ECC error rate", _NOTE),
    93: Xid("infoROM wear limit exceeded", _NOTE),
    94: Xid("contained memory error", _WARN),
    95: Xid("uncontained memory error", _FAIL, _RESET),
    106: Xid("SMBPBI test message", _NOTE),
    107: Xid("SMBPBI test message", _NOTE),
    108: Xid("NVLink remote translation error", _NOTE),
    109: Xid("context switch timeout", _FAIL, _RESET),
    110: Xid("security fault", _FAIL, _RESET),
    119: Xid("GSP firmware does not answer", _FAIL, _RESET),
    120: Xid("GSP firmware error", _FAIL, _RESET),
    121: Xid("C2C link error", _NOTE),
    122: Xid("SPI read failed", _WARN, _OPERATOR),
    123: Xid("SPI write failed", _WARN, _OPERATOR),
    125: Xid("infoROM file system error", _WARN, _OPERATOR),
    136: Xid("NVLink training failed", _FAIL, _RESET),
    137: Xid("NVLink privilege error", _NOTE),
    139: Xid("optical flow engine error", _WARN),
    140: Xid("unrecovered ECC error", _FAIL, _RESET),
    141: Xid("CUDA fast path error", _NOTE),
    142: Xid("video encoder exception", _WARN, _OPERATOR),
    143: Xid("GPU initialisation error", _FAIL, _RESET),
    144: Xid("NVLink SAW error", _WARN, _OPERATOR),
    145: Xid("NVLink RLW error", _WARN, _OPERATOR),
    146: Xid("NVLink TLW error", _WARN, _OPERATOR),
    147: Xid("NVLink TREX error", _WARN, _OPERATOR),
    148: Xid("NVLink NVLPW error", _WARN, _OPERATOR),
    149: Xid("NVLink NETIR error", _WARN, _OPERATOR),
    150: Xid("NVLink MSE error", _WARN, _OPERATOR),
    151: Xid("key rotation error", _FAIL, _REBOOT),
    152: Xid("DLA SMMU error", _NOTE),
    153: Xid("DLA timeout", _NOTE),
    155: Xid("NVLink software-defined error", _FAIL, _RESET),
    156: Xid("a resource was retired", _FAIL, _RESET),
    157: Xid("a resource could not be retired", _NOTE),
    158: Xid("GPU fatal timeout", _FAIL, _RESET),
    159: Xid("CHI non-data error", _WARN, _OPERATOR),
    160: Xid("a channel was retired", _NOTE),
    161: Xid("a channel could not be retired", _NOTE),
    162: Xid("power smoothing is on again", _NOTE),
    163: Xid("power smoothing is off", _WARN, _OPERATOR),
    164: Xid("power smoothing is near its end of life", _NOTE),
    165: Xid("power smoothing is at its end of life", _WARN, _OPERATOR),
    166: Xid("NVLink traffic before the link was secured", _WARN, _OPERATOR),
    167: Xid("PCIe fatal timeout", _FAIL, _REBOOT),
    168: Xid("GPU memory capacity is reduced", _WARN, _OPERATOR),
    169: Xid("security micro-controller halt", _FAIL, _REBOOT),
    170: Xid("NVLink interrupt in confidential mode", _WARN, _OPERATOR),
    171: Xid("details of an uncorrectable DRAM error", _WARN, _OPERATOR),
    172: Xid("details of an uncorrectable SRAM error", _WARN, _OPERATOR),
    173: Xid("C2C link failed", _FAIL, _REBOOT),
}

_ENGINES = (
    range(39, 42),
    range(70, 73),
    range(75, 78),
    range(82, 87),
    range(88, 90),
    range(96, 106),
    range(126, 136),
)
"""Engine errors that the catalogue answers with RESTART_APP throughout."""


def lookup(code: int) -> Xid:
    """The meaning of a code; one that nobody documents is a warning for the operator, neither a failure nor silence."""
    if code in CODES:
        return CODES[code]
    if any(code in codes for codes in _ENGINES):
        return Xid("engine error", _WARN)
    return Xid("unknown code", _WARN, _OPERATOR)
