"""What the running Slurm can do, told from its own configuration: the only place that knows one release from another.

What can be seen is looked at: a key of `scontrol show config`, an option that is tried (`Commands.reads_json`), a field
that is there or not. A release decides only where nothing can be seen, and only here. docs/reference/slurm.md lists all
of it; tests/slurm/test_releases.py tries each row of that page on the release it runs on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# AuthInfo=cred_expire's default, which a requeue waits for (DEFAULT_EXPIRATION_WINDOW in cred.h).
REQUEUE_DELAY_S = 120
CRED_EXPIRE_MIN_S = 5  # below it Slurm takes the default

# (year, month) of the first release with each; older ones ignore or refuse it.
_EXPEDITED = (25, 11)  # sbatch --requeue=expedite
_EXPEDITED_SOUND = (
    25,
    11,
    3,
)  # 25.11.0 to 25.11.2 put back even a job that ended well (CHANGELOG/slurm-25.11.md)
_REQUEUE_DELAY = (25, 11)  # SchedulerParameters=requeue_delay=; ignored without a word before
_HOOK_TIMEOUTS = (25, 5)  # shown by their names only where the two differ
_NO_CGROUPS = (24, 5)


class Abilities(NamedTuple):
    """`release` is the controller's own version text; `version` its (year, month).

    `expedited_requeue`: a job may be submitted with `--requeue=expedite` (known and enabled). `requeue_delay_s`: what
    Slurm itself waits before it starts a requeued job again, in seconds. `many_hooks`: slurm.conf may have several
    Prolog and Epilog lines (24.05 and newer show them as `Prolog[0]`, …, older ones always show one `Prolog`).
    """

    release: str = ""
    version: tuple[int, int] = (0, 0)
    expedited_requeue: bool = False
    requeue_delay_s: int = REQUEUE_DELAY_S
    many_hooks: bool = False

    @property
    def knows_expedited(self) -> bool:
        """Whether this release has expedited requeue, enabled or not."""
        return self.version >= _EXPEDITED

    @property
    def expedited_sound(self) -> bool:
        """Whether an expedited job that ends well is over, and not run once more."""
        return tuple(map(int, re.findall(r"\d+", self.release)[:3])) >= _EXPEDITED_SOUND

    @property
    def knows_requeue_delay(self) -> bool:
        """Whether this release reads SchedulerParameters=requeue_delay=."""
        return self.version >= _REQUEUE_DELAY

    @property
    def hook_timeouts(self) -> bool:
        """Whether slurm.conf may have PrologTimeout and EpilogTimeout beside PrologEpilogTimeout."""
        return self.version >= _HOOK_TIMEOUTS

    @property
    def cgroups_can_be_off(self) -> bool:
        """Whether cgroup.conf may say CgroupPlugin=disabled."""
        return self.version >= _NO_CGROUPS


def look(config: Mapping[str, str]) -> Abilities:
    """Read them out of `scontrol show config`."""
    release = config.get("SLURM_VERSION", "")
    version = version_of(release)
    parameters = words(config.get("SlurmctldParameters", ""))
    return Abilities(
        release=release,
        version=version,
        expedited_requeue=version >= _EXPEDITED and "enable_expedited_requeue" in parameters,
        requeue_delay_s=_delay_s(config, version),
        many_hooks=bool(release) and "Prolog" not in config,
    )


def version_of(release: str) -> tuple[int, int]:
    """(25, 11) for `25.11.3`; (0, 0), which can do nothing new, for what is no version."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def words(text: str) -> dict[str, str]:
    """`a,b=1` as {"a": "", "b": "1"}, names in lower case, as Slurm compares them."""
    pairs = (word.strip().partition("=") for word in text.split(",") if word.strip())
    return {name.lower(): value for name, _, value in pairs}


def _delay_s(config: Mapping[str, str], version: tuple[int, int]) -> int:
    """As slurmctld reads it: requeue_delay=, else AuthInfo's cred_expire= of at least 5 seconds."""
    own = _first(config.get("SchedulerParameters", ""), "requeue_delay")
    if own and version >= _REQUEUE_DELAY:
        return _atoi(own)
    lifetime = _atoi(_first(config.get("AuthInfo", ""), "cred_expire"))
    return lifetime if lifetime >= CRED_EXPIRE_MIN_S else REQUEUE_DELAY_S


def _first(text: str, name: str) -> str:
    """The value of the first `name=` in a list; here Slurm minds the case."""
    pairs = (word.partition("=") for word in text.split(","))
    return next((value for key, _, value in pairs if key == name), "")


def _atoi(text: str) -> int:
    """The number that a text begins with, or 0, as C's atoi tells it."""
    found = re.match(r"\s*[+-]?\d+", text)
    return int(found[0]) if found else 0
