"""One supervised step: run it, and after a failure gather evidence, decide, and requeue or stop."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from hpkit import config, proc
from hpkit.errors import ConfigError, SlurmError
from hpkit.paths import node_root, paths
from hpkit.resume import attempts, evidence, expedite, loops, placeholders, requeue
from hpkit.resume.cause import judge
from hpkit.resume.facts import Cause, Evidence, Past, Plan
from hpkit.resume.messages import say, seconds
from hpkit.resume.options import Command
from hpkit.resume.placeholders import Source
from hpkit.resume.plan import decide, exclusion
from hpkit.resume.requeue import Order
from hpkit.resume.settings import Settings
from hpkit.resume.signals import Inbox, end_self
from hpkit.resume.supervisor import Ended, become, ends_all, srun_argv, supervise
from hpkit.slurm.client import Client, Job

SIGNAL_WINDOW_S = 60.0  # an ending signal this long before the step's end may be why it ended


class Run(NamedTuple):
    """A step that is ready to start."""

    command: Command
    settings: Settings
    source: Source
    env: Mapping[str, str]
    client: Client
    key: attempts.Key
    record: attempts.Record
    past: Past
    batch: requeue.Batch
    job: Job | None
    drain: config.DrainConfig

    def go(self) -> int:
        """Run the step to its end; returns hp-srun's exit code."""
        inbox = Inbox()
        argv = srun_argv(self.command, self.env)
        self._note_start(argv)
        env = {**self.env, **placeholders.variables(self.source, self.past.attempt)}
        every = ends_all(self.command, self.env)
        listen = not self.command.gives("pty")  # the terminal is the task's then
        try:
            ended = supervise(argv, env, inbox, self.batch.place, listen=listen, ends_all=every)
        except OSError as error:  # a limit on processes or files, or there is no srun at all
            say(f"srun cannot be started beside us ({error.strerror})")
            inbox.release()
            return become(argv, env)
        if ended.code == 0:
            self.record.append("end", code=0, seconds=round(ended.ended - ended.begun, 3))
            return 0
        try:
            return self._failed(ended, inbox)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with us, the step's own code must come out
            say(
                f"internal error after the step ({type(error).__name__}: {error}); keeping its exit code {ended.code}"
            )
            self._end_for_good(evidence.read_job(self.client, self.key.job)[0] or self.job, ended.code)
            return ended.code

    def _note_start(self, argv: tuple[str, ...]) -> None:
        started = self.job.start_at if self.job else None
        source = {"checkpoint": self.source.path, "step": self.source.step}
        facts = {"argv": attempts.brief(argv), "job_start": started, **source}
        if not self.record.append("start", attempt=self.past.attempt, **facts):
            say(f"this attempt cannot be recorded ({self.record.trouble})")

    def _failed(self, ended: Ended, inbox: Inbox) -> int:
        where = f" (task {ended.first.task} on {ended.first.node} first)" if ended.first else ""
        after = seconds(ended.ended - ended.begun)
        say(f"the step failed with exit code {ended.code}{where} after {after}; asking the nodes")
        found = self._evidence(ended, inbox)
        cause = judge(found)
        if cause.kind != "scheduler":  # an hp-srun beside us may have switched the requeue off meanwhile
            found = found._replace(job=expedite.switch_on_again(self.client, found.job, self.record, say=say))
        plan = self._plan(cause, found)
        facts = {"code": ended.code, "cause": cause.kind, "nodes": cause.nodes, "why": cause.why}
        asked_s = round(time.time() - ended.ended, 3)
        self.record.append("end", **facts, seconds=round(ended.ended - ended.begun, 3), asked_s=asked_s)
        self.record.append("plan", action=plan.action, why=plan.why)
        say(f"cause: {cause.kind}: {cause.why}")
        if plan.action != "requeue":
            return self._stop(plan, ended, found.job)
        return self._requeue(plan, cause, found, ended, inbox)

    def _evidence(self, ended: Ended, inbox: Inbox) -> Evidence:
        def signalled() -> int:
            inbox.take()
            return inbox.ending_since(ended.ended - SIGNAL_WINDOW_S)

        return evidence.gather(self.client, self.key.job, ended, self.env, self.settings.answer_s, signalled)

    def _plan(self, cause: Cause, found: Evidence) -> Plan:
        return decide(
            cause,
            found.code,
            found.job,
            self.past,
            resume_on=self.settings.resume_on,
            max_restarts=self.settings.max_restarts,
            het="SLURM_HET_SIZE" in self.env,
            seconds=found.ended - found.begun,
        )

    def _stop(self, plan: Plan, ended: Ended, job: Job | None) -> int:
        job = job or evidence.read_job(self.client, self.key.job)[0] or self.job
        again = expedite.AGAIN_BY_HAND if expedite.needs_switch(job) else requeue.by_hand(self.key.job)
        say(f"not requeued: {plan.why}" + (f"; {again}" if plan.offer else ""))
        code = self._code(plan, ended)
        self._end_for_good(job, code)
        return code

    def _end_for_good(self, job: Job | None, code: int) -> None:
        """See to it that an expedited job is not held for our code. Nothing to do for any other.

        Does not return where that is possible only by ending with a signal.
        """
        if expedite.needs_switch(job):
            if expedite.switch_off(self.client, self.key.job, self.record, say=say):
                return
            job = evidence.read_job(self.client, self.key.job)[0]
        if not expedite.too_late(job):
            return
        if expedite.hindrance(self.batch):
            say(f"a script that ends with a bad code now may be held; {expedite.if_held(self.key.job)}")
        else:
            say(f"ending with SIGTERM: with code {code} Slurm might hold this job, which it is ending")
            end_self()

    def _code(self, plan: Plan, ended: Ended) -> int:
        own = self.settings.give_up_code
        return own if plan.gives_up and own is not None else ended.code

    def _requeue(self, plan: Plan, cause: Cause, found: Evidence, ended: Ended, inbox: Inbox) -> int:
        way = expedite.choose(self.client, found.job or self.job, self.batch, cause, found.nodes, self.drain)
        exclude = self._exclusion(cause, found.job)
        if way.by_code and exclude is not None:
            way = expedite.Way(
                False, "its list of excluded nodes changes, which only a requeue of ours can do"
            )
        inbox.take()
        number = inbox.ending_since(ended.ended)
        if number:
            return self._stop(Plan("stop", f"hp-srun was sent {inbox.name(number)}"), ended, None)
        if way.by_code:
            say(expedite.by_code(self.key.job, ended.code, way))
            requeue.leave_to_slurm(cause, self.record, say=say)
            return ended.code
        return self._ask_for_requeue(plan, cause, ended, exclude, way)

    def _ask_for_requeue(
        self, plan: Plan, cause: Cause, ended: Ended, exclude: tuple[str, ...] | None, way: expedite.Way
    ) -> int:
        order = Order(self.key.job, None if way.why else self.settings.begin_in_s, exclude)
        say(f"requeueing job {order.job}, {expedite.told(way, order.begin_in_s)}")
        why = requeue.carry_out(self.client, order, plan, cause, self.record, say=say)
        if why:
            hint = expedite.left(order.job) if way.why else requeue.by_hand(order.job)
            say(f"NOT requeued: {why}; {hint}")
            return self._code(plan._replace(gives_up=True), ended)
        requeue.end_batch(self.batch)
        return ended.code

    def _exclusion(self, cause: Cause, job: Job | None) -> tuple[str, ...] | None:
        """The job's new ExcNodeList; None (leave it) also when Slurm does not tell what is needed to decide."""
        if job is None or not (cause.nodes or self.past.excluded):
            return None
        try:
            nodes = {node.name: node for node in self.client.nodes()}
            required = self.client.hostnames(job.req_nodes) if job.req_nodes else ()
            excluded = self.client.hostnames(job.exc_nodes) if job.exc_nodes else ()
        except SlurmError:
            return None
        return exclusion(
            job, cause.nodes, nodes, required=required, excluded=excluded, ours=self.past.excluded
        )


def site_of(env: Mapping[str, str]) -> config.Config:
    """The site's configuration; one that is bad was told of already, and the defaults hold."""
    try:
        return config.load(paths(node_root()).etc, explicit=env.get("HPKIT_CONFIG", ""), trusted_only=False)
    except ConfigError:
        return config.Config()


def reach(site: config.SlurmConfig, env: Mapping[str, str]) -> Client:
    """Slurm: where this srun is, its scontrol is too."""
    import shutil

    from hpkit.slurm import connect
    from hpkit.slurm.backend import choose

    beside = shutil.which("srun", path=env.get("PATH"))
    if beside and not site.bin:
        site = site._replace(bin=os.path.dirname(os.path.abspath(beside)))
    if site.backend == "pyslurm" and (choice := choose(site, trusted_only=False)).refused:
        say(f"pyslurm is asked for and cannot be used ({choice.why}); Slurm's commands do the same")
    return connect(site, trusted_only=False)


def prepare(command: Command, settings: Settings, source: Source, env: Mapping[str, str]) -> Run:
    """Everything that must be known before the step starts; a controller that does not answer is no hindrance."""
    site = site_of(env)
    client = reach(site.slurm, env)
    key = attempts.key_of(env)
    job, trouble = evidence.read_job(client, key.job)
    if trouble:
        say(f"the job could not be read ({trouble}); it is asked for again when the step fails")
    record, past = _open_record(key, settings, source, env, job)
    job = expedite.switch_on_again(client, job, record, say=say)
    batch = requeue.find_batch(proc.ancestors(), os.getuid(), env.get("SLURM_JOB_ID", ""))
    run = Run(command, settings, source, env, client, key, record, past, batch, job, site.drain)
    _announce(run)
    return run


def end_before_step(env: Mapping[str, str]) -> None:
    """For a mistake that no restart mends: an expedited job ends with our code, or its user is told what will be."""
    key = attempts.key_of(env)
    client = reach(site_of(env).slurm, env)
    if not expedite.needs_switch(evidence.read_job(client, key.job)[0]):
        return
    batch = requeue.find_batch(proc.ancestors(), os.getuid(), env.get("SLURM_JOB_ID", ""))
    if expedite.hindrance(batch):  # what comes after us in the script may need the requeue
        say(expedite.left(key.job))
        return
    record = attempts.Record(key, (attempts.home_folder(env),), _number(env.get("SLURM_RESTART_COUNT", "")))
    expedite.switch_off(client, key.job, record, say=say)


def _open_record(
    key: attempts.Key, settings: Settings, source: Source, env: Mapping[str, str], job: Job | None
) -> tuple[attempts.Record, Past]:
    restart = _number(env.get("SLURM_RESTART_COUNT", ""))
    places = attempts.folders(settings.state_dir, settings.checkpoint_dir, env)
    record = attempts.Record(key, places, restart)
    found = record.read()
    fresh = not found.trouble and not found.events
    row = loops.history(found.events, *source)
    if fresh or attempts.other_run(found.events, restart, job.start_at if job else None):
        kept = record.append("run", cluster=key.cluster, job_start=job.start_at if job else None)
        found = attempts.Read((), "" if kept or not restart else record.trouble)
        row = loops.unseen(restart)  # started before without us, or kept where this node cannot see it
    record.link(attempts.home_folder(env))
    past = attempts.past_of(found, restart)
    return record, past if past.trouble else past._replace(row=row)


def _announce(run: Run) -> None:
    """One line: what can be done when a node fails."""
    if run.past.trouble:
        say(f"the record of earlier attempts cannot be read ({run.past.trouble}): all restarts count as used")
    plan = decide(
        Cause("hardware", (), ""), 1, run.job, run.past, resume_on=run.settings.resume_on,
        max_restarts=run.settings.max_restarts, het="SLURM_HET_SIZE" in run.env,
    )  # fmt: skip
    able = expedite.promise(run.job, run.batch)
    if plan.action != "requeue":
        able = f"no requeue possible: {plan.why}"
    say(f"attempt {run.past.attempt} of job {run.key.job}; {able}")
    if run.command.gives("no-kill") or run.env.get("SLURM_NO_KILL"):
        say("srun's --no-kill keeps a step going after a task has failed: a failure may be noticed late")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
