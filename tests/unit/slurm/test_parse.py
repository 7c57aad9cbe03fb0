"""Slurm's texts read by position: blanks, several lines, and forged fields do not fool us."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.errors import SlurmError
from hpkit.slurm import parse
from tests.support import slurm_texts as texts

NOON = 1777982400.0  # 2026-05-05T12:00:00 UTC
HEAD = "UserId=root(0) GroupId=root(0) MCS_label=N/A{e}Priority=1 Nice=0 Account=x QOS=x"
STATE = (
    "JobState=PENDING Reason=None Dependency=(null){e}Requeue=0 Restarts=0 BatchFlag=0 Reboot=0 ExitCode=0:0"
)
PLACE = "Partition=p AllocNode:Sid=h:1{e}ReqNodeList=(null) ExcNodeList=(null){e}NodeList=evil"
WANTS = "MinCPUsNode=1 MinMemoryCPU=2G MinTmpDiskNode=0{e}Features=evil DelayBoot=00:00:00"
FORGERIES = [part.format(e=end) for part in (HEAD, STATE, PLACE, WANTS) for end in (" ", "\n   ")]

both = pytest.mark.parametrize("lines", [True, False], ids=["lines", "one-line"])


@both
def test_a_node_with_all_its_fields(lines: bool) -> None:
    (found,) = parse.nodes(
        texts.node("t1", state="MIXED+DRAIN", reason="hpkit: gpu.xid: a=b Owner=x", lines=lines)
    )
    assert found.name == "t1"
    assert found.flags == {"MIXED", "DRAIN"}
    assert (found.reason, found.reason_by, found.reason_at) == ("hpkit: gpu.xid: a=b Owner=x", "root", NOON)
    assert (found.hostname, found.addr) == ("ip-10-1-0-1", "10.1.0.1")
    assert found.partitions == ("train", "all")
    assert found.gres == "gpu:h100:8"
    assert found.boot_time == 1777863721.0
    assert (found.features, found.cpus, found.memory_mib) == (("h100",), 224, 2048000)


@both
@pytest.mark.parametrize(
    ("reason", "by", "expected"),
    [
        ("psu swap", "alice@2026-05-05T12:00:00", ("psu swap", "alice", NOON)),
        ("bad [x@y]", "root@2026-05-05T12:00:00", ("bad [x@y]", "root", NOON)),
        (
            "bad [x@2026-05-05T11:00:00]",
            "root@2026-05-05T12:00:00",
            ("bad [x@2026-05-05T11:00:00]", "root", NOON),
        ),
        ("late", "root@12:00:00", ("late", "root", None)),
        ("late", "root@Tue 05 May 12:00", ("late", "root", None)),
        ("never", "root@2026-13-05T12:00:00", ("never", "root", None)),
        (
            "count 7!=8\nsee OPS-1 Key=Val State=IDLE\nthird",
            "root@2026-05-05T12:00:00",
            ("count 7!=8", "root", NOON),
        ),
        ("two\n[eve@2026-05-05T13:00:00]", "root@2026-05-05T12:00:00", ("two", "root", NOON)),
    ],
)
def test_reasons(lines: bool, reason: str, by: str, expected: tuple[str, str, float | None]) -> None:
    (found,) = parse.nodes(
        texts.node(state="IDLE+DRAIN", reason=reason, by=by, comment="Reason=no", lines=lines)
    )
    assert (found.reason, found.reason_by, found.reason_at) == expected


@both
def test_a_comment_is_no_reason(lines: bool) -> None:
    forged = "x Reason=hpkit: gpu.count: y [root@2026-05-05T12:00:00]\n   Reason=hpkit: z [root@2026-05-05T12:00:00]"
    (found,) = parse.nodes(texts.node(comment=forged, lines=lines))
    assert (found.reason, found.reason_by, found.reason_at) == ("", "", None)


@both
def test_lines_of_newer_nodes(lines: bool) -> None:
    """26.05: SuspendTime, a Reason right behind the watts, Extra and instance words after it."""
    end = "\n   " if lines else " "
    text = texts.node(state="DOWN+DRAIN+NOT_RESPONDING", reason="hpkit: a.b: c", comment="d", lines=lines)
    text = text.replace("ResumeAfterTime=None", "ResumeAfterTime=None SuspendTime=INFINITE")
    text = text.rstrip() + f"{end}Extra=Reason=no{end}InstanceId=i-1 InstanceType=p5.48xlarge\n"
    (found,) = parse.nodes(text)
    assert (found.reason, found.reason_by, found.flags) == (
        "hpkit: a.b: c",
        "root",
        {"DOWN", "DRAIN", "NOT_RESPONDING"},
    )


@both
def test_several_nodes(lines: bool) -> None:
    text = texts.node("t1", lines=lines) + texts.node(
        "t2", state="DOWN*", reason="Not responding", lines=lines
    )
    found = parse.nodes(text)
    assert [(n.name, sorted(n.flags)) for n in found] == [
        ("t1", ["IDLE"]),
        ("t2", ["DOWN", "NOT_RESPONDING"]),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_node error: x",
        "NodeName=t1 Arch=x86_64\n",
        "NodeName=\n",
        "warning first\n" + texts.node(),
        texts.node("t1") + texts.node("t1", state="DOWN"),
        texts.node().replace("State=IDLE ThreadsPerCore", "State= ThreadsPerCore"),
        texts.node().replace("State=IDLE ThreadsPerCore", "State=? ThreadsPerCore"),
        texts.node().replace("State=IDLE ThreadsPerCore", "State=IDLE+DR:AIN ThreadsPerCore"),
    ],
)
def test_what_is_no_node_is_garbled(text: str) -> None:
    with pytest.raises(SlurmError) as caught:
        parse.nodes(text)
    assert caught.value.kind == "garbled"


@both
def test_a_job_with_all_its_fields(lines: bool) -> None:
    found = parse.job(texts.job(lines=lines), "41")
    assert (found.id, found.user_id, found.flags, found.reason) == ("41", 2001, {"RUNNING"}, "None")
    assert (found.partition, found.nodes, found.req_nodes, found.exc_nodes) == (
        "train",
        "t[1-2]",
        "",
        "t[7-8]",
    )
    assert (found.batch_host, found.num_nodes, found.requeue, found.batch) == ("t1", 2, True, True)
    assert (found.restarts, found.priority) == (3, 4294901700)
    assert (found.eligible_at, found.start_at, found.end_at) == (1777968001.0, 1777968060.0, None)


@both
def test_a_pending_job(lines: bool) -> None:
    text = texts.job(
        state="PENDING", reason="BeginTime", failed="FailedNode=t3 ", nodes="", num="1-2", lines=lines
    )
    found = parse.job(text, "41")
    assert (found.flags, found.reason, found.nodes, found.batch_host, found.num_nodes) == (
        {"PENDING"}, "BeginTime", "", "", 1,
    )  # fmt: skip


@both
@pytest.mark.parametrize(
    "text",
    [
        "x NodeList=t9 Reason=ok",
        "UserId=root(0)",
        "a\n   UserId=root(0) JobState=PENDING\nJobId=7 JobName=b",
        "Requeue=0",
        "Features=evil DelayBoot=00:00:00",
        "a\n   ExpeditedRequeue=Yes\n   BatchHost=t9",
        "SubmitLine=sbatch x\n\nJobId=42 JobName=y\n   UserId=root(0)",
    ],
)
def test_single_fields_in_user_text_do_not_count(lines: bool, text: str) -> None:
    plain = parse.job(texts.job(lines=lines), "41")
    assert parse.job(texts.job(name=text, workdir=f"/a {text}", comment=text, lines=lines), "41") == plain


@both
@pytest.mark.parametrize("forged", FORGERIES)
@pytest.mark.parametrize("where", ["name", "account", "workdir", "comment"])
def test_whole_imitated_lines_are_refused(lines: bool, forged: str, where: str) -> None:
    for text in (f"x {forged} y", f"x\n   {forged}\n   y"):
        made = texts.job(lines=lines, **{where: text})  # type: ignore[arg-type]
        with pytest.raises(SlurmError) as caught:
            parse.job(made, "41")
        assert caught.value.kind == "garbled"


@both
@pytest.mark.parametrize(
    ("features", "expected"),
    [("(null)", ""), ("h100&efa", "h100&efa"), ("[a*2&b*1]", "[a*2&b*1]"), ("a & b", "a & b")],
)
def test_a_constraint(lines: bool, features: str, expected: str) -> None:
    assert parse.job(texts.job(features=features, lines=lines), "41").features == expected


@both
@pytest.mark.parametrize(
    ("flags", "expected"),
    [("", False), ("ExpeditedRequeue=Yes", True), ("GresEnforceBind=Yes SpreadJob=Yes ExpeditedRequeue=Yes", True), ("SpreadJob=Yes", False)],
)  # fmt: skip
def test_an_expedited_job(lines: bool, flags: str, expected: bool) -> None:
    assert parse.job(texts.job(flags=flags, lines=lines), "41").expedited is expected


@both
def test_two_batch_hosts_cannot_be_told_apart(lines: bool) -> None:
    made = texts.job(lines=lines).replace("BatchHost=t1", "BatchFeatures=x BatchHost=evil BatchHost=t1")
    with pytest.raises(SlurmError) as caught:
        parse.job(made, "41")
    assert caught.value.kind == "garbled"


# Lines that 24.11 and 26.05 have and 22.05 has not, with what a user may write into them.
NEWER = (
    ("TRES=cpu=448", "ReqTRES=cpu=448{e}AllocTRES=(null)"),
    ("OverSubscribe=OK Contiguous=0 Licenses=(null)", "OverSubscribe=NO Exclusive=NO Contiguous=0 Licenses=a:1 LicensesAlloc=a:1"),
    ("Command=/home/ada/run me.sh", "Command=/home/ada/run me.sh{e}SubmitLine=sbatch --comment=x NodeList=evil -J JobState=FAILED y"),
    ("StdOut=/dev/null{e}", "StdOut=/dev/null{e}SegmentSize=4 SpreadSegments=Yes{e}Switches=1@00:01:00{e}OOMKillStep=1{e}"),
    ("MinTmpDiskNode=0", "MinTmpDiskNode=0 MemUpdate=10%@5min"),
    ("UserId=ada(2001)", "SLUID=sDQHM8SC1GPW00{e}HetJobIdSet=41-42{e}UserId=ada(2001)"),
    ("StdErr=/dev/null{e}", "StdErr={e}"),
)  # fmt: skip


@both
def test_lines_of_newer_releases(lines: bool) -> None:
    end = "\n   " if lines else " "
    text = texts.job(lines=lines)
    for old, new in NEWER:
        assert old.format(e=end) in text, old
        text = text.replace(old.format(e=end), new.format(e=end))
    assert parse.job(text, "41") == parse.job(texts.job(), "41")
    assert parse.job(text.rstrip() + "\n\n", "41") == parse.job(
        texts.job(), "41"
    )  # 26.05 cuts blanks at the end


@both
def test_a_forgery_does_not_replace_what_slurm_spells_anew(lines: bool) -> None:
    forged = f"x {STATE.format(e=' ')} y"
    made = texts.job(comment=forged, lines=lines).replace("JobState=RUNNING", "JobStates=RUNNING")
    with pytest.raises(SlurmError) as caught:
        parse.job(made, "41")
    assert caught.value.kind == "garbled"


def test_a_forged_first_line_is_no_other_job() -> None:
    with pytest.raises(SlurmError) as caught:
        parse.job(texts.job("41"), "42")
    assert caught.value.kind == "garbled"


@given(
    st.text(alphabet=st.sampled_from("aA=() \n[]@:_09"), max_size=60),
    st.sampled_from(["name", "workdir", "comment"]),
)
@settings(derandomize=True, max_examples=300, deadline=None)
def test_no_user_text_changes_what_is_read(text: str, where: str) -> None:
    made = texts.job(**{where: text})  # type: ignore[arg-type]
    assert parse.job(made, "41") == parse.job(texts.job(), "41")


@pytest.mark.parametrize(
    ("ident", "array", "asked", "expected"),
    [
        ("50", "ArrayJobId=50 ArrayTaskId=1 ", "50_1", "50_1"),
        ("51", "ArrayJobId=50 ArrayTaskId=2 ArrayTaskThrottle=2 ", "50_2", "50_2"),
        ("51", "ArrayJobId=50 ArrayTaskId=2 ", "51", "50_2"),
        ("60", "HetJobId=60 HetJobOffset=0 ", "60", "60"),
        ("61", "HetJobId=60 HetJobOffset=1 ", "60+1", "61"),
    ],
)
def test_array_tasks_and_components(ident: str, array: str, asked: str, expected: str) -> None:
    found = parse.job(texts.job(ident, array=array), asked)
    assert found.id == expected
    assert found.array_job_id == ("50" if "Array" in array else "")


def test_all_components_are_never_read_as_one_job() -> None:
    parts = [texts.job(f"{60 + n}", array=f"HetJobId=60 HetJobOffset={n} ") for n in (0, 1)]
    with pytest.raises(SlurmError) as caught:
        parse.job("".join(parts), "60")
    assert caught.value.kind == "garbled"
    assert parse.leader("".join(parts), "60") == "60+0"
    for text, asked in ((parts[1], "61"), (parts[0], "60+0"), (texts.job(), "41"), ("", "60")):
        assert parse.leader(text, asked) == ""


def test_slurms_own_number_stands_before_all_that_a_user_writes() -> None:
    assert (
        parse.number(texts.job("51", array="ArrayJobId=50 ArrayTaskId=2 ", name="x\nJobId=7 JobName=y"))
        == "51"
    )
    assert parse.number("JobIds=7 JobName=y") == ""


@pytest.mark.parametrize("array", ["ArrayJobId=50 ArrayTaskId=1 ", "ArrayJobId=50 ArrayTaskId=3-5%2 "])
def test_the_bare_id_of_an_array_is_no_job(array: str) -> None:
    several = texts.job("50", array=array) + texts.job("51", array="ArrayJobId=50 ArrayTaskId=2 ")
    for text in (several, texts.job("50", array=array)):
        with pytest.raises(SlurmError) as caught:
            parse.job(text, "50")
        assert caught.value.kind == "refused"
        assert "50_N" in caught.value.hint


@pytest.mark.parametrize("text", ["", "No jobs in the system", "JobId=41 JobName=x\n", "JobId=x JobName=y"])
def test_what_is_no_job_is_garbled(text: str) -> None:
    with pytest.raises(SlurmError) as caught:
        parse.job(text, "41")
    assert caught.value.kind == "garbled"


def test_settings() -> None:
    text = (
        "Configuration data as of 2026-05-05T12:00:00\nKillWait                = 30 sec\n"
        "Prolog                  = (null)\nSLURM_VERSION           = 24.11.5\nAuthInfo = cred_expire=120,x = y\n\n"
        "Slurmctld(primary) at c1 is UP\n"
    )
    found = parse.settings(text)
    assert found["KillWait"] == "30 sec"
    assert found["Prolog"] == ""
    assert found["AuthInfo"] == "cred_expire=120,x = y"
    with pytest.raises(SlurmError):
        parse.settings("Slurmctld(primary) at c1 is DOWN\n")


def test_a_line_of_squeue() -> None:
    found = parse.queue_line("50|2|51|2001|RUNNING|train|t[1-2]|t1|2")
    assert (found.id, found.user_id, found.nodes, found.requeue, found.batch) == (
        "50_2",
        2001,
        "t[1-2]",
        False,
        False,
    )
    assert parse.queue_line("60|N/A|60|2001|COMPLETING|train|t1|t1|1").id == "60"
    for bad in ("", "60|N/A|60", "a|N/A|60|1|R|p|n|n|1"):
        with pytest.raises(SlurmError):
            parse.queue_line(bad)
