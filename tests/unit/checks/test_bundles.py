"""Whole nodes: each recorded bundle gives exactly the findings that its expect.json says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpkit import catalog, checks, config, host, past, runner, want
from hpkit.paths import paths

BUNDLES = sorted((Path(__file__).parents[2] / "fixtures" / "bundles").iterdir())


def replayed(folder: Path) -> runner.Round:
    """The health round of a bundle, with the configuration and the past that lie in it."""
    machine, inside = host.replay(str(folder)), paths(str(folder))
    site = config.load(inside.etc, trusted_only=False)
    rows = checks.select(catalog.suite("health", site.suites))
    expected = want.resolve(site.want, site.slurm, machine)
    options = checks.settings(rows, site)
    before = past.load(inside)
    return runner.collect(
        runner.run(rows, machine, expected, before, suite="health", budget_s=50.0, options=options)
    )


@pytest.mark.parametrize("folder", BUNDLES, ids=[b.name for b in BUNDLES])
def test_bundle(folder: Path) -> None:
    expect: dict[str, Any] = json.loads((folder / "expect.json").read_text())
    report = replayed(folder).report
    told = sorted([f.check, f.subject, f.status.value] for f in report.findings)
    messages = "\n".join(f"{f.check} {f.subject} {f.status.value}: {f.message}" for f in report.findings)
    assert told == sorted(expect["findings"]), messages
    assert (report.verdict.value, report.action.value) == (expect["verdict"], expect["action"]), messages
    assert [text for text in expect["says"] if text not in messages] == [], messages
    assert "own fault" not in messages
    assert all(f.hint for f in report.findings if f.status.value == "fail")


def test_there_are_bundles() -> None:
    assert len(BUNDLES) >= 12
