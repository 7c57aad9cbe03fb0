"""The chooser: prove the candidates from the highest step down, heed the hints, say why.

Order is by step, never by time; the time of change only orders candidates of the same step. Nothing is ever deleted or
written. What is known can be concluded at any moment, so a file system that stops answering costs the budget, no more.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from hpkit.checkpoints import candidates, hints, model, names
from hpkit.checkpoints.model import Candidate, Choice, Format, Proof
from hpkit.checkpoints.tree import OutOfTime, Place, Tree, Unusable, shown


class Search:
    """One search of one folder: `run` fills it in, `conclude` makes a Choice of what is known so far.

    `folder` is the path as candidates are to be told. With `everything` all candidates are proven, else only those
    down to the first complete one. `explicit`: the user named the layout.
    """

    def __init__(self, folder: str, formats: Sequence[Format], *, everything: bool, explicit: bool) -> None:
        self._folder = folder
        self._formats = tuple(formats)
        self._everything = everything
        self._explicit = explicit
        self._places: list[Place] = []
        self._results: dict[int, Candidate] = {}
        self._foreign: set[int] = set()
        self._chosen: Place | None = None
        self._temporary: tuple[str, ...] = ()
        self._warnings: list[str] = []
        self._trouble = ""
        self._absent = False

    def run(self, tree: Tree) -> None:
        """Search until done or out of time; never raises for what the folder holds."""
        try:
            entries = tree.scan(tree.root)
            found = candidates.find(tree, entries, self._formats, explicit=self._explicit)
            self._places, self._temporary = found
            self._prove_downwards()
            self._heed(hints.find(tree, entries, self._places))
        except OutOfTime:
            self._trouble = "out of time"
        except Unusable as error:
            self._trouble = error.reason
        except OSError as error:
            self._root_problem(error)

    def conclude(self, late: str = "") -> Choice:
        """The answer. `late` is why the search was given up, "" when it ended by itself."""
        trouble = self._trouble or late
        chosen = self._chosen
        rest = model.OUT_OF_TIME if trouble and (self._everything or chosen is None) else model.NOT_NEEDED
        listed = tuple(
            self._results.get(id(place)) or self._unexamined(place, rest)
            for place in list(self._places)
            if id(place) not in self._foreign
        )
        if chosen is not None:
            found = self._results[id(chosen)]
            early = [f"the search ended early: {trouble}"] if trouble else []
            return Choice(model.FOUND, found.path, found.step, listed, (*self._warnings, *early))
        answer, why = self._without(listed, trouble)
        return Choice(answer, "", None, listed, tuple(self._warnings), why)

    def _without(self, listed: Sequence[Candidate], trouble: str) -> tuple[str, str]:
        """Answer and explanation when nothing complete was found."""
        unsure = sum(not candidate.examined for candidate in listed)
        if trouble:
            return model.UNREADABLE, trouble
        if unsure:
            return model.UNREADABLE, f"{unsure} of {len(listed)} candidates could not be examined"
        if listed:
            return model.NONE_COMPLETE, f"none of {len(listed)} candidates is complete"
        if self._temporary:
            some = ", ".join(shown(name) for name in self._temporary[:3])
            return model.NOTHING_THERE, f"no checkpoint, only {len(self._temporary)} temporary names ({some})"
        return model.NOTHING_THERE, "no such folder" if self._absent else "no checkpoint in it"

    def _root_problem(self, error: OSError) -> None:
        """No folder is a first start; a link that leads nowhere is rather a file system that is not mounted."""
        if error.errno == errno.ENOENT and not os.path.islink(self._folder):
            self._absent = True
        else:
            self._trouble = f"cannot read the folder: {error.strerror}"

    def _prove_downwards(self) -> None:
        for place in self._places:
            if self._chosen is not None and not self._everything:
                return
            found = self._examine(place)
            if found is not None and found.complete and self._chosen is None:
                self._chosen = place

    def _examine(self, place: Place) -> Candidate | None:
        """The candidate proven, once; None when it turned out to be something else than a checkpoint."""
        if id(place) not in self._results and id(place) not in self._foreign:
            found = self._judge(place)
            if found is None:
                self._foreign.add(id(place))
            else:
                self._results[id(place)] = found
        return self._results.get(id(place))

    def _judge(self, place: Place) -> Candidate | None:
        name, mtime = "", 0.0
        try:
            mtime = os.lstat(place.path).st_mtime
            if place.refused:
                raise Unusable(place.refused)
            found = next((f for f in self._formats if f.recognise(place)), None)
            if found is None and not names.telling(place.name):
                return None
            name = found.NAME if found else ""
            proof = found.prove(place) if found else Proof(False, self._nothing_in(place))
        except Unusable as error:
            proof = Proof(False, error.reason, unsure=error.unsure)
        except OSError as error:
            proof = _unread(error)
        step = proof.step if place.step is None else place.step
        path = self._path(place)
        return Candidate(path, step, name, proof.complete, proof.reason, proof.size, mtime, not proof.unsure)

    def _nothing_in(self, place: Place) -> str:
        if not place.entries:
            return "it is empty"
        kind = f"{self._formats[0].NAME} checkpoint" if self._explicit else "checkpoint of a known layout"
        return f"no {kind} in it"

    def _unexamined(self, place: Place, reason: str) -> Candidate:
        return Candidate(self._path(place), place.step, "", False, reason, examined=False)

    def _path(self, place: Place) -> str:
        """As the user would write it: in the folder as given, not where its links lead."""
        return self._folder if place.path == place.tree.root else os.path.join(self._folder, place.name)

    def _heed(self, found: Sequence[hints.Hint]) -> None:
        """The first hint whose target is complete is obeyed; each disagreement becomes a warning."""
        for hint in found:
            target = self._examine(hint.target) if hint.target else None
            if hint.target is None or target is None:
                self._warnings.append(
                    f"{hint.problem or 'what it names is no checkpoint'}: {shown(hint.name)} ignored"
                )
            elif not target.complete:
                told = f"{shown(hint.name)} names step {target.step}, which is not complete ({target.reason})"
                self._warnings.append(f"{told}: overridden" if self._chosen else told)
            else:
                self._obey(hint, hint.target)
                return

    def _obey(self, hint: hints.Hint, target: Place) -> None:
        chosen = self._chosen
        if chosen is not None and chosen is not target:
            self._warnings.append(
                f"{shown(hint.name)} names step {target.step}, which is taken, although step {chosen.step} is complete "
                f"too: change or remove {shown(hint.name)} to resume from step {chosen.step}"
            )
        self._chosen = target


def _unread(error: OSError) -> Proof:
    """What a failed system call means: gone (retention deletes behind our back), or not readable for us."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Proof(False, "it went away while it was examined")
    what = shown(os.path.basename(str(error.filename))) if error.filename else "it"
    return Proof(False, f"cannot read {what}: {error.strerror}", unsure=True)
