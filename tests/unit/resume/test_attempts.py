"""The record of a run: appended, synced, read back whatever happened to it."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path
from typing import Any

import pytest

from hpkit.resume.attempts import (
    READ_LIMIT,
    SCHEMA,
    Key,
    Read,
    Record,
    brief,
    folders,
    home_folder,
    key_of,
    other_run,
    past_of,
    read,
)

KEY = Key("c1", "7")


def record(folder: Path, restart: int = 0) -> Record:
    return Record(KEY, [str(folder)], restart)


@pytest.mark.parametrize(
    ("env", "key", "file"),
    [
        ({"SLURM_JOB_ID": "12", "SLURM_CLUSTER_NAME": "big"}, Key("big", "12"), "big-12.jsonl"),
        ({"SLURM_JOB_ID": "1235", "SLURM_ARRAY_JOB_ID": "1234", "SLURM_ARRAY_TASK_ID": "2"}, Key("cluster", "1234_2"),
         "cluster-1234_2.jsonl"),
        ({"SLURM_JOBID": "3"}, Key("cluster", "3"), "cluster-3.jsonl"),
        ({"SLURM_JOB_ID": "1", "SLURM_CLUSTER_NAME": "../x"}, Key("../x", "1"), ".._x-1.jsonl"),
    ],
)  # fmt: skip
def test_key(env: dict[str, str], key: Key, file: str) -> None:
    assert key_of(env) == key
    assert key.file == file


def test_folders() -> None:
    env = {"XDG_STATE_HOME": "/home/u/state"}
    assert folders("/s", "/data/run/ckpt", env) == ("/s",)
    assert folders("", "/data/run/ckpt/", env) == ("/data/run/.hpkit", "/home/u/state/hpkit/runs")
    assert folders("", "", env) == ("/home/u/state/hpkit/runs",)
    assert home_folder({}).endswith("/.local/state/hpkit/runs")
    assert home_folder({"XDG_STATE_HOME": "state"}).endswith("/.local/state/hpkit/runs")


def test_events_come_back(tmp_path: Path) -> None:
    one = record(tmp_path)
    assert one.append("run", cluster="c1") and one.append("start", attempt=1)
    assert [(e["event"], e["job"], e["restart"]) for e in one.read().events] == [
        ("run", "7", 0),
        ("start", "7", 0),
    ]


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    one = record(tmp_path)
    one.append("run")
    with open(one.path, "ab") as file:
        file.write(b'{"schema":"hpkit.attempt/1","event":"sta')
    assert one.append("start", attempt=2)
    assert [e["event"] for e in one.read().events] == ["run", "start"]


def test_only_the_latest_run_counts(tmp_path: Path) -> None:
    one = record(tmp_path)
    for event in ("run", "start", "requeue", "run", "start"):
        one.append(event)
    assert [e["event"] for e in one.read().events] == ["run", "start"]


@pytest.mark.parametrize("content", [b"garbage\n", b"\0" * 100, b'{"event":"run"}\n[1]\n7\n'])
def test_a_record_without_a_readable_line_is_trouble(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY.file).write_bytes(content)
    assert read(str(tmp_path / KEY.file)).trouble


def test_a_record_that_is_a_folder_is_trouble_and_appending_says_so(tmp_path: Path) -> None:
    (tmp_path / KEY.file).mkdir()
    one = record(tmp_path)
    assert one.read().trouble
    assert not one.append("start") and "director" in one.trouble


def test_an_empty_or_absent_record_is_no_trouble(tmp_path: Path) -> None:
    assert record(tmp_path).read() == Read()
    (tmp_path / KEY.file).touch()
    assert record(tmp_path).read() == Read()


def test_the_next_folder_is_taken_when_one_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    one = Record(KEY, [str(tmp_path / "file" / "runs"), str(tmp_path / "home")], 0)
    assert one.path == str(tmp_path / "home" / KEY.file)
    assert one.append("run")


def test_a_record_that_is_there_is_kept_to(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / KEY.file).touch()
    assert Record(KEY, [str(tmp_path / "first"), str(second)], 1).path == str(second / KEY.file)


def test_a_link_leads_to_the_record(tmp_path: Path) -> None:
    one = record(tmp_path / "beside")
    one.append("run")
    one.link(str(tmp_path / "home"))
    one.link(str(tmp_path / "home"))
    assert [e["event"] for e in read(str(tmp_path / "home" / KEY.file)).events] == ["run"]
    one.link(os.path.dirname(one.path))
    assert not os.path.islink(one.path)


def events(*given: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    return tuple({"event": name, "restart": 0, **facts} for name, facts in given)


def test_what_was_used_up() -> None:
    found = Read(
        events(
            ("start", {}),
            ("requeue", {"state": "asked", "id": "a", "cause": "hardware", "excluded": ["n2"]}),
            ("start", {"restart": 1}),
            ("requeue", {"state": "asked", "id": "b", "cause": "unknown", "excluded": []}),
            ("start", {"restart": 2}),
            ("requeue", {"state": "asked", "id": "c", "cause": "unknown", "restart": 2}),
            ("requeue", {"state": "refused", "of": "c", "restart": 2}),
        )
    )
    past = past_of(found, 2)
    assert (past.attempt, past.restarts, past.unknown, past.excluded) == (3, 2, 1, frozenset({"n2"}))


def test_a_second_step_of_the_same_start_is_the_same_attempt() -> None:
    assert past_of(Read(events(("start", {}), ("start", {}))), 0).attempt == 1


def test_an_unreadable_record_counts_every_restart() -> None:
    past = past_of(Read((), "disk error"), 3)
    assert (past.attempt, past.restarts, past.unknown, past.trouble) == (4, 3, 3, "disk error")


@pytest.mark.parametrize(
    ("before", "restart", "start_at", "other"),
    [
        (events(("start", {"job_start": 100.0})), 0, 100.0, False),  # the second hp-srun of one script
        (events(("start", {"job_start": 100.0})), 0, 9000.0, True),
        (events(("start", {}), ("requeue", {"state": "asked"})), 0, None, True),
        (events(("start", {"restart": 2})), 0, None, True),
        (events(("start", {"job_start": 100.0})), 1, 9000.0, False),  # a requeue rewrites the start
        (events(("start", {})), 0, None, False),
        ((), 0, 1.0, False),
    ],
)
def test_a_job_id_given_out_again(
    before: tuple[dict[str, Any], ...], restart: int, start_at: float | None, other: bool
) -> None:
    assert other_run(before, restart, start_at) is other


def test_two_writers_do_not_spoil_each_other(tmp_path: Path) -> None:
    path = tmp_path / KEY.file
    children = []
    for number in range(4):
        pid = os.fork()
        if pid == 0:
            one = record(tmp_path, number)
            ok = all(one.append("start", pad="x" * 3000) for _ in range(25))
            os._exit(0 if ok else 1)
        children.append(pid)
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * 4
    lines = path.read_text().splitlines()
    assert len(lines) == 100 and all(json.loads(line)["pad"] == "x" * 3000 for line in lines)


def sound(**facts: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "event": "requeue", "at": 1.0, "job": "7", "restart": 1, **facts}


@pytest.mark.parametrize(
    "line",
    [
        sound(excluded=5),
        sound(excluded=None),
        sound(excluded=[["n1"]]),
        sound(nodes="n1"),
        sound(restart=[1]),
        sound(restart=None),
        sound(at="noon"),
        sound(event=["start"]),
    ],
)
def test_a_line_that_we_never_wrote_costs_only_itself(tmp_path: Path, line: dict[str, Any]) -> None:
    (tmp_path / KEY.file).write_text(
        f"{json.dumps(line)}\n{'[' * 100_000}\n{json.dumps(sound(state='asked'))}\n"
    )
    found = read(str(tmp_path / KEY.file))
    assert [e.get("state") for e in found.events] == ["asked"]
    assert past_of(found, 1).restarts == 1


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_a_record_that_is_no_file_is_trouble_and_holds_nobody(tmp_path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(tmp_path / KEY.file)
    else:
        (tmp_path / KEY.file).symlink_to("/dev/zero")
    one = record(tmp_path)
    assert "regular" in one.read().trouble
    assert not one.append("start") and "regular" in one.trouble


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    one = record(tmp_path)
    assert one.append("run")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(one.path) + 10, before[1]))
    try:
        assert not one.append("start", attempt=1) and "part" in one.trouble
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert one.append("start", attempt=2)
    assert [e.get("attempt") for e in one.read().events] == [None, 2]


def test_a_link_never_takes_the_place_of_a_record(tmp_path: Path) -> None:
    own = record(tmp_path / "home")
    own.append("run")
    beside = record(tmp_path / "beside")
    beside.append("run")
    beside.link(str(tmp_path / "home"))
    assert not os.path.islink(own.path) and own.read().events


def test_a_long_command_line_is_cut() -> None:
    assert brief(["srun", "-N2", "p"]) == ["srun", "-N2", "p"]
    long = brief(["x" * 100_000] * 20_000)
    assert len(json.dumps(long)) < READ_LIMIT / 500 and long[-1] == "…"
