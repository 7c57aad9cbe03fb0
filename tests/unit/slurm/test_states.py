"""Node and job states as flags, in every spelling that Slurm has."""

from __future__ import annotations

import pytest

from hpkit.slurm import states

# text as Slurm prints it, its flags, summary, drained, has jobs, usable
TABLE = [
    ("IDLE", "IDLE", "idle", False, False, True),
    ("MIXED", "MIXED", "mixed", False, True, True),
    ("ALLOCATED", "ALLOCATED", "allocated", False, True, True),
    ("IDLE+DRAIN", "IDLE DRAIN", "drained", True, False, False),
    ("MIXED+DRAIN", "MIXED DRAIN", "draining", True, True, False),
    ("ALLOCATED+DRAIN", "ALLOCATED DRAIN", "draining", True, True, False),
    ("IDLE+COMPLETING+DRAIN", "IDLE COMPLETING DRAIN", "draining", True, True, False),
    ("DOWN*+DRAIN", "DOWN NOT_RESPONDING DRAIN", "down", True, False, False),
    ("DOWN+DRAIN+NOT_RESPONDING", "DOWN NOT_RESPONDING DRAIN", "down", True, False, False),
    ("UNKNOWN+FAIL+NOT_RESPONDING", "UNKNOWN FAIL NOT_RESPONDING", "fail", True, False, False),
    ("REBOOT*+DRAIN", "REBOOT_ISSUED NOT_RESPONDING DRAIN", "reboot", True, False, False),
    ("IDLE+REBOOT_REQUESTED", "IDLE REBOOT_REQUESTED", "pending-reboot", False, False, False),
    ("IDLE+PLANNED", "IDLE PLANNED", "idle", False, False, True),
    ("IDLE+MAINTENANCE+RESERVED", "IDLE MAINTENANCE RESERVED", "maint", False, False, False),
    ("MIXED+CLOUD+POWERED_DOWN", "MIXED CLOUD POWERED_DOWN", "powered-down", False, True, True),
    ("IDLE+POWERING_DOWN", "IDLE POWERING_DOWN", "powering-down", False, False, False),
    ("IDLE+INVALID_REG", "IDLE INVALID_REG", "idle", False, False, False),
    ("IDLE+NOT_RESPONDING", "IDLE NOT_RESPONDING", "idle", False, False, False),
    ("idle~", "IDLE POWERED_DOWN", "powered-down", False, False, True),
    ("mix#", "MIXED POWERING_UP", "powering-up", False, True, True),
    ("mix-", "MIXED PLANNED", "mixed", False, True, True),
    ("idle$", "IDLE MAINTENANCE", "maint", False, False, False),
    ("drng", "ALLOCATED DRAIN", "draining", True, True, False),
    ("drain", "DRAIN", "drained", True, False, False),
    ("drain*", "DRAIN NOT_RESPONDING", "drained", True, False, False),
    ("plnd", "IDLE PLANNED", "idle", False, False, True),
    ("resv", "IDLE RESERVED", "reserved", False, False, True),
    ("boot^", "IDLE REBOOT_ISSUED", "reboot", False, False, False),
    ("alloc@", "ALLOCATED REBOOT_REQUESTED", "pending-reboot", False, True, False),
    ("IDLE+FROBNICATED", "IDLE FROBNICATED", "idle", None, False, None),
    ("IDLE+DRAIN+FROBNICATED", "IDLE DRAIN FROBNICATED", "drained", True, False, False),
    ("", "", "unknown", None, False, None),
    ("=IDLE", "", "unknown", None, False, None),
]


@pytest.mark.parametrize(
    ("text", "flags", "summary", "drained", "jobs", "usable"), TABLE, ids=[r[0] for r in TABLE]
)
def test_node_state(
    text: str, flags: str, summary: str, drained: bool | None, jobs: bool, usable: bool | None
) -> None:
    found = states.node_flags(text)
    assert found == frozenset(flags.split())
    assert states.summary(found) == summary
    assert states.drained(found) is drained
    assert states.has_jobs(found) is jobs
    assert states.usable(found) is usable


def test_unknown_words_are_kept_and_named() -> None:
    assert states.unknown_words(states.node_flags("IDLE+NEWFLAG+DRAIN")) == {"NEWFLAG"}


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("RUNNING", {"RUNNING"}),
        ("PENDING,REQUEUED", {"PENDING", "REQUEUED"}),
        ("COMPLETING+CANCELLED", {"COMPLETING", "CANCELLED"}),
        ("", set()),
    ],
)
def test_job_state(text: str, flags: set[str]) -> None:
    assert states.job_flags(text) == flags
