"""The live host on this machine, and on a sandbox node's folder."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from hpkit import host, proc
from hpkit.model import Space, Unread, View
from hpkit.paths import paths

LONG = 60.0
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """An empty sandbox node."""
    for name in ("root/run/hpkit", "root/proc/sys/kernel/random", "root/dev", "bin", "answers"):
        (tmp_path / "node" / name).mkdir(parents=True)
    return tmp_path / "node"


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def number(answer: object) -> int:
    assert isinstance(answer, Unread), answer
    return answer.errno


def test_this_machine() -> None:
    here = host.live()
    meminfo = here.read("/proc/meminfo")
    assert isinstance(meminfo, bytes) and meminfo.startswith(b"MemTotal:")
    assert here.read("/proc/meminfo", 8) == meminfo[:8]
    names = here.list("/proc/sys/kernel/random")
    assert isinstance(names, tuple) and "boot_id" in names and list(names) == sorted(names)
    assert here.link("/proc/self") == str(os.getpid())
    clock = here.now()
    assert abs(clock.wall - time.time()) < 3600
    assert clock.uptime > 0
    assert re.fullmatch(r"[0-9a-f-]{36}", clock.boot_id)
    assert (here.uid, here.view) == (os.geteuid(), View.NODE)
    assert here.node and "." not in here.node


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    here = host.live()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        found = {
            name: number(here.read(str(tmp_path / name)))
            for name in ("fifo", "socket", "dangling", "loop", "none", "empty/below", ".")
        }
    assert found == {
        "fifo": errno.EINVAL,
        "socket": errno.EINVAL,
        "dangling": errno.ENOENT,
        "loop": errno.ELOOP,
        "none": errno.ENOENT,
        "empty/below": errno.ENOTDIR,
        ".": errno.EISDIR,
    }
    assert here.read(str(tmp_path / "empty")) == b""
    assert number(here.read("/dev/zero")) == errno.EINVAL
    assert number(here.read("/a\0b")) == errno.EINVAL
    assert number(here.list(str(tmp_path / "fifo"))) == errno.ENOTDIR
    assert number(here.link(str(tmp_path))) == errno.EINVAL


def test_the_real_kernel_log() -> None:
    here = host.live()
    log = here.read("/dev/kmsg", 1 << 24)
    if isinstance(log, Unread):
        assert log.errno in (errno.EPERM, errno.ENOENT), "closed to users, or not there in a container"
        pytest.skip(f"no kernel log here: {log.why}")
    record = re.compile(rb"[0-9]+,[0-9]+,[0-9]+,[^;]*;.*|[ ].*")
    assert all(record.fullmatch(line) for line in log.splitlines())
    cut = here.read("/dev/kmsg", 500)
    assert isinstance(cut, bytes) and len(cut) <= 500
    assert not cut or record.fullmatch(cut.splitlines()[0]), "whole records only"


def test_a_step_and_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setenv("SLURM_JOB_NAME", "written by a user")
    here = host.live()
    assert (here.view, here.node) == (View.STEP, "n7")
    assert here.env == {"SLURM_JOB_ID": "12", "CUDA_VISIBLE_DEVICES": "0,1", "SLURMD_NODENAME": "n7"}
    assert host.live(view=View.NODE).view is View.NODE


def test_space_is_that_of_statvfs(tmp_path: Path) -> None:
    here = host.live()
    real = os.statvfs(tmp_path)
    found = here.space(str(tmp_path), LONG)
    assert isinstance(found, Space)
    assert (found.total, found.inodes, found.read_only) == (
        real.f_blocks * real.f_frsize,
        real.f_files,
        False,
    )
    assert 0 < found.avail <= found.total
    assert number(here.space(str(tmp_path / "none"), LONG)) == errno.ENOENT
    assert number(here.space("/a\0b", LONG)) == errno.EINVAL


def test_a_node_is_its_own_folder_alone(node: Path) -> None:
    (node / "root/proc/sys/kernel/random/boot_id").write_text("of-this-node\n")
    (node / "root/etc").mkdir()
    (node / "root/etc/hostname").write_text("inside")
    (node / "root/escape").symlink_to("/etc/hostname")
    (node / "root/up").symlink_to("../../../../../../etc/hostname")
    (node / "root/etc/dots").symlink_to("../etc/./hostname")
    there = host.live(str(node))
    assert there.now().boot_id == "of-this-node"
    for path in (
        "/etc/hostname",
        "/escape",
        "/up",
        "/etc/dots",
        "/../../etc/hostname",
        "//etc/../etc/hostname",
    ):
        assert there.read(path) == b"inside", path
    assert there.link("/escape") == "/etc/hostname"
    assert there.list("/etc") == ("dots", "hostname")
    assert number(there.read("/proc/meminfo")) == errno.ENOENT
    assert number(there.list("/sys")) == errno.ENOENT


def test_a_node_keeps_its_kernel_log_in_a_file(node: Path) -> None:
    records = [f"6,{n},{n}000,-;line {n}\n" for n in range(100)]
    (node / "root/dev/kmsg").write_text("".join(records))
    there = host.live(str(node))
    assert there.read("/dev/kmsg") == "".join(records).encode()
    assert there.read("/dev/kmsg", 50) == "".join(records[-2:]).encode(), "the newest, whole records"
    (node / "root/dev/kmsg").unlink()
    os.mkfifo(node / "root/dev/kmsg")
    assert number(there.read("/dev/kmsg")) == errno.EINVAL


SPACE = {"total": 100, "avail": 5, "inodes": 10, "inodes_free": 1, "read_only": True}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (SPACE, Space(100, 5, 10, 1, True)),
        ({"errno": errno.EIO}, errno.EIO),
        ({"hang": 1000}, errno.ETIMEDOUT),
        ({"hang": "long"}, errno.EINVAL),
        ({"total": 1}, errno.EINVAL),
    ],
)
def test_a_node_may_say_what_its_space_is(node: Path, answer: object, expected: object) -> None:
    (node / "answers/space.json").write_text(json.dumps({"/scratch": answer}))
    found = host.live(str(node)).space("/scratch", 0.1)
    assert (found.errno if isinstance(found, Unread) else found) == expected


def test_space_of_a_node_without_an_answer(node: Path) -> None:
    (node / "root/scratch").mkdir()
    (node / "answers/space.json").write_text("no JSON")
    there = host.live(str(node))
    assert isinstance(there.space("/scratch", LONG), Space)
    assert number(there.space("/data", LONG)) == errno.ENOENT


def test_tools_of_a_node_come_first(node: Path) -> None:
    program(node / "bin/uname", 'echo "played $*"; exit 3')
    there = host.live(str(node))
    ran = there.run("uname", "-r", "a b", timeout_s=LONG)
    assert ran._replace(seconds=0) == proc.Ran(("uname", "-r", "a b"), 3, b"played -r a b\n", b"", 0)
    assert there.run("true", timeout_s=LONG).argv == ("true",)
    for name in ("no-such-tool", "../bin/uname", "/bin/true", ""):
        missing = there.run(name, timeout_s=LONG)
        assert (missing.failure, missing.rc, missing.argv) == ("missing", -1000, (name,))


def test_nvml_is_played_by_a_node(node: Path) -> None:
    program(node / "bin/nvml", "echo '{}'")
    assert host.live(str(node)).run("nvml", timeout_s=LONG).stdout == b"{}\n"


def finish(steps: Generator[str, None, proc.Ran]) -> tuple[list[str], proc.Ran]:
    found = []
    while True:
        try:
            found.append(next(steps))
        except StopIteration as stop:
            return found, stop.value


def test_stream(node: Path) -> None:
    program(node / "bin/tool", "echo a; echo b; exit 2")
    there = host.live(str(node))
    found, ran = finish(there.stream("tool", "x", timeout_s=LONG))
    assert (found, ran.rc, ran.argv) == (["a", "b"], 2, ("tool", "x"))
    found, ran = finish(there.stream("no-such-tool", timeout_s=LONG))
    assert (found, ran.failure) == ([], "missing")


@ROOT
@pytest.mark.parametrize("method", ["run", "stream"])
def test_root_refuses_a_tool_of_a_user(node: Path, method: str) -> None:
    tool = program(node / "bin/tool", "echo evil")
    tool.chmod(0o777)
    there = host.live(str(node))
    ran = (
        there.run("tool", timeout_s=LONG)
        if method == "run"
        else finish(there.stream("tool", timeout_s=LONG))[1]
    )
    assert (ran.failure, ran.stdout) == ("denied", b"")
    assert b"writable by group or others" in ran.stderr


@pytest.fixture
def hanging() -> Iterator[proc.Stamp]:
    """A process as a tool that could not be killed leaves it."""
    helper = proc.detach(["sleep", "1000"])
    yield helper
    assert proc.end(helper)


def test_a_stuck_tool_is_not_started_again_while_it_lives(node: Path, hanging: proc.Stamp) -> None:
    kept = Path(paths(str(node)).run) / "stuck.json"
    program(node / "bin/tool", "echo ran")
    kept.write_text(json.dumps({"tool": hanging, "statvfs /scratch": hanging}))
    (node / "root/scratch").mkdir()
    there = host.live(str(node))
    ran = there.run("tool", "x", timeout_s=LONG)
    assert (ran.failure, ran.argv, ran.stdout) == ("stuck", ("tool", "x"), b"")
    assert (ran.pid, ran.started) == hanging
    assert number(there.space("/scratch", LONG)) == errno.ETIMEDOUT
    assert proc.end(hanging)
    assert there.run("tool", timeout_s=LONG).stdout == b"ran\n"
    assert isinstance(there.space("/scratch", LONG), Space)
    assert json.loads(kept.read_text()) == {}


def test_a_stuck_tool_is_remembered(node: Path, hanging: proc.Stamp) -> None:
    from hpkit.hosts.stuck import Stuck

    kept = Path(paths(str(node)).run) / "stuck.json"
    ran = proc.Ran(("tool",), -1000, b"", b"", 1.0, "stuck", pid=hanging.pid, started=hanging.started)
    Stuck(str(kept)).note("tool", ran)
    found = Stuck(str(kept)).answer(("tool", "y"), "tool")
    assert found and found.failure == "stuck" and found.pid == hanging.pid
    in_memory = Stuck("/nowhere/stuck.json")
    in_memory.note("tool", ran)
    assert in_memory.answer(("tool",), "tool")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tool": 1}', '{"tool": ["a", "b"]}', "{", '{"tool": [1, 2, 3]}']
)
def test_a_damaged_list_of_stuck_tools_says_nothing(node: Path, text: str) -> None:
    (Path(paths(str(node)).run) / "stuck.json").write_text(text)
    program(node / "bin/tool", "echo ran")
    assert host.live(str(node)).run("tool", timeout_s=LONG).ok


def test_a_tool_of_another_boot_with_that_pid_is_not_it(node: Path) -> None:
    own = proc.stamp(os.getpid())
    assert own
    text = json.dumps({"tool": own._replace(started=own.started + 1)})
    (Path(paths(str(node)).run) / "stuck.json").write_text(text)
    program(node / "bin/tool", "echo ran")
    assert host.live(str(node)).run("tool", timeout_s=LONG).ok
