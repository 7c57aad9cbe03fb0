"""What a release can do: seen where it can be seen, and told by the release where nothing shows it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hpkit.slurm import abilities
from hpkit.slurm.abilities import Abilities

SHOWN = {
    "22.05.8": {"Prolog": ""},
    "23.11.4": {"Prolog": "/x"},
    "24.11.5": {"Prolog[0]": "/x"},
    "26.05.5": {},
}


def of(release: str, **config: str) -> Abilities:
    return abilities.look({"SLURM_VERSION": release, **config})


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("22.05.8", (22, 5)),
        ("25.11.0-0rc1", (25, 11)),
        ("26.05.5", (26, 5)),
        ("21.08.8-2", (21, 8)),
        ("", (0, 0)),
        ("next", (0, 0)),
    ],
)
def test_versions(release: str, expected: tuple[int, int]) -> None:
    assert abilities.version_of(release) == expected


@pytest.mark.parametrize(
    ("release", "expedited", "delay", "timeouts", "cgroups"),
    [
        ("", 0, 0, 0, 0),
        ("22.05.8", 0, 0, 0, 0),
        ("24.05.0", 0, 0, 0, 1),
        ("24.11.5", 0, 0, 0, 1),
        ("25.05.1", 0, 0, 1, 1),
        ("25.11.0", 1, 1, 1, 1),
        ("26.05.5", 1, 1, 1, 1),
        ("27.11.0", 1, 1, 1, 1),
    ],
)
def test_what_only_the_release_tells(
    release: str, expedited: int, delay: int, timeouts: int, cgroups: int
) -> None:
    able = of(release)
    assert (able.knows_expedited, able.knows_requeue_delay) == (bool(expedited), bool(delay))
    assert (able.hook_timeouts, able.cgroups_can_be_off) == (bool(timeouts), bool(cgroups))


@pytest.mark.parametrize(
    ("release", "many"), [("22.05.8", 0), ("23.11.4", 0), ("24.11.5", 1), ("26.05.5", 1)]
)
def test_several_prologs_are_seen_by_how_they_are_shown(release: str, many: int) -> None:
    assert of(release, **SHOWN[release]).many_hooks == bool(many)


def test_no_answer_can_do_nothing() -> None:
    assert abilities.look({}) == Abilities()


@pytest.mark.parametrize(
    ("release", "scheduler", "auth", "expected"),
    [
        ("22.05.8", "", "", 120),
        ("22.05.8", "requeue_delay=5", "", 120),
        ("25.05.1", "requeue_delay=5", "socket=/x,cred_expire=30", 30),
        ("25.11.0", "bf_interval=3,requeue_delay=5", "cred_expire=30", 5),
        ("25.11.0", "requeue_delay=0", "", 0),
        ("25.11.0", "requeue_delay=7,requeue_delay=9", "", 7),
        ("25.11.0", "requeue_delay=", "cred_expire=30", 30),
        ("25.11.0", "Requeue_Delay=5", "", 120),
        ("25.11.0", "requeue_delay=soon", "", 0),
        ("26.05.5", "", "cred_expire=4", 120),
        ("26.05.5", "", "cred_expire=5", 5),
    ],
)
def test_how_long_a_requeue_waits(release: str, scheduler: str, auth: str, expected: int) -> None:
    assert of(release, SchedulerParameters=scheduler, AuthInfo=auth).requeue_delay_s == expected


@pytest.mark.parametrize(
    ("release", "parameters", "expected"),
    [
        ("25.11.0", "enable_expedited_requeue", True),
        ("25.11.0", "x=1,Enable_Expedited_Requeue", True),
        ("25.11.0", "", False),
        ("24.11.5", "enable_expedited_requeue", False),
    ],
)
def test_expedited_requeue_is_known_and_enabled(release: str, parameters: str, expected: bool) -> None:
    assert of(release, SlurmctldParameters=parameters).expedited_requeue is expected


def compares_releases(tree: ast.AST) -> bool:
    """Whether something is compared with a release: a pair like (25, 11)."""
    pairs = [
        [part.value for part in side.elts if isinstance(part, ast.Constant)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Tuple)
    ]
    return any(len(pair) == 2 and isinstance(pair[0], int) and 20 <= pair[0] <= 40 for pair in pairs)


def test_no_other_file_knows_one_release_from_another() -> None:
    assert compares_releases(ast.parse("x = able.version >= (25, 11)"))
    top = Path(abilities.__file__).parents[1]
    found = {
        str(path.relative_to(top))
        for path in top.rglob("*.py")
        if compares_releases(ast.parse(path.read_text()))
    }
    # The sandbox writes cgroup.conf before there is a Slurm to look at.
    assert found <= {"slurm/abilities.py", "sandbox/slurmconf.py"}
