"""Slurm's own texts with made-up content, laid out as 22.05 to 26.05 print them."""

from __future__ import annotations

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
CoreSpec=*{end}Features=(null) DelayBoot=00:00:00{end}OverSubscribe=OK Contiguous=0 Licenses=(null) \
Network=(null){end}Command=/home/ada/run me.sh{end}WorkDir={workdir}{end}Comment={comment}{end}StdErr=/dev/null{end}\
StdOut=/dev/null{end}"""


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
    lines: bool = True,
) -> str:
    """`scontrol show job`, or with -o when `lines` is False."""
    end = "\n   " if lines else " "
    host = "" if state == "PENDING" else f"BatchHost=t1{end}"
    return JOB.format(
        id=ident, array=array, name=name, state=state, reason=reason, failed=failed, account=account, end=end,
        nodes=nodes, host=host, num=num, workdir=workdir, comment=comment,
    ) + ("\n\n" if lines else "\n")  # fmt: skip
