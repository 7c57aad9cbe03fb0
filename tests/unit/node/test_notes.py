"""Suspect notes: everything in their folder is hostile; its only effect is that a round runs."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit import proc
from hpkit.node import notes
from hpkit.paths import Paths
from tests.support.hanging_mount import hanging_mount

ROOT = os.geteuid() == 0
NOBODY = 65534 if ROOT else os.geteuid()  # only root can leave a note in the name of another


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    found = Paths(str(tmp_path / "node"))
    notes.prepare(found, "boot-a")
    return found


class Machine(Paths):
    """The paths of a real machine (no base), moved to where a test may write."""

    where = ""

    @property
    def run(self) -> str:
        return f"{self.where}/run/hpkit"

    @property
    def suspects(self) -> str:
        return f"{self.run}/suspects"


def test_a_real_machine_gives_the_notes_a_small_file_system_of_their_own(tmp_path: Path) -> None:
    if not ROOT:
        pytest.skip("only root mounts")
    real = Machine()
    Machine.where = str(tmp_path)
    notes.prepare(real, "boot-a")
    try:
        if not os.path.ismount(real.suspects):
            assert Path(real.run, "suspects-plain").read_text() == "boot-a", "told why, tried once"
            return
        space = os.statvfs(real.suspects)
        assert space.f_blocks * space.f_frsize == 1 << 20 and space.f_files <= 512
        leave(real, "a", "{}")
        notes.prepare(real, "boot-a")
        assert notes.any_left(real), "a second call changes nothing"
        assert stat.S_IMODE(os.stat(real.suspects).st_mode) == 0o1733
    finally:
        if os.path.ismount(real.suspects):
            assert proc.run(("umount", real.suspects), timeout_s=30).ok


def leave(paths: Paths, name: str, content: str | bytes, uid: int = NOBODY) -> Path:
    path = Path(paths.suspects, name)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if uid != os.geteuid():
        os.chown(path, uid, uid)
    return path


def test_the_folder_takes_files_from_everybody_and_shows_them_to_nobody(paths: Paths) -> None:
    found = os.stat(paths.suspects)
    assert stat.S_IMODE(found.st_mode) == 0o1733
    os.chmod(paths.suspects, 0o777)
    notes.prepare(paths, "boot-a")
    assert stat.S_IMODE(os.stat(paths.suspects).st_mode) == 0o1733


def test_a_note_is_read_answered_and_removed(paths: Paths) -> None:
    leave(paths, "job-123-x", json.dumps({"job": "123", "uptime": 5.5}))
    assert notes.any_left(paths)
    taken = notes.take(paths)
    assert taken == (notes.Note("job-123-x", NOBODY, "123"),)
    assert notes.any_left(paths), "what was taken stays until its round has ended"
    notes.consume(paths, taken)
    assert not notes.any_left(paths)
    assert notes.answered(paths, "123") == {NOBODY}
    assert notes.answered(paths, "124") == frozenset()
    notes.forget(paths, "123")
    assert notes.answered(paths, "123") == frozenset()


def test_a_note_left_during_the_round_waits_for_the_next_one(paths: Paths) -> None:
    leave(paths, "a", "{}")
    taken = notes.take(paths)
    leave(paths, "b", "{}")
    notes.consume(paths, taken)
    assert [n.name for n in notes.take(paths)] == ["b"]


@pytest.mark.skipif(not ROOT, reason="only root can give a file away")
def test_another_user_cannot_take_an_answer_away(paths: Paths) -> None:
    for number, uid in enumerate((1001, 1002, 1001)):
        leave(paths, f"n{number}", json.dumps({"job": "7"}), uid)
    notes.consume(paths, notes.take(paths))
    assert notes.answered(paths, "7") == {1001, 1002}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", '{"job": 123}', '{"job": ""}', '{"job": "../../etc/x"}', '{"job": "1_2"}',
        '{"job": "12345678901"}', '{"job": "\u0664\u0662"}', "[" * 4000, "\0" * 100, '{"job": "1\\n"}',
    ],
)  # fmt: skip
def test_a_garbled_note_counts_and_names_no_job(paths: Paths, content: str) -> None:
    leave(paths, "x", content)
    taken = notes.take(paths)
    assert taken == (notes.Note("x", NOBODY, ""),)
    notes.consume(paths, taken)
    assert not notes.any_left(paths)
    assert not os.path.exists(f"{paths.run}/answered") or os.listdir(f"{paths.run}/answered") == []


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(100 << 20)


def _hard_link(path: Path) -> None:
    outside = path.parents[3] / "outside"
    os.link(outside / "secret", path)


def _deep(path: Path) -> None:
    fd = os.open(path.parent, os.O_RDONLY)
    name = path.name
    for _ in range(300):  # deeper than any path can name
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd, name = inner, "d" * 100
    os.close(fd)


def _full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("x")
    (path / "link").symlink_to(path.parents[3] / "outside")
    (path / "inner").mkdir()
    (path / "inner" / "again").write_text("x")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "fifo": _fifo,
    "link to a file": lambda path: path.symlink_to(path.parents[3] / "outside" / "secret"),
    "link to a folder": lambda path: path.symlink_to(path.parents[3] / "outside"),
    "hard link": _hard_link,
    "empty folder": lambda path: path.mkdir(),
    "full folder": _full_folder,
    "deep folder": _deep,
    "100 MB": _huge,
    "unreadable": lambda path: path.touch(0o000),
}
NAMES = ("plain", "with\nnewline", "...", "-rf", "caf\udce9", "n" * 255)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_things_count_are_not_followed_and_go(paths: Paths, kind: str, name: str) -> None:
    outside = Path(paths.base) / "outside"
    outside.mkdir(parents=True)
    (outside / "secret").write_text(json.dumps({"job": "99"}))
    HOSTILE[kind](Path(paths.suspects, name))
    assert notes.any_left(paths)
    taken = notes.take(paths)
    assert [(n.name, n.job) for n in taken] == [(name, "")]
    notes.consume(paths, taken)
    assert not notes.any_left(paths)
    assert (outside / "secret").read_text() == '{"job": "99"}'
    assert notes.answered(paths, "99") == frozenset()


def test_ten_thousand_notes_are_gone_after_one_round(paths: Paths) -> None:
    for number in range(10_000):
        os.close(os.open(f"{paths.suspects}/{number}", os.O_CREAT | os.O_WRONLY))
    taken = notes.take(paths)
    assert len(taken) == 10_000
    assert sum(n.uid >= 0 for n in taken) <= notes.READ_MAX
    notes.consume(paths, taken)
    assert not notes.any_left(paths)


def test_the_memory_of_answers_is_bounded(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "ANSWERS_MAX", 3)
    monkeypatch.setattr(notes, "UIDS_MAX", 2)
    many = tuple(notes.Note(f"n{job}-{uid}", uid, str(job)) for job in range(1, 9) for uid in (5, 6, 7))
    notes.consume(paths, many)
    assert sorted(os.listdir(f"{paths.run}/answered")) == ["6", "7", "8"]
    assert notes.answered(paths, "8") == {5, 6}


def test_who_names_many_jobs_pushes_out_his_own_answers_alone(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "ANSWERS_MAX", 8)
    notes.consume(paths, (notes.Note("a", 1001, "700"), notes.Note("b", 1001, "5")))
    flood = tuple(notes.Note(f"f{job}", 666, str(job)) for job in range(1, 40))
    notes.consume(paths, flood)
    notes.consume(paths, (notes.Note("c", 1002, "701"), *flood))
    assert len(os.listdir(f"{paths.run}/answered")) == 8
    assert (notes.answered(paths, "700"), notes.answered(paths, "701")) == ({1001}, {1002})
    assert 1001 in notes.answered(paths, "5"), "the job of one user, named by the other as well"


@pytest.mark.skipif(not ROOT, reason="only root mounts")
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_note_that_hangs_whoever_looks_at_it(paths: Paths, kind: str) -> None:
    """Where FUSE lets users mount for others (allow_other), the server of a mount need not answer anybody."""
    leave(paths, "good", json.dumps({"job": "7"}))
    evil = Path(paths.suspects, "evil")
    if kind == "folder":
        evil.mkdir()
    else:
        evil.touch()
    with hanging_mount(evil):
        taken = notes.take(paths)
        assert {note.name for note in taken} == {"good", "evil"}
        notes.consume(paths, taken)
        assert [note.name for note in notes.take(paths)] == ["evil"]
    notes.consume(paths, notes.take(paths))
    assert not notes.any_left(paths)


def test_much_in_folders_is_removed_in_pieces(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many folders hold however much, a round takes its second and goes on; later rounds do the rest."""
    monkeypatch.setattr(notes, "CLEAR_S", 0.02)
    for number in range(4):
        Path(paths.suspects, f"d{number}").mkdir()
        for inner in range(1000):
            os.close(os.open(f"{paths.suspects}/d{number}/{inner}", os.O_CREAT | os.O_WRONLY))
    rounds = 0
    while notes.any_left(paths):
        notes.consume(paths, notes.take(paths))
        rounds += 1
        assert rounds < 1000


@pytest.mark.parametrize(
    ("marked", "uptime", "due"),
    [
        (None, 1000.0, 0.0),
        (1000.0, 1010.0, 50.0),
        (1000.0, 1060.0, 0.0),
        (1000.0, 2.0, 0.0),  # of a former boot
        ("nan", 5.0, 0.0),
        ("inf", 5.0, 0.0),
        ("rubbish", 5.0, 0.0),
    ],
)
def test_at_most_one_round_for_notes_in_an_interval(
    paths: Paths, marked: float | str | None, uptime: float, due: float
) -> None:
    if isinstance(marked, float):
        notes.mark(paths, marked)
    elif marked:
        Path(paths.run, "note-round").write_text(marked)
    assert notes.due_in(paths, 60.0, uptime) == due
