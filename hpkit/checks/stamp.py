"""Times in messages."""

from __future__ import annotations

import time

LATEST = 253_402_300_799.0  # the last second of the year 9999


def utc(wall: float) -> str:
    """Wall time (seconds since 1970) as `2026-03-01 12:00:00Z`; a number that is no sensible time says so."""
    if not 0.0 <= wall <= LATEST:
        return "at an unknown time"
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(wall))
