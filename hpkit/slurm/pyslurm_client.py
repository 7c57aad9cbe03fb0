"""The backend over pyslurm: a process of ours that holds it answers what it can, Slurm's commands the rest.

pyslurm is never imported here. libslurm may block far beyond any deadline of ours, and ends its process when it finds
no slurm.conf: a hook or hp-srun must not be that process. Left to the commands are host lists, the configuration, the
requeue (pyslurm cannot say `incomplete`, nor clear a list of nodes, nor do both while SIGTERM is on its way), tasks of
arrays and parts of heterogeneous jobs by name, and jobs that may have expedited requeue, which it does not show.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hpkit import log
from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm import pyslurm_records as records
from hpkit.slurm.client import Job, Node
from hpkit.slurm.commands import GRACE_S, LIMIT, SECOND_S, Commands, unsure
from hpkit.slurm.names import NODE_NAME
from hpkit.slurm.refusals import kind_of, refusal
from hpkit.talk import Said, Talk

WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pyslurm_worker.py")
SPARE_S = 1.0  # how long after its deadline a worker ends itself, whose parent can no longer do it
AGE_S = 60.0  # so long a change of slurm.conf may go unseen, where Slurm finds that file by itself
NEXT = "from now on Slurm's commands are used"


class CannotError(Exception):
    """pyslurm does not tell or do this: the commands are asked."""


class Worker:
    """The process that holds pyslurm, how many questions it got, and why it is not used any more ("" while it is).

    It read slurm.conf when it started. So it is only asked while it is young and that file is the same.
    """

    def __init__(self, conf: str) -> None:
        self.conf = conf
        self.talk: Talk | None = None
        self.number = 0
        self.given_up = ""
        self._since = 0.0
        self._read: tuple[int, int] | None = None

    @property
    def fit(self) -> bool:
        """Whether the process lives and knows Slurm's configuration as it is."""
        young = time.monotonic() - self._since < AGE_S
        return self.talk is not None and self.talk.alive and young and self._read == self._stamp()

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """A new process in the place of the one there is; raises OSError."""
        self.end()
        self._since, self._read = time.monotonic(), self._stamp()
        self.talk = Talk(argv, env=env, limit=LIMIT)

    def end(self) -> None:
        """End the process, if there is one."""
        if self.talk is not None:
            self.talk.end()

    def _stamp(self) -> tuple[int, int] | None:
        """What tells one slurm.conf from another; None where Slurm finds its own."""
        try:
            found = os.stat(self.conf) if self.conf else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_ino) if found else None


# For each way to reach a Slurm, as Python's own arguments and environment: a round of a hook has several clients.
workers: dict[tuple[object, ...], Worker] = {}


class Pyslurm(Commands):
    """The Client protocol; one worker for all clients of this process, started at the first question.

    It is started again after a timeout. One that does not come up, crashes or talks nonsense is not: from then on
    `given_up` says why, and everything goes through the commands. A question that met a crash fails, since nothing is
    known of it.
    """

    def __init__(
        self,
        config: SlurmConfig,
        *,
        trusted_only: bool,
        folder: str,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(config, trusted_only=trusted_only, environ=environ)
        self._argv = (sys.executable, "-I", "-S", WORKER, folder)
        self._worker = workers.setdefault(
            (*self._argv, *sorted(self._env.items())), Worker(self._env.get("SLURM_CONF", ""))
        )

    @property
    def given_up(self) -> str:
        """Why pyslurm is not used any more, "" while it is."""
        return self._worker.given_up

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """The named nodes in that order, or all."""
        wanted = None if names is None else list(dict.fromkeys(names))
        if wanted == [] or not all(map(NODE_NAME.match, wanted or ())):
            return super().nodes(names)
        try:
            found: list[Mapping[str, Any]] = self._call("nodes", names=wanted)
        except CannotError:
            return super().nodes(names)
        told = {record["name"]: record for record in found}
        for name in wanted or () if told else (wanted or ["nodes"]):
            if name not in told:
                raise SlurmError("unknown", f"Slurm has no {f'node {name}' if wanted else name}")
        unread = [name for name, record in told.items() if "cannot" in record]
        read = {node.name: node for node in super().nodes(unread)} if unread else {}
        return tuple(read.get(name) or records.node(told[name]) for name in wanted or told)

    def job(self, job_id: str) -> Job:
        """One job, by id, array task `A_T` or het component `J+N`; the bare id of an array is refused."""
        if not _is_number(job_id):
            return super().job(job_id)
        try:
            record: Mapping[str, Any] = self._call("job", number=int(job_id))
        except CannotError:
            return super().job(job_id)
        except SlurmError as error:
            if error.kind == "unknown":  # or in a hidden partition: pyslurm does not ask for those
                return super().job(job_id)
            raise
        if "cannot" in record:
            return super().job(job_id)
        return records.job(record, time.time(), job_id)

    def jobs_on(self, name: str) -> tuple[Job, ...]:
        """Jobs that run or complete on a node."""
        if not NODE_NAME.match(name):
            return super().jobs_on(name)
        try:
            found: list[Mapping[str, Any]] = self._call("jobs_on", name=name)
        except CannotError:
            return super().jobs_on(name)
        there = [record for record in found if records.may_be_active(record)]
        if any("cannot" in record for record in there):
            return super().jobs_on(name)
        now = time.time()
        return tuple(records.job(record, now) for record in there)

    def drain(self, name: str, reason: str) -> None:
        """state=drain with a reason of one line (root only)."""
        if not NODE_NAME.match(name) or not reason.strip() or not reason.isprintable():
            return super().drain(name, reason)
        try:
            self._write("update_node", name=name, changes={"state": "DRAIN", "reason": reason})
        except CannotError:
            super().drain(name, reason)

    def undrain(self, name: str) -> None:
        """state=undrain (root only). Slurm clears FAIL too, so never call it for a node in FAIL."""
        if not NODE_NAME.match(name):
            return super().undrain(name)
        try:
            self._write("update_node", name=name, changes={"state": "UNDRAIN"})
        except CannotError:
            super().undrain(name)

    def no_requeue(self, job_id: str) -> None:
        """Requeue=0, also for a running job."""
        job = self._single(job_id)
        if not _is_number(job):
            return super().no_requeue(job)
        try:
            self._change(job, is_requeueable=False)
        except CannotError:
            super().no_requeue(job)

    def allow_requeue(self, job_id: str) -> None:
        """Requeue=1: takes `no_requeue` back."""
        job = self._single(job_id)
        if not _is_number(job):
            return super().allow_requeue(job)
        try:
            self._change(job, is_requeueable=True)
        except CannotError:
            super().allow_requeue(job)

    def start_now(self, job_id: str) -> None:
        """StartTime=now for a pending job, more than a second from now (see `SECOND_S`)."""
        job = self._single(job_id)
        if not _is_number(job):
            return super().start_now(job)
        time.sleep(SECOND_S)
        try:
            self._change(job, begin_time=int(time.time()))
        except CannotError:
            super().start_now(job)

    def release(self, job_id: str) -> None:
        """Release a held job, more than a second from now (see `SECOND_S`)."""
        job = self._single(job_id)
        if not _is_number(job):
            return super().release(job)
        time.sleep(SECOND_S)
        try:
            self._write("release", number=int(job))
        except CannotError:
            super().release(job)

    def _change(self, job: str, **changes: object) -> None:
        self._write("update_job", number=int(job), changes=changes)

    def _write(self, do: str, **given: Any) -> None:
        try:
            self._call(do, **given)
        except SlurmError as error:
            raise unsure(error) from error

    def _call(self, do: str, **given: Any) -> Any:
        """The worker's answer to one question; raises CannotError when the commands are to be asked instead."""
        if self.given_up:
            raise CannotError(self.given_up)
        until = time.monotonic() + self._timeout_s
        if not self._worker.fit:
            self._start(until)
        number, said = self._ask_worker(until, do, given)
        went_home = (
            said.failure == "ended" and said.rc == 0
        )  # after a quiet minute, the question not yet read
        if went_home:
            self._start(until)
            number, said = self._ask_worker(until, do, given)
        if said.failure == "busy":
            raise CannotError("asked while it answers")
        if said.failure == "timeout":
            raise self._late(said)
        if said.failure:
            self._give_up(said)
            kind = "unreachable" if said.failure == "ended" else "garbled"
            raise SlurmError(kind, f"pyslurm: {self.given_up}", NEXT)
        return self._meaning(number, said)

    def _start(self, until: float) -> None:
        """Start a worker and see that it is up. One that does not come up is given up; it was asked nothing."""
        try:
            self._worker.start(self._argv, self._env)
            said = self._ask_worker(until, "hello", {})[1]
        except OSError as error:
            said = Said(b"", "ended", stderr=str(error).encode())
        if said.failure:
            self._give_up(said)
            raise self._late(said) if said.failure == "timeout" else CannotError(self.given_up)

    def _ask_worker(self, until: float, do: str, given: Mapping[str, Any]) -> tuple[int, Said]:
        """Put one question to the worker; its number, and what came of it."""
        talk = self._worker.talk
        assert talk
        self._worker.number += 1
        number = self._worker.number
        left = max(0.0, until - time.monotonic())
        question = {"id": number, "do": do, "limit_s": left + SPARE_S, **given}
        return number, talk.ask(json.dumps(question).encode(), timeout_s=left, grace_s=GRACE_S)

    def _meaning(self, number: int, said: Said) -> Any:
        try:
            answer = json.loads(said.line)
            if answer["id"] != number or not {"ok", "error", "cannot"} & set(answer):
                raise ValueError("an answer to another question")
        except (ValueError, TypeError, KeyError) as error:
            self._give_up(Said(said.line, "garbled", stderr=str(error).encode()))
            raise SlurmError("garbled", f"pyslurm: {self.given_up}", NEXT) from error
        if "cannot" in answer:
            raise CannotError(answer["cannot"])
        if "error" in answer:
            told = refusal(str(answer["error"]))
            if told.kind == "unreachable":  # perhaps the controller is elsewhere by now
                self._worker.end()
            raise told
        return answer["ok"]

    def _late(self, said: Said) -> SlurmError:
        told = _last_words(said)
        if kind_of(told) == "missing":  # Slurm waits a minute for a slurm.conf that is not there
            return refusal(told)
        return SlurmError("timeout", f"pyslurm did not answer within {self._timeout_s:g} s")

    def _give_up(self, said: Said) -> None:
        """Use the commands from now on."""
        words = _last_words(said)
        what = f"ended with {said.rc}" if said.failure == "ended" else f"gave no answer ({said.failure})"
        self._worker.given_up = f"its process {what}{': ' if words else ''}{words}"
        self._worker.end()
        log.warning("pyslurm-given-up", why=self.given_up)


def _last_words(said: Said) -> str:
    """The last line that the process said on standard error."""
    return said.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2][:200]


def _is_number(job_id: str) -> bool:
    """Whether this is Slurm's own number of a job: a task or a component has another than the one in its name."""
    return job_id.isascii() and job_id.isdecimal()
