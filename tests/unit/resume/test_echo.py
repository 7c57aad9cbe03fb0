"""srun's standard error: passed through whole, and read along."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hpkit.resume import echo as echo_module
from hpkit.resume.echo import Echo, TaskEnd, own_code, task_end, unlaunched


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"srun: error: n2: task 1: Exited with exit code 3", TaskEnd("n2", "1", 3)),
        (b"srun: error: n[1-2]: tasks 0-1: Exited with exit code 3\n", TaskEnd("n[1-2]", "0-1", 3)),
        (b"srun: error: n1: task 0: Segmentation fault (core dumped)", TaskEnd("n1", "0", 139)),
        (b"srun: error: n3: tasks 4-5: Killed", TaskEnd("n3", "4-5", 137)),
        (b"srun: error: n1: task 0: Terminated", TaskEnd("n1", "0", 143)),
        (b"srun: error: n1: task 0: Aborted", TaskEnd("n1", "0", 134)),
        (b"srun: error: n1: task 0: Out Of Memory", None),
        (b"srun: error: Node failure on n2", None),
        (
            b"12: srun: error: n1: task 0: Exited with exit code 3",
            None,
        ),  # an srun in the program, with --label
        (b" 50%srun: error: n1: task 0: Exited with exit code 3", TaskEnd("n1", "0", 3)),
        (b"srun: Force Terminated StepId=4.0", None),
        (b"ValueError: task 1: Exited with exit code 3", None),
    ],
)
def test_lines_of_srun(line: bytes, expected: TaskEnd | None) -> None:
    assert task_end(line) == expected


@pytest.mark.parametrize(
    ("code", "first", "own"),
    [
        (143, TaskEnd("n1", "0", 3), 3),  # the others were ended with SIGTERM for task 0's sake
        (137, TaskEnd("n1", "0", 3), 3),
        (143, TaskEnd("n1", "0", 139), 139),
        (143, TaskEnd("n1", "0", 143), 143),
        (143, None, 143),
        (7, TaskEnd("n1", "0", 3), 7),  # srun's own rule: the highest code of tasks that ended by themselves
        (143, TaskEnd("n1", "0", 0), 143),
    ],
)
def test_own_code(code: int, first: TaskEnd | None, own: int) -> None:
    assert own_code(code, first) == own


NOT_STARTED = "task 1 launch failed: Slurmd could not execve job"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"srun: error: {NOT_STARTED}", NOT_STARTED),
        (f"half a line of a programsrun: error: {NOT_STARTED}\r", NOT_STARTED),
        (
            "srun: error: Task launch for StepId=7.0 failed on node n2: Communication connection failure",
            "Task launch for StepId=7.0 failed on node n2: Communication connection failure",
        ),
        (
            "srun: error: Application launch failed: Communication connection failure",
            "Application launch failed: Communication connection failure",
        ),
        (
            "srun: error: Unable to create step for job 7: Unable to contact slurm controller (connect failure)",
            "Unable to create step for job 7: Unable to contact slurm controller (connect failure)",
        ),
        ("srun: error: Unable to create step for job 7: More processors requested than permitted", ""),
        ("srun: error: Unable to create step for job 7: Invalid job id specified", ""),
        (f"0: srun: error: {NOT_STARTED}", ""),  # with --label: an srun inside the program
        ("srun: error: n2: task 1: Exited with exit code 3", ""),
        (f"ValueError: {NOT_STARTED}", ""),
        ("", ""),
    ],
)
def test_what_srun_could_not_start(line: str, expected: str) -> None:
    assert unlaunched(line.encode()) == expected


@pytest.mark.parametrize(
    ("code", "first", "own"),
    [(0, None, 1), (5, None, 5), (143, None, 143), (143, TaskEnd("n1", "0", 3), 3)],
)
def test_a_step_that_was_not_started_everywhere_is_not_done(
    code: int, first: TaskEnd | None, own: int
) -> None:
    assert own_code(code, first, NOT_STARTED) == own


def passed(*pieces: bytes) -> tuple[bytes, TaskEnd | None]:
    reader, writer = os.pipe()
    echo = Echo(writer)
    held = os.dup(echo.writer)
    echo.start()
    got: list[bytes] = []
    drain = threading.Thread(target=lambda: got.extend(iter(lambda: os.read(reader, 1 << 16), b"")))
    drain.start()
    for piece in pieces:
        os.write(held, piece)
    os.close(held)
    echo.finish()
    os.close(writer)
    drain.join()
    os.close(reader)
    return b"".join(got), echo.first


def test_everything_passes_and_the_first_failure_is_kept() -> None:
    sent = [
        b"x" * 300_000,
        b"\nsrun: error: n2: ta",
        b"sk 1: Exited with exit code 3\nsrun: error: n1: task 0: Killed\n",
    ]
    through, first = passed(*sent)
    assert through == b"".join(sent)
    assert first == TaskEnd("n2", "1", 3)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (
            [b"srun: error: task 0 launch fai", b"led: A\nsrun: error: task 1 launch failed: B\n"],
            "task 0 launch failed: A",
        ),
        ([b"srun: error: task 0 launch failed: no end of line"], "task 0 launch failed: no end of line"),
        ([b"srun: error: n2: task 1: Killed\nsrun: error: task 0 launch failed: A\n"], ""),
    ],
)
def test_what_was_not_started_is_kept_unless_a_task_failed_before(pieces: list[bytes], expected: str) -> None:
    reader, writer = os.pipe()
    echo = Echo(writer)
    held = os.dup(echo.writer)
    echo.start()
    for piece in pieces:
        os.write(held, piece)
    os.close(held)
    echo.finish()
    os.close(writer)
    os.close(reader)
    assert echo.unlaunched == expected


def test_bytes_that_are_no_text_pass() -> None:
    assert passed(b"\xff\x00\r\x1b[K 50%\r") == (b"\xff\x00\r\x1b[K 50%\r", None)


def test_srun_is_not_held_when_our_own_standard_error_is_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        echo = Echo(writer)
        held = os.dup(echo.writer)
        echo.start()
        for _ in range(8):
            os.write(held, b"y" * 65536)  # more than a pipe holds
        os.write(held, b"\nsrun: error: n2: task 1: Exited with exit code 3\n")
        os.close(held)
        echo.finish()
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.close(writer)
    assert echo.first == TaskEnd("n2", "1", 3)


def test_a_slow_reader_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "LINGER_S", 0.02)
    reader, writer = os.pipe()
    echo = Echo(writer)
    held = os.dup(echo.writer)
    echo.start()
    sent = os.urandom(
        1 << 17
    )  # fills the two pipes and what the echo holds: srun is done, nothing was read yet
    os.write(held, sent)
    os.close(held)
    got: list[bytes] = []

    def read() -> None:
        while len(b"".join(got)) < len(sent):
            threading.Event().wait(0.1)
            got.append(os.read(reader, 1 << 15))

    slow = threading.Thread(target=read)
    slow.start()
    echo.finish()
    os.close(writer)  # what has not been passed on by now is lost
    slow.join(30)
    os.close(reader)
    assert b"".join(got) == sent


def test_a_reader_that_takes_nothing_does_not_hold_us_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(echo_module, "LINGER_S", 0.02)
    monkeypatch.setattr(echo_module, "STUCK_S", 0.1)
    reader, writer = os.pipe()
    echo = Echo(writer)
    held = os.dup(echo.writer)
    echo.start()
    os.write(held, b"x" * (1 << 17))
    os.close(held)
    echo.finish()
    os.close(reader)
    echo._thread.join(30)  # nobody can read any more: it gives up
    os.close(writer)
    assert not echo._thread.is_alive()


def test_a_disk_that_is_full_for_a_while_costs_only_what_was_written_then(tmp_path: Path) -> None:
    full, good = os.open("/dev/full", os.O_WRONLY), os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    target = os.dup(full)
    tried = threading.Event()

    class Tells(Echo):
        def _write(self, piece: bytes) -> None:
            super()._write(piece)
            tried.set()

    echo = Tells(target)
    held = os.dup(echo.writer)
    echo.start()
    os.write(held, b"lost\n")
    assert tried.wait(30)
    os.dup2(good, target)
    os.write(held, b"kept\n")
    os.close(held)
    echo.finish()
    for fd in (full, good, target):
        os.close(fd)
    assert (tmp_path / "log").read_bytes() == b"kept\n"


def test_the_standard_streams_numbers_are_left_alone() -> None:
    code = (
        "import os; from hpkit.resume.echo import Echo; os.close(0); os.close(2); e = Echo(); "
        "print(min(e.writer, e._reader))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert int(done.stdout) > 2


def test_without_room_for_a_thread_or_a_pipe_there_is_no_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Echo.possible()
    assert found is not None
    found.drop()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert Echo.possible() is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert Echo.possible() is None


CANCELLED = "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-12-01T16:46:43 ***"

NEWER = "[2026-12-01T18:24:57.109] error: *** STEP 7.0 ON n1 CANCELLED AT 2026-12-01T18:24:57 DUE to SIGNAL Killed ***"


def due(line: str, why: str) -> str:
    return f"{line.removesuffix('***')}DUE {why} ***"


def listened(*lines: str) -> Echo:
    """An echo that has heard these lines."""
    reader, writer = os.pipe()
    echo = Echo(writer)
    held = os.dup(echo.writer)
    echo.start()
    os.write(held, "\n".join([*lines, ""]).encode())
    os.close(held)
    echo.finish()
    os.close(writer)
    os.close(reader)
    return echo


def test_the_node_that_failed_is_kept() -> None:
    assert listened("x", "srun: error: Node failure on n2", "srun: error: n1: task 0: Killed").lost == "n2"
    assert listened("3: srun: error: Node failure on n2", "Node failure on n3").lost == ""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([CANCELLED, "srun: error: n1: task 0: Killed"], True),
        (["some text", CANCELLED.replace("-n1", ""), "srun: error: n1: task 0: Terminated"], True),
        ([due(CANCELLED, "to SIGNAL Killed")], True),
        ([due(CANCELLED, "to SIGNAL User defined signal 1")], True),
        ([NEWER], True),
        ([f"0: {NEWER}"], True),
        ([NEWER.replace("to SIGNAL Killed", "TO TASK FAILURE")], False),
        ([NEWER.replace("to SIGNAL Killed", "TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")], False),
        (["[rank0] error: *** STEP 7.0 ON n1 CANCELLED AT noon ***"], False),
        (["srun: error: n2: task 1: Exited with exit code 7", CANCELLED], False),  # our own -K1
        (["srun: error: n2: task 1: Out Of Memory", CANCELLED], False),
        (["srun: error: Node failure on n2", CANCELLED], False),
        ([due(CANCELLED, "TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")], False),
        ([due(CANCELLED, "TO TIME LIMIT")], False),
        (["*** STEP 7.0 ON n1 CANCELLED AT noon ***"], False),
    ],
)
def test_a_step_that_somebody_cancelled(lines: list[str], expected: bool) -> None:
    assert listened(*lines).cancelled is expected
