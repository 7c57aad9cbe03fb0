"""The token at the end of a drain reason, for nodes that lose their files at a reboot: ` (reboot 1f3a9c2e-77aa)`.

It holds what the return rule needs: the action, and digests of the boot id and the instance id of the drain (the second
is left out when the instance is not known). The digests only tell "the same" from "another".
"""

from __future__ import annotations

import re
from typing import NamedTuple

from hpkit.model import Action
from hpkit.policy.ownership import base_reason
from hpkit.policy.verdict import LIMIT, one_line

MARK = "#"  # begins an id of which only the digest is known; boot ids and instance ids never do
BOOT_DIGITS = 8
INSTANCE_DIGITS = 4  # a replacement that looks like the old instance (1 in 65536) waits for a person

_TOKEN = re.compile(
    rf" \(({'|'.join(action.value for action in Action)})"
    rf" ([0-9a-f]{{{BOOT_DIGITS}}})(?:-([0-9a-f]{{{INSTANCE_DIGITS}}}))?\)"
)


class Token(NamedTuple):
    """What a token tells; the ids are digests behind a `#`, "" for an instance that was not known."""

    action: Action
    boot_id: str
    instance_id: str


def signed(reason: str, action: Action, boot_id: str, instance_id: str) -> str:
    """The reason with its token, one line of at most 200 characters.

    The same faults in the same boot give the same text. Without a boot id nothing can be told later: no token.
    """
    if not reason or not boot_id:
        return reason
    instance = f"-{_digest(instance_id, INSTANCE_DIGITS)}" if instance_id else ""
    token = f" ({action.value} {_digest(boot_id, BOOT_DIGITS)}{instance})"
    return one_line(reason, LIMIT - len(token)) + token


def found(reason: str) -> tuple[str, Token] | None:
    """The reason as it was written, up to its token, and the token; None when it does not end with one.

    What Slurm itself appended does not matter. Only the last token counts: an earlier one is text of a finding, which
    anybody may have chosen.
    """
    tokens = list(_TOKEN.finditer(reason))
    if not tokens or base_reason(reason[tokens[-1].end() :]):
        return None
    last = tokens[-1]
    instance = f"{MARK}{last[3]}" if last[3] else ""
    return reason[: last.end()], Token(Action(last[1]), f"{MARK}{last[2]}", instance)


def same(kept: str, now: str) -> bool:
    """Whether an id that was kept, as it was or as a digest, is the id `now`."""
    if kept.startswith(MARK):
        digits = kept[len(MARK) :]
        return bool(digits and now) and _digest(now, len(digits)) == digits
    return kept == now


def _digest(text: str, digits: int) -> str:
    from hashlib import sha256  # costs a shared library, and most rounds need none

    return sha256(text.encode()).hexdigest()[:digits]
