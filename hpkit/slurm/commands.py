"""The default backend: Slurm's own commands, run with a built environment and a deadline for each.

A query that fails raises SlurmError with the kind that errors.py lists; an empty answer is never taken for "none".
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence

from hpkit import proc, trust
from hpkit.config import SlurmConfig
from hpkit.errors import HpkitError, SlurmError
from hpkit.slurm import abilities, parse
from hpkit.slurm.abilities import Abilities
from hpkit.slurm.client import Job, Node
from hpkit.slurm.names import NODE_NAME, WRITABLE_JOB
from hpkit.slurm.refusals import kind_of, refusal
from hpkit.slurm.states import active

FOLDERS = ("/opt/slurm/bin", "/usr/local/bin", "/usr/bin")
LIMIT = 64 << 20  # bytes of one answer: 10,000 nodes are about 7 MB
KEPT = 1 << 16  # bytes kept of an answer that is read line by line, for what it says when it fails
NAMES_MAX = 64  # more names than this are picked out of an answer about all nodes
# slurmd takes a launch in the very second in which the job was requeued for one of the run that it ended ("Job
# credential revoked", slurm_cred.c compares whole seconds), and slurmctld then fails the job for good.
SECOND_S = 1.1
BEGIN_MIN_S = 2
GRACE_S = 0.5  # a command past its deadline has nothing to clean up
_PASSED = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")  # what a user's commands need to reach his cluster
# In a federation squeue and scontrol may show jobs of the other clusters too, on nodes whose names are those of ours.
_LOCAL = {"SCONTROL_LOCAL": "1", "SQUEUE_LOCAL": "1"}
_MAYBE = "it may have been done all the same: look before you ask again"
_QUEUE = "|".join(("%F", "%K", "%A", "%U", "%T", "%P", "%N", "%B", "%D"))  # nothing that a user may write
_MARK = "hpkit_after_"
_HOST_LIST = re.compile(r"[A-Za-z0-9_.,+:@\[\]-]+\Z")


class Commands:
    """The Client protocol over scontrol and squeue; one process for each call."""

    def __init__(
        self, config: SlurmConfig, *, trusted_only: bool, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._timeout_s = config.timeout_s
        self._trusted_only = trusted_only
        self._folders = (*filter(None, (config.bin,)), *FOLDERS)
        # The file itself is not examined: slurmd runs as root on it, whoever owns it.
        kept = {} if trusted_only else {key: environ[key] for key in _PASSED if environ.get(key)}
        self._env = {**_LOCAL, **kept}
        if config.conf:
            self._env["SLURM_CONF"] = config.conf
        self._found: dict[str, str] = {}
        self._abilities: Abilities | None = None
        self._json: bool | None = None

    def node(self, name: str) -> Node:
        """One node; SlurmError kind "unknown" when Slurm has none of that name."""
        return self.nodes((name,))[0]

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        """The named nodes in that order, or all."""
        wanted = None if names is None else tuple(dict.fromkeys(map(_node_name, names)))
        if wanted == ():
            return ()
        some = (",".join(wanted),) if wanted and len(wanted) <= NAMES_MAX else ()
        reader = parse.Nodes()
        self._read(reader.feed, "scontrol", "--all", "show", "node", *some)
        found = reader.close()
        if not found:
            raise SlurmError(
                "unknown", f"Slurm has no {'node ' + ', '.join(wanted[:5]) if wanted else 'nodes'}"
            )
        if wanted is None:
            return found
        table = {node.name: node for node in found}
        for name in wanted:
            if name not in table:
                raise SlurmError("unknown", f"Slurm has no node {name}")
        return tuple(table[name] for name in wanted)

    def job(self, job_id: str) -> Job:
        """One job, by id, array task `A_T` or het component `J+N`; the bare id of an array is refused.

        The text form is asked first: it costs the same for any job. One whose own text imitates Slurm's fields is read
        as JSON, where scontrol prints it; else it is "garbled".
        """
        text = self._job_text(job_id)
        try:
            if not text.endswith("\n\n"):  # an empty line behind each job
                raise SlurmError("garbled", f"the answer about job {job_id} breaks off")
            return parse.job(text, job_id)
        except SlurmError as error:
            if error.kind != "garbled" or not self.reads_json():
                raise
            garbled = error
        from hpkit.slurm import documents

        # By Slurm's own number, since the document about a task holds its whole array.
        number = parse.number(text) or job_id
        try:
            document = self._ask("scontrol", "--all", "--json", "show", "job", number)
        except SlurmError as error:
            if error.kind != "refused":
                raise
            self._json = False  # it knows the option, and lacks what it needs for it
            raise garbled from error
        return documents.job(document, job_id)

    def _job_text(self, job_id: str) -> str:
        """What scontrol prints about one job; of a heterogeneous job, asked for by its number, its leader."""
        text = self._ask("scontrol", "--all", "show", "job", _job_id(job_id))
        leader = parse.leader(text, job_id)
        if leader:
            text = self._ask("scontrol", "--all", "show", "job", leader)
        if not text.strip():
            raise SlurmError("unknown", f"Slurm has no job {job_id}")
        return text

    def reads_json(self) -> bool:
        """Whether scontrol prints JSON: 23.02 and newer, built with it. Tried once, without a question to slurmctld."""
        if self._json is None:
            try:
                self._ask("scontrol", "--json", "--version")
                self._json = True
            except SlurmError as error:
                if (
                    error.kind != "refused"
                ):  # slurm.conf cannot be read, or was not fetched: nothing is known yet
                    raise
                self._json = False
        return self._json

    def jobs_on(self, name: str) -> tuple[Job, ...]:
        """Jobs that run or complete on a node; those that end while we ask are left out.

        A job whose own text imitates Slurm's fields is listed with what squeue tells, as neither batch nor requeueable.
        """
        text = self._ask("squeue", "--noheader", "--all", "--nodelist", _node_name(name), "--format", _QUEUE)
        found = (self._listed(line) for line in text.splitlines())
        return tuple(job for job in found if job is not None and active(job.flags))

    def _listed(self, line: str) -> Job | None:
        """The job behind a line of squeue; None when it is gone by now."""
        listed = parse.queue_line(line)
        try:
            return self.job(listed.id)
        except SlurmError as error:
            if error.kind == "unknown":
                return None
            if error.kind != "garbled":
                raise
            return listed

    def hostnames(self, expression: str) -> tuple[str, ...]:
        """A hostlist's names in Slurm's order, doubles included; SlurmError "refused" for what is no hostlist."""
        plain = "".join(expression.split())
        if plain in ("", "(null)"):
            return ()
        if not _HOST_LIST.match(plain) or plain.startswith("-") or not _balanced(plain):
            raise SlurmError("refused", f"{expression!r} is no host list")
        ran = self._run("scontrol", "show", "hostnames", plain)
        names = tuple(ran.text.split())
        told = ran.stderr.decode("utf-8", "replace").strip()
        if told or not names or any("[" in name or "]" in name for name in names):
            raise SlurmError("refused", f"{expression!r} is no host list: {_one_line(told)}")
        return names

    def config(self) -> dict[str, str]:
        """`scontrol show config` as key → value."""
        return parse.settings(self._ask("scontrol", "show", "config"))

    def version_here(self) -> tuple[int, int]:
        """(25, 11) by `scontrol --version`: of the Slurm on this machine. It reads slurm.conf, wherever that is."""
        told = self._ask("scontrol", "--version")
        found = re.search(r"(\d+)\.(\d+)\.", told)
        if found is None:
            raise SlurmError("garbled", f"scontrol --version says {told.strip()[:80]!r}")
        return int(found[1]), int(found[2])

    def abilities(self) -> Abilities:
        """What this Slurm can do; asked once, then remembered."""
        if self._abilities is None:
            self._abilities = abilities.look(self.config())
        return self._abilities

    def no_requeue(self, job_id: str) -> None:
        """Requeue=0, also for a running job: a script that ends badly then ends it as FAILED, expedited or not."""
        self._tell("update", f"jobid={self._single(job_id)}", "requeue=0")

    def allow_requeue(self, job_id: str) -> None:
        """Requeue=1: takes `no_requeue` back."""
        self._tell("update", f"jobid={self._single(job_id)}", "requeue=1")

    def drain(self, name: str, reason: str) -> None:
        """state=drain with a reason of one line (root only)."""
        if not reason.strip() or not reason.isprintable():
            raise SlurmError("refused", "a drain needs a reason of one line")
        self._tell("update", f"nodename={_node_name(name)}", "state=drain", f"reason={reason}")

    def undrain(self, name: str) -> None:
        """state=undrain (root only). Slurm clears FAIL too, so never call it for a node in FAIL."""
        self._tell("update", f"nodename={_node_name(name)}", "state=undrain")

    def requeue(self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None) -> tuple[str, ...]:
        """`requeue incomplete`, then StartTime=now+N and ExcNodeList, all fed to one scontrol that ignores SIGTERM.

        Raises SlurmError when the requeue itself was refused or nothing is known of it. A job that is pending already
        counts as requeued. Returns Slurm's texts for the later commands that it refused: the job is requeued then, but
        starts later, or may start on the excluded nodes.
        """
        if exclude and not _HOST_LIST.match(exclude):
            raise SlurmError("refused", f"{exclude!r} is no host list")
        before = self.job(_job_id(job_id))
        orders = [f"requeue incomplete {before.id}"]  # plain requeue would revive a cancelled job
        start = [] if begin_in_s is None else [f"starttime=now+{max(BEGIN_MIN_S, int(begin_in_s))}"]
        nodes = [] if exclude is None else [f"excnodelist={exclude}"]  # an empty list clears it
        # Together, because the end of the batch script ends us within milliseconds (measured: the third order was lost
        # once in a few); the start alone in case Slurm does not want the list.
        changes = dict.fromkeys(filter(None, (" ".join(nodes + start), " ".join(start))))
        orders += [f"update jobid={before.id} {change}" for change in changes]
        first, *later = self._orders(orders)
        if first is None:
            raise SlurmError(
                "timeout",
                f"Slurm did not say within {self._timeout_s:g} s whether it requeued job {before.id}",
            )
        if first and "pending execution" not in first:
            raise refusal(first)
        if "" not in later:
            self._confirm(before)
        refused = later if later and later[0] != "" else []
        return tuple("no answer" if text is None else text for text in refused if text != "")

    def _confirm(self, before: Job) -> None:
        """Slurm passes over a job that has ended without a word, and only takes updates of one that is pending."""
        after = self.job(before.id)
        if "PENDING" not in after.flags and after.restarts <= before.restarts:
            raise SlurmError(
                "refused", f"job {before.id} is not requeued, it is {'+'.join(sorted(after.flags))}"
            )

    def start_now(self, job_id: str) -> None:
        """StartTime=now for a pending job, more than a second from now (see `SECOND_S`)."""
        job = self._single(job_id)
        time.sleep(SECOND_S)
        self._tell("update", f"jobid={job}", "starttime=now")

    def release(self, job_id: str) -> None:
        """Release a held job, more than a second from now (see `SECOND_S`)."""
        job = self._single(job_id)
        time.sleep(SECOND_S)
        self._tell("release", job)

    def _single(self, job_id: str) -> str:
        """A name that means one job: the bare id of an array's task may stand for the whole array."""
        plain = _job_id(job_id)
        return plain if "_" in plain or "+" in plain else self.job(plain).id

    def _orders(self, orders: Sequence[str]) -> list[str | None]:
        """Feed orders to one scontrol; for each what it said on stderr ("" = accepted), None = no word of it.

        scontrol says nothing about an order that was accepted, so an unknown word after each order marks its end: the
        complaint about that word comes only when the order is done.
        """
        lines = [line for number, order in enumerate(orders) for line in (order, f"{_MARK}{number}")]
        ran = self._run("scontrol", stdin="\n".join([*lines, ""]).encode(), shield=True)
        told = ran.stderr.decode("utf-8", "replace")
        answers: list[str | None] = []
        for number in range(len(orders)):
            said, mark, told = told.partition(f"{_MARK}{number}\n")
            answers.append(_one_line(said.rpartition("\n")[0]) if mark else None)
        if answers[0] is None and not ran.failure:
            raise refusal(_one_line(ran.stderr.decode("utf-8", "replace")) or "no answer")
        return answers

    def _ask(self, tool: str, *args: str) -> str:
        """Run a command that says by its exit code whether it worked; its standard output."""
        ran = self._run(tool, *args)
        self._worked(tool, ran)
        if ran.truncated:
            raise _too_long(tool)
        return ran.text

    def _tell(self, *args: str) -> None:
        """Run a scontrol that changes something: slurmctld may hear it after we have given up."""
        try:
            self._ask("scontrol", *args)
        except SlurmError as error:
            raise unsure(error) from error

    def _read(self, feed: Callable[[str], None], tool: str, *args: str) -> None:
        """Like `_ask`, but each line goes to `feed` as it comes and is not kept; raises when all have been fed."""
        streamed = proc.stream(
            [self._tool(tool), *args],
            timeout_s=self._timeout_s,
            env=self._env,
            limit=KEPT,
            grace_s=GRACE_S,
        )
        room = LIMIT
        while True:
            try:
                line = next(streamed)
            except StopIteration as stop:
                return self._worked(tool, self._started(tool, stop.value))
            room -= len(line) + 1
            if room < 0:
                streamed.close()
                raise _too_long(tool)
            feed(line)

    def _worked(self, tool: str, ran: proc.Ran) -> None:
        told = _one_line(ran.stderr.decode("utf-8", "replace"))
        if (
            ran.failure and kind_of(told) == "missing"
        ):  # Slurm waits a minute for a slurm.conf that is not there
            raise refusal(told)
        if ran.failure:
            said = f"; it said: {told}" if told else ""
            raise SlurmError("timeout", f"{tool} did not answer within {self._timeout_s:g} s{said}")
        if ran.rc != 0:
            told = told or _one_line(ran.text[-400:])
            raise refusal(told or f"{tool} ended with code {ran.rc}")

    def _run(self, tool: str, *args: str, stdin: bytes = b"", shield: bool = False) -> proc.Ran:
        ran = proc.run(
            [self._tool(tool), *args],
            timeout_s=self._timeout_s,
            env=self._env,
            stdin=stdin,
            limit=LIMIT,
            grace_s=GRACE_S,
            shield=shield,
        )
        return self._started(tool, ran)

    def _started(self, tool: str, ran: proc.Ran) -> proc.Ran:
        if ran.failure in ("missing", "denied"):
            raise SlurmError("missing", f"{tool} cannot be started: {ran.stderr.decode('utf-8', 'replace')}")
        return ran

    def _tool(self, name: str) -> str:
        """The path of a command, looked up once."""
        if name not in self._found:
            try:
                path = trust.find_tool(name, self._folders, self._trusted_only)
            except HpkitError as error:
                raise SlurmError("missing", error.message, error.hint) from error
            if not path:
                raise SlurmError(
                    "missing", f"there is no {name} in {', '.join(self._folders)}", "set slurm.bin"
                )
            self._found[name] = path
        return self._found[name]


def unsure(error: SlurmError) -> SlurmError:
    """The error of a write; one that says that Slurm did not answer also says that it may have heard."""
    if error.kind not in ("timeout", "unreachable"):
        return error
    return SlurmError(error.kind, error.message, "; ".join(filter(None, (_MAYBE, error.hint))))


def _too_long(tool: str) -> SlurmError:
    return SlurmError("garbled", f"the answer of {tool} is longer than {LIMIT >> 20} MiB")


def _one_line(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def _balanced(text: str) -> bool:
    """Brackets in pairs, none inside another: Slurm takes `x[1-2` for the name `x]`."""
    return re.sub(r"\[[^\[\]]+\]", "", text).find("[") < 0 and text.count("[") == text.count("]")


def _node_name(name: str) -> str:
    """One node's name, so that a hostlist or an option never reaches Slurm by accident."""
    if not NODE_NAME.match(name):
        raise SlurmError("unknown", f"{name!r} is no node name")
    return name


def _job_id(job_id: str) -> str:
    if not WRITABLE_JOB.match(job_id):
        raise SlurmError("unknown", f"{job_id!r} is no job id", "write 123, or 123_4 for an array task")
    return job_id
