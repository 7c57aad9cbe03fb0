"""Random trees of whole, torn, foreign and vanishing entries against an oracle that knows what each entry is."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit.checkpoints import Choice, choose, guarded, listing, registry
from hpkit.checkpoints.search import Search
from hpkit.checkpoints.tree import Entry, Tree
from tests.support import make_checkpoints as make


class Thing(NamedTuple):
    """An entry of a tree: how it is made, and what is known of it because of that.

    `step` is None for what must be ignored; `whole` whether it can be loaded; `vanishes` when it is looked into.
    """

    kind: str
    step: int | None
    tear: str = ""
    vanishes: bool = False

    @property
    def whole(self) -> bool:
        """Complete, and still there when it is examined."""
        return self.step is not None and not self.tear and not self.vanishes


def _folder_of_text(path: Path) -> None:
    path.mkdir()
    (path / "out.txt").write_text("loss 2.5")


FOREIGN: dict[str, Callable[[Path], object]] = {
    "latest": make.dcp,
    "step_old": make.dcp,
    ".step_{}": make.dcp,
    "step_{}.tmp": make.dcp,
    "tmp_step_{}": make.dcp,
    "run-{}": _folder_of_text,
    "step_{}.txt": lambda p: p.write_text("note"),
    "pipe-{}": os.mkfifo,
    "way-out-{}": lambda p: p.symlink_to("/usr"),
    "events.{}": lambda p: p.write_bytes(b"\0" * 10),
}

steps = st.integers(0, 12)
real = st.sampled_from(sorted(make.KINDS)).flatmap(
    lambda kind: st.builds(
        Thing,
        st.just(kind),
        steps,
        st.one_of(st.just(""), st.sampled_from(sorted(make.KINDS[kind][2]))),
        st.booleans() if kind not in ("torch", "safetensors") else st.just(False),
    )
)
foreign = st.builds(Thing, st.sampled_from(sorted(FOREIGN)), st.none())
trees = st.lists(st.one_of(real, real, foreign), max_size=7, unique_by=lambda t: (t.kind, t.step))


class Fading(Tree):
    """Retention at work: the folders named are deleted at the moment they are looked into."""

    fading: frozenset[str] = frozenset()

    def scan(self, path: str) -> dict[str, Entry]:
        """As Tree, after the folder was deleted."""
        if path in self.fading:
            shutil.rmtree(path, ignore_errors=True)
        return super().scan(path)


def build(folder: Path, things: list[Thing]) -> dict[str, Thing]:
    """Make the tree, each entry a second newer than the one before; returns the real entries by path."""
    made: dict[str, Thing] = {}
    for number, thing in enumerate(things):
        if thing.step is None:
            FOREIGN[thing.kind](folder / thing.kind.format(50 + number))
            continue
        builder, pattern, tears = make.KINDS[thing.kind]
        path = builder(folder / pattern.format(thing.step))
        if thing.tear:
            tears[thing.tear](path)
        os.utime(path, (1e9 + number, 1e9 + number))
        made[str(path)] = thing
    return made


def expected(made: dict[str, Thing]) -> str:
    """The whole one with the highest step; of several with that step the one made last; "" when there is none."""
    best = ""
    for path, thing in made.items():
        if thing.whole and (not best or (thing.step or 0) >= (made[best].step or 0)):
            best = path
    return best


@settings(derandomize=True, max_examples=200, deadline=None)
@given(trees)
def test_the_newest_whole_one_is_chosen(things: list[Thing]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = build(folder, things)
        fading = frozenset(path for path, thing in made.items() if thing.vanishes)
        if not fading:
            check(choose(name), made)
        tree = type("Tree", (Fading,), {"fading": fading})
        engine = Search(name, registry.select("auto"), everything=True, explicit=False)
        check(guarded(engine, name, 60.0, tree), made)


def check(found: Choice, made: dict[str, Thing]) -> None:
    """The choice against the oracle, and each candidate against what it is."""
    wanted = expected(made)
    assert found.path == wanted
    assert found.answer == ("found" if wanted else "none complete" if made else "nothing there")
    assert {c.path for c in found.candidates} == set(made)
    for candidate in found.candidates:
        assert candidate.step == made[candidate.path].step
        assert candidate.complete or candidate.reason
        if candidate.examined:
            assert candidate.complete == made[candidate.path].whole, candidate


@settings(derandomize=True, max_examples=100, deadline=None)
@given(st.data())
def test_a_changed_byte_or_cut_never_raises(data: st.DataObject) -> None:
    """Whatever a disk does to the bytes of a checkpoint, the answer is an answer."""
    kind = data.draw(st.sampled_from(sorted(make.KINDS)))
    builder, pattern, _ = make.KINDS[kind]
    with tempfile.TemporaryDirectory() as name:
        path = builder(Path(name) / pattern.format(5))
        file = path if path.is_file() else data.draw(st.sampled_from(sorted(path.iterdir())))
        content = bytearray(file.read_bytes())
        for _ in range(data.draw(st.integers(1, 4))):
            content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
        file.write_bytes(content[: data.draw(st.integers(1, len(content)))])
        (found,) = listing(name).candidates
        assert found.complete or found.reason
