"""srun's standard error: passed through whole, and read along."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from hpkit.resume.echo import Echo, TaskEnd, own_code, task_end


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
