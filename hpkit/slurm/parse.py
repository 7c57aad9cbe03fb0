"""What `scontrol show node|job|config` prints, read by the fixed order of its fields and never by splitting on blanks.

Values hold blanks, a Reason may have several lines, and a user chooses JobName, Account, Comment, WorkDir and more. So
a field is only taken where Slurm puts it, between neighbours that Slurm wrote. If such a place exists twice, somebody
imitates Slurm's output, and the answer is "garbled". Order and spelling: Slurm's node_info.c and job_info.c (from
26.05 on info_job.c), releases 22.05 to 26.05.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from hpkit.errors import SlurmError
from hpkit.slurm.client import Job, Node
from hpkit.slurm.states import job_flags, node_flags

_NONE = ("", "(null)", "None", "N/A", "n/a")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\Z")

_RECORD = re.compile(r"^NodeName=", re.MULTILINE)
_STATE = re.compile(r"\sState=(\S+)\sThreadsPerCore=\d+\s")
_TAIL = re.compile(r"\A(?P<text>.*) \[(?P<by>[^\[\]@]*)@(?P<at>[^\[\]]*)\]\Z", re.DOTALL)
# What may follow a Reason, in Slurm's order.
_AFTER_REASON = r"(?:Comment|Extra|InstanceId|InstanceType|ReservationName)="
_REASON_LINE = re.compile(rf"^ {{3}}(?:(?P<reason>Reason=)|(?:{_AFTER_REASON}))", re.MULTILINE)
_REASON_WORD = re.compile(rf" (?:(?P<reason>Reason=)|(?:{_AFTER_REASON}))")
_REASON_END = re.compile(
    rf"(?P<tail> \[[^\[\]@]*@[^\[\]]*\])(?: {{8}}.*| {_AFTER_REASON}.*|\s*)\Z", re.DOTALL
)

_JOB_HEAD = re.compile(
    r"\AJobId=(?P<id>\d+) "
    r"(?:ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<task>\S+) (?:ArrayTaskThrottle=\d+ )?)?"
    r"(?:HetJobId=(?P<het>\d+) HetJobOffset=(?P<offset>\d+) )?JobName="
)
# Each of these is found once, in this order, in a job that nobody tampered with.
_JOB_PARTS = tuple(
    re.compile(part)
    for part in (
        r"\sUserId=[^\n=]*\((?P<user_id>\d+)\)\s+GroupId=[^\n=]*\(\d+\)\s+MCS_label=\S+\s+Priority=(?P<priority>\d+)\s",
        r"\sJobState=(?P<state>\S+) Reason=(?P<reason>\S*) (?:FailedNode=\S+ )?Dependency=\S*\s+"
        r"Requeue=(?P<requeue>\d+) Restarts=(?P<restarts>\d+) BatchFlag=(?P<batch>\d+)\s",
        r"\sSubmitTime=\S+ EligibleTime=(?P<eligible>\S+)\s",
        r"\sStartTime=(?P<start>\S+) EndTime=(?P<end>\S+) Deadline=",
        r"\sPartition=(?P<partition>\S+) AllocNode:Sid=\S+\s+"
        r"ReqNodeList=(?P<req>\S*) ExcNodeList=(?P<exc>\S*)\s+NodeList=(?P<nodes>\S*)\s",
        r"\sNumNodes=(?P<num>[\d.]+)(?P<unit>K?)\S* NumCPUs=",
    )
)
_FEATURES = re.compile(r"\sFeatures=(\S*) DelayBoot=")
_EXPEDITED = re.compile(r"\sExpeditedRequeue=Yes\s")
_BATCH_HOST = re.compile(r"\sBatchHost=(\S+)\s")
_SETTING = re.compile(r"^(\S+)\s+= ?(.*)$", re.MULTILINE)


def moment(text: str) -> float | None:
    """Unix seconds of `2026-03-01T10:00:00` (UTC, as we ask for it); None for anything else."""
    match = _ISO.match(text)
    if match is None:
        return None
    try:
        year, month, day, hour, minute, second = map(int, match.groups())
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def nodes(text: str) -> tuple[Node, ...]:
    """The nodes in `scontrol show node`, with or without -o; SlurmError "garbled" for anything else."""
    starts = [match.start() for match in _RECORD.finditer(text)]
    if not starts or text[: starts[0]].strip():
        raise SlurmError("garbled", f"no answer about nodes: {_short(text)}")
    found = [_node(text[a:b]) for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
    names = [node.name for node in found]
    if len(set(names)) != len(names):
        raise SlurmError("garbled", "a node is described twice")
    return tuple(found)


def _node(text: str) -> Node:
    state = _STATE.search(text)
    name = re.match(r"NodeName=(\S+)\s", text)
    if name is None or state is None:
        raise SlurmError("garbled", f"a node that cannot be read: {_short(text)}")
    flags = node_flags(state[1])
    if not flags:
        raise SlurmError("garbled", f"the state of node {name[1]} cannot be read: {_short(state[1])}")
    before, after = text[: state.start()], text[state.end() - 1 :]
    reason, by, at = _reason(after, lines="\n   " in before)
    partitions = _field(after, "Partitions")
    return Node(
        name=name[1],
        flags=flags,
        reason=reason,
        reason_by=by,
        reason_at=at,
        hostname=_field(before, "NodeHostName"),
        addr=_field(before, "NodeAddr"),
        partitions=tuple(partitions.split(",")) if partitions else (),
        gres=_field(before, "Gres"),
        boot_time=moment(_field(after, "BootTime")),
        features=tuple(filter(None, _field(before, "ActiveFeatures").split(","))),
        cpus=_count(_field(before, "CPUTot")),
        memory_mib=_count(_field(before, "RealMemory")),
    )


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0


def _field(text: str, key: str) -> str:
    """The first field of that name, whose value has no blanks."""
    match = re.search(rf"\s{key}=(\S+)", text)
    return _given(match[1]) if match else ""


def _reason(rest: str, *, lines: bool) -> tuple[str, str, float | None]:
    """The first line of the Reason, who set it, and when.

    Without -o the first line is a line, and its last bracket is Slurm's. With -o the lines run into each other, eight
    blanks apart.
    """
    match = (_REASON_LINE if lines else _REASON_WORD).search(rest)
    if match is None or not match["reason"]:
        return "", "", None
    first = rest[match.end() :]
    if lines:
        first = first.partition("\n")[0]
    else:
        end = _REASON_END.search(first)
        first = first[: end.end("tail")] if end else first
    tail = _TAIL.match(first.rstrip())
    return (tail["text"], tail["by"], moment(tail["at"])) if tail else (first.strip(), "", None)


def job(text: str, asked: str) -> Job:
    """The one job in `scontrol show job ASKED`; SlurmError "garbled" when its fields cannot be told from forged ones.

    The bare id of an array stands for all its tasks: SlurmError "refused".
    """
    head = _JOB_HEAD.match(text)
    if head is None:
        raise SlurmError("garbled", f"no answer about job {asked}: {_short(text)}")
    _same(head, asked)
    fields = _job_fields(text, head.end(), asked)
    size = float(fields["num"]) * (1024 if fields["unit"] else 1)
    array, task = head["array"] or "", head["task"] or ""
    return Job(
        id=f"{array}_{task}" if task.isdigit() else head["id"],
        user_id=int(fields["user_id"]),
        flags=job_flags(fields["state"]),
        reason=fields["reason"],
        partition=fields["partition"],
        nodes=_given(fields["nodes"]),
        req_nodes=_given(fields["req"]),
        exc_nodes=_given(fields["exc"]),
        batch_host=_given(fields["batch_host"]),
        num_nodes=int(size),
        requeue=fields["requeue"] != "0",
        batch=fields["batch"] != "0",
        restarts=int(fields["restarts"]),
        priority=int(fields["priority"]),
        array_job_id=array,
        array_task_id=task,
        eligible_at=moment(fields["eligible"]),
        start_at=moment(fields["start"]),
        end_at=moment(fields["end"]),
        features=_given(fields["features"]),
        expedited=fields["expedited"] != "",
    )


def queue_line(line: str) -> Job:
    """A job from a line of `squeue --format %F|%K|%A|%U|%T|%P|%N|%B|%D`."""
    words = line.split("|")
    if len(words) != 9 or not all(words[at].isdigit() for at in (0, 2, 3, 8)):
        raise SlurmError("garbled", f"squeue printed {_short(line)}")
    array, task, ident, user_id, state, partition, nodes, host, num = words
    return Job(
        id=f"{array}_{task}" if task.isdigit() else ident,
        user_id=int(user_id),
        flags=job_flags(state),
        partition=partition,
        nodes=_given(nodes),
        batch_host=_given(host),
        num_nodes=int(num),
        array_job_id=array if task.isdigit() else "",
        array_task_id=task if task.isdigit() else "",
    )


def _job_fields(text: str, start: int, asked: str) -> dict[str, str]:
    """The named fields of all parts; each part must be there once, after the one before it."""
    fields: dict[str, str] = {}
    place = start
    nodes_at = 0
    for part in _JOB_PARTS:
        matches = list(part.finditer(text, start))
        if len(matches) != 1 or matches[0].start() < place - 1:
            raise SlurmError("garbled", f"the fields of job {asked} cannot be told apart")
        nodes_at, place = place, matches[0].end()
        fields.update(matches[0].groupdict())
    host = _BATCH_HOST.search(text, nodes_at - 1, place)
    fields["batch_host"] = host[1] if host else ""
    wanted = _FEATURES.search(text, place - 1)
    fields["features"] = wanted[1] if wanted else ""
    expedited = _EXPEDITED.search(text, place - 1)
    fields["expedited"] = expedited[0] if expedited else ""
    return fields


def _same(head: re.Match[str], asked: str) -> None:
    """Refuse an answer about another job, and one about a whole array."""
    array, task, ident = head["array"] or "", head["task"] or "", head["id"]
    if array and "_" not in asked and (asked == array or not task.isdigit()):
        raise SlurmError("refused", f"job {asked} is an array of tasks", f"name one task: {array}_N")
    names = {ident, f"{array}_{task}"} if array else {ident, f"{head['het']}+{head['offset']}"}
    if asked not in names:
        raise SlurmError("garbled", f"asked about job {asked}, answered about {ident}")


def settings(text: str) -> dict[str, str]:
    """`scontrol show config` as key → value; "(null)" becomes an empty text."""
    found = {match[1]: _given(match[2].strip()) for match in _SETTING.finditer(text)}
    if "SLURM_VERSION" not in found:
        raise SlurmError("garbled", f"no answer about the configuration: {_short(text)}")
    return found


def _given(text: str) -> str:
    return "" if text in _NONE else text


def _short(text: str) -> str:
    """The start of an answer, for a message."""
    words = " ".join(text.split())
    return repr(words[:80]) if words else "nothing"
