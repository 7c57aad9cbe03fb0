"""Gathers what is known about a failed step: the job, its nodes, and one witness on each node."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import hpkit
from hpkit import proc
from hpkit.errors import SlurmError
from hpkit.model import Finding, Status, finding_from
from hpkit.resume.cause import blame, judge
from hpkit.resume.facts import Evidence, NodeFacts, Witness
from hpkit.resume.supervisor import Ended
from hpkit.resume.wire import Joiner
from hpkit.slurm.client import Client, Job, Node

LAUNCH_S = 6.0  # for srun to start and end the witness step, beside the seconds that a witness waits for root
SETTLE_S = 2.0  # once a node is known to be faulty, the others get this much longer to tell of theirs
# slurmctld, just started, makes no step on a node that has not registered yet ("Memory required by task is not
# available", measured on 22.05.8 to 26.05.5, for some seconds): pauses before the next try, in seconds.
AGAIN_S = (1.0, 2.0, 4.0, 6.0)
START = "import sys; sys.path.insert(0, sys.argv[1]); from hpkit.resume.witness import main; sys.exit(main())"
KEPT = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME",
    "SLURM_WORKING_CLUSTER", "HPKIT_ROOT",
)  # fmt: skip
"""The witness's environment. The batch script's other SLURM_* shape inner steps (SLURM_NTASKS_PER_NODE, …)."""


def witness_argv(nodes: Sequence[str], answer_s: float, srun: str = "srun") -> tuple[str, ...]:
    """The one step that asks all nodes.

    Beside whatever else runs there (--overlap), without devices or memory of its own (measured on 22.05.8: starts
    beside a step that holds all GPUs and all memory of the job), and going on when one of its tasks fails (-K0).
    """
    count = str(len(nodes))
    shape = ("-N", count, "-n", count, "--ntasks-per-node=1", "-w", ",".join(nodes))
    apart = ("--overlap", "--gres=none", "--mem=0", "-K0", "-Q", "-D", "/", "--input=none")
    lib = os.path.dirname(os.path.dirname(os.path.abspath(hpkit.__file__)))
    program = (sys.executable, "-I", "-c", START, lib, f"{answer_s:g}")
    return (srun, *apart, *shape, *program)


def read_job(client: Client, job_id: str) -> tuple[Job | None, str]:
    """The job, or None and why Slurm did not tell."""
    try:
        return client.job(job_id), ""
    except SlurmError as error:
        return None, error.message


def gather(
    client: Client,
    job_id: str,
    ended: Ended,
    env: Mapping[str, str],
    answer_s: float,
    signal_of: Callable[[], int],
) -> Evidence:
    """The evidence after a failed step; never raises for Slurm's sake.

    It takes at most `answer_s` + `LAUNCH_S` seconds and five calls to Slurm, each with the client's own deadline.

    Nothing is asked of the nodes when Slurm itself ended the job. `signal_of` tells the ending signal that hp-srun got.
    """
    job, trouble = read_job(client, job_id)
    evidence = Evidence(ended.code, ended.begun, ended.ended, signal_of(), job, trouble)
    evidence = evidence._replace(unlaunched=ended.unlaunched, cancelled=ended.cancelled, lost=ended.lost)
    if judge(evidence).kind == "scheduler":
        return evidence
    names = job_nodes(client, job, env)
    states = node_states(client, names)
    up = [n for n in names if not {"DOWN", "NOT_RESPONDING"} & _flags(states, n)]
    known_bad = any(blame(_facts(n, states, {}), ended.begun) for n in names)
    wait_s = SETTLE_S + 1.0 if known_bad else answer_s
    witnesses = ask(up, env, wait_s) if up else {}
    job, trouble = read_job(client, job_id)
    states = node_states(client, names) or states
    nodes = tuple(_facts(n, states, witnesses) for n in names)
    nodes += taken_away(client, names, env, ended.begun)
    return evidence._replace(signal=signal_of(), job=job, job_trouble=trouble, nodes=nodes)


def job_nodes(client: Client, job: Job | None, env: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the job's nodes: from Slurm, else from the batch script's environment; () when neither tells."""
    listed = (job.nodes if job else "") or env.get("SLURM_JOB_NODELIST", "")
    try:
        return client.hostnames(listed) if listed else ()
    except SlurmError:
        return ()


def taken_away(
    client: Client, names: Sequence[str], env: Mapping[str, str], begun: float
) -> tuple[NodeFacts, ...]:
    """The faulty nodes that the job began with and has no more: with --no-kill Slurm takes a failed node out of it."""
    first = job_nodes(client, None, env)
    gone = tuple(name for name in first if name not in names)
    states = node_states(client, gone)
    return tuple(facts for name in gone if blame(facts := _facts(name, states, {}), begun))


def node_states(client: Client, names: Sequence[str]) -> dict[str, Node]:
    """The nodes as Slurm shows them; empty when it does not answer."""
    try:
        return {node.name: node for node in client.nodes(names)} if names else {}
    except SlurmError:
        return {}


def ask(nodes: Sequence[str], env: Mapping[str, str], answer_s: float) -> dict[str, Witness]:
    """What the witnesses of these nodes said, as far as it came in time; a step that was refused is tried again."""
    kept = {name: env[name] for name in KEPT if env.get(name)}
    until = time.monotonic() + answer_s + LAUNCH_S
    pauses = iter(AGAIN_S)
    while True:
        found, refused = _ask_once(nodes, kept, answer_s, until)
        pause = next(pauses, None)
        if not refused or pause is None or time.monotonic() + pause >= until:
            return found
        time.sleep(pause)


def _ask_once(
    nodes: Sequence[str], env: Mapping[str, str], answer_s: float, until: float
) -> tuple[dict[str, Witness], bool]:
    """The answers of one step, until a moment (time.monotonic), and whether Slurm refused to start it."""
    found: dict[str, Witness] = {}
    joiner = Joiner()
    left = max(until - time.monotonic(), 0.0)
    with closing(proc.stream(witness_argv(nodes, answer_s), timeout_s=left, env=env)) as lines:
        while len(found) < len(nodes) and time.monotonic() <= until:
            try:
                told = joiner.feed(next(lines))
            except StopIteration as stop:
                ran: proc.Ran = stop.value
                return found, not (found or ran.failure or ran.ok)
            if told and told[0] in nodes:
                found[told[0]] = witness = witness_from(told[1])
                if blame(NodeFacts(told[0], witness=witness), 0.0):
                    until = min(until, time.monotonic() + SETTLE_S)
    return found, False


def witness_from(document: Mapping[str, Any]) -> Witness:
    """A witness from its document; what is not as it should be is left out, and said in `trouble`."""
    root, report = document.get("root"), document.get("report")
    trouble = str(document.get("trouble") or "")
    try:
        failures = _failures(root.get("failures", ())) if isinstance(root, dict) else ()
        own = _failures(report["findings"]) if isinstance(report, dict) else ()
    except (KeyError, TypeError, ValueError) as error:
        return Witness(bool(document.get("note")), trouble=f"its answer was not understood: {error}")
    verdict = str(root.get("verdict", "")) if isinstance(root, dict) else ""
    enforce = document.get("enforce") is True
    return Witness(bool(document.get("note")), verdict, failures, own, trouble, enforce)


def _failures(documents: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    return tuple(f for f in map(finding_from, documents) if f.status is Status.FAIL)


def _flags(states: Mapping[str, Node], name: str) -> frozenset[str]:
    return states[name].flags if name in states else frozenset()


def _facts(name: str, states: Mapping[str, Node], witnesses: Mapping[str, Witness]) -> NodeFacts:
    node = states.get(name)
    if node is None:
        return NodeFacts(name, witness=witnesses.get(name))
    return NodeFacts(name, node.flags, node.reason, node.reason_at, witnesses.get(name))
