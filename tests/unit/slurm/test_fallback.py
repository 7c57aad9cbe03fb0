"""A job whose text cannot be told apart is read as JSON, where this scontrol prints it; nothing else is."""

from __future__ import annotations

import pytest

from hpkit.slurm import parse
from tests.support import slurm_texts as texts
from tests.support.slurm_tools import Tools, client, kind

FORGED = "x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=1 Nice=0"


def documents(tools: Tools, text: str, document: str, *, json: bool = True, rc: int = 0) -> None:
    """A scontrol that prints `text` about a job and, where it has --json, `document`."""
    (tools.folder / "document").write_text(document)
    case = f'case "$1" in --json) [ {int(json)} = 1 ] || {{ echo "unrecognized option" >&2; exit 1; }}; exit 0;; esac\n'
    case += f'case "$2" in --json) cat {tools.folder}/document; exit {rc};; esac'
    tools.say("scontrol", text, then=case)


def test_a_job_that_imitates_slurms_fields_is_read_as_json(tools: Tools) -> None:
    documents(tools, texts.job("41", comment=FORGED), texts.document(texts.record(comment=FORGED)))
    slurm = client(tools)
    for _ in range(2):
        found = slurm.job("41")
        assert found._replace(end_at=None) == parse.job(texts.job("41"), "41")
    asked = [call for call in tools.calls if "--version" in call]
    assert asked == ["scontrol --json --version"]  # once for the whole process
    assert "scontrol --all --json show job 41" in tools.calls


def test_json_is_asked_for_by_slurms_own_number(tools: Tools) -> None:
    """About a task the document holds its whole array, which may have thousands."""
    head = {"array": "ArrayJobId=50 ArrayTaskId=2 ", "name": f"x\nJobId=7 JobName={FORGED}"}
    record = texts.record(job_id=51, array_job_id=50, array_task_id=2)
    documents(tools, texts.job("51", **head), texts.document(record))  # type: ignore[arg-type]
    assert client(tools).job("50_2").id == "50_2"
    assert tools.calls[-1] == "scontrol --all --json show job 51"


def test_a_text_that_is_laid_out_anew_is_read_as_json(tools: Tools) -> None:
    documents(tools, "Job 41:\n  state RUNNING\n", texts.document(texts.record()))
    assert client(tools).job("41").nodes == "t[1-2]"
    assert tools.calls[-1] == "scontrol --all --json show job 41"


def test_without_json_it_stays_garbled(tools: Tools) -> None:
    documents(tools, texts.job("41", comment=FORGED), "", json=False)
    slurm = client(tools)
    for _ in range(2):
        assert kind(slurm.job, "41") == "garbled"
    assert [call for call in tools.calls if "--version" in call] == ["scontrol --json --version"]
    assert not [call for call in tools.calls if "show job" in call and "--json" in call]


@pytest.mark.parametrize(
    ("document", "rc", "expected"),
    [
        ("", 0, "garbled"),
        ("no document", 0, "garbled"),
        (texts.document(), 0, "garbled"),  # what it prints when the controller went away in between
        (texts.document(errors=[{"error": "Unable to contact slurm controller"}]), 0, "unreachable"),
        ("", 1, "garbled"),  # the option is known, a plugin is missing
    ],
)
def test_an_answer_that_is_no_document_is_an_error(
    tools: Tools, document: str, rc: int, expected: str
) -> None:
    documents(tools, texts.job("41", comment=FORGED), document, rc=rc)
    assert kind(client(tools).job, "41") == expected


def test_json_that_does_not_work_is_not_tried_again(tools: Tools) -> None:
    documents(tools, texts.job("41", comment=FORGED), "", rc=1)
    slurm = client(tools)
    for _ in range(2):
        assert kind(slurm.job, "41") == "garbled"
    assert len([call for call in tools.calls if "--json show" in call]) == 1


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("scontrol: unrecognized option '--json'", False),  # 22.05
        (
            "scontrol: error: load_plugins: unable to find plugin: serializer/json",
            False,
        ),  # 24.11, which then crashes
        ("scontrol: fatal: serializer_required: could not find plugin for application/json", False),  # 26.05
        ("scontrol: fatal: Could not establish a configuration source", None),
        ("scontrol: error: Unable to contact slurm controller (connect failure)", None),
    ],
)
def test_what_says_that_there_is_no_json(tools: Tools, said: str, expected: bool | None) -> None:
    tools.say("scontrol", "", said, 1)
    slurm = client(tools)
    if expected is None:
        assert kind(slurm.reads_json) in ("missing", "unreachable")
        tools.say("scontrol", "slurm-wlm 24.11.5")
        assert slurm.reads_json()
    else:
        assert slurm.reads_json() is expected


def test_a_plain_job_costs_no_json(tools: Tools) -> None:
    documents(tools, texts.job("41"), texts.document(texts.record()))
    client(tools).job("41")
    assert tools.calls == ["scontrol --all show job 41"]


def test_whether_there_is_json_is_not_remembered_from_a_timeout(tools: Tools) -> None:
    tools.say("scontrol", then="exec sleep 60")
    slurm = client(tools, timeout_s=0.3)
    assert kind(slurm.reads_json) == "timeout"
    documents(tools, "", "")
    assert slurm.reads_json()


def test_a_heterogeneous_job_is_its_leader(tools: Tools) -> None:
    parts = [texts.job(f"{60 + n}", array=f"HetJobId=60 HetJobOffset={n} ", nodes=f"t{n}") for n in (0, 1)]
    (tools.folder / "leader").write_text(parts[0])
    tools.say(
        "scontrol", "".join(parts), then=f'case "$*" in *60+0) cat {tools.folder}/leader; exit 0;; esac'
    )
    found = client(tools).job("60")
    assert (found.id, found.nodes) == ("60", "t0")
    assert tools.calls == ["scontrol --all show job 60", "scontrol --all show job 60+0"]
