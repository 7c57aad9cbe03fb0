"""From where the machine is looked at: view, user, time, and which GPUs this step was given."""

from __future__ import annotations

from typing import NamedTuple

from hpkit.host import Host
from hpkit.model import View
from hpkit.want import Want

GRES = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES")
"""Where Slurm tells a step its GPUs, the surest first: the two others may be inherited from the batch script."""


class Place(NamedTuple):
    """`own_gpus` is how many GPUs the environment says that we were given (None: it does not say, or names MIG parts).

    `own_source` is the variable that says so. `wall` and `uptime` are seconds.
    """

    view: View
    uid: int
    wall: float
    uptime: float
    own_gpus: int | None = None
    own_source: str = ""

    @property
    def sees_all(self) -> bool:
        """Root on the host: nothing is hidden, so what cannot be read is an error."""
        return self.view is View.NODE and self.uid == 0


def probe(host: Host, _want: Want) -> Place:
    """The place of this round; never fails."""
    clock = host.now()
    place = Place(host.view, host.uid, clock.wall, clock.uptime)
    for name in GRES:
        if name in host.env:
            return place._replace(own_gpus=count(host.env[name]), own_source=name)
    return place


def count(text: str) -> int | None:
    """How many whole GPUs a list like `0,1`, `0-3` or `GPU-5a…,GPU-6b…` names; None when it says nothing certain."""
    if text.strip() in ("", "NoDevFiles", "-1"):
        return 0
    total = 0
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        numbers = [int(n) for n in (low, high) if n.isascii() and n.isdigit()]
        if low == "GPU" or (len(numbers) == 1 and not dash):
            total += 1
        elif len(numbers) == 2 and numbers[1] >= numbers[0]:
            total += numbers[1] - numbers[0] + 1
        else:
            return None
    return total
