"""What is gathered after a failed step: Slurm in memory, a real witness step played by a fake srun."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hpkit.resume.cause import judge
from hpkit.resume.evidence import ask, gather, job_nodes, witness_argv, witness_from
from hpkit.resume.facts import Evidence
from hpkit.resume.supervisor import Ended
from tests.support.fake_slurm import FakeSlurm, running
from tests.support.fake_srun import FakeSrun

ENDED = Ended(3, 1_699_999_000.0, 1_700_000_000.0)
FAILURE = {
    "check": "gpu.count",
    "subject": "",
    "status": "fail",
    "action": "reboot",
    "message": "7 of 8 GPUs",
}
WARNING = {**FAILURE, "status": "warn"}


def document(node: str, verdict: str = "healthy", *own: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    failures = [FAILURE] if verdict == "unhealthy" else []
    root = {"schema": "hpkit.answer/1", "verdict": verdict, "failures": failures} if verdict else None
    report = {"findings": list(own)}
    return {"schema": "hpkit.witness/1", "node": node, "note": True, "root": root, "report": report, **more}


@pytest.fixture
def fake(tmp_path: Path) -> FakeSrun:
    return FakeSrun(tmp_path / "fake")


@pytest.fixture
def slurm() -> FakeSlurm:
    made = FakeSlurm.of(4)
    made.queue["7"] = running("7", "n[1-2]")._replace(num_nodes=2)
    return made


def env(fake: FakeSrun) -> dict[str, str]:
    return {
        "PATH": fake.path,
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_NTASKS_PER_NODE": "8",
    }


def gathered(slurm: FakeSlurm, fake: FakeSrun, answer_s: float = 5.0, signal: int = 0) -> Evidence:
    return gather(slurm, "7", ENDED, env(fake), answer_s, lambda: signal)


def test_all_nodes_are_asked_in_one_step(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1"), document("n2"))
    found = gathered(slurm, fake)
    assert judge(found).kind == "user"
    assert len(fake.calls) == 1
    words = fake.calls[0]
    assert {"--overlap", "--gres=none", "--mem=0", "-K0", "--ntasks-per-node=1"} <= set(words)
    assert words[words.index("-w") + 1] == "n1,n2" and words[words.index("-N") + 1] == "2"


def test_the_batch_scripts_shape_does_not_reach_the_witness_step(slurm: FakeSlurm, fake: FakeSrun) -> None:
    gathered(slurm, fake, 0.0)
    seen = fake.env(witness=True)
    assert seen["SLURM_JOB_ID"] == "7"
    assert not {"SLURM_NTASKS_PER_NODE", "SLURM_JOB_NODELIST"} & set(seen)


def test_an_unhealthy_answer_names_the_node(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1"), document("n2", "unhealthy"))
    cause = judge(gathered(slurm, fake))
    assert (cause.kind, cause.nodes) == ("hardware", ("n2",))
    assert "7 of 8 GPUs" in cause.why


def test_what_the_user_sees_in_the_step_counts_too(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1", "healthy", WARNING), document("n2", "", FAILURE, WARNING))
    assert judge(gathered(slurm, fake)).nodes == ("n2",)


def test_a_silent_node_is_recorded_as_such(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1"))
    found = gathered(slurm, fake)
    assert [(n.name, n.witness is not None) for n in found.nodes] == [("n1", True), ("n2", False)]
    assert judge(found).kind == "unknown"


def test_a_witness_step_that_hangs_is_left_at_the_deadline(
    fake: FakeSrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpkit.resume.evidence.LAUNCH_S", 0.5)
    fake.answers(document("n1"))
    fake.witness(f"cat {fake.folder}/said; trap '' TERM; exec sleep 60")
    assert set(ask(("n1", "n2"), {"PATH": fake.path}, 0.5)) == {"n1"}


def test_no_srun_means_no_witness(tmp_path: Path) -> None:
    assert ask(("n1",), {"PATH": str(tmp_path)}, 1.0) == {}


def test_the_others_get_little_time_once_a_node_is_known_to_be_faulty(
    slurm: FakeSlurm, fake: FakeSrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpkit.resume.evidence.SETTLE_S", 0.2)
    fake.answers(document("n2", "unhealthy"))
    fake.witness(f"cat {fake.folder}/said; while :; do sleep 0.1; echo tick; done")
    found = ask(("n1", "n2"), {"PATH": fake.path}, 500.0)  # ends at all: that is the test
    assert set(found) == {"n2"}


def test_a_full_disk_does_not_hurry_the_others(
    slurm: FakeSlurm, fake: FakeSrun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpkit.resume.evidence.SETTLE_S", 0.0)
    full = document("n1", "unhealthy")
    full["root"]["failures"] = [{**FAILURE, "check": "host.disk", "message": "/ is full"}]
    fake.answers(full)
    first = (fake.folder / "said").read_text()
    fake.answers(document("n2", "unhealthy"))
    fake.witness(f"echo '{first}'; sleep 0.3; cat {fake.folder}/said")
    found = gathered(slurm, fake)
    assert judge(found).nodes == ("n2",)


@pytest.mark.parametrize("flags", ["CANCELLED+COMPLETING", "TIMEOUT+COMPLETING", "PENDING+REQUEUED"])
def test_no_node_is_asked_when_slurm_ended_the_job(slurm: FakeSlurm, fake: FakeSrun, flags: str) -> None:
    slurm.queue["7"] = slurm.queue["7"]._replace(flags=frozenset(flags.split("+")))
    assert judge(gathered(slurm, fake)).kind == "scheduler"
    assert fake.calls == []


def test_a_cancel_while_the_nodes_are_asked_is_seen(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1"), document("n2", "unhealthy"))

    class Racing(FakeSlurm):
        def hostnames(self, expression: str) -> tuple[str, ...]:
            self.queue["7"] = self.queue["7"]._replace(flags=frozenset({"CANCELLED"}))
            return super().hostnames(expression)

    racing = Racing(slurm.table.values(), slurm.queue.values())
    assert judge(gathered(racing, fake)).kind == "scheduler"


@pytest.mark.parametrize("flags", ["DOWN", "ALLOCATED+NOT_RESPONDING"])
def test_a_node_that_slurm_has_lost_is_not_asked(slurm: FakeSlurm, fake: FakeSrun, flags: str) -> None:
    slurm.put("n2", flags=flags, reason="Not responding")
    fake.answers(document("n1"))
    assert judge(gathered(slurm, fake)).nodes == ("n2",)
    assert fake.calls[0][fake.calls[0].index("-w") + 1] == "n1"


def test_a_controller_that_does_not_answer(slurm: FakeSlurm, fake: FakeSrun) -> None:
    slurm.down = "unreachable"
    found = gathered(slurm, fake)
    assert found.job is None and found.job_trouble
    assert judge(found).kind == "unknown"


def test_the_nodes_come_from_the_environment_when_the_job_is_not_known(slurm: FakeSlurm) -> None:
    assert job_nodes(slurm, None, {"SLURM_JOB_NODELIST": "n[1-2]"}) == ("n1", "n2")
    assert job_nodes(slurm, None, {}) == ()


def test_a_signal_that_came_meanwhile_counts(slurm: FakeSlurm, fake: FakeSrun) -> None:
    fake.answers(document("n1"), document("n2", "unhealthy"))
    assert judge(gathered(slurm, fake, signal=15)).kind == "scheduler"


@pytest.mark.parametrize(
    "broken",
    [
        {"root": {"verdict": "unhealthy", "failures": [{"check": "x"}]}, "note": True},
        {"root": {"verdict": "healthy", "failures": 7}, "note": True},
        {"report": {"findings": [{"status": "no such"}]}, "note": True},
    ],
)
def test_an_answer_that_is_not_understood_clears_nobody(broken: dict[str, Any]) -> None:
    witness = witness_from(broken)
    assert (witness.root, witness.failures, witness.own_failures) == ("", (), ())
    assert "understood" in witness.trouble


@pytest.mark.parametrize(("told", "acts"), [(True, True), (False, False), ("yes", False), (None, False)])
def test_only_a_clear_word_says_that_hpkit_acts_there(told: object, acts: bool) -> None:
    assert witness_from(document("n1", enforce=told)).enforce is acts
    assert witness_from(document("n1")).enforce is False


def test_the_witness_of_this_python_starts_from_anywhere() -> None:
    argv = witness_argv(("n1",), 2.5)
    assert argv[-1] == "2.5" and os.path.isdir(os.path.join(argv[-2], "hpkit"))


@pytest.mark.parametrize(
    ("flags", "kind", "blamed"),
    [("DOWN+NOT_RESPONDING", "hardware", ("n2",)), ("IDLE", "user", ())],  # IDLE: the user gave it back
)
def test_a_node_that_slurm_took_out_of_the_job_is_looked_at(
    slurm: FakeSlurm, fake: FakeSrun, flags: str, kind: str, blamed: tuple[str, ...]
) -> None:
    slurm.queue["7"] = slurm.queue["7"]._replace(nodes="n1")
    slurm.put("n2", flags=flags, reason="Not responding")
    fake.answers(document("n1"))
    cause = judge(gathered(slurm, fake))
    assert (cause.kind, cause.nodes) == (kind, blamed)
    assert fake.calls[0][fake.calls[0].index("-w") + 1] == "n1"
