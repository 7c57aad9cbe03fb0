"""The ways to restart a job, told from Slurm's configuration alone."""

from __future__ import annotations

import pytest

from hpkit.slurm import abilities, ways

ALL = ways.Hooks(True, True, True)


def table(config: dict[str, str], hooks: ways.Hooks = ALL) -> dict[str, ways.Way]:
    return {way.name: way for way in ways.ways(abilities.look(config), config, hooks, 8)}


@pytest.mark.parametrize(
    "release, parameters, is_open, says",
    [
        ("22.05.8", "enable_expedited_requeue", False, "22.05.8 has none"),
        ("25.05.3", "enable_expedited_requeue", False, "25.05.3 has none"),
        ("25.11.3", "", False, "not enabled"),
        ("25.11.2", "enable_expedited_requeue", False, "even when it ended well"),
        ("25.11.10", "idle_on_node_suspend,Enable_Expedited_Requeue", True, "before all other jobs"),
        ("26.05.5", "enable_expedited_requeue", True, "keeps its healthy nodes"),
        ("26.11.0-0rc1", "enable_expedited_requeue", True, "keeps its healthy nodes"),
        ("", "enable_expedited_requeue", False, "has none"),
    ],
)
def test_expedited(release: str, parameters: str, is_open: bool, says: str) -> None:
    way = table({"SLURM_VERSION": release, "SlurmctldParameters": parameters})[ways.EXPEDITED]
    assert (way.open, says in way.text) == (is_open, True)
    assert way.hint.startswith("add enable_expedited_requeue") == (way.text == "not enabled")


@pytest.mark.parametrize(
    "hooks, is_open, says",
    [
        (ways.Hooks(False, True, True), False, "does not name hpkit's epilog itself"),
        (ways.Hooks(True, False, True), False, "only observes"),
        (ways.Hooks(True, None, True), None, "where hpkit acts on the nodes"),
        (ways.Hooks(True, True, False), True, "keeps its healthy nodes"),
    ],
)
def test_expedited_needs_an_epilog_that_fails(hooks: ways.Hooks, is_open: bool | None, says: str) -> None:
    way = table({"SLURM_VERSION": "26.05.5", "SlurmctldParameters": "enable_expedited_requeue"}, hooks)[
        ways.EXPEDITED
    ]
    assert (way.open, says in way.text) == (is_open, True)
    assert way.hint


@pytest.mark.parametrize(
    "hooks, is_open, says",
    [
        (ALL, True, ""),
        (ways.Hooks(False, True, True), False, "not in slurm.conf"),
        (ways.Hooks(True, False, True), False, "only observes"),
        (ways.Hooks(True, None, True), None, "where hpkit acts"),
        (ways.Hooks(True, True, False), False, "switched off"),
    ],
)
def test_the_helper_of_the_epilog(hooks: ways.Hooks, is_open: bool | None, says: str) -> None:
    way = table({"SLURM_VERSION": "24.11.5"}, hooks)[ways.BY_ROOT]
    assert way.open is is_open
    assert says in way.text
    assert bool(way.hint) == bool(says)


def test_jobs_that_may_not_be_requeued_are_told_how() -> None:
    found = table({"SLURM_VERSION": "24.11.5", "JobRequeue": "0"})
    assert "sbatch --requeue" in found[ways.BY_USER].hint
    assert "sbatch --requeue" in found[ways.BY_ROOT].hint
    assert not table({"SLURM_VERSION": "24.11.5", "JobRequeue": "1"})[ways.BY_USER].hint


@pytest.mark.parametrize(
    "config, waits_s, hint",
    [
        ({"SLURM_VERSION": "24.11.5"}, 121, "cred_expire"),
        ({"SLURM_VERSION": "24.11.5", "AuthInfo": "socket=/x,cred_expire=30"}, 31, "cred_expire"),
        ({"SLURM_VERSION": "24.11.5", "SchedulerParameters": "requeue_delay=5"}, 121, "cred_expire"),
        ({"SLURM_VERSION": "26.05.5", "SchedulerParameters": "requeue_delay=5"}, 6, "requeue_delay"),
        (
            {
                "SLURM_VERSION": "26.05.5",
                "SchedulerParameters": "requeue_delay=x",
                "AuthInfo": "cred_expire=9",
            },
            1,
            "requeue_delay",
        ),
    ],
)
def test_slurms_own_delay(config: dict[str, str], waits_s: int, hint: str) -> None:
    way = table(config)[ways.BY_SLURM]
    assert f"begins {waits_s} s after" in way.text
    assert hint in way.hint
