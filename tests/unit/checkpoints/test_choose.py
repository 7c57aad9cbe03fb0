"""The chooser on whole trees: order, names, hints, answers, hostile entries, and the budget."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hpkit.checkpoints import Choice, absolute, choose, guarded, listing, names, registry
from hpkit.checkpoints.model import NOT_NEEDED, OUT_OF_TIME
from hpkit.checkpoints.search import Search
from hpkit.checkpoints.tree import Entry, Facts, Tree
from hpkit.errors import UsageError
from tests.support import make_checkpoints as make


def reasons(choice: Choice) -> dict[str, str]:
    """Reason by the candidate's name."""
    return {os.path.basename(c.path): c.reason for c in choice.candidates}


def search(folder: Path, tree: Callable[[str, float], Tree], budget_s: float = 60.0) -> Choice:
    """A search of all candidates over a Tree of our own."""
    engine = Search(absolute(str(folder)), registry.select("auto"), everything=True, explicit=False)
    return guarded(engine, str(folder), budget_s, tree)


ORDER = {
    "numbers, not text": (("step_9", "step_10", "step_100"), "step_100"),
    "padding of two widths": (("100000", "0900000", "020000"), "0900000"),
    "blanks": (("run 1 step 3", "run 1 step 12"), "run 1 step 12"),
    "line ends": (("step\n7", "step\n12"), "step\n12"),
    "bytes that are no text": (("step_\udcff_3", "step_\udcff_12"), "step_\udcff_12"),
    "other names beside": (
        (
            "step_5",
            "step_7",
            "step_old",
            "latest",
            "checkpoint_final",
            "tmp_step_9",
            "step_8.tmp",
            ".step_11",
        ),
        "step_7",
    ),
    "words with a number": (("llama_v2_step_4", "llama_v2_step_30"), "llama_v2_step_30"),
}


@pytest.mark.parametrize("case", ORDER)
def test_the_highest_step_wins(tmp_path: Path, case: str) -> None:
    folders, wanted = ORDER[case]
    for name in folders:
        make.dcp(tmp_path / name)
    make.later(tmp_path / folders[0], 3600)
    assert choose(str(tmp_path)).path == str(tmp_path / wanted)


def test_files_by_number_too(tmp_path: Path) -> None:
    for name in ("iter-960000-ckpt.pth", "iter-1080000-ckpt.pth", "notes-2000000.txt", "tokens_3000000.bin"):
        make.single_torch(tmp_path / name)
    found = choose(str(tmp_path))
    assert (found.path, found.step) == (str(tmp_path / "iter-1080000-ckpt.pth"), 1080000)


STEPS = {
    "step_9": 9, "0900000": 900000, "epoch=3-step=1500": 1500, "step=100-loss=0.12": 100, "step=100-v2": 100, "v2": 2,
    "ep2-ba40": 40, "final": None, "model-1.5": None, "checkpoint.70": 70, "": None, "\u0663": None, "9" * 200: int("9" * 200),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_the_step_in_a_name(name: str) -> None:
    assert names.step_of(name) == STEPS[name]


def test_time_only_orders_the_same_step(tmp_path: Path) -> None:
    make.dcp(tmp_path / "step_7")
    make.single_torch(tmp_path / "ckpt_007.pt")
    make.later(tmp_path / "step_7", -100)
    assert choose(str(tmp_path)).path == str(tmp_path / "ckpt_007.pt")
    make.later(tmp_path / "step_7", 200)
    assert choose(str(tmp_path)).path == str(tmp_path / "step_7")


def test_it_stops_at_the_first_complete_one_and_says_why_not_the_others(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        make.hf(tmp_path / f"checkpoint-{step}")
    make.HF_TEARS["no trainer_state.json"](tmp_path / "checkpoint-40")
    make.HF_TEARS["empty optimizer"](tmp_path / "checkpoint-30")
    found = choose(str(tmp_path))
    assert (found.answer, found.step) == ("found", 20)
    assert reasons(found) == {
        "checkpoint-40": "no trainer_state.json: the save did not end",
        "checkpoint-30": "optimizer.pt is empty",
        "checkpoint-20": "",
        "checkpoint-10": NOT_NEEDED,
    }
    assert [c.examined for c in found.candidates] == [True, True, True, False]
    assert [c.complete for c in listing(str(tmp_path)).candidates] == [False, False, True, True]


def test_nothing_is_deleted_or_written(tmp_path: Path) -> None:
    for step in (1, 2):
        make.dcp(tmp_path / f"step_{step}")
    make.DCP_TEARS["cut .metadata"](tmp_path / "step_2")

    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}

    before = state()
    listing(str(tmp_path))
    assert state() == before


def test_the_answers_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad" / "checkpoint-1").mkdir(parents=True)
    (tmp_path / "only temporary" / "step_3.tmp").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "not mounted")
    (tmp_path / "file").write_text("x")
    (tmp_path / "logs" / "run_12").mkdir(parents=True)
    (tmp_path / "logs" / "run_12" / "out.txt").write_text("x")

    def told(name: str) -> tuple[str, str]:
        found = choose(str(tmp_path / name))
        return found.answer, found.why

    assert told("empty") == ("nothing there", "no checkpoint in it")
    assert told("absent") == ("nothing there", "no such folder")
    assert told("only temporary") == ("nothing there", "no checkpoint, only 1 temporary names (step_3.tmp)")
    assert told("logs") == ("nothing there", "no checkpoint in it")
    assert told("bad") == ("none complete", "none of 1 candidates is complete")
    assert told("dangling") == ("unreadable", "cannot read the folder: No such file or directory")
    assert told("file") == ("unreadable", "cannot read the folder: Not a directory")


@pytest.mark.parametrize("folder", ("", "a\0b"))
def test_no_folder_is_a_usage_error(folder: str) -> None:
    with pytest.raises(UsageError):
        choose(folder)


def test_an_unknown_format_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint format 'gguf'"):
        choose(str(tmp_path), "gguf")


def test_the_folder_itself_may_be_the_checkpoint(tmp_path: Path) -> None:
    folder = make.dcp(tmp_path / "run" / "step_30")
    found = choose(str(folder))
    assert (found.path, found.step) == (str(folder), 30)
    folder = make.hf(tmp_path / "checkpoint-40", ranks=2, shards=2).rename(tmp_path / "final")
    found = choose(str(folder))
    assert (found.path, found.step) == (str(folder), 40)


def test_a_folder_of_weights_is_no_checkpoint_of_a_run_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(make.safetensors())
    assert choose(str(tmp_path)).answer == "nothing there"
    assert choose(str(tmp_path), "safetensors").path == str(tmp_path)


def test_paths_keep_the_users_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make.dcp(tmp_path / "real" / "step_1")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    assert choose(f"{tmp_path}/link").path == f"{tmp_path}/link/step_1"
    assert choose("link/").path == f"{tmp_path}/link/step_1"
    monkeypatch.chdir(tmp_path / "real")
    assert choose(".").path == f"{tmp_path}/real/step_1"


def hinted(folder: Path, *torn: int) -> Path:
    """Steps 10, 20, 30, some of them torn."""
    for step in (10, 20, 30):
        make.dcp(folder / f"step_{step}")
    for step in torn:
        make.DCP_TEARS["no .metadata"](folder / f"step_{step}")
    return folder


Hinter = Callable[[Path], object]
HINTS: dict[str, tuple[tuple[int, ...], Hinter, int | None, str]] = {
    "a link to the newest": ((), lambda d: (d / "latest").symlink_to("step_30"), 30, ""),
    "a link to an older one": (
        (),
        lambda d: (d / "latest").symlink_to("step_20"),
        20,
        "latest names step 20, which is taken, although step 30 is complete too: change or remove latest to resume "
        "from step 30",
    ),
    "a link to the newest complete": ((30,), lambda d: (d / "last").symlink_to("step_20"), 20, ""),
    "a link to a torn one": (
        (30,),
        lambda d: (d / "latest").symlink_to("step_30"),
        20,
        "latest names step 30, which is not complete (no .metadata: the save did not end): overridden",
    ),
    "a tracker with a step": (
        (),
        lambda d: (d / "latest_checkpointed_iteration.txt").write_text("10\n"),
        10,
        "latest_checkpointed_iteration.txt names step 10, which is taken, although step 30 is complete too: change or "
        "remove latest_checkpointed_iteration.txt to resume from step 30",
    ),
    "a tracker with a name": ((30,), lambda d: (d / "latest").write_text("step_20"), 20, ""),
    "an empty tracker": ((), lambda d: (d / "latest").touch(), 30, "latest is empty: latest ignored"),
    "a tracker of what is gone": (
        (),
        lambda d: (d / "latest").write_text("step_40"),
        30,
        "latest names step_40, which is not here: latest ignored",
    ),
    "a link that leads out": (
        (),
        lambda d: (d / "latest").symlink_to("/"),
        30,
        "latest is a link that leads out of the folder: latest ignored",
    ),
    "a link in a ring": (
        (),
        lambda d: (d / "latest").symlink_to("latest"),
        30,
        "latest is a link that leads nowhere: latest ignored",
    ),
    "a hint and nothing complete": (
        (10, 20, 30),
        lambda d: (d / "latest").symlink_to("step_10"),
        None,
        "latest names step 10, which is not complete (no .metadata: the save did not end)",
    ),
}


@pytest.mark.parametrize("case", HINTS)
def test_hints_are_heeded_when_what_they_name_is_complete(tmp_path: Path, case: str) -> None:
    torn, hint, step, warning = HINTS[case]
    hint(hinted(tmp_path, *torn))
    found = choose(str(tmp_path))
    assert found.step == step
    assert list(found.warnings) == ([warning] if warning else [])


def test_links_to_candidates(tmp_path: Path) -> None:
    outside = make.dcp(tmp_path / "elsewhere" / "step_99")
    folder = tmp_path / "ckpts"
    make.dcp(folder / "kept" / "good")
    (folder / "step_50").symlink_to("kept/good")
    (folder / "step_60").symlink_to("step_60")
    (folder / "step_70").symlink_to(outside)
    (folder / "step_80").symlink_to(".")
    (folder / "step_90").symlink_to("step_50")  # the same checkpoint again: it stays step 50
    found = choose(str(folder))
    assert (found.path, found.step) == (str(folder / "step_50"), 50)
    assert reasons(found)["step_70"] == "step_70 is a link that leads out of the folder"
    assert len(found.candidates) == 3
    assert reasons(found)["step_60"] == "step_60 is a link that leads nowhere"


def test_links_of_shards(tmp_path: Path) -> None:
    folder = make.dcp(tmp_path / "ckpts" / "step_1")
    (folder / "__0_0.distcp").rename(tmp_path / "ckpts" / "store")
    (folder / "__0_0.distcp").symlink_to("../store")
    assert choose(str(tmp_path / "ckpts")).step == 1
    (tmp_path / "ckpts" / "store").rename(tmp_path / "store")
    (folder / "__0_0.distcp").unlink()
    (folder / "__0_0.distcp").symlink_to("../../store")
    found = choose(str(tmp_path / "ckpts"))
    assert reasons(found)["step_1"] == "__0_0.distcp is a link that leads out of the folder"


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ckpt_90.pt")
    os.mkfifo(tmp_path / "latest")
    for step, name in ((10, ".metadata"), (20, "__0_0.distcp")):
        (make.dcp(tmp_path / f"step_{step}") / name).unlink()
        os.mkfifo(tmp_path / f"step_{step}" / name)
    make.hf(tmp_path / "checkpoint-30")
    (tmp_path / "checkpoint-30" / "trainer_state.json").unlink()
    os.mkfifo(tmp_path / "checkpoint-30" / "trainer_state.json")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "ckpt_80.pt"))
    listener.close()
    found = listing(str(tmp_path))
    assert found.answer == "none complete"
    assert reasons(found) == {
        "ckpt_90.pt": "ckpt_90.pt is not a regular file",
        "ckpt_80.pt": "ckpt_80.pt is not a regular file",
        "checkpoint-30": "trainer_state.json is not a regular file",
        "step_20": "__0_0.distcp is not a regular file",
        "step_10": ".metadata is not a regular file",
    }


class Refusing(Tree):
    """A file system that says EACCES or EIO for some folders (as root, modes refuse nothing)."""

    def scan(self, path: str) -> dict[str, Entry]:
        """As Tree, but step_30 is not for us."""
        if path.endswith("step_30"):
            raise PermissionError(13, "Permission denied", path)
        return super().scan(path)


def test_what_cannot_be_read_is_not_taken_for_incomplete(tmp_path: Path) -> None:
    make.dcp(tmp_path / "step_30")
    found = search(tmp_path, Refusing)
    assert (found.answer, found.why) == ("unreadable", "1 of 1 candidates could not be examined")
    assert reasons(found) == {"step_30": "cannot read step_30: Permission denied"}
    make.dcp(tmp_path / "step_20")
    found = search(tmp_path, Refusing)
    assert (found.answer, found.step) == ("found", 20)


class Hanging(Tree):
    """A file system that stops answering at step_20, like a dead NFS server."""

    release = threading.Event()

    def scan(self, path: str) -> dict[str, Entry]:
        """As Tree, but one folder never answers."""
        if path.endswith("step_20"):
            self.release.wait(60)
        return super().scan(path)


@pytest.mark.parametrize(("whole", "answer"), ((True, "found"), (False, "unreadable")))
def test_a_file_system_that_hangs_costs_the_budget_only(tmp_path: Path, whole: bool, answer: str) -> None:
    Hanging.release.clear()
    hinted(tmp_path, *(() if whole else (30,)))
    try:
        found = search(tmp_path, Hanging, 0.2)
    finally:
        Hanging.release.set()
    assert found.answer == answer
    assert len(found.candidates) == 3
    assert reasons(found)["step_20"] == OUT_OF_TIME
    told = "the file system did not answer within 0.2 s"
    assert found.why == told if not whole else found.warnings == (f"the search ended early: {told}",)


def test_whatever_the_budget_no_candidate_is_dropped(tmp_path: Path) -> None:
    hinted(tmp_path, 30)
    (tmp_path / "latest").symlink_to("step_10")
    ends = set()
    for ticks in range(60):
        left = iter(range(ticks))
        found = search(
            tmp_path,
            lambda folder, _budget, left=left: Tree(
                folder, 1.0, lambda: 0.0 if next(left, None) is not None else 9.0
            ),
        )
        ends.add((found.answer, found.step))
        assert len(found.candidates) in (0, 3)
        assert found.candidates or found.answer == "unreadable"
        assert all(c.complete or c.reason for c in found.candidates)
    assert ends == {("unreadable", None), ("found", 20), ("found", 10)}


class Counting(Tree):
    """Counts directory reads and looks at files."""

    scans: list[str]
    looks: list[str]

    def scan(self, path: str) -> dict[str, Entry]:
        """As Tree."""
        self.scans.append(path)
        return super().scan(path)

    def facts(self, path: str) -> Facts:
        """As Tree."""
        self.looks.append(path)
        return super().facts(path)


def test_only_the_chosen_one_is_looked_into(tmp_path: Path) -> None:
    for step in range(30):
        make.dcp(tmp_path / f"step_{step}", ranks=4)
    Counting.scans, Counting.looks = [], []
    engine = Search(str(tmp_path), registry.select("auto"), everything=False, explicit=False)
    assert guarded(engine, str(tmp_path), 60.0, Counting).step == 29
    assert sorted(Counting.scans) == [str(tmp_path), str(tmp_path / "step_29")]
    assert {os.path.dirname(path) for path in Counting.looks} == {str(tmp_path / "step_29")}


def test_a_fault_of_our_own_is_not_hidden(tmp_path: Path) -> None:
    class Faulty(Tree):
        def scan(self, path: str) -> dict[str, Entry]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        search(tmp_path, Faulty)


def test_too_many_names_and_too_deep_folders_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hpkit.checkpoints import tree

    deep = "/".join("abcdef")
    folder = tmp_path / "step_1"
    (folder / deep).mkdir(parents=True)
    (folder / deep / "x.distcp").write_bytes(b"x" * 5)
    (folder / ".metadata").write_bytes(make.dcp_metadata({f"{deep}/x.distcp": [5]}))
    found = listing(str(tmp_path))
    assert reasons(found) == {"step_1": f"folders nested more than {tree.MAX_DEPTH} deep"}
    assert found.answer == "unreadable"
    monkeypatch.setattr(tree, "MAX_ENTRIES", 5)
    for number in range(6):
        (tmp_path / f"x{number}").touch()
    found = listing(str(tmp_path))
    assert (found.answer, found.why) == ("unreadable", "more than 5 names in one folder")
