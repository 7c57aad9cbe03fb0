"""Node and job states as sets of flags, whatever spelling a Slurm release or tool prints.

Sources of the words: node_states, node_state_flags, node_state_string_compact and job_state_string in
slurm_protocol_defs.c, JOB_STATE in the data parsers, the man pages of sinfo and scontrol, releases 22.05 to 26.05.
"""

from __future__ import annotations

import re

NODE_BASE = frozenset({"UNKNOWN", "DOWN", "IDLE", "ALLOCATED", "ERROR", "MIXED", "FUTURE"})

NODE_FLAGS = frozenset(
    {
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "FAIL",
        "INVALID_REG",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PERFCTRS",
        "PLANNED",
        "POWER_DOWN",
        "POWER_DRAIN",
        "POWER_UP",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "REBOOT_ISSUED",
        "REBOOT_REQUESTED",
        "RESERVED",
        "RESUME",
        "UNDRAIN",
    }
)

_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "$": "MAINTENANCE",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}

# sinfo's compact words, older spellings, and words that stand for several flags.
_WORDS: dict[str, tuple[str, ...]] = {
    "ALLOC": ("ALLOCATED",),
    "BLOCK": ("IDLE", "BLOCKED"),
    "BOOT": ("IDLE", "REBOOT_ISSUED"),
    "COMP": ("IDLE", "COMPLETING"),
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "ERR": ("ERROR",),
    "FAILG": ("ALLOCATED", "FAIL"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FUTR": ("FUTURE",),
    "INVAL": ("IDLE", "INVALID_REG"),
    "MAINT": ("MAINTENANCE",),
    "MIX": ("MIXED",),
    "NO_RESPOND": ("NOT_RESPONDING",),
    "NPC": ("PERFCTRS",),
    "PLND": ("IDLE", "PLANNED"),
    "POW_DN": ("POWERING_DOWN",),
    "POW_UP": ("POWERING_UP",),
    "POWER_SAVING": ("POWERED_DOWN",),
    "RESV": ("IDLE", "RESERVED"),
    "REBOOT": ("REBOOT_ISSUED",),
    "UNK": ("UNKNOWN",),
}

REBOOTING = frozenset({"REBOOT_ISSUED", "REBOOT_REQUESTED"})
POWERED = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP"})
WITH_JOBS = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
JOB_ACTIVE = frozenset(
    {"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)

JOB_BASE = frozenset(
    {
        "PENDING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETED",
        "CANCELLED",
        "FAILED",
        "TIMEOUT",
        "NODE_FAIL",
        "PREEMPTED",
        "BOOT_FAIL",
        "DEADLINE",
        "OUT_OF_MEMORY",
    }
)
# The flags that scontrol and squeue show instead of the base state; the first that is set hides all others.
_JOB_SHOWN = (
    "COMPLETING",
    "STAGE_OUT",
    "CONFIGURING",
    "EXPEDITING",  # put back by an expedited requeue, its nodes kept for it; from 25.11 on
    "RESIZING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "SPECIAL_EXIT",
    "STOPPED",
    "REVOKED",
    "RESV_DEL_HOLD",
    "SIGNALING",
)
_JOB_HIDDEN = frozenset({"LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL", "UPDATE_DB"})
JOB_WORDS = JOB_BASE | frozenset(_JOB_SHOWN) | _JOB_HIDDEN

_WORD = re.compile(r"([A-Za-z_]+)([*$~#!%@^-]*)\Z")


def node_flags(text: str) -> frozenset[str]:
    """The flags in a node state as scontrol (`IDLE*+DRAIN`), sinfo (`drng`, `idle~`) or JSON print it.

    An unknown word is kept in upper case; an empty or unreadable text gives an empty set, which no one can act upon.
    """
    found: set[str] = set()
    for part in text.strip().split("+"):
        match = _WORD.match(part.strip())
        if match is None:
            return frozenset()
        word = match.group(1).upper()
        found.update(_WORDS.get(word, (word,)))
        found.update(_SUFFIXES[mark] for mark in match.group(2))
    return frozenset(found)


def job_flags(text: str) -> frozenset[str]:
    """The flags in a job state (`RUNNING`, `PENDING,REQUEUED`, `COMPLETING+CANCELLED`) in upper case."""
    return frozenset(word.upper() for word in re.split(r"[,+ ]+", text.strip()) if word)


def shown(flags: frozenset[str]) -> frozenset[str]:
    """What scontrol's text shows of all the flags of a job, as JSON lists them: one word, and those unknown to us."""
    first = next((word for word in _JOB_SHOWN if word in flags), "")
    return (frozenset({first}) if first else flags & JOB_BASE) | (flags - JOB_WORDS)


def active(flags: frozenset[str]) -> bool:
    """Whether a job with these flags may hold its nodes; one in a state that we do not know counts as one that does."""
    return bool(flags & JOB_ACTIVE or flags - JOB_WORDS)


def unknown_words(flags: frozenset[str]) -> frozenset[str]:
    """Words that this hpkit does not know: a newer Slurm."""
    return flags - NODE_BASE - NODE_FLAGS


def drained(flags: frozenset[str]) -> bool | None:
    """Whether nothing new starts here by decision (drain or fail); None when a word is unknown and neither is set."""
    if flags & {"DRAIN", "FAIL"}:
        return True
    return None if unknown_words(flags) or not flags & NODE_BASE else False


def has_jobs(flags: frozenset[str]) -> bool:
    """Whether jobs run or complete here."""
    return bool(flags & WITH_JOBS)


def usable(flags: frozenset[str]) -> bool | None:
    """Whether Slurm would start a job here now or once the present ones end; None when that cannot be told."""
    out = {
        "DOWN",
        "ERROR",
        "FUTURE",
        "DRAIN",
        "FAIL",
        "NOT_RESPONDING",
        "INVALID_REG",
        "MAINTENANCE",
        "BLOCKED",
    }
    if flags & (out | REBOOTING | {"POWER_DOWN", "POWERING_DOWN", "UNKNOWN", "POWER_DRAIN"}):
        return False
    return None if unknown_words(flags) or not flags & NODE_BASE else True


_SUMMARY: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"REBOOT_ISSUED"}), "reboot"),
    (frozenset({"FAIL"}), "fail"),
    (frozenset({"DOWN"}), "down"),
    (frozenset({"REBOOT_REQUESTED"}), "pending-reboot"),
    (frozenset({"POWERED_DOWN"}), "powered-down"),
    (frozenset({"POWERING_DOWN", "POWER_DOWN"}), "powering-down"),
    (frozenset({"POWERING_UP", "POWER_UP"}), "powering-up"),
)


def summary(flags: frozenset[str]) -> str:
    """One word for people: the strongest thing that the flags say."""
    for marks, word in _SUMMARY:
        if flags & marks:
            return word
    if "DRAIN" in flags:
        return "draining" if has_jobs(flags) else "drained"
    if "MAINTENANCE" in flags:
        return "maint"
    if "RESERVED" in flags and not has_jobs(flags):
        return "reserved"
    base = next((word for word in ("ALLOCATED", "MIXED", "COMPLETING", "IDLE") if word in flags), "")
    return base.lower() or "unknown"
