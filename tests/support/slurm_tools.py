"""Small programs in the place of scontrol and squeue, that print Slurm's texts and keep what they were told."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm.commands import Commands
from tests.support import slurm_texts as texts


class Tools:
    """A folder with scontrol and squeue; each call appends its arguments to `calls`, stdin to `fed`, env to `env`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.say("scontrol")
        self.say("squeue")

    def say(self, tool: str, stdout: str = "", stderr: str = "", rc: int = 0, then: str = "") -> None:
        """What the tool prints from now on, and how it ends; `then` is more shell code."""
        (self.folder / f"{tool}.out").write_text(stdout)
        (self.folder / f"{tool}.err").write_text(stderr)
        here = self.folder
        script = (
            f'#!/bin/sh\necho "{tool} $*" >>{here}/calls\nenv >{here}/env\n{then}\n'
            f"cat {here}/{tool}.out\ncat {here}/{tool}.err >&2\nexit {rc}\n"
        )
        path = self.folder / tool
        path.write_text(script)
        path.chmod(0o755)

    def orders(self, answers: dict[str, str], state: str = "RUNNING") -> None:
        """A job in a state; play scontrol's dialogue: complain about unknown words, answer orders that begin with a key of `answers`."""
        cases = "".join(f"'{order}'*) echo '{text}' >&2;;\n" for order, text in answers.items() if text)
        loop = (
            f'if [ $# -eq 0 ]; then while read -r line; do echo "$line" >>{self.folder}/fed\n'
            f'case "$line" in\n{cases}hpkit_after_*) echo "invalid keyword: $line" >&2;;\nesac; done; exit 1; fi'
        )
        self.say("scontrol", texts.job("41", state=state), then=loop)

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def fed(self) -> list[str]:
        lines = (self.folder / "fed").read_text().splitlines()
        return [line for line in lines if not line.startswith("hpkit_after_")]


def client(tools: Tools, timeout_s: float = 10.0) -> Commands:
    config = SlurmConfig(conf="/etc/site/slurm.conf", bin=str(tools.folder), timeout_s=timeout_s)
    return Commands(config, trusted_only=False)


def kind(call: object, *args: object, **more: object) -> str:
    with pytest.raises(SlurmError) as caught:
        call(*args, **more)  # type: ignore[operator]
    return caught.value.kind
