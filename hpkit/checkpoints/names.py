"""What a name tells: the step, whether it is still being written, whether it is one piece of something larger."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"(?<![0-9])(?<![0-9]\.)[0-9]+(?![0-9])(?!\.[0-9])")
_VERSION = re.compile(r"-v[0-9]+$")
_PIECE = re.compile(
    r"-of-[0-9]+|(?:^|[^a-z])(?:rank|shard|part|rng_state)[_-]?[0-9]"
    r"|^(?:pytorch_model_fsdp|optimizer)_[0-9]+$",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"(?:rank|shard|part|rng_state)[_-]?[0-9]+|[0-9]+-of-[0-9]+|([0-9]+)", re.IGNORECASE)
_CHECKPOINT = re.compile(
    r"step|iter|check|ckpt|chkpt|epoch|snap|save|model|state|^ep?[0-9]|ba[0-9]", re.IGNORECASE
)
_DIGITS = re.compile(r"^[0-9]+$")
_TEMPORARY_START = (".", "tmp_", "tmp-", "tmp.", "temp_", "temp-", "_tmp", "__tmp")
_TEMPORARY_END = (
    ".tmp",
    "_tmp",
    "-tmp",
    ".temp",
    ".part",
    ".partial",
    ".incomplete",
    ".writing",
    ".swp",
    "~",
)


def step_of(name: str) -> int | None:
    """The last integer of a name, whatever its padding; None when there is none.

    Digits of a fraction (`loss=0.12`) are no integer; `-v1` at the end is a version if a step stands before it.
    """
    found = _INTEGER.findall(_VERSION.sub("", name)) or _INTEGER.findall(name)
    return int(found[-1]) if found else None


def temporary(name: str) -> bool:
    """Hidden, or under a name that writers use until they are done."""
    return name.lower().startswith(_TEMPORARY_START) or unfinished(name)


def unfinished(name: str) -> bool:
    """Ends as names of files end that are still being written."""
    return name.lower().endswith(_TEMPORARY_END) or "-checkpoint-tmp" in name


def piece(name: str) -> bool:
    """One of several files that make a checkpoint together: its number is not a step."""
    return _PIECE.search(name) is not None


def telling(name: str) -> bool:
    """Whether the name itself says "checkpoint": a number alone, or with a word such as step, iter or ckpt."""
    return bool(_CHECKPOINT.search(name) or _DIGITS.match(name.partition(".")[0]))


def without_step(name: str, step: int | None) -> str:
    """The name with each number that equals the step taken out, to compare the files of two steps.

    Numbers of ranks, shards and parts stay, whatever the step.
    """
    if step is None:
        return name
    return _NUMBERS.sub(lambda match: "#" if match[1] and int(match[1]) == step else match[0], name)
