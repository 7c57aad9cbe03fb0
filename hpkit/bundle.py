"""Making a bundle: a folder that holds everything a round saw, so that it can be looked at elsewhere."""

from __future__ import annotations

import os

from hpkit import host
from hpkit.errors import HpkitError, UsageError
from hpkit.host import Host
from hpkit.model import Unread
from hpkit.paths import Paths

_MOST_SHOWN = 3


def start(folder: str, inner: Host | None = None) -> Host:
    """A host that records `inner` (this machine when not given) into a new bundle in `folder`, hpkit's own state first.

    The folder is made, readable by its owner alone: a kernel log tells more than a user may know. Raises UsageError
    when there is something already, HpkitError when it cannot be written.
    """
    refusal = UsageError(
        f"{folder} exists and is not an empty folder",
        "name a new folder: a bundle is never mixed with other files",
    )
    try:
        os.makedirs(folder, mode=0o700)
    except FileExistsError:
        if not os.path.isdir(folder) or os.listdir(folder):
            raise refusal from None
    except OSError as error:
        raise HpkitError(f"cannot make the bundle {folder}: {error.strerror}") from error
    try:
        recording = host.record(inner or host.live(), folder)
    except OSError as error:
        raise HpkitError(f"cannot write the bundle {folder}: {error.strerror}") from error
    _keep_own_state(recording)
    return recording


def finish(recording: Host) -> None:
    """Say whether the recording is whole: raises HpkitError when some answers could not be written."""
    from hpkit.hosts.record import RecordHost

    if isinstance(recording, RecordHost) and recording.problems:
        shown = "; ".join(recording.problems[:_MOST_SHOWN])
        raise HpkitError(f"the bundle lacks {len(recording.problems)} answers: {shown}", "is the disk full?")


def _keep_own_state(recording: Host) -> None:
    """hpkit's configuration, baselines, record and last reports, as files of that machine."""
    own = Paths()
    for folder in (own.etc, f"{own.etc}/conf.d", own.lib, own.run):
        names = recording.list(folder)
        for name in () if isinstance(names, Unread) else names:
            if not isinstance(recording.link(f"{folder}/{name}"), Unread):
                continue  # nothing of ours is a link
            recording.read(f"{folder}/{name}")
