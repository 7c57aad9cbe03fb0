"""A program that plays srun for hp-srun: real processes, streams, signals and exit codes.

Its behaviour is in the folder $FAKE_SRUN: `step.sh` is run for the user's step, `witness.sh` for the step that asks the
nodes. Each call appends its arguments as a JSON line to `calls`; the environment goes to `env.json`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

TEXT = """\
#!{python} -I
import json, os, sys
folder = os.environ["FAKE_SRUN"] if "FAKE_SRUN" in os.environ else {folder!r}
with open(folder + "/calls", "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
witness = any("hpkit.resume.witness" in word for word in sys.argv)
with open(folder + ("/env-witness.json" if witness else "/env.json"), "w") as file:
    json.dump(dict(os.environ), file)
os.execv("/bin/sh", ["sh", folder + ("/witness.sh" if witness else "/step.sh"), *sys.argv[1:]])
"""


class FakeSrun:
    """The fake in `folder`; put `folder`/bin first in PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        srun = self.bin / "srun"
        srun.write_text(TEXT.format(python=sys.executable, folder=str(folder)))
        srun.chmod(0o755)
        self.step("exit 0")
        self.witness("exit 0")

    @property
    def path(self) -> str:
        """A PATH in which the fake comes first."""
        return f"{self.bin}:{os.environ['PATH']}"

    def step(self, script: str) -> None:
        """What the user's step does."""
        (self.folder / "step.sh").write_text(script + "\n")

    def witness(self, script: str) -> None:
        """What the step that asks the nodes does."""
        (self.folder / "witness.sh").write_text(script + "\n")

    def answers(self, *documents: dict[str, object]) -> None:
        """Let each node's witness say this; the node is the document's "node"."""
        from hpkit.resume import wire

        said = "\n".join(line for d in documents for line in wire.lines(str(d["node"]), d))
        (self.folder / "said").write_text(said + "\n")
        self.witness(f"cat {self.folder}/said")

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call so far."""
        calls = self.folder / "calls"
        return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    def env(self, witness: bool = False) -> dict[str, str]:
        """The environment of the last call of that kind."""
        found: dict[str, str] = json.loads(
            (self.folder / f"env{'-witness' if witness else ''}.json").read_text()
        )
        return found
