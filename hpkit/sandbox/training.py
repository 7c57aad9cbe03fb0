"""A training job on the sandbox: submitted from a batch script, watched through its progress file and through Slurm."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hpkit.errors import DeadlineError, HpkitError
from hpkit.installing import source_folder

if TYPE_CHECKING:
    from hpkit.sandbox.cluster import Cluster
    from hpkit.slurm.client import Job

T = TypeVar("T")

WAIT_S = 90.0
POLL_S = 0.1


class Plan(NamedTuple):
    """What the program does: `steps` of `step_s` seconds, every `save_every` a checkpoint, written in `save_s`."""

    steps: int = 12
    save_every: int = 4
    step_s: float = 0.15
    save_s: float = 1.0


class Run:
    """One training job, as its progress file and Slurm show it. Its files are in `folder`."""

    def __init__(self, cluster: Cluster, name: str, plan: Plan) -> None:
        self.cluster = cluster
        self.plan = plan
        self.name = name
        self.folder = f"{cluster.folder}/home/{name}"
        self.job_id = ""

    def program(self, *options: str) -> list[str]:
        """The command of the training program."""
        script = f"{self.cluster.folder}/lib/hpkit/sandbox/data/train.py"
        given = [f"--steps={self.plan.steps}", f"--save-every={self.plan.save_every}"]
        return [self.cluster.state.python, script, *given, *options]

    def submit(
        self,
        *args: str,
        script: str = "",
        options: Sequence[str] = (),
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> str:
        """Submit a batch script (the template) as the user, the program filled in by its variables; the job's number.

        `args` are sbatch's, `options` the training program's, `env` is added to the job's environment.
        """
        pace = [f"--step-seconds={self.plan.step_s}", f"--save-seconds={self.plan.save_s}"]
        variables = {"TRAIN": " ".join(self.program(*pace, *options)), "CHECKPOINTS": self.folder, **env}
        gpus = self.cluster.state.settings.gpus
        words = [f"--gres=gpu:{gpus}", f"--output={self.folder}.out", *args]
        self.job_id = self.cluster.submit(script or template(), *words, env=variables)
        return self.job_id

    def alone(self) -> str:
        """The result of an uninterrupted run of the same program, without pauses."""
        self.cluster.run_as_user(["mkdir", "-p", self.folder])
        ran = self.cluster.run_as_user(
            [*self.program("--step-seconds=0"), f"--dir={self.folder}"], timeout_s=60
        )
        if not ran.ok:
            raise HpkitError(f"the uninterrupted run failed: {ran.stderr.decode(errors='replace').strip()}")
        return self.result()

    def result(self) -> str:
        """The number that the program computed, "" before its end."""
        return self.text("result").strip()

    def text(self, name: str) -> str:
        """A file of the run, "" when it is not there."""
        return read(os.path.join(self.folder, name))

    def events(self, kind: str, after: float = 0.0) -> list[dict[str, Any]]:
        """Events of the program, those later than `after` (wall seconds)."""
        lines = [json.loads(line) for line in self.text("progress.jsonl").splitlines() if line.endswith("}")]
        return [line for line in lines if line["event"] == kind and line["wall"] > after]

    def log(self) -> list[str]:
        """The job's log."""
        return read(f"{self.folder}.out").splitlines()

    def job(self) -> Job:
        """The job as Slurm shows it."""
        return self.cluster.job(self.job_id)

    def nodes(self) -> tuple[str, ...]:
        """The names of the job's nodes."""
        return self.cluster.client.hostnames(self.job().nodes)

    def await_(self, what: str, look: Callable[[], T | None]) -> T:
        """Wait until `look` finds something; raises DeadlineError that says what did not happen."""
        until = time.monotonic() + WAIT_S
        while (found := look()) is None:
            if time.monotonic() > until:
                raise DeadlineError(f"in {WAIT_S:.0f} s this did not happen: {what}; the job is {self.job()}")
            time.sleep(POLL_S)
        return found

    def event(self, kind: str, after: float = 0.0, step: int = 0) -> dict[str, Any]:
        """Wait for the first event of a kind after a moment, for one of a step not before `step`."""

        def look() -> dict[str, Any] | None:
            return next((e for e in self.events(kind, after) if e["step"] >= step), None)

        return self.await_(f"{kind} of step {step}", look)


def template() -> str:
    """The text of the batch script that hpkit ships."""
    path = os.path.join(source_folder(), "sbatch_templates", "train.sbatch")
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise HpkitError(
            f"the batch script was not shipped: {error}", "install hpkit from its repository"
        ) from None


def read(path: str) -> str:
    """A file's text, "" when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
