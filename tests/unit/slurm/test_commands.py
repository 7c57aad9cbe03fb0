"""The backend over commands, with small programs in Slurm's place that print Slurm's texts and keep what they were told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm.commands import Commands
from hpkit.slurm.refusals import kind_of
from tests.support import slurm_texts as texts
from tests.support.slurm_tools import Tools, client, kind


def test_the_environment_is_built(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_TIME_FORMAT", "SINFO_FORMAT", "SQUEUE_FORMAT", "SCONTROL_ALL", "TZ", "LANG"):
        monkeypatch.setenv(name, "spoiled")
    tools.say("scontrol", texts.node())
    client(tools).node("t1")
    lines = (tools.folder / "env").read_text().splitlines()
    assert {"LC_ALL=C", "TZ=UTC", "SLURM_CONF=/etc/site/slurm.conf"} <= set(lines)
    assert "spoiled" not in "".join(lines)


@pytest.mark.parametrize(
    ("trusted_only", "conf", "expected"),
    [
        (False, "", "/home/u/slurm.conf"),
        (True, "", None),
        (False, "/etc/a", "/etc/a"),
        (True, "/etc/a", "/etc/a"),
    ],
)
def test_which_slurm_conf_counts(tools: Tools, trusted_only: bool, conf: str, expected: str | None) -> None:
    if trusted_only and os.geteuid() != 0:
        pytest.skip("only root can own a trusted file")
    tools.say("scontrol", texts.node())
    config = SlurmConfig(conf=conf, bin=str(tools.folder), timeout_s=10)
    Commands(config, trusted_only=trusted_only, environ={"SLURM_CONF": "/home/u/slurm.conf"}).node("t1")
    lines = (tools.folder / "env").read_text().splitlines()
    assert [line for line in lines if line.startswith("SLURM_CONF=")] == (
        [f"SLURM_CONF={expected}"] if expected else []
    )


def test_nodes_in_the_order_asked(tools: Tools) -> None:
    tools.say("scontrol", texts.node("t1") + texts.node("t2"))
    found = client(tools).nodes(["t2", "t1", "t2"])
    assert [node.name for node in found] == ["t2", "t1"]
    assert tools.calls == ["scontrol --all show node t2,t1"]


def test_many_names_are_picked_from_all(tools: Tools) -> None:
    names = [f"t{number}" for number in range(100)]
    tools.say("scontrol", "".join(texts.node(name) for name in [*names, "x1"]))
    assert [node.name for node in client(tools).nodes(names)] == names
    assert tools.calls == ["scontrol --all show node"]


@pytest.mark.parametrize(
    ("out", "err", "rc", "expected"),
    [
        ("", "", 0, "unknown"),
        ("Node t1 not found\n", "", 1, "unknown"),
        (texts.node("t2"), "", 0, "unknown"),
        ("No nodes in the system\n", "", 0, "unknown"),
        ("segfault ahead", "", 0, "garbled"),
        ("", "slurm_load_node error: Unable to contact slurm controller (connect failure)", 1, "unreachable"),
        ("", "slurm_load_node error: Zero Bytes were transmitted or received", 1, "unreachable"),
        ("", "slurm_load_node error: Socket timed out on send/recv operation", 1, "unreachable"),
        ("", "scontrol: fatal: Unable to process configuration file", 1, "missing"),
        ("", "slurm_load_node error: Access/permission denied", 1, "denied"),
        ("", "", 139, "refused"),
    ],
)
def test_a_failed_query_is_never_an_empty_answer(
    tools: Tools, out: str, err: str, rc: int, expected: str
) -> None:
    tools.say("scontrol", out, err, rc)
    assert kind(client(tools).node, "t1") == expected


def test_a_slow_controller_is_a_timeout(tools: Tools) -> None:
    tools.say("scontrol", then="exec sleep 60")
    assert kind(client(tools, timeout_s=0.3).node, "t1") == "timeout"


def test_no_slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpkit.slurm.commands.FOLDERS", ())
    assert kind(Commands(SlurmConfig(bin=str(tmp_path)), trusted_only=False).nodes) == "missing"


def test_root_refuses_a_tool_that_others_can_write(tools: Tools) -> None:
    (tools.folder / "scontrol").chmod(0o777)
    config = SlurmConfig(bin=str(tools.folder))
    assert kind(Commands(config, trusted_only=True).nodes) == "missing"
    assert tools.calls == []


@pytest.mark.parametrize("name", ["t[1-2]", "t1,t2", "-a", "", "ALL nodes", "t1\nt2", "t1=x"])
def test_only_a_plain_name_reaches_slurm(tools: Tools, name: str) -> None:
    for call in (client(tools).node, client(tools).undrain, client(tools).jobs_on):
        assert kind(call, name) == "unknown"
    assert kind(client(tools).drain, name, "x") == "unknown"
    assert tools.calls == []


@pytest.mark.parametrize("reason", ["", "  ", "two\nlines", "tab\tin", "bell\a"])
def test_a_reason_is_one_line(tools: Tools, reason: str) -> None:
    assert kind(client(tools).drain, "t1", reason) == "refused"
    assert tools.calls == []


def test_writes(tools: Tools) -> None:
    tools.say("scontrol", texts.job("41"))
    slurm = client(tools)
    slurm.drain("t1", 'hpkit: gpu.count: 7 of 8 "x" a=b')
    slurm.undrain("t1")
    slurm.start_now("50_2")
    slurm.release("41")
    assert tools.calls == [
        'scontrol update nodename=t1 state=drain reason=hpkit: gpu.count: 7 of 8 "x" a=b',
        "scontrol update nodename=t1 state=undrain",
        "scontrol update jobid=50_2 starttime=now",
        "scontrol --all show job 41",
        "scontrol release 41",
    ]


def test_a_refused_write_tells_why(tools: Tools) -> None:
    tools.say("scontrol", "", "slurm_update error: Invalid user id\n", 1)
    with pytest.raises(SlurmError) as caught:
        client(tools).drain("t1", "x")
    assert caught.value.kind == "denied"
    assert "Invalid user id" in caught.value.message


def test_requeue_feeds_one_scontrol(tools: Tools) -> None:
    tools.orders({})
    assert client(tools).requeue("41", begin_in_s=8, exclude="t[3-4]") == ()
    assert tools.calls == ["scontrol --all show job 41", "scontrol "]
    assert tools.fed == [
        "requeue incomplete 41",
        "update jobid=41 excnodelist=t[3-4] starttime=now+8",  # together: after the first we may be killed
        "update jobid=41 starttime=now+8",  # where the list is refused
    ]


@pytest.mark.parametrize(
    ("begin", "exclude", "orders"),
    [
        (None, "", ["requeue incomplete 41", "update jobid=41 excnodelist="]),
        (0, None, ["requeue incomplete 41", "update jobid=41 starttime=now+2"]),
    ],
)
def test_requeue_orders(tools: Tools, begin: int | None, exclude: str | None, orders: list[str]) -> None:
    tools.orders({})
    client(tools).requeue("41", begin_in_s=begin, exclude=exclude)
    assert tools.fed == orders


@pytest.mark.parametrize(
    ("state", "requeued"),
    [("PENDING", True), ("RUNNING", False), ("CANCELLED", False), ("COMPLETING", False)],
)
def test_silence_is_no_proof_of_a_requeue(tools: Tools, state: str, requeued: bool) -> None:
    """Slurm passes over a job that has ended without a word."""
    tools.orders({"update": "Job has already finished for job 41"}, state)
    for begin in (None, 8):
        if requeued:
            client(tools).requeue("41", begin_in_s=begin)
        else:
            assert kind(client(tools).requeue, "41", begin_in_s=begin) == "refused"


@pytest.mark.parametrize(
    ("said", "expected", "hint"),
    [
        ("Requested operation is presently disabled for job 41", "refused", "sbatch --requeue"),
        ("Only batch jobs are accepted or processed for job 41", "refused", "sbatch"),
        ("Job not heterogeneous job leader for job 41", "refused", "leader"),
        ("Job has already finished for job 41", "refused", ""),
        ("Invalid job id specified for job 41", "unknown", ""),
        ("Access/permission denied for job 41", "denied", ""),
        ("Unable to contact slurm controller (connect failure)", "unreachable", ""),
    ],
)
def test_a_refused_requeue(tools: Tools, said: str, expected: str, hint: str) -> None:
    tools.orders({"requeue": said, "update": "Job is no longer pending execution for job 41"})
    with pytest.raises(SlurmError) as caught:
        client(tools).requeue("41", begin_in_s=8)
    assert (caught.value.kind, caught.value.message) == (expected, said)
    assert hint in caught.value.hint


def test_a_pending_job_counts_as_requeued(tools: Tools) -> None:
    tools.orders({"requeue": "Job is pending execution for job 41"}, "PENDING")
    assert client(tools).requeue("41", begin_in_s=8) == ()


def test_what_was_refused_after_the_requeue_is_told(tools: Tools) -> None:
    tools.orders({"update jobid=41 exc": "Invalid node name specified for job 41"})
    refused = client(tools).requeue("41", begin_in_s=8, exclude="t9")
    assert refused == ("Invalid node name specified for job 41",)


def test_a_requeue_that_hangs_later_is_still_a_requeue(tools: Tools) -> None:
    tools.orders({"update": "x"}, "PENDING")
    script = (
        (tools.folder / "scontrol").read_text().replace("'update'*) echo 'x' >&2;;", "'update'*) sleep 60;;")
    )
    (tools.folder / "scontrol").write_text(script)
    assert client(tools, timeout_s=1.0).requeue("41", begin_in_s=8) == ("no answer",)


def test_a_requeue_without_any_answer_is_a_timeout(tools: Tools) -> None:
    tools.say("scontrol", texts.job("41"), then="[ $# -gt 0 ] || exec sleep 60")
    assert kind(client(tools, timeout_s=1.0).requeue, "41", begin_in_s=8) == "timeout"


def test_a_requeue_that_dies_is_refused_with_its_text(tools: Tools) -> None:
    said = "scontrol: fatal: Unable to process configuration file"
    tools.say("scontrol", texts.job("41"), then=f"[ $# -gt 0 ] || {{ echo '{said}' >&2; exit 1; }}")
    assert kind(client(tools).requeue, "41", begin_in_s=8) == "missing"


def test_the_whole_array_is_never_requeued(tools: Tools) -> None:
    tools.say("scontrol", texts.job("50", array="ArrayJobId=50 ArrayTaskId=1 "))
    for call in (client(tools).start_now, client(tools).release):
        assert kind(call, "50") == "refused"
    assert kind(client(tools).requeue, "50", begin_in_s=8) == "refused"
    assert set(tools.calls) == {"scontrol --all show job 50"}


@pytest.mark.parametrize("bad", ["", "x", "41;42", "41 42", "41\nrequeue 42", "4_[1-2]", "--all"])
def test_only_one_job_id_reaches_slurm(tools: Tools, bad: str) -> None:
    for call in (client(tools).job, client(tools).start_now, client(tools).release):
        assert kind(call, bad) == "unknown"
    assert kind(client(tools).requeue, bad, begin_in_s=8) == "unknown"
    assert kind(client(tools).requeue, "41", begin_in_s=8, exclude="t1\nrequeue 42") == "refused"
    assert tools.calls == []


def test_jobs_on_a_node(tools: Tools) -> None:
    tools.say("squeue", "41|N/A|41|2001|RUNNING|train|t1|t1|1\n50|2|51|2001|COMPLETING|train|t1|t1|1\n")
    jobs = f'case "$*" in *" 41") cat {tools.folder}/one; exit 0;; *" 50_2") cat {tools.folder}/two; exit 0;; esac'
    (tools.folder / "one").write_text(texts.job("41"))
    (tools.folder / "two").write_text(
        texts.job("51", array="ArrayJobId=50 ArrayTaskId=2 ", state="COMPLETING")
    )
    tools.say("scontrol", then=jobs)
    assert [job.id for job in client(tools).jobs_on("t1")] == ["41", "50_2"]


def test_jobs_that_are_gone_or_forge_fields(tools: Tools) -> None:
    tools.say("squeue", "41|N/A|41|2001|RUNNING|train|t1|t1|1\n")
    tools.say("scontrol", "", "slurm_load_jobs error: Invalid job id specified", 1)
    assert client(tools).jobs_on("t1") == ()
    tools.say(
        "scontrol",
        texts.job("41", comment="x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0"),
    )
    (found,) = client(tools).jobs_on("t1")
    assert (found.id, found.user_id, found.requeue) == ("41", 2001, False)


@pytest.mark.parametrize(
    ("out", "err", "rc", "expected"),
    [
        ("", "squeue: error: Invalid node name t1", 1, "unknown"),
        ("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", 1, "unreachable"),
        ("JOBID PARTITION", "", 0, "garbled"),
    ],
)
def test_jobs_on_says_when_it_does_not_know(tools: Tools, out: str, err: str, rc: int, expected: str) -> None:
    tools.say("squeue", out, err, rc)
    assert kind(client(tools).jobs_on, "t1") == expected


@pytest.mark.parametrize(
    ("expression", "out", "err", "expected"),
    [
        ("t[9-11]", "t9\nt10\nt11\n", "", ("t9", "t10", "t11")),
        (" t1 , t2 ", "t1\nt2\n", "", ("t1", "t2")),
        ("(null)", "(null)\n", "", ()),
        ("", "", "", ()),
        ("t[3-1]", "", "Invalid hostlist: t[3-1]", None),
        ("t[1-2", "t]\n", "", None),
        ("t[]", "", "", None),
        ("t[[1]]", "", "", None),
        ("-x", "", "", None),
        ("t1;t2", "", "", None),
        ("t9", "", "", None),
    ],
)
def test_hostnames(
    tools: Tools, expression: str, out: str, err: str, expected: tuple[str, ...] | None
) -> None:
    tools.say("scontrol", out, err)
    if expected is None:
        assert kind(client(tools).hostnames, expression) == "refused"
    else:
        assert client(tools).hostnames(expression) == expected


def test_kinds_of_complaints() -> None:
    assert kind_of("Requested nodes are busy") == "refused"
    assert kind_of("slurm_update error: Invalid node name specified") == "unknown"
    assert kind_of("error: Munge encode failed: Failed to access socket") == "unreachable"
