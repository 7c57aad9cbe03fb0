"""gpu.ecc: growth since the baseline, rows, and that N/A is not 0."""

from __future__ import annotations

from typing import Any

import pytest

from hpkit import past as pasts
from hpkit.checks.gpu_ecc import EccOptions
from hpkit.model import View
from hpkit.past import Past
from hpkit.proc import Ran
from hpkit.want import Want
from tests.support.machine import Machine, gpu, lost, no_nvml, nvml, whole
from tests.support.rounds import findings, round_of, short

KEY = "gpu.ecc/GPU-0000/volatile_uncorrected"
NOT = "Not Supported"
HUNG = Ran(("nvml",), -9, b"", b"", 9.0, "timeout")


def one(**changes: Any) -> Machine:
    """A node with one GPU that differs from a healthy one."""
    return whole(tools={"nvml": nvml([gpu(0, **changes)])})


ROWS: list[tuple[str, dict[str, Any], dict[str, int], str, str, str]] = [
    ("healthy", {}, {}, "pass", "none", "no new uncorrected"),
    ("uncorrected", {"volatile_uncorrected": 2}, {}, "fail", "reset", "2 uncorrected ECC errors since boot"),
    ("accepted", {"volatile_uncorrected": 2}, {KEY: 2}, "pass", "none", "no new"),
    ("grown since", {"volatile_uncorrected": 5}, {KEY: 2}, "fail", "reset", "3 uncorrected"),
    ("device was reset", {"volatile_uncorrected": 1}, {KEY: 9}, "fail", "reset", "1 uncorrected"),
    ("device was reset, clean", {"volatile_uncorrected": 0}, {KEY: 9}, "pass", "none", "no new"),
    ("aggregate is history", {"aggregate_uncorrected": 7}, {}, "pass", "none", "no new"),
    ("few corrected", {"volatile_corrected": 10_000_000}, {}, "pass", "none", "no new"),
    ("many corrected", {"volatile_corrected": 10_000_001}, {}, "warn", "operator", "10000001 corrected"),
    ("unread", {"volatile_uncorrected": None, "errors": {"volatile_uncorrected": "Unknown Error"}}, {}, "error", "none", "Unknown Error"),
    ("unread without reason", {"volatile_uncorrected": None}, {}, "error", "none", "no reason given"),
    ("one unread, other bad", {"volatile_uncorrected": 1, "volatile_corrected": None}, {}, "fail", "reset", "1 uncorrected"),
    ("mode unread", {"mode": "n/a", "errors": {"ecc_mode": "Unknown Error"}}, {}, "error", "none", "ECC mode"),
    ("no ECC", {"mode": "n/a", "volatile_uncorrected": None, "errors": {"ecc_mode": NOT}}, {}, "skip", "none", "no ECC"),
    ("ECC off", {"mode": "off", "volatile_uncorrected": None}, {}, "skip", "none", "switched off"),
    ("old library", {"mode": "n/a", "errors": {"ecc_mode": "Function Not Found"}}, {}, "skip", "none", "no ECC"),
    ("rows pending", {"pending": True}, {}, "fail", "reset", "waits for a reset"),
    ("rows pending, all else N/A", {"pending": True, "mode": "n/a", "volatile_uncorrected": None,
     "errors": {"ecc_mode": "Unknown Error"}}, {}, "fail", "reset", "waits for a reset"),
    ("rows failed", {"failed": True, "pending": True}, {}, "fail", "replace", "could not be remapped"),
    ("rows failed and errors", {"failed": True, "volatile_uncorrected": 3}, {}, "fail", "replace", "could not be remapped"),
    ("rows remapped long ago", {"uncorrectable": 1, "correctable": 2}, {}, "pass", "none", "3 rows remapped in the past"),
    ("rows not supported", {"remap": None, "errors": {"remap": NOT}}, {}, "pass", "none", "no new"),
    ("rows unread", {"remap": None, "errors": {"remap": "Unknown Error"}}, {}, "error", "none", "remapped rows could not be read"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "counters", "status", "action", "text"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS]
)
def test_one_gpu(
    changes: dict[str, Any], counters: dict[str, int], status: str, action: str, text: str
) -> None:
    past = Past("boot-1", accepted_why="boot", counters=counters)
    (found,) = findings(one(**changes), "gpu.ecc", past=past)
    assert (found.subject, found.status.value, found.action.value) == ("gpu0", status, action), found.message
    assert text in found.message
    assert bool(found.hint) == (status in ("fail", "warn"))


def test_threshold_is_an_option() -> None:
    host = one(volatile_corrected=11)
    assert short(findings(host, "gpu.ecc", gpu_ecc=EccOptions(corrected_warn=10))) == [
        ("gpu0", "warn", "operator")
    ]


def test_baseline_moves_by_acceptance_only() -> None:
    host = one(volatile_uncorrected=3)
    past = Past()
    for _ in range(3):
        done = round_of(host, "gpu.ecc", past=past)
        assert short(done.report.findings) == [("gpu0", "fail", "reset")]
        past = done.past
    assert past.counters == {}
    accepted = pasts.accept(past, "reset", host.now(), pasts.counters_of(done.report.findings))
    assert accepted.counters == {KEY: 3, "gpu.ecc/GPU-0000/volatile_corrected": 0}
    assert short(findings(host, "gpu.ecc", past=accepted)) == [("gpu0", "pass", "none")]


def test_counters_belong_to_the_board() -> None:
    past = Past("boot-1", counters={KEY: 3})
    assert short(findings(one(volatile_uncorrected=3, uuid="GPU-new"), "gpu.ecc", past=past)) == [
        ("gpu0", "fail", "reset")
    ]


def test_each_gpu_speaks_for_itself() -> None:
    gpus = [gpu(0), gpu(1, volatile_uncorrected=1), lost(2), gpu(3, mode="off")]
    assert short(findings(whole(tools={"nvml": nvml(gpus)}), "gpu.ecc")) == [
        ("gpu0", "pass", "none"),
        ("gpu1", "fail", "reset"),
        ("nvml2", "error", "none"),
        ("gpu3", "skip", "none"),
    ]


@pytest.mark.parametrize(
    ("answer", "want", "view", "status"),
    [
        (HUNG, Want(gpus=8), View.NODE, "error"),
        (HUNG, Want(), View.NODE, "error"),
        (HUNG, Want(), View.STEP, "error"),
        (no_nvml("NVML Shared Library Not Found", 12), Want(gpus=8), View.NODE, "error"),
        (no_nvml("NVML Shared Library Not Found", 12), Want(gpus=8), View.STEP, "skip"),
        (no_nvml("Driver Not Loaded", 9), Want(gpus=8), View.STEP, "skip"),
        (nvml([]), Want(gpus=8), View.STEP, "skip"),
    ],
)
def test_nvml_tells_nothing(answer: Ran, want: Want, view: View, status: str) -> None:
    (found,) = findings(whole(tools={"nvml": answer}, view=view), "gpu.ecc", want=want)
    assert (found.subject, found.status.value) == ("", status)


def test_hidden_gpus_of_a_step_are_skipped() -> None:
    host = whole(
        tools={"nvml": nvml([gpu(0), lost(1, "Insufficient Permissions", 4)])}, view=View.STEP, uid=1000
    )
    assert [s for _, s, _ in short(findings(host, "gpu.ecc"))] == ["pass", "skip"]


def test_no_gpu_no_check() -> None:
    assert short(findings(Machine(), "gpu.ecc")) == [("", "skip", "none")]
