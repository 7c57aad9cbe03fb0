"""The verdict file: written for good verdicts only, trusted for its own boot, time and hooks only."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit.model import Action, Clock, Report, Verdict, View
from hpkit.node import verdict
from hpkit.paths import Paths

BEGUN = Clock(1_700_000_000.0, 500.7, "boot-a")


def report(kind: Verdict) -> Report:
    return Report("n1", "health", View.NODE, BEGUN.wall, 0.1, kind, Action.NONE, ())


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path))
    Path(found.run).mkdir(parents=True)
    return found


@pytest.mark.parametrize("kind", Verdict)
def test_only_a_good_verdict_is_left(paths: Paths, kind: Verdict) -> None:
    Path(verdict.path(paths)).write_text("hpkit/1 boot-a 9999 healthy 1 health prolog\n")
    verdict.write(paths, report(kind), BEGUN, 60.0, ("prolog", "epilog"))
    if kind in (Verdict.HEALTHY, Verdict.DEGRADED):
        line = Path(verdict.path(paths)).read_text()
        assert line == f"hpkit/1 boot-a 680 {kind.value} 500 health prolog,epilog\n"
    else:
        assert not Path(verdict.path(paths)).exists()


def test_a_verdict_that_cannot_be_written_leaves_no_old_one(tmp_path: Path) -> None:
    paths = Paths(str(tmp_path / "absent"))
    with pytest.raises(OSError):
        verdict.write(paths, report(Verdict.HEALTHY), BEGUN, 60.0, ("prolog",))
    assert verdict.read(paths) is None


GOOD = "hpkit/1 boot-a 680 healthy 500 health prolog,epilog\n"
Change = Callable[[str], str]


@pytest.mark.parametrize(
    ("text", "uptime", "boot", "hook", "since", "expected"),
    [
        (GOOD, 600.0, "boot-a", "prolog", 0.0, True),
        (GOOD, 679.9, "boot-a", "epilog", 0.0, True),
        (GOOD, 680.0, "boot-a", "prolog", 0.0, False),
        (GOOD, 499.0, "boot-a", "prolog", 0.0, False),
        (GOOD, 600.0, "boot-b", "prolog", 0.0, False),
        (GOOD, 600.0, "boot-a", "health", 0.0, False),
        (GOOD, 600.0, "boot-a", "prolog", 500.0, True),
        (GOOD, 600.0, "boot-a", "prolog", 500.5, False),
        (GOOD.replace("healthy", "degraded"), 600.0, "boot-a", "prolog", 0.0, True),
        (GOOD.replace("healthy", "unknown"), 600.0, "boot-a", "prolog", 0.0, False),
        (GOOD.replace("hpkit/1", "hpkit/2"), 600.0, "boot-a", "prolog", 0.0, False),
        (GOOD.replace("680", "6x0"), 600.0, "boot-a", "prolog", 0.0, False),
        (GOOD.replace(" prolog,epilog", ""), 600.0, "boot-a", "prolog", 0.0, False),
        ("", 600.0, "boot-a", "prolog", 0.0, False),
        ("\0\xff" * 50, 600.0, "boot-a", "prolog", 0.0, False),
    ],
)
def test_trusted(
    paths: Paths, text: str, uptime: float, boot: str, hook: str, since: float, expected: bool
) -> None:
    Path(verdict.path(paths)).write_text(text)
    found = verdict.trusted(paths, Clock(0.0, uptime, boot), hook, since=since)
    assert (found is not None) is expected


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (("host.*", "gpu.*"), ("host.disk", "gpu.xid"), True),
        (("host.*", "gpu.*"), ("gpu.*",), True),
        (("host.disk",), ("host.*",), False),
        (("*",), ("anything.*", "gpu.xid"), True),
        (("gpu.xid",), (), True),
        ((), ("gpu.xid",), False),
        (("gpu.[!x]*",), ("gpu.*",), False),
        (("gpu.xi?",), ("gpu.xi*",), False),
        (("gpu.[ce]*",), ("gpu.[ce]*",), True),
        (("gpu.*",), ("gpu.[ce]*", "gpu.xi?"), True),
    ],
)
def test_covers(wide: tuple[str, ...], narrow: tuple[str, ...], expected: bool) -> None:
    assert verdict.covers(wide, narrow) is expected


def test_a_round_is_trusted_by_the_hooks_whose_suites_it_covers() -> None:
    suites = {
        "prolog": ("host.disk",),
        "epilog": ("host.disk", "gpu.xid"),
        "health": ("*",),
        "basic": ("*", "x"),
    }
    own = {"prolog": "prolog", "epilog": "epilog", "health": "health"}
    assert verdict.hooks_of("health", own, suites) == ("prolog", "epilog", "health")
    assert verdict.hooks_of("prolog", own, suites) == ("prolog",)
    assert verdict.hooks_of("epilog", own, suites) == ("prolog", "epilog")
    assert verdict.hooks_of("health", {**own, "prolog": "deep"}, suites) == ("epilog", "health")
