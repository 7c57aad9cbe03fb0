"""One job out of Slurm's JSON, in every shape that a release gives it; what is no such document is an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hpkit.errors import SlurmError
from hpkit.slurm import documents, parse
from hpkit.slurm.client import Job
from tests.support import slurm_texts as texts
from tests.unit.slurm.test_parse import FORGERIES

NOW = 1777969000.0  # while the job runs

every_shape = pytest.mark.parametrize("shape", texts.SHAPES)


def read(*records: dict[str, Any], asked: str = "41", **more: Any) -> Job:
    return documents.job(texts.document(*records, **more), asked, NOW)


def refused(text: str, asked: str = "41") -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        documents.job(text, asked, NOW)
    return caught.value


@every_shape
def test_a_job_is_what_the_text_form_makes_of_it(shape: str) -> None:
    assert read(texts.record(shape)) == parse.job(texts.job(), "41")


@every_shape
def test_a_pending_job(shape: str) -> None:
    found = read(
        texts.record(
            shape, job_state=["PENDING"], state_reason="BeginTime", nodes="", batch_host="", node_count=1, start_time=0,
            eligible_time=0, end_time=0, priority=0,
        )
    )  # fmt: skip
    text = texts.job(state="PENDING", reason="BeginTime", nodes="", num="1-1")
    text = text.replace("Priority=4294901700", "Priority=0").replace(
        "EligibleTime=2026-05-05T08:00:01", "EligibleTime=Unknown"
    )
    assert found == parse.job(text.replace("StartTime=2026-05-05T08:01:00", "StartTime=Unknown"), "41")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["RUNNING", "COMPLETING"], {"COMPLETING"}),
        (["PENDING", "REQUEUED", "EXPEDITING", "LAUNCH_FAILED"], {"EXPEDITING"}),
        (["CANCELLED", "POWER_UP_NODE"], {"CANCELLED"}),
        (["RUNNING", "FROBNICATED"], {"RUNNING", "FROBNICATED"}),
        ("COMPLETING", {"COMPLETING"}),
        ("FROBNICATED", {"FROBNICATED"}),
    ],
)
def test_states_are_those_that_the_text_form_shows(words: object, expected: set[str]) -> None:
    assert read({**texts.record(), "job_state": words}).flags == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"state_description": "launch failed requeued held"}, {"reason": "launch_failed_requeued_held"}),
        ({"state_description": "a\nb\tc"}, {"reason": "a_b_c"}),
        ({"priority": "infinite"}, {"priority": 4294967295}),
        ({"priority": None}, {"priority": 4294967294}),
        ({"end_time": 1777968999}, {"end_at": 1777968999.0}),  # over: the end it had, whatever the limit
        ({"time_limit": 60}, {"end_at": 1809504060.0}),
        ({"requeue": False, "batch_flag": False}, {"requeue": False, "batch": False}),
        ({"requeue": 0, "batch_flag": 1}, {"requeue": False, "batch": True}),
        ({"features": "h100&efa"}, {"features": "h100&efa"}),
        ({"flags": ["EXPEDITED_REQUEUE"]}, {"expedited": True}),
        ({"excluded_nodes": ["t7", "t8"]}, {"exc_nodes": "t7,t8"}),
        ({"excluded_nodes": {}, "flags": {}, "features": []}, {"exc_nodes": "", "features": ""}),
        ({"user_id": 65534}, {"user_id": 65534}),
    ],
    ids=str,
)
@every_shape
def test_fields(shape: str, change: dict[str, Any], expected: dict[str, Any]) -> None:
    found = read(texts.record(shape, **change))._asdict()
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("key", ["name", "comment", "current_working_directory", "submit_line", "account"])
@pytest.mark.parametrize("forged", FORGERIES)
def test_users_texts_change_nothing(key: str, forged: str) -> None:
    worse = f'x", "user_id": 0, "job_id": 7, {forged}\n   {forged}'
    assert read({**texts.record(), key: worse}) == read(texts.record())


@every_shape
def test_a_task_is_found_in_the_document_about_its_array(shape: str) -> None:
    waiting = texts.record(
        shape, job_id=50, array_job_id=50, array_task_string="4,6-9%2", job_state=["PENDING"]
    )
    two = texts.record(shape, job_id=52, array_job_id=50, array_task_id=2, nodes="t5")
    three = texts.record(shape, job_id=53, array_job_id=50, array_task_id=3, nodes="t6")
    found = read(waiting, two, three, asked="50_2")
    assert (found.id, found.array_job_id, found.array_task_id, found.nodes) == ("50_2", "50", "2", "t5")
    found = read(waiting, two, three, asked="50_7")
    assert (found.id, found.array_task_id, found.flags) == ("50_7", "7", {"PENDING"})
    assert read(three, asked="53").id == "50_3"
    assert refused(texts.document(waiting, two), "50_5").kind == "garbled"
    for records in ((waiting, two, three), (two,), (waiting,)):
        error = refused(texts.document(*records), "50")
        assert (error.kind, error.hint) == ("refused", "name one task: 50_N")


def test_a_list_of_tasks_that_slurm_cut_short_names_none() -> None:
    cut = texts.record(job_id=50, array_job_id=50, array_task_string="1,3,5,7,9,...")
    assert refused(texts.document(cut), "50_3").kind == "garbled"


@every_shape
def test_components_of_a_heterogeneous_job(shape: str) -> None:
    parts = [
        texts.record(shape, job_id=60 + n, het_job_id=60, het_job_offset=n, nodes=f"t{n}") for n in range(3)
    ]
    assert [read(*parts, asked=asked).nodes for asked in ("60", "60+0", "60+2", "61")] == [
        "t0",
        "t0",
        "t2",
        "t1",
    ]
    assert read(*parts, asked="60+1").id == "61"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_jobs error: x",
        "[]",
        "7",
        "{}",
        '{"jobs": null}',
        '{"jobs": {"job_id": 41}}',
        '{"jobs": [41]}',
        texts.document(),
        texts.document(texts.record(job_id=42)),
        texts.document(texts.record(), texts.record()),
        texts.document(texts.record())[:-40],
        "[" * 100_000,
    ],
    ids=lambda text: text[:20],
)
def test_what_is_no_document_with_this_job_is_garbled(text: str) -> None:
    """An empty list too: scontrol prints it, without an error, when the controller is away."""
    assert refused(text).kind == "garbled"


@pytest.mark.parametrize(
    "change",
    [
        {"job_state": []}, {"job_state": ""}, {"job_state": 1}, {"user_id": "root"}, {"user_id": None}, {"user_id": -7},
        {"restart_cnt": 1.5}, {"nodes": 7}, {"nodes": {"list": "t1"}}, {"requeue": "yes"}, {"flags": 3},
        {"priority": [1]}, {"start_time": {"set": True, "number": "soon"}},
    ],
    ids=str,
)  # fmt: skip
def test_a_field_of_another_shape_is_garbled(change: dict[str, Any]) -> None:
    assert refused(texts.document({**texts.record(), **change})).kind == "garbled"


@pytest.mark.parametrize("key", sorted(set(texts.DOCUMENT) - {"name", "comment", "state_description"}))
def test_a_job_without_a_field_is_garbled(key: str) -> None:
    """Each field is needed for one of three questions: a job, a task that waits, a component."""
    table = {
        "41": texts.record(),
        "41_3": texts.record(array_job_id=41, array_task_string="3"),
        "41+0": texts.record(het_job_id=41),
    }
    assert {outcome(texts.document(record), asked) for asked, record in table.items()} == {"41", "41_3"}
    for record in table.values():
        del record[key]
    assert "garbled" in {outcome(texts.document(record), asked) for asked, record in table.items()}


def outcome(text: str, asked: str) -> str:
    try:
        return documents.job(text, asked, NOW).id
    except SlurmError as error:
        return error.kind


def test_warnings_are_no_errors_and_errors_are() -> None:
    warning = {"description": "Zero jobs to dump", "source": "JOB_INFO_MSG"}
    assert read(texts.record(), warnings=[warning]).id == "41"
    told = {"description": "Unable to query", "error": "Unable to contact slurm controller (connect failure)"}
    error = refused(texts.document(texts.record(), errors=[told]))
    assert (error.kind, "Unable to query" in error.message) == ("unreachable", True)
    assert refused(texts.document(errors=[{"error": "Invalid job id specified"}])).kind == "unknown"
    assert refused(texts.document(texts.record(), errors=["odd"])).kind == "refused"
    assert refused(texts.document(texts.record(), errors=[{}])).kind == "refused"


def test_the_double_of_another_cluster_is_passed_over() -> None:
    task = {"array_job_id": 50, "array_task_id": 2}
    found = read(texts.record(job_id=0, **task), texts.record(job_id=52, nodes="t5", **task), asked="50_2")
    assert found.nodes == "t5"


def test_shapes_are_what_they_say() -> None:
    """The documents that the tests are made of differ from each other."""
    assert len({json.dumps(texts.record(shape)) for shape in texts.SHAPES}) == len(texts.SHAPES)
