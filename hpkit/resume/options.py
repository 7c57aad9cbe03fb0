"""hp-srun's command line: our own options taken out, everything else left as it is, for srun.

The walk is getopt_long's with a leading "+": options end at the first word that is none, at `--`, and start again
after a lone `:` (the components of a heterogeneous step).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hpkit.errors import UsageError
from hpkit.resume import settings
from hpkit.resume.srun_options import NONE, OPTIONAL, REQUIRED, Table, known

AUTO_RESUME = "auto-resume"
PREFIX = "hp-"


class Component(NamedTuple):
    """One component of a step, as indexes into the words for srun.

    Its options are `start` to `program`, the program and its arguments `program` to `end`. `given` maps the long names
    of srun's options that were found to their values ("" without one).
    """

    start: int
    program: int
    end: int
    given: Mapping[str, str]


class Command(NamedTuple):
    """A parsed command line: the words for srun, our options as (name, value), the components."""

    words: tuple[str, ...]
    ours: tuple[tuple[str, str], ...]
    components: tuple[Component, ...]

    def gives(self, name: str) -> bool:
        """Whether a component was given this option of srun (by its long name)."""
        return any(name in c.given for c in self.components)


class _Walk:
    """The state of one walk over the command line."""

    def __init__(self, argv: Sequence[str], more: Callable[[], Table]) -> None:
        self.argv = argv
        self.more = more
        self.table = known()
        self.asked = False
        self.at = 0
        self.words: list[str] = []
        self.ours: list[tuple[str, str]] = []
        self.given: dict[str, str] = {}

    def take(self) -> str:
        """The next word, kept for srun."""
        word = self.argv[self.at]
        self.words.append(word)
        self.at += 1
        return word

    def options(self) -> None:
        """Walk over the options of one component, up to its program."""
        while self.at < len(self.argv):
            word = self.argv[self.at]
            if word == "--":
                self.take()
                return
            if word in ("-", ":") or not word.startswith("-"):
                return
            if _is_ours(word):
                self.own(word)
            elif word.startswith("--"):
                self.long()
            else:
                self.cluster()

    def own(self, word: str) -> None:
        """One of our options; raises UsageError when it is unknown or lacks its value."""
        self.at += 1
        name, equals, value = word[2:].partition("=")
        if name == AUTO_RESUME:
            self.ours.append((name, value if equals else "1"))
            return
        name = name[len(PREFIX) :]
        if name not in settings.NAMES:
            import difflib

            near = difflib.get_close_matches(name, settings.NAMES, 1)
            hint = f"did you mean --hp-{near[0]}?" if near else "known: " + _listing()
            raise UsageError(f"unknown option --hp-{name}", hint)
        if not equals and name in settings.FLAGS:
            value = "1"
        elif not equals:
            if self.at >= len(self.argv):
                raise UsageError(f"option --hp-{name} needs a value")
            value = self.argv[self.at]
            self.at += 1
        self.ours.append((name, value))

    def long(self) -> None:
        """A long option of srun: whole, or an unambiguous prefix of one."""
        name, equals, value = self.take()[2:].partition("=")
        full, kind = self.find(name)
        if kind == REQUIRED and not equals and self.at < len(self.argv):
            value = self.take()
        self.given[full] = value

    def find(self, name: str) -> tuple[str, str]:
        """The full name and what the option takes; srun's help is asked once for names that we do not know."""
        if name in self.table.long:
            return name, self.table.long[name]
        near = [n for n in self.table.long if n.startswith(name)]
        if not near and not self.asked:
            self.learn()
            return self.find(name)
        kinds = {self.table.long[n] for n in near}
        return (near[0] if len(near) == 1 else name), (kinds.pop() if len(kinds) == 1 else NONE)

    def learn(self) -> None:
        """Add what this srun and its plugins know beyond our table."""
        self.asked = True
        found = self.more()
        self.table = Table({**found.long, **self.table.long}, {**found.short, **self.table.short})

    def cluster(self) -> None:
        """Short options in one word: the first that may take an argument takes the rest of the word."""
        letters = self.take()[1:]
        for i, letter in enumerate(letters):
            kind = self.table.letter(letter)
            if not kind and not self.asked:
                self.learn()
                kind = self.table.letter(letter)
            rest = letters[i + 1 :]
            name = self.table.short.get(letter, letter)
            if kind == REQUIRED and not rest and self.at < len(self.argv):
                rest = self.take()
            self.given[name] = rest if kind in (REQUIRED, OPTIONAL) else ""
            if kind in (REQUIRED, OPTIONAL, ""):
                return


def parse(argv: Sequence[str], more: Callable[[], Table]) -> Command:
    """Take our options out of hp-srun's arguments.

    `more` tells what the installed srun knows beyond our table; it is called at most once, and only when an unknown
    option is met. Raises UsageError for a faulty option of ours; everything that is srun's is left to srun.
    """
    walk = _Walk(argv, more)
    components: list[Component] = []
    while True:
        start, walk.given = len(walk.words), {}
        walk.options()
        program = len(walk.words)
        while walk.at < len(argv) and argv[walk.at] != ":":
            walk.take()
        components.append(Component(start, program, len(walk.words), walk.given))
        if walk.at >= len(argv):
            return Command(tuple(walk.words), tuple(walk.ours), tuple(components))
        walk.take()


def _is_ours(word: str) -> bool:
    name = word[2:].partition("=")[0]
    return word.startswith("--") and (name == AUTO_RESUME or name.startswith(PREFIX))


def _listing() -> str:
    return " ".join(f"--hp-{name}" for name in settings.NAMES)
