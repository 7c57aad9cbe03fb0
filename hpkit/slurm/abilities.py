"""What the running Slurm can do, told from its own configuration: the only place that knows one release from another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

REQUEUE_DELAY_S = 120  # AuthInfo=cred_expire's default, which a requeue waits for (DEFAULT_EXPIRATION_WINDOW in cred.h)
_EXPEDITED = (25, 11)
_REQUEUE_DELAY = (25, 11)  # SchedulerParameters=requeue_delay=; older ones ignore it without a word


class Abilities(NamedTuple):
    """`release` is the controller's own version text; `version` its (year, month).

    `expedited_requeue`: a job may be submitted with `--requeue=expedite` (known and enabled). `requeue_delay_s`: what
    Slurm itself waits before it starts a requeued job again, in seconds.
    """

    release: str = ""
    version: tuple[int, int] = (0, 0)
    expedited_requeue: bool = False
    requeue_delay_s: int = REQUEUE_DELAY_S


def look(config: Mapping[str, str]) -> Abilities:
    """Read them out of `scontrol show config`."""
    release = config.get("SLURM_VERSION", "")
    found = re.match(r"(\d+)\.(\d+)", release)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    parameters = words(config.get("SlurmctldParameters", ""))
    return Abilities(
        release=release,
        version=version,
        expedited_requeue=version >= _EXPEDITED and "enable_expedited_requeue" in parameters,
        requeue_delay_s=_delay_s(config, version),
    )


def words(text: str) -> dict[str, str]:
    """`a,b=1` as {"a": "", "b": "1"}, names in lower case, as Slurm compares them."""
    pairs = (word.strip().partition("=") for word in text.split(",") if word.strip())
    return {name.lower(): value for name, _, value in pairs}


def _delay_s(config: Mapping[str, str], version: tuple[int, int]) -> int:
    asked = words(config.get("SchedulerParameters", "")).get("requeue_delay", "")
    if version < _REQUEUE_DELAY or not asked.isdigit():
        asked = words(config.get("AuthInfo", "")).get("cred_expire", "")
    return int(asked) if asked.isdigit() else REQUEUE_DELAY_S
