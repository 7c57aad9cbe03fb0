"""What `scontrol show node|job|config` prints, read by the fixed order of its fields and never by splitting on blanks.

Values hold blanks, a Reason may have several lines, and a user chooses JobName, Account, Comment, WorkDir and more. So
a field is only taken where Slurm puts it, between neighbours that Slurm wrote. If such a place exists twice, somebody
imitates Slurm's output, and the answer is "garbled". Order and spelling: Slurm's node_info.c and job_info.c (from
26.05 on info_job.c), releases 22.05 to 26.05.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TypeVar

from hpkit.errors import SlurmError
from hpkit.slurm.client import Job, Node
from hpkit.slurm.states import job_flags, node_flags

T = TypeVar("T")

_NONE = ("", "(null)", "None", "N/A", "n/a")
_ISO = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\Z")

_NO_NODES = "No nodes in the system"
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
        r"\sMinCPUsNode=\d+ MinMemory\w+=\S+ MinTmpDiskNode=\S+(?: MemUpdate=\S+)?\s+"
        r"Features=(?P<features>[^\n=]*) DelayBoot=",
    )
)
# A text inside of a part (the label of mcs/label is the user's own) must not bring along another one of its fields.
_JOB_FIELDS = tuple(
    re.compile(rf"\s({'|'.join(re.findall('([A-Za-z_:]+)=', part.pattern))})=") for part in _JOB_PARTS
)
_NODES_PART = 5  # the allocated nodes; behind them, before the number of nodes, stands the batch host
_LAST_USER_LINE = "StdOut="  # of the texts that most jobs have; what comes later is printed by few
_EXPEDITED = re.compile(r"\sExpeditedRequeue=Yes\s")
_BATCH_HOST = re.compile(r"\sBatchHost=(\S+)(?=\s)")
_SOCKETS = re.compile(
    r"\([^()]*\)"
)  # `(S:0-1)` behind a GRES: how a node is wired, which pyslurm does not tell
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


class Nodes:
    """The nodes in `scontrol show node`, with or without -o, read line by line: the text of one node is kept, not more.

    Feed it every line; `close` gives the nodes, or none where Slurm has none, and raises SlurmError "garbled" when
    anything else was printed.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._found: dict[str, Node] = {}
        self._same: dict[object, object] = {}
        self._wrong = ""

    def feed(self, line: str) -> None:
        """The next line, without its end."""
        if line.startswith("NodeName="):
            self._flush()
        elif not self._lines:
            self._wrong = self._wrong or self._stray(line)
            return
        self._lines.append(line)

    def close(self) -> tuple[Node, ...]:
        """All nodes, in Slurm's order."""
        if self._lines and self._lines[-1]:  # Slurm ends each node with an empty line
            self._wrong = self._wrong or f"the answer breaks off: {_short(self._lines[-1])}"
        self._flush()
        if self._wrong:
            raise SlurmError("garbled", self._wrong)
        return tuple(self._found.values())

    def _stray(self, line: str) -> str:
        there = line.strip()
        return f"no answer about nodes: {_short(there)}" if there and not there.startswith(_NO_NODES) else ""

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if not lines or self._wrong:
            return
        try:
            node = self._shared(_node("\n".join([*lines, ""])))
        except SlurmError as error:
            self._wrong = error.message
            return
        if node.name in self._found:
            self._wrong = "a node is described twice"
        self._found[node.name] = node

    def _shared(self, node: Node) -> Node:
        """The node with one object for what many nodes have in common."""
        return node._replace(
            flags=self._one(node.flags),
            reason=self._one(node.reason),
            reason_by=self._one(node.reason_by),
            partitions=self._one(node.partitions),
            gres=self._one(node.gres),
            features=self._one(node.features),
        )

    def _one(self, value: T) -> T:
        return self._same.setdefault(value, value)  # type: ignore[return-value]  # equal, so of the same kind


def nodes(text: str) -> tuple[Node, ...]:
    """The nodes in `scontrol show node`, with or without -o; SlurmError "garbled" for anything else."""
    reader = Nodes()
    for line in text.split("\n"):
        reader.feed(line)
    found = reader.close()
    if not found:
        raise SlurmError("garbled", f"no answer about nodes: {_short(text)}")
    return found


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
        gres=_SOCKETS.sub("", _field(before, "Gres")),
        boot_time=moment(_field(after, "BootTime")),
        features=tuple(filter(None, _field(before, "ActiveFeatures").split(","))),
        cpus=_count(_field(before, "CPUTot")),
        memory_mib=_count(_field(before, "RealMemory")),
    )


def _count(text: str) -> int:
    return int(text) if _digits(text) else 0


def _digits(text: str) -> bool:
    """Whether this is a number as Slurm writes one; 64 bits have at most 20 digits."""
    return text.isascii() and text.isdecimal() and len(text) <= 20


def _field(text: str, key: str) -> str:
    """The first field of that name, whose value has no blanks."""
    match = re.search(rf"\s{key}=(\S+)", text)
    return given(match[1]) if match else ""


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


def number(text: str) -> str:
    """Slurm's own number of the first job in an answer, which no user can write; "" when it does not begin with one."""
    head = _JOB_HEAD.match(text)
    return head["id"] if head else ""


def leader(text: str, asked: str) -> str:
    """`60+0` when the answer about job 60 describes all components of a heterogeneous job, else ""."""
    head = _JOB_HEAD.match(text)
    return f"{asked}+0" if head and head["het"] == asked else ""


def job(text: str, asked: str) -> Job:
    """The one job in `scontrol show job ASKED`; SlurmError "garbled" when its fields cannot be told from forged ones.

    The bare id of an array stands for all its tasks: SlurmError "refused".
    """
    head = _JOB_HEAD.match(text)
    if head is None:
        raise SlurmError("garbled", f"no answer about job {asked}: {_short(text)}")
    _same(head, asked)
    try:
        return _job(head, _job_fields(text, head.end(), asked))
    except (ValueError, OverflowError) as error:  # a number that Slurm has not written
        raise _apart(asked) from error


def _job(head: re.Match[str], fields: Mapping[str, str]) -> Job:
    size = float(fields["num"]) * (1024 if fields["unit"] else 1)
    array, task = head["array"] or "", head["task"] or ""
    return Job(
        id=f"{array}_{task}" if task.isdigit() else head["id"],
        user_id=int(fields["user_id"]),
        flags=job_flags(fields["state"]),
        reason=fields["reason"],
        partition=fields["partition"],
        nodes=given(fields["nodes"]),
        req_nodes=given(fields["req"]),
        exc_nodes=given(fields["exc"]),
        batch_host=given(fields["batch_host"]),
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
        features=given(fields["features"]),
        expedited=fields["expedited"] != "",
    )


def queue_line(line: str) -> Job:
    """A job from a line of `squeue --format %F|%K|%A|%U|%T|%P|%N|%B|%D`."""
    words = line.split("|")
    if len(words) != 9 or not all(_digits(words[at]) for at in (0, 2, 3, 8)):
        raise SlurmError("garbled", f"squeue printed {_short(line)}")
    array, task, ident, user_id, state, partition, nodes, host, num = words
    return Job(
        id=f"{array}_{task}" if _digits(task) else ident,
        user_id=int(user_id),
        flags=job_flags(state),
        partition=partition,
        nodes=given(nodes),
        batch_host=given(host),
        num_nodes=int(num),
        array_job_id=array if _digits(task) else "",
        array_task_id=task if _digits(task) else "",
    )


def _job_fields(text: str, start: int, asked: str) -> dict[str, str]:
    """The named fields of all parts; each part must be there once, after the one before it."""
    fields: dict[str, str] = {}
    starts, ends = [], [start]
    for part in _JOB_PARTS:
        matches = list(part.finditer(text, start))
        if len(matches) != 1 or matches[0].start() < ends[-1] - 1:
            raise _apart(asked)
        starts.append(matches[0].start())
        ends.append(matches[0].end())
        fields.update(matches[0].groupdict())
    # Behind the last part stands the user's text.
    for names, begin, end in zip(_JOB_FIELDS, starts, [at + 1 for at in starts[1:]] + ends[-1:], strict=True):
        found = names.findall(text, begin, end)
        if len(found) != len(set(found)):
            raise _apart(asked)
    hosts = _BATCH_HOST.findall(text, ends[_NODES_PART] - 1, ends[_NODES_PART + 1])
    if len(hosts) > 1:
        raise _apart(asked)
    fields["batch_host"] = "".join(hosts)
    # Not proof against everything a user may write, and need not be: whoever wants it may ask Slurm for it.
    expedited = _EXPEDITED.search(text, max(ends[-1] - 1, text.rfind(_LAST_USER_LINE)))
    fields["expedited"] = expedited[0] if expedited else ""
    return fields


def _apart(asked: str) -> SlurmError:
    return SlurmError("garbled", f"the fields of job {asked} cannot be told apart")


def _same(head: re.Match[str], asked: str) -> None:
    """Refuse an answer about another job, and one about a whole array."""
    array, task, ident = head["array"] or "", head["task"] or "", head["id"]
    if array and "_" not in asked and (asked == array or not task.isdigit()):
        raise array_of(asked, array)
    names = {ident, f"{array}_{task}"} if array else {ident, f"{head['het']}+{head['offset']}"}
    if asked not in names:
        raise SlurmError("garbled", f"asked about job {asked}, answered about {ident}")


def array_of(asked: str, array: str) -> SlurmError:
    """What a number that stands for all tasks of an array is answered with."""
    return SlurmError("refused", f"job {asked} is an array of tasks", f"name one task: {array}_N")


def settings(text: str) -> dict[str, str]:
    """`scontrol show config` as key → value; "(null)" becomes an empty text."""
    found = {match[1]: given(match[2].strip()) for match in _SETTING.finditer(text)}
    if "SLURM_VERSION" not in found:
        raise SlurmError("garbled", f"no answer about the configuration: {_short(text)}")
    return found


def given(text: str) -> str:
    """A value, or "" for one of Slurm's words for none."""
    return "" if text in _NONE else text


def _short(text: str) -> str:
    """The start of an answer, for a message."""
    words = " ".join(text.split())
    return repr(words[:80]) if words else "nothing"
