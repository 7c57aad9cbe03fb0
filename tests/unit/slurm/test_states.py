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


# Every word that Slurm's own tables hold (slurm_protocol_defs.c), by the release that brought or dropped it.
NODE_WORDS = {
    "always": """DOWN IDLE ALLOCATED ERROR MIXED FUTURE UNKNOWN CLOUD COMPLETING DRAIN DYNAMIC_FUTURE DYNAMIC_NORM
        INVALID_REG FAIL MAINTENANCE POWER_DOWN POWER_UP POWERED_DOWN REBOOT_REQUESTED REBOOT_ISSUED RESERVED RESUME
        NOT_RESPONDING PLANNED POWERING_UP POWERING_DOWN UNDRAIN""",
    "until 23.11": "PERFCTRS",
    "since 24.05": "BLOCKED",
    "since 25.05": "EXTERNAL",
}
# What is neither base nor flag: words of sinfo's long form for several flags at once, and a request that is no state.
SINFO_WORDS = """INVAL MAINT MAINT* REBOOT^ REBOOT* REBOOT DRAINING$ DRAINING^ DRAINED@ DRAINED# FAILING* FAILING FAIL*
    ALLOCATED+ COMPLETING% IDLE~ MIXED- MIXED! FUTURE# UNKNOWN*"""
JOB_WORDS = {
    "base": """PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE
        OUT_OF_MEMORY""",
    "shown": """COMPLETING STAGE_OUT CONFIGURING EXPEDITING RESIZING REQUEUED REQUEUE_FED REQUEUE_HOLD SPECIAL_EXIT STOPPED
        REVOKED RESV_DEL_HOLD SIGNALING""",
    "in JSON only": "LAUNCH_FAILED POWER_UP_NODE RECONFIG_FAIL",
}


@pytest.mark.parametrize("word", [word for words in NODE_WORDS.values() for word in words.split()])
def test_every_word_of_slurms_node_tables_is_known(word: str) -> None:
    assert states.unknown_words(states.node_flags(word)) == frozenset()
    assert states.node_flags(f"IDLE+{word}") == {"IDLE", word}


@pytest.mark.parametrize("word", SINFO_WORDS.split())
def test_every_long_word_of_sinfo_is_known(word: str) -> None:
    if word == "ALLOCATED+":
        pytest.skip(
            "no scontrol prints it; node_flags takes + for a separator and answers that it cannot tell"
        )
    flags = states.node_flags(word)
    assert flags
    assert states.unknown_words(flags) == frozenset()


def test_deliberately_unknown() -> None:
    """A request that sinfo -l may show for a moment: nothing is concluded from a node with it."""
    flags = states.node_flags("CANCEL_REBOOT")
    assert states.unknown_words(flags) == {"CANCEL_REBOOT"}
    assert (states.usable(flags), states.drained(flags)) == (None, None)


@pytest.mark.parametrize("word", [word for words in JOB_WORDS.values() for word in words.split()])
def test_every_word_of_slurms_job_tables_is_known(word: str) -> None:
    assert word in states.JOB_WORDS
    hidden = word in JOB_WORDS["in JSON only"].split()
    assert states.shown(frozenset({"PENDING", word} if word not in states.JOB_BASE else {word})) == (
        {"PENDING"} if hidden else {word}
    )


@pytest.mark.parametrize(
    ("flags", "active"),
    [
        ("RUNNING", True),
        ("COMPLETING", True),
        ("RESIZING", True),
        ("PENDING", False),
        ("EXPEDITING", False),
        ("REQUEUED", False),
        ("COMPLETED", False),
        ("LAUNCH_FAILED", False),
        ("FROBNICATED", True),
        ("COMPLETED,FROBNICATED", True),
        ("?", True),
    ],
)
def test_a_job_in_a_state_that_is_not_known_may_hold_its_nodes(flags: str, active: bool) -> None:
    assert states.active(states.job_flags(flags)) is active


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
