"""The log: one line per event whatever is in it, and a syslog that is absent or stuck never holds a hook."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpkit import log


@pytest.fixture(autouse=True)
def sinks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(log, "SOCKET", str(tmp_path / "log"))
    yield
    log.setup()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("n1", "n1"),
        ("", '""'),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('say "x"\\', '"say \\"x\\"\\\\"'),
        ("one\ntwo\r\t", '"one\\ntwo\\r\\t"'),
        ("\x1b[31m\x00\x7f", '"\\x1b[31m\\x00\\x7f"'),
        ("\x9b\ud800", '"\\x9b\\xd800"'),
        ("Größe", '"Größe"'),
        (12, "12"),
        (0.5, "0.500"),
        (None, "None"),
    ],
)
def test_a_value_cannot_break_the_line(value: object, text: str) -> None:
    assert log.line("info", "e", {"k": value}) == f"kind=info event=e k={text}"


def test_a_line_is_bounded() -> None:
    assert len(log.line("info", "e", {"k": "x" * 100_000})) == log.TEXT_LIMIT


def test_a_datagram_as_syslog_writes_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        log.audit("drained", node="n1", reason="hpkit: gpu.count: 7 of 8")
        log.error("broken")
        audit, broken = server.recv(9000).decode(), server.recv(9000).decode()
    assert audit.startswith("<29>") and broken.startswith("<27>")  # daemon.notice, daemon.err
    assert " hpkit[" in audit
    assert audit.endswith(']: kind=audit event=drained node=n1 reason="hpkit: gpu.count: 7 of 8"')


def test_a_stuck_syslog_costs_the_line_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "WAIT_S", 0.01)
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler,
    ):
        server.bind(str(tmp_path / "log"))
        filler.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                filler.sendto(b"x" * 1000, str(tmp_path / "log"))
        log.info("lost")  # a send that waits would never return


def test_no_syslog_is_no_trouble() -> None:
    log.info("x")


def test_a_sandbox_node_keeps_its_lines_and_the_file_is_capped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "FILE_LIMIT", 300)
    log.setup(str(tmp_path), syslog=False)
    for number in range(20):
        log.info("tick", number=number)
    kept = (tmp_path / "hpkit.log").read_text().splitlines()
    assert kept[-1].endswith("kind=info event=tick number=19")
    assert (tmp_path / "hpkit.log.1").exists()
    assert (tmp_path / "hpkit.log").stat().st_size < 500


def test_the_log_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("")
    (tmp_path / "hpkit.log").symlink_to(tmp_path / "other")
    log.setup(str(tmp_path), syslog=False)
    log.info("x")
    assert (tmp_path / "other").read_text() == ""
