"""What Slurm's commands print when something is wrong, as each release printed it, and the kind that it is.

All but those marked were seen on clusters of 22.05.8, 24.11.5 and 26.05.5; "source" ones stand in slurm_errno.c only.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm.commands import Commands
from hpkit.slurm.refusals import kind_of, refusal
from tests.support.hostile import HOSTILE

SEEN = [
    # nobody listens, or nobody answers
    ("slurm_load_node error: Unable to contact slurm controller (connect failure)", "unreachable"),
    ("slurm_load_jobs error: Socket timed out on send/recv operation", "unreachable"),
    # it died while it was asked, or a backup was taking over
    ("slurm_load_partitions error: Connection reset by peer", "unreachable"),
    ("slurm_load_node error: Transport endpoint is not connected", "unreachable"),
    # a requeue does not tell why it had no answer
    ("Unexpected message received for job 5", "unreachable"),
    # another munge key: 22.05, then 24.11, then 26.05
    ("slurm_load_node error: Zero Bytes were transmitted or received", "unreachable"),
    ("Protocol authentication error for job 5", "unreachable"),
    ("slurm_load_ctl_conf error:Protocol authentication error", "unreachable"),
    # munged is down
    (
        "scontrol: error: If munged is up, restart with --num-threads=10; scontrol: error: Munge encode failed: Failed to "
        'access "/run/munge/munge.socket.2": No such file or directory (Did you start munged?); slurm_update error: '
        "Protocol authentication error",
        "unreachable",
    ),
    # slurm.conf: an unknown key, a value, nothing in it, no such file, none to be found
    (
        "scontrol: error: _parse_next_key: Parsing error at unrecognized key: Frobnicate; scontrol: fatal: Unable to "
        "process configuration file",
        "missing",
    ),
    ("squeue: fatal: Unable to process configuration file", "missing"),
    (
        "scontrol: error: s_p_parse_file: cannot stat file /nonexistent/slurm.conf: No such file or directory, retrying in "
        "1sec up to 60sec",
        "missing",
    ),
    (
        "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host; scontrol: error: fetch_config: DNS "
        "SRV lookup failed; scontrol: error: _establish_config_source: failed to fetch config; scontrol: fatal: Could not "
        "establish a configuration source",
        "missing",
    ),
    # another daemon's port instead of slurmctld's
    ("slurm_load_node error: Invalid argument", "refused"),
]
SOURCE = [
    ("Rate limit exceeded, please retry momentarily", "unreachable"),
    ("Rate limit exceeded, please retry later", "unreachable"),
    ("Slurm backup controller in standby mode", "unreachable"),
    ("Controller is in standby mode, try a different controller", "unreachable"),
    ("slurm_load_jobs error: Broken pipe", "unreachable"),
    ("slurm_load_jobs error: No route to host", "unreachable"),
    ("slurm_load_jobs error: Network is unreachable", "unreachable"),
    ("slurm_load_jobs error: Software caused connection abort", "unreachable"),
    ("Communication connection failure", "unreachable"),
    ("Message send failure", "unreachable"),
    ("Message receive failure", "unreachable"),
    ("Insane message length", "unreachable"),
    ("Header lengths are longer than data received", "unreachable"),
    ("Incompatible versions of client and server code", "unreachable"),
    ("Connection timed out establishing", "unreachable"),
    ("Unable to contact slurm controller (shutdown failure)", "unreachable"),
]
ENV = {**HOSTILE, "SLURM_CONF": "/etc/slurm/slurm.conf"}


@pytest.mark.parametrize(("told", "kind"), SEEN + SOURCE)
def test_kinds(told: str, kind: str) -> None:
    assert kind_of(told) == kind


@pytest.mark.parametrize(
    ("told", "kind", "hint"),
    [
        ("slurm_update error: Invalid user id", "denied", "an operator"),
        ("Access/permission denied for job 41", "denied", "owner"),
        ("scontrol: fatal: Unable to process configuration file", "missing", "slurm.conf"),
        ("scontrol: error: s_p_parse_file: cannot stat file /x: No such file or directory", "missing", "[slurm] conf"),
        ("scontrol: fatal: Could not establish a configuration source", "missing", "SLURM_CONF"),
        ("slurm_load_node error: Protocol authentication error", "unreachable", "munge"),
        ("slurm_load_node error: Zero Bytes were transmitted or received", "unreachable", "munge"),
        ("Rate limit exceeded, please retry later", "unreachable", ""),
    ],
)  # fmt: skip
def test_hints(told: str, kind: str, hint: str) -> None:
    error = refusal(told)
    assert isinstance(error, SlurmError)
    assert (error.kind, hint in error.hint) == (kind, True), error.hint


def tools(folder: Path, script: str) -> Commands:
    """A client whose scontrol and squeue are this shell script."""
    for name in ("scontrol", "squeue"):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return Commands(SlurmConfig(bin=str(folder), timeout_s=0.5), trusted_only=False, environ=ENV)


def raised(call: Callable[..., object], *args: object) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        call(*args)
    return caught.value


def test_a_slurm_conf_that_is_not_there_is_no_slow_controller(tmp_path: Path) -> None:
    """Slurm waits a minute for it: longer than we wait for Slurm."""
    said = "scontrol: error: s_p_parse_file: cannot stat file /x: No such file or directory, retrying in 1sec up to 60sec"
    error = raised(tools(tmp_path, f"echo '{said}' >&2; exec sleep 60").node, "n1")
    assert (error.kind, error.message) == ("missing", said)


def test_what_was_said_before_the_deadline_is_told(tmp_path: Path) -> None:
    error = raised(tools(tmp_path, "echo 'scontrol: error: slow resolver' >&2; exec sleep 60").node, "n1")
    assert (error.kind, error.message) == (
        "timeout",
        "scontrol did not answer within 0.5 s; it said: scontrol: error: slow resolver",
    )


@pytest.mark.parametrize(
    "end", ["exec sleep 60", "echo 'Socket timed out on send/recv operation' >&2; exit 1"]
)
def test_a_write_without_an_answer_may_have_been_done(tmp_path: Path, end: str) -> None:
    slurm = tools(tmp_path, end)
    for write in (lambda: slurm.drain("n1", "x"), lambda: slurm.undrain("n1")):
        assert "may have been done" in raised(write).hint
    assert "may have been done" not in raised(slurm.node, "n1").hint


def test_no_environment_of_a_user_leads_our_orders_to_another_cluster(tmp_path: Path) -> None:
    slurm = tools(tmp_path, f"env >>{tmp_path}/env; echo 'Invalid user id' >&2; exit 1")
    calls: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        (slurm.nodes, ()), (slurm.job, ("1",)), (slurm.jobs_on, ("n1",)), (slurm.config, ()), (slurm.drain, ("n1", "x")),
    ]  # fmt: skip
    for call, args in calls:
        raised(call, *args)
    given = {line.partition("=")[0] for line in (tmp_path / "env").read_text().splitlines()}
    assert {name for name in given if name.startswith(("SLURM", "SCONTROL", "SQUEUE", "SINFO"))} == {
        "SLURM_CONF",
        # In a federation squeue and scontrol show other clusters' jobs too, on nodes with the names of ours.
        "SCONTROL_LOCAL",
        "SQUEUE_LOCAL",
    }


# As 24.11.5 showed a job in a federation of two clusters (user and folders changed).
FEDERATED = """JobId=71899866 JobName=train
   UserId=ann(2001) GroupId=ann(2001) MCS_label=N/A
   Priority=1 Nice=0 Account=all QOS=normal
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:02 TimeLimit=UNLIMITED TimeMin=N/A
   SubmitTime=2026-12-01T18:22:54 EligibleTime=2026-12-01T18:22:54
   AccrueTime=2026-12-01T18:22:54
   StartTime=2026-12-01T18:22:55 EndTime=Unknown Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-12-01T18:22:55 Scheduler=Main
   Partition=train AllocNode:Sid=0.0.0.0:483
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n1
   BatchHost=n1
   FedOrigin=alpha FedViableSiblings=alpha,beta FedActiveSiblings=alpha
   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   ReqTRES=cpu=1,mem=62.50G,node=1,billing=1
   AllocTRES=cpu=1,node=1,billing=1
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   ClusterFeatures=
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=(null)
   WorkDir=/home/ann

"""


def test_a_federated_job_with_its_clusters_number_in_its_id(tmp_path: Path) -> None:
    (tmp_path / "answer").write_text(FEDERATED)
    seen = tools(tmp_path, f"cat {tmp_path}/answer").job("71899866")
    assert (seen.id, seen.nodes, seen.batch_host, seen.num_nodes, seen.requeue) == (
        "71899866",
        "n1",
        "n1",
        1,
        True,
    )


def test_a_job_of_another_cluster_only_is_not_known_here(tmp_path: Path) -> None:
    slurm = tools(tmp_path, "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert raised(slurm.job, "71899866").kind == "unknown"
    assert raised(lambda: slurm.requeue("71899866", begin_in_s=8)).kind == "unknown"
