"""Slurm's own texts with made-up content, laid out as 22.05 to 26.05 print them."""

from __future__ import annotations

import json
import math
from typing import Any

NODE = """NodeName={name} Arch=x86_64 CoresPerSocket=56{end}CPUAlloc=0 CPUEfctv=224 CPUTot=224 CPULoad=1.07{end}\
AvailableFeatures=h100,efa{end}ActiveFeatures=h100{end}Gres={gres}{end}NodeAddr={addr} NodeHostName={host} \
Port=17003 Version=24.11.5{end}OS=Linux 6.8.0-1021 #23 SMP PREEMPT_DYNAMIC State=fine {end}RealMemory=2048000 \
AllocMem=0 FreeMem=2011400 Sockets=2 Boards=1{end}State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A \
MCS_label=N/A{end}Partitions={partitions} {end}BootTime=2026-05-04T03:02:01 SlurmdStartTime=2026-05-04T03:03:00{end}\
LastBusyTime=2026-05-05T10:00:00 ResumeAfterTime=None{end}CfgTRES=cpu=224,mem=2000G,billing=224{end}AllocTRES={end}\
CurrentWatts=0 AveWatts=0{tail}"""

JOB = """JobId={id} {array}JobName={name}{end}UserId=ada(2001) GroupId=ml(2000) MCS_label=N/A{end}\
Priority=4294901700 Nice=0 Account={account} QOS=normal{end}JobState={state} Reason={reason} \
{failed}Dependency=(null){end}Requeue=1 Restarts=3 BatchFlag=1 Reboot=0 ExitCode=0:0{end}RunTime=00:10:00 \
TimeLimit=1-00:00:00 TimeMin=N/A{end}SubmitTime=2026-05-05T08:00:00 EligibleTime=2026-05-05T08:00:01{end}\
AccrueTime=2026-05-05T08:00:01{end}StartTime=2026-05-05T08:01:00 EndTime=Unknown Deadline=N/A{end}\
SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-05-05T08:01:00 Scheduler=Main{end}Partition=train \
AllocNode:Sid=login1:99{end}ReqNodeList=(null) ExcNodeList=t[7-8]{end}NodeList={nodes}{end}{host}NumNodes={num} \
NumCPUs=448 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*{end}TRES=cpu=448{end}Socks/Node=* NtasksPerN:B:S:C=0:0:*:* \
CoreSpec=*{end}MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0{end}Features={features} DelayBoot=00:00:00{end}\
OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null){end}Command=/home/ada/run me.sh{end}WorkDir={workdir}{end}\
Comment={comment}{end}StdErr=/dev/null{end}StdOut=/dev/null{end}{flags}"""

# What one job looks like to a data parser: v0.0.39 (23.02) writes plain times and one word for a state.
DOCUMENT: dict[str, Any] = {
    "array_job_id": 0, "array_task_id": None, "array_task_string": "", "batch_flag": True, "batch_host": "t1",
    "comment": "", "eligible_time": 1777968001, "end_time": 1809504060, "excluded_nodes": "t[7-8]", "features": "",
    "flags": ["JOB_WAS_RUNNING", "PARTITION_ASSIGNED"], "het_job_id": 0, "het_job_offset": 0, "job_id": 41,
    "job_state": ["RUNNING"], "name": "train", "node_count": 2, "nodes": "t[1-2]", "partition": "train",
    "priority": 4294901700, "requeue": True, "required_nodes": "", "restart_cnt": 3, "start_time": 1777968060,
    "state_description": "", "state_reason": "None", "time_limit": "infinite", "user_id": 2001,
}  # fmt: skip
PLAIN = {"batch_flag", "requeue", "job_id", "restart_cnt", "user_id"}
TIMES = {"eligible_time", "end_time", "start_time"}
SHAPES = ("v39", "v40", "complex", "plain")


def node(
    name: str = "t1",
    *,
    state: str = "IDLE",
    reason: str = "",
    by: str = "root@2026-05-05T12:00:00",
    partitions: str = "train,all",
    comment: str = "",
    gres: str = "gpu:h100:8(S:0-1)",
    addr: str = "10.1.0.1",
    host: str = "ip-10-1-0-1",
    lines: bool = True,
) -> str:
    """`scontrol show node`, or with -o when `lines` is False. A Reason's further lines are indented as Slurm does."""
    end = "\n   " if lines else " "
    tail = ""
    if reason:
        first, *more = reason.split("\n")
        tail = f"{end}Reason={first} [{by}]" + "".join(f"{end}       {line}" for line in more)
    if comment:
        tail += f"{end}Comment={comment}"
    text = NODE.format(
        name=name, end=end, state=state, partitions=partitions, tail=tail, gres=gres, addr=addr, host=host
    )
    return text + ("\n\n" if lines else "\n")


def job(
    ident: str = "41",
    *,
    array: str = "",
    name: str = "train",
    state: str = "RUNNING",
    reason: str = "None",
    failed: str = "",
    account: str = "(null)",
    nodes: str = "t[1-2]",
    num: str = "2",
    workdir: str = "/home/ada",
    comment: str = "(null)",
    features: str = "(null)",
    flags: str = "",
    lines: bool = True,
) -> str:
    """`scontrol show job`, or with -o when `lines` is False. `flags` is the line of Yes and No behind the user's paths."""
    end = "\n   " if lines else " "
    host = "" if state == "PENDING" else f"BatchHost=t1{end}"
    return JOB.format(
        id=ident, array=array, name=name, state=state, reason=reason, failed=failed, account=account, end=end,
        nodes=nodes, host=host, num=num, workdir=workdir, comment=comment, features=features,
        flags=f"{flags}{end}" if flags else "",
    ) + ("\n\n" if lines else "\n")  # fmt: skip


def record(shape: str = "v40", **changes: Any) -> dict[str, Any]:
    """One job as a data parser writes it: "v39", "v40" (and later), "complex" (null and Infinity), "plain" (all numbers plain)."""
    made = {**DOCUMENT, **changes}
    return {key: _shaped(shape, key, value) for key, value in made.items()}


def document(*jobs: dict[str, Any], **more: Any) -> str:
    """`scontrol --json show job` with these records."""
    return json.dumps({"jobs": list(jobs), "meta": {}, "errors": [], "warnings": [], **more})


def _shaped(shape: str, key: str, value: Any) -> Any:
    if key == "job_state" and shape == "v39":
        return value[0]
    if isinstance(value, (list, dict)) or (isinstance(value, str) and value != "infinite"):
        return None if shape == "complex" and not value else value
    if key in PLAIN or (key in TIMES and shape == "v39"):
        return value
    if shape == "complex":
        return math.inf if value == "infinite" else value
    if shape == "plain":
        return {None: 4294967294, "infinite": 4294967295}.get(value, value)
    number = value if isinstance(value, int) else 0
    return {"set": value not in (None, "infinite"), "infinite": value == "infinite", "number": number}
