"""A program that must outlive the end of the job that it is part of."""

from __future__ import annotations

import pytest

from hpkit import proc


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "PIPE"])
@pytest.mark.parametrize("shield", [True, False])
def test_shield(name: str, shield: bool) -> None:
    ran = proc.run(["/bin/sh", "-c", f"kill -{name} $$; echo alive"], timeout_s=20, shield=shield)
    assert ran.ok is shield
    assert ran.stdout == (b"alive\n" if shield else b"")


def test_a_shielded_program_still_ends_at_its_deadline() -> None:
    ran = proc.run(["/bin/sh", "-c", "sleep 60 & wait; sleep 60"], timeout_s=0.2, grace_s=0.2, shield=True)
    assert ran.failure == "timeout"
