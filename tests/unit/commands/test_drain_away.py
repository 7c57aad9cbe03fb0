"""`hpkit drain` and `undrain` of several nodes when Slurm falls silent on the way, or says no to this person."""

from __future__ import annotations

import json

import pytest

from hpkit.commands.drain import drain
from hpkit.commands.undrain import undrain
from hpkit.config import DrainConfig
from hpkit.errors import SlurmError
from tests.support.fake_slurm import FakeSlurm

RULES = DrainConfig()
HINT = "only root and an operator of the cluster may do that"


class Silent(FakeSlurm):
    """Falls silent after so many calls."""

    left = 0

    def _look(self) -> None:
        self._count()
        super()._look()

    def _count(self) -> None:
        self.down = "" if self.left > 0 else "timeout"
        self.left -= 1

    def _begin(self, *, root_only: bool = False) -> None:
        self._count()
        super()._begin(root_only=root_only)


def silent_after(calls: int) -> Silent:
    made = Silent(FakeSlurm.of(4).table.values())
    made.left = calls
    return made


@pytest.mark.parametrize("calls", [0, 1])
def test_nothing_was_done_and_that_is_an_error(calls: int) -> None:
    slurm = silent_after(calls)
    with pytest.raises(SlurmError) as caught:
        drain(slurm, ("n1", "n2"), "fan", False, RULES)
    assert (caught.value.kind, slurm.writes) == ("timeout", [])


@pytest.mark.parametrize("calls", [3, 4])
def test_what_was_done_before_is_told(calls: int) -> None:
    """One node takes three calls: look, drain, look again."""
    slurm = silent_after(calls)
    done = drain(slurm, ("n1", "n2", "n3"), "fan", False, RULES)
    json.dumps(done.document)
    told = {step["node"]: (step["outcome"], step["good"]) for step in done.document["nodes"]}
    assert told == {"n1": ("drained", True), "n2": ("timeout", False), "n3": ("not-asked", False)}
    assert done.code == 4
    assert "not known" in done.lines[-1] and done.document["budget"] == []


def test_only_the_budget_is_not_known() -> None:
    slurm = silent_after(6)
    done = drain(slurm, ("n1", "n2"), "fan", False, RULES)
    assert (done.code, slurm.writes[1][1]) == (0, "n2")
    assert "not known" in done.lines[-1]


def test_what_slurm_accepted_is_done_though_it_was_not_read_back() -> None:
    slurm = silent_after(2)
    done = drain(slurm, ("n1", "n2"), "fan", False, RULES)
    assert [s["outcome"] for s in done.document["nodes"]] == ["drained", "timeout"]
    assert "not read back" in done.lines[0]
    assert (done.code, slurm.writes) == (4, [("drain", "n1", "hpkit: admin: fan")])


@pytest.mark.parametrize("calls", [2, 3, 4])
def test_undrain_tells_it_too(calls: int) -> None:
    slurm = silent_after(calls)
    for name in ("n1", "n2"):
        slurm.put(name, flags="IDLE+DRAIN", reason="hpkit: a.b: x", by="root", at=1.0)
    done = undrain(slurm, ("n1", "n2"), False)
    assert [s["outcome"] for s in done.document["nodes"]] == ["returned", "timeout"]
    assert ("not read back" in done.lines[0]) == (calls == 2)


def test_who_may_not_is_told_who_may() -> None:
    slurm = FakeSlurm.of(2)

    def denied() -> None:
        raise SlurmError("denied", "slurm_update error: Invalid user id", HINT)

    slurm.before_write = denied
    done = drain(slurm, ("n1", "n2"), "fan", False, RULES)
    assert [step["outcome"] for step in done.document["nodes"]] == ["denied", "denied"]
    assert all(HINT in line for line in done.lines[:2])
    assert done.code == 1
