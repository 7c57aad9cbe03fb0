"""gpu.xid: the code after the bracket, in every form of the line; since when it counts; what each code means."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from hpkit.catalog.xid import CODES, lookup
from hpkit.checks.gpu_xid import XidOptions, events
from hpkit.model import Status, View
from hpkit.past import Past
from hpkit.probes.kmsg import Kmsg
from hpkit.want import Want
from tests.support.machine import Machine, whole
from tests.support.rounds import findings, round_of, short

NOW = 50_000.0  # the uptime of the test's machine, in seconds
BOOTED = 1_772_366_400.0 - NOW


def log(*lines: str, at: float = NOW - 10, level: int = 3) -> str:
    """Kernel records a second apart, the first at uptime `at`."""
    return "".join(f"{level},{n},{int((at + n) * 1e6)},-;{line}\n" for n, line in enumerate(lines))


def node(text: str | bytes | int, **more: Any) -> Machine:
    return whole(files={"/dev/kmsg": text}, **more)


LINES = [
    ("NVRM: Xid (PCI:0000:79:00): 31, pid=4111, name=python3, Ch 00000008", ("0000:79:00.0", 31)),
    ("NVRM: Xid (PCI:0000:3a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", ("0000:3a:00.0", 79)),
    ("NVRM: Xid (PCI:0001:79:00): 48, DBE", ("0001:79:00.0", 48)),
    ("NVRM: Xid (0000:5D:00): 13, Graphics Exception", ("0000:5d:00.0", 13)),
    ("NVRM: Xid (PCI:0000:9b:00): 94, pid=12, name=a, b:c, Contained", ("0000:9b:00.0", 94)),
    ("NVRM: Xid (PCI:0000:3f:00): 46", ("0000:3f:00.0", 46)),
    ("NVRM: Xid (PCI:0000:3f:00.0): 46", ("0000:3f:00.0", 46)),
    ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 95, pid=7, Uncontained", ("0000:01:00.0", 95)),
    ("NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a", ("0000:3b:00.0", 13)),
    ("NVRM: Xid (PCI:0000:01:00): 79 GPU gone", ("0000:01:00.0", 79)),
    ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", ("0000:18:00.0", 79)),
    ("NVRM: GPU at PCI:0000:18:00: GPU has fallen off the bus.", ("0000:18:00.0", 79)),
    ("NVRM: Xid (PCI:0000:9b:00): 0, nothing", None),
    ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d", None),
    ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
    ("myapp: handler saw NVRM: Xid (PCI:0000:79:00): 79 in a log", None),
    ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30", None),
    ("NVRM: Xid (PCI:0000:3a:00", ("", None)),
    ("NVRM: Xid (PCI:0000:3a:00): ", ("", None)),
    ("NVRM: Xid (PCI:0000:3a:00): 7x9", ("", None)),
]  # fmt: skip
STAMPS = [
    "3,77,100000000,-;{}",
    "3,77,100000000,-,caller=T1946;{}",
    "[  100.000000] {}",
    "[  100.000000] [ T1946] {}",
    "<3>[  100.000000][  T12] {}",
    "May 19 07:08:57 ip-10-0-0-1 kernel: [  100.000000] {}",
    "2026-03-01T12:00:00+0000 n1 kernel: {}",
    "[Sun Feb 23 16:24:18 2025] {}",
    "{}",
    "May 19 07:08:57 n1 kernel: {}",
]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize(("line", "expected"), LINES)
def test_every_form_of_a_line(line: str, expected: tuple[str, int | None] | None, stamp: str) -> None:
    found = [(e.pci, e.code) for e in events(Kmsg(f"{stamp.format(line)}\n".encode()))]
    assert found == ([expected] if expected else [])


def test_fallen_off_the_bus_in_three_lines() -> None:
    text = log(
        "NVRM: The NVIDIA GPU 0000:18:00.0",
        "NVRM: (PCI ID: 10de:2330) installed in this system has",
        "NVRM: fallen off the bus and is not responding to commands.",
    )
    assert [(e.pci, e.code) for e in events(Kmsg(text.encode()))] == [("0000:18:00.0", 79)]


def test_continuation_lines_are_no_events() -> None:
    text = "6,1,5,-;pci 0000:3a:00.0: removed\n SUBSYSTEM=pci\n NVRM: Xid (PCI:0000:3a:00): 79, x\n"
    assert list(events(Kmsg(text.encode()))) == []


@pytest.mark.parametrize(
    ("stamp", "uptime"),
    [
        ("3,7,100500000,-;{}", 100.5),
        ("[  100.500000] {}", 100.5),
        ("May 19 07:08:57 n1 kernel: [  100.500000] {}", 100.5),
        ("2026-03-01T12:00:00+0000 n1 kernel: {}", 50_000.0),
        ("2026-03-01T12:00:00Z n1 kernel: {}", 50_000.0),
        ("2026-03-01T12:00:00.123456+00:00 n1 kernel: {}", 50_000.0),
        ("2026-03-01T21:00:00+0900 n1 kernel: {}", 50_000.0),
        ("2026-03-01T07:00:00-05:00 n1 kernel: {}", 50_000.0),
        ("[Sun Mar  1 12:00:00 2026] {}", 50_000.0),
        ("2026-13-41T12:00:00Z n1 kernel: {}", None),
        ("May 19 07:08:57 n1 kernel: {}", None),
        ("{}", None),
    ],
)
def test_time_of_a_line(stamp: str, uptime: float | None) -> None:
    line = stamp.format("NVRM: Xid (PCI:0000:18:00): 79, x") + "\n"
    (event,) = events(Kmsg(line.encode(), BOOTED))
    assert event.uptime == uptime


def test_former_boot_and_accepted_events_do_not_count() -> None:
    text = (
        "2026-02-27T10:00:00+0000 n1 kernel: NVRM: Xid (PCI:0000:3a:00): 79, x\n"
        "2026-03-01T06:30:00+0900 n1 kernel: NVRM: Xid (PCI:0000:3a:00): 95, x\n"
        "2026-03-01T11:00:00+0000 n1 kernel: NVRM: Xid (PCI:0000:5c:00): 48, DBE\n"
    )
    assert short(findings(node(text), "gpu.xid")) == [("gpu4", "fail", "reset")]
    accepted = Past("boot-1", accepted_uptime=NOW - 1800, accepted_why="deep")
    assert short(findings(node(text), "gpu.xid", past=accepted)) == [("", "pass", "none")]


XID = "NVRM: Xid (PCI:0000:3a:00): {}, pid=1, name=x, text"
MEANING = [(79, "fail", "reboot"), (95, "fail", "reset"), (48, "fail", "reset"), (74, "fail", "reset"),
           (119, "fail", "reset"), (120, "fail", "reset"), (64, "fail", "reset"), (54, "fail", "operator"),
           (13, "warn", "none"), (31, "warn", "none"), (45, "warn", "none"), (68, "warn", "none"), (94, "warn", "none"),
           (99, "warn", "none"), (43, "pass", "none"), (63, "pass", "none"), (142, "warn", "operator"),
           (777, "warn", "operator"), (36, "warn", "operator"), (145, "warn", "operator")]  # fmt: skip


@pytest.mark.parametrize(("code", "status", "action"), MEANING)
def test_what_a_code_means(code: int, status: str, action: str) -> None:
    (found,) = findings(node(log(XID.format(code))), "gpu.xid")
    assert (found.subject, found.status.value, found.action.value) == ("gpu2", status, action)
    assert f"Xid {code}: {lookup(code).name}" in found.message
    assert bool(found.hint) == (status != "pass")


@pytest.mark.parametrize(
    "code", [8, 11, 13, 25, 31, 32, 43, 45, 68, 69, 80, 94, *range(96, 106), *range(126, 136), 12345]
)
def test_a_programs_own_fault_never_fails(code: int) -> None:
    assert lookup(code).status in (Status.WARN, Status.PASS)


@pytest.mark.parametrize("name", ["NVRM: Xid", "NVRM: Xid (PCI:", "NVRM: Xid (0000", "NVRM: Xid (PCI:"[:12]])
@pytest.mark.parametrize(
    "tail", ["[4111]: segfault at 0 ip 00 sp 00 error 4", " (4111) used greatest", " invoked oom-killer: x"]
)
def test_a_program_that_calls_itself_an_xid_takes_no_node_out(name: str, tail: str) -> None:
    (found,) = findings(node(log(name + tail)), "gpu.xid")
    assert (found.status.value, found.action.value) == ("warn", "none")
    (found,) = findings(node(log(name + tail, at=NOW - 7200)), "gpu.xid")
    assert found.status.value == "pass"


def test_every_failing_code_has_an_action() -> None:
    assert all(
        (x.action.value != "none") == (x.status is Status.FAIL)
        for x in CODES.values()
        if x.status is not Status.WARN
    )


def test_old_faults_of_programs_are_only_noted() -> None:
    old = log(XID.format(31), at=NOW - 7200)
    (found,) = findings(node(old), "gpu.xid")
    assert (found.status.value, found.message[:12]) == ("pass", "only noted: ")
    assert short(findings(node(old), "gpu.xid", gpu_xid=XidOptions(recent_s=9000)))[0][1] == "warn"


def test_what_nobody_can_explain_stays_a_warning() -> None:
    assert short(findings(node(log(XID.format(777), at=NOW - 7200)), "gpu.xid")) == [
        ("gpu2", "warn", "operator")
    ]


def test_ignored_codes_are_only_noted() -> None:
    assert short(findings(node(log(XID.format(79))), "gpu.xid", gpu_xid=XidOptions(ignore=(79,)))) == [
        ("gpu2", "pass", "none")
    ]


def test_one_fault_of_three_codes_is_one_finding() -> None:
    (found,) = findings(node(log(*(XID.format(c) for c in (48, 63, 94, 94)))), "gpu.xid")
    assert (found.status.value, found.action.value) == ("fail", "reset")
    assert "Xid 48" in found.message and "also Xid 63, 94" in found.message
    assert [x["code"] for x in found.data["xids"]] == [48, 63, 94, 94]


def test_heaviest_cure_speaks_and_repeats_are_counted() -> None:
    (found,) = findings(node(log(*(XID.format(c) for c in (119, 119, 79, 119)))), "gpu.xid")
    assert (found.action.value, "also Xid 119" in found.message) == ("reboot", True)
    (found,) = findings(node(log(*(XID.format(c) for c in (119, 119, 119)))), "gpu.xid")
    assert "(3 times, last 2026-03-01 11:59:52Z)" in found.message


def test_thousands_of_lines_stay_short() -> None:
    (found,) = findings(node(log(*[XID.format(119)] * 5000, at=1000)), "gpu.xid")
    assert "5000 times" in found.message
    assert len(found.data["xids"]) == 20


@pytest.mark.parametrize(
    ("codes", "status", "action"),
    [
        (("0x1 (GPU Reset Required)",), "fail", "reset"),
        (("0x1 (PF FLR)",), "fail", "reset"),
        (("0x2 (Node Reboot Required)",), "fail", "reboot"),
        (("0x2 (OS Reboot)",), "fail", "reboot"),
        (("0x3 (Drain P2P)",), "warn", "operator"),
        (("0x4 (Drain and Reset)",), "fail", "reset"),
        (("0x9 (New)",), "warn", "operator"),
        (("0x1 (GPU Reset Required)", "0x0 (None)"), "pass", "none"),
        (("0x0 (None)", "0x2 (OS Reboot)"), "fail", "reboot"),
    ],
)
def test_recovery_action_is_read_as_a_number(codes: tuple[str, ...], status: str, action: str) -> None:
    line = "NVRM: Xid (PCI:0000:3a:00): 154, GPU recovery action changed from 0x0 (None) to {}"
    assert short(findings(node(log(*(line.format(c) for c in codes))), "gpu.xid")) == [
        ("gpu2", status, action)
    ]


@pytest.mark.parametrize(("word", "status"), [("Fatal", "fail"), ("Nonfatal", "warn"), ("Non-Fatal", "warn")])
def test_nvlink5_says_itself_whether_it_is_fatal(word: str, status: str) -> None:
    line = f"NVRM: Xid (PCI:0000:3a:00): 149, NETIR_LINK_EVT  {word}   XC0 i0 Link 00 (0x004505c6 0x0)"
    assert findings(node(log(line)), "gpu.xid")[0].status.value == status


def test_gpu_that_pci_does_not_know_keeps_its_address() -> None:
    (found,) = findings(node(log("NVRM: Xid (PCI:0009:01:00): 79, x")), "gpu.xid")
    assert found.subject == "0009:01:00.0"


def test_unreadable_xid_line_is_an_error() -> None:
    assert findings(node(log("NVRM: Xid (PCI:0000:3a")), "gpu.xid")[0].status.value == "error"


def test_cut_off_log_is_never_a_pass() -> None:
    (found,) = findings(node("6,1,1,-;Linux version\n3,2,2,-;NVRM"), "gpu.xid")
    assert (found.status.value, "cut off" in found.message) == ("error", True)


@pytest.mark.parametrize(
    ("number", "view", "uid", "want", "status"),
    [
        (errno.EPERM, View.NODE, 0, Want(gpus=8), "error"),
        (errno.EPERM, View.NODE, 0, Want(), "skip"),
        (errno.ENOENT, View.NODE, 0, Want(gpus=8), "error"),
        (errno.EPERM, View.NODE, 1000, Want(gpus=8), "skip"),
        (errno.EACCES, View.STEP, 1000, Want(gpus=8), "skip"),
        (errno.EPERM, View.STEP, 0, Want(gpus=8), "skip"),
    ],
)
def test_closed_log(number: int, view: View, uid: int, want: Want, status: str) -> None:
    (found,) = findings(node(number, view=view, uid=uid), "gpu.xid", want=want)
    assert found.status.value == status


def test_log_is_not_even_read_where_nothing_suggests_a_gpu() -> None:
    host = Machine({"/dev/kmsg": log(XID.format(79))})
    assert short(findings(host, "gpu.xid")) == [("", "skip", "none")]
    assert "read /dev/kmsg" not in host.calls


def test_failure_stays_when_it_scrolled_out_of_the_log() -> None:
    host = node(log(XID.format(79), XID.format(13)))
    first = round_of(host, "gpu.xid")
    host.files["/dev/kmsg"] = log("usb 1-1: new device")
    second = round_of(host, "gpu.xid", past=first.past)
    (found,) = second.report.findings
    assert (found.subject, found.status.value, found.action.value) == ("gpu2", "fail", "reboot")
    assert "found 2026-03-01 12:00:00Z; stays until" in found.message
    assert short(round_of(host, "gpu.xid", past=second.past).report.findings) == [("gpu2", "fail", "reboot")]
    host.clock = host.clock._replace(boot_id="boot-2")
    assert short(findings(host, "gpu.xid", past=second.past)) == [("", "pass", "none")]
