"""The step that asks the nodes is tried again where Slurm could not start it: slurmctld has just come back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpkit.resume import evidence
from hpkit.resume.evidence import ask
from tests.support.fake_srun import FakeSrun

SAID = {"node": "n1", "note": True, "root": {"verdict": "healthy", "failures": []}, "report": None}
REFUSED = "echo 'srun: error: Unable to create step: Memory required by task is not available' >&2; exit 1"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSrun:
    made = FakeSrun(tmp_path / "srun")
    monkeypatch.setattr(evidence, "AGAIN_S", (0.0, 0.0, 0.0))
    return made


def calls(fake: FakeSrun) -> int:
    return len([json.loads(line) for line in (fake.folder / "calls").read_text().splitlines()])


def test_a_step_that_could_not_start_is_tried_again(fake: FakeSrun) -> None:
    fake.answers(SAID)
    said = (fake.folder / "witness.sh").read_text()
    fake.witness(f"[ $(wc -l <{fake.folder}/calls) -gt 2 ] || {{ {REFUSED}; }}\n{said}")
    assert set(ask(("n1",), {"PATH": fake.path}, 5.0)) == {"n1"}
    assert calls(fake) == 3


def test_not_for_ever(fake: FakeSrun) -> None:
    fake.witness(REFUSED)
    assert ask(("n1",), {"PATH": fake.path}, 5.0) == {}
    assert calls(fake) == 4


def test_a_step_that_ran_is_not(fake: FakeSrun) -> None:
    fake.witness("exit 0")
    assert ask(("n1",), {"PATH": fake.path}, 5.0) == {}
    assert calls(fake) == 1


def test_one_answer_is_enough(fake: FakeSrun) -> None:
    """The others ran and were silent: asking them again would ask that node twice."""
    fake.answers(SAID)
    fake.witness((fake.folder / "witness.sh").read_text() + "\nexit 1")
    assert set(ask(("n1", "n2"), {"PATH": fake.path}, 5.0)) == {"n1"}
    assert calls(fake) == 1
