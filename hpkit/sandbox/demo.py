"""The demonstration: a training run loses a GPU on a real Slurm cluster and goes on elsewhere from its checkpoint.

It tells nothing that it did not see: times are those of the program's own progress file, of Slurm, and of the fault.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hpkit.errors import HpkitError
from hpkit.result import Result
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox.slurmconf import Settings
from hpkit.sandbox.training import WAIT_S, Plan, Run

if TYPE_CHECKING:
    from hpkit.sandbox.cluster import Cluster

T = TypeVar("T")
Telling = Generator[str, None, T]

SCHEMA = "hpkit.sandbox.demo/1"
PLAN = Plan(steps=30, save_every=5, step_s=0.25, save_s=1.5)
BREAK_AFTER = 10  # the newest complete checkpoint when the GPU is lost; the next one is half-written then
LOG_LINES = 15


class Moment(NamedTuple):
    """Something that happened, at wall time `at`."""

    at: float
    text: str


class Outcome(NamedTuple):
    """What the demonstration saw. `recovery_s` is from the fault to the first step that ran again."""

    moments: tuple[Moment, ...]
    fault_at: float
    recovery_s: float
    proofs: tuple[tuple[str, bool], ...]

    @property
    def good(self) -> bool:
        """Everything that was promised is true."""
        return all(true for _, true in self.proofs)


def play(folder: str = "") -> Telling[Result]:
    """Start a cluster of its own, let a GPU die under a training job, watch, and take the cluster down in any case."""
    begun = time.monotonic()

    def at(text: str) -> str:
        return f"{time.monotonic() - begun:6.1f} s  {text}"

    yield at("starting a real Slurm cluster: 4 nodes with 8 simulated GPUs each, hpkit hooked in")
    steps = clusters.starting(folder or f"/var/tmp/hpkit-demo-{os.getpid()}", Settings())
    cluster = yield from told(steps, at)
    try:
        run = Run(cluster, "demo", PLAN)
        try:
            outcome = yield from told(story(cluster, run), at)
        except HpkitError:
            for line in run.log()[-LOG_LINES:]:
                yield f"          job log: {line}"
            raise
        lines = summary(run, outcome)
    finally:
        cluster.down()
    yield at("the cluster is down")
    return Result(document(outcome), lines, 0 if outcome.good else 1)


def told(steps: Telling[T], at: Callable[[str], str]) -> Telling[T]:
    """The lines of a part, each with its time; returns what the part returns."""
    while True:
        try:
            line = next(steps)
        except StopIteration as stop:
            found: T = stop.value
            return found
        yield at(line)


def story(cluster: Cluster, run: Run) -> Telling[Outcome]:
    """Submit, train, break, and see what becomes of it."""
    expected = Run(cluster, "uninterrupted", PLAN).alone()
    yield f"an uninterrupted run of the training program computes {expected}"
    job_id = run.submit()
    yield f"submitted sbatch_templates/train.sbatch as user {cluster.state.account.name}: job {job_id}"
    first = run.event("step")
    nodes = run.nodes()
    yield f"training runs on {' and '.join(nodes)}"
    complete = run.event("saved", step=BREAK_AFTER)
    yield f"the checkpoint of step {complete['step']} is complete"
    half = run.event("saving", complete["wall"])
    bad = nodes[-1]
    fault_at = time.time()
    cluster.brk(bad, "gpu-lost")
    yield f"the checkpoint of step {half['step']} is half-written: {bad} loses a GPU now"
    before = [Moment(first["wall"], f"first step on {','.join(nodes)}")]
    before.append(Moment(complete["wall"], f"checkpoint of step {complete['step']} is complete"))
    before.append(
        Moment(fault_at, f"{bad} loses a GPU; the checkpoint of step {half['step']} is half-written")
    )
    return (yield from recovery(run, bad, fault_at, before, complete["step"], expected))


def recovery(
    run: Run, bad: str, fault_at: float, moments: list[Moment], complete: int, expected: str
) -> Telling[Outcome]:
    """Watch the node go, the job come back, and the training end."""
    reason = run.await_(f"{bad} is drained", lambda: drained(run.cluster, bad))
    moments.append(Moment(time.time(), f"{bad} is drained: {reason}"))
    yield moments[-1].text
    job = run.await_("the job is requeued", lambda: j if (j := run.job()).restarts else None)
    moments.append(Moment(time.time(), f"the job is requeued, state {'+'.join(sorted(job.flags))}"))
    yield moments[-1].text
    start = run.event("start", fault_at)
    again = run.event("step", start["wall"])
    where = ",".join(start["nodes"])
    moments.append(Moment(start["wall"], f"the program starts on {where} from step {start['step']}"))
    moments.append(Moment(again["wall"], f"step {again['step']} runs"))
    yield f"resumed at step {start['step']} on {where}; step {again['step']} runs again"
    end = run.event("end", fault_at)
    done = run.cluster.wait(run.job_id, ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"), WAIT_S)
    moments.append(Moment(end["wall"], f"training is finished after step {end['step']}"))
    yield f"the job is {'+'.join(sorted(done.flags))}; its result is {run.result()}"
    proofs = (
        (f"{bad} was drained with hpkit's reason", reason.startswith("hpkit: gpu.count: ")),
        ("the job was requeued once", done.restarts == 1),
        (f"it did not run on {bad} again", bad not in start["nodes"]),
        (f"it resumed at step {complete}, the newest complete checkpoint", start["step"] == complete),
        ("the job completed", "COMPLETED" in done.flags),
        ("the result equals that of the uninterrupted run", run.result() == expected),
    )
    return Outcome(tuple(moments), fault_at, again["wall"] - fault_at, proofs)


def drained(cluster: Cluster, name: str) -> str | None:
    """The reason of a drained node, None while it is in service."""
    node = cluster.node(name)
    return node.reason if "DRAIN" in node.flags else None


def summary(run: Run, outcome: Outcome) -> list[str]:
    """The timeline, what hp-srun said, what was proven, and the recovery time."""
    lines = ["", "Timeline (seconds from the loss of the GPU):"]
    lines += [f"  {moment.at - outcome.fault_at:+7.1f}  {moment.text}" for moment in sorted(outcome.moments)]
    said = [line for line in run.log() if "hp-srun" in line]
    if said:
        lines += ["", "What hp-srun wrote into the job's log:", *(f"  {line}" for line in said)]
    lines += ["", "Proven:"]
    lines += [f"  {'yes' if true else 'NO '}  {text}" for text, true in outcome.proofs]
    return [
        *lines,
        "",
        f"Recovery time, from the lost GPU to the next step that ran: {outcome.recovery_s:.1f} s",
    ]


def document(outcome: Outcome) -> dict[str, Any]:
    """The outcome as JSON."""
    return {
        "schema": SCHEMA,
        "good": outcome.good,
        "recovery_s": round(outcome.recovery_s, 3),
        "timeline": [
            {"after_s": round(moment.at - outcome.fault_at, 3), "text": moment.text}
            for moment in outcome.moments
        ],
        "proofs": [{"what": what, "true": true} for what, true in outcome.proofs],
    }
