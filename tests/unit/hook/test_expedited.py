"""The epilog of an expedited job, run as Slurm runs it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpkit import hook, proc
from tests.support import slurm_texts
from tests.support.node_root import NodeRoot
from tests.unit.hook.test_hook import EPILOG

DRAINED = {"state": "IDLE+DRAIN", "reason": "hpkit: gpu.count: 7 of 8 GPUs"}
GOOD = {"state": "IDLE", "reason": ""}
LONG_AGO = 1000.0  # so that no moment is waited for


@pytest.fixture
def node(tmp_path: Path) -> NodeRoot:
    found = NodeRoot(tmp_path)
    found.configure(more='[hooks]\nwatcher = "none"\n')
    return found


def epilog(
    node: NodeRoot,
    n1: dict[str, str] = DRAINED,
    *,
    owner: str = "1000",
    ended: float = LONG_AGO,
    code: str = "7:0",
    requeue: bool = True,
) -> proc.Ran:
    """The epilog of a failed expedited job; `owner` left a note on this node, which was answered."""
    text = slurm_texts.job("12", state="COMPLETING", flags="ExpeditedRequeue=Yes ")
    text = text.replace("Restarts=3", "Restarts=0").replace("Requeue=1", f"Requeue={int(requeue)}")
    node.slurm(n1=n1, n2=GOOD, job=text)
    (node.run_dir / "answered").mkdir(parents=True, exist_ok=True)
    (node.run_dir / "answered" / "12").write_text(owner)
    return node.hook(
        "epilog",
        **EPILOG,
        SLURM_JOB_EXIT_CODE2=code,
        SLURM_JOB_END_TIME=str(int(ended)),
    )


def test_roots_drain_is_the_answer_and_no_round_is_run(node: NodeRoot) -> None:
    """The fault may be gone for the moment, or make a round take long: either way the job would not come back."""
    ran = epilog(node)
    assert ran.rc == hook.REJECT
    assert ran.text == "hpkit: gpu.count: 7 of 8 GPUs\n"
    assert node.state("report-epilog.json") is None
    assert node.node() == DRAINED, "nothing is written to Slurm"
    assert "event=expedited job=12 drained=True rejected=True" in node.log()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"n1": GOOD}, True),
        ({"n1": {"state": "IDLE+DRAIN", "reason": "psu swap"}}, True),
        ({"owner": "1001"}, False),  # another user's note
        ({"code": "0:0"}, False),  # requeued from inside
        ({"code": "0:9"}, False),  # a script that a signal ended is not put back
        ({"requeue": False}, False),  # it ends for good
    ],
)
def test_in_any_other_case_the_round_decides(node: NodeRoot, change: dict[str, object], told: bool) -> None:
    ran = epilog(node, **change)  # type: ignore[arg-type] # keywords of several kinds
    assert (ran.rc, ran.text) == (0, "")
    assert ("event=expedited" in node.log()) is told


def test_a_failed_round_of_an_expedited_job_still_drains(node: NodeRoot) -> None:
    node.disk(used=100)
    assert epilog(node, GOOD).rc == hook.REJECT
    assert node.node()["reason"].startswith("hpkit: host.disk: ")


def test_observing_changes_nothing(node: NodeRoot) -> None:
    node.configure("observe", '[hooks]\nwatcher = "none"\n')
    ran = epilog(node)
    assert (ran.rc, node.slurm_calls()) == (0, [])


def test_the_epilogs_end_together(node: NodeRoot) -> None:
    begun = time.time()
    epilog(node, GOOD, ended=begun)
    assert time.time() >= int(begun) + 4
    assert "waited_s=" in node.log()


@pytest.mark.parametrize("allowed", [True, False])
def test_the_helper_is_told_of_the_run_that_ended(node: NodeRoot, allowed: bool) -> None:
    flag = str(allowed).lower()
    node.configure(more=f'[hooks]\nwatcher = "none"\nrelease_held = {flag}\nstart_requeued = {flag}\n')
    epilog(node)
    node.slurm(n1=DRAINED, n2=GOOD)  # the job is gone
    until = time.monotonic() + (20 if allowed else 1)
    while "helper-ended" not in node.log() and time.monotonic() < until:
        time.sleep(0.05)
    assert ("event=helper-ended helper=start job=12 outcome=gone" in node.log()) is allowed
