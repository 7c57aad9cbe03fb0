"""Names in Slurm: which node we are, which job a text means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from hpkit.errors import SlurmError, UsageError
from hpkit.slurm.client import Client, Node

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
_ID = "[0-9]{1,10}"  # 32 bits
WRITABLE_JOB = re.compile(rf"{_ID}(?:_{_ID}|\+{_ID})?\Z")

_JOB = re.compile(
    rf"(?P<job>{_ID})(?:_(?:(?P<task>{_ID})|\[(?P<tasks>[0-9,:%-]+)\])|\+(?P<het>{_ID}))?"
    r"(?:\.(?P<step>\w+(?:\+\d+)?))?\Z"
)


class JobName(NamedTuple):
    """A job as written: `12`, `12_3`, `12_[1,4-6%2]` (pending tasks), `12+1` (het component), or a `.step`."""

    job: str
    tasks: tuple[int, ...] = ()
    pending: bool = False
    het: str = ""
    step: str = ""


def job_name(text: str) -> JobName:
    """The parts of a job name; raises UsageError for anything else."""
    match = _JOB.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is no job", "write 123, 123_4 for an array task, or 123+1")
    tasks: tuple[int, ...] = ()
    if match["task"]:
        tasks = (int(match["task"]),)
    elif match["tasks"]:
        tasks = _ranges(match["tasks"], text)
    return JobName(match["job"], tasks, bool(match["tasks"]), match["het"] or "", match["step"] or "")


def own_job(env: Mapping[str, str]) -> str:
    """The name of the job that we run in, from its environment; "" outside a job.

    An array task is `A_T`: its bare id may stand for the whole array. A het component is its leader, the only one that
    can be requeued.
    """
    array, task = env.get("SLURM_ARRAY_JOB_ID", ""), env.get("SLURM_ARRAY_TASK_ID", "")
    if array and task:
        return f"{array}_{task}"
    return env.get("SLURM_HET_JOB_ID", "") or env.get("SLURM_JOB_ID", "")


def own_node(client: Client, hostname: str, *, given: str = "") -> str:
    """This machine's node name: `given` (SLURMD_NODENAME), else the node whose NodeHostName or NodeAddr is `hostname`.

    A full name matches its short form and the other way round. Raises SlurmError "unknown" when no node, or more than
    one, matches.
    """
    if given:
        return given
    nodes = client.nodes()
    for same in (_by_host_exactly, _by_host, _by_address):
        found = [node.name for node in nodes if same(node, hostname)]
        if len(found) == 1:
            return found[0]
        if found:
            raise SlurmError(
                "unknown",
                f"{hostname} is the host of several nodes: {', '.join(found[:5])}",
                "set SLURMD_NODENAME",
            )
    listed = ", ".join(f"{node.name} (host {node.hostname})" for node in nodes[:5])
    raise SlurmError(
        "unknown", f"no node of Slurm is {hostname}; its nodes are {listed}", "set SLURMD_NODENAME"
    )


def _by_host_exactly(node: Node, hostname: str) -> bool:
    return node.hostname == hostname


def _by_host(node: Node, hostname: str) -> bool:
    return _short(node.hostname) == _short(hostname)


def _by_address(node: Node, hostname: str) -> bool:
    return node.addr in (hostname, _short(hostname)) or _short(node.addr) == _short(hostname)


def _short(name: str) -> str:
    """The part before the first dot; an address stays whole."""
    return name if re.fullmatch(r"[\d.:]+", name) else name.partition(".")[0]


def _ranges(text: str, whole: str) -> tuple[int, ...]:
    """The numbers in `1,4-6%2` or `0-8:4`; raises UsageError."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        match = re.fullmatch(rf"({_ID})(?:-({_ID})(?::({_ID}))?)?", part)
        if (
            match is None
            or int(match[2] or match[1]) - int(match[1]) not in range(1 << 22)
            or match[3] == "0"
        ):
            raise UsageError(f"{whole!r} is no job", "write 123, 123_4 for an array task, or 123+1")
        found.extend(range(int(match[1]), int(match[2] or match[1]) + 1, int(match[3] or 1)))
    return tuple(found)
