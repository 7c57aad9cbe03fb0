"""A Slurm in memory: the Client protocol with the effects that a real controller has, and a list of all writes.

What it does was compared with a running 22.05.8 (tests/slurm/test_contract.py asks the same of the real one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hpkit import hostlist
from hpkit.errors import SlurmError
from hpkit.slurm.abilities import Abilities
from hpkit.slurm.client import Job, Node

REQUEUE_DELAY_S = 121.0
INCOMPLETE = frozenset({"CONFIGURING", "RUNNING", "STOPPED", "SUSPENDED"})


class FakeSlurm:
    """Give it nodes and jobs; `down` set to a kind ("unreachable", "timeout") makes every call fail with it.

    `user` other than "root" is denied what only root may do. `before_write` runs before each write, so that a test can
    let somebody else act in between. `writes` records each accepted write as a tuple (verb, target, …).
    """

    def __init__(
        self,
        nodes: Iterable[Node] = (),
        jobs: Iterable[Job] = (),
        *,
        clock: Callable[[], float] = lambda: 1_700_000_000.0,
        user: str = "root",
    ) -> None:
        self.table: dict[str, Node] = {node.name: node for node in nodes}
        self.queue: dict[str, Job] = {job.id: job for job in jobs}
        self.clock = clock
        self.user = user
        self.down = ""
        self.settings: dict[str, str] = {
            "SLURM_VERSION": "22.05.8",
            "KillWait": "30 sec",
            "BOOT_TIME": "2020-01-01T00:00:00",
        }
        self.writes: list[tuple[str, ...]] = []
        self.able = Abilities("22.05.8", (22, 5))
        self.reads = 0
        self.before_write: Callable[[], None] | None = None

    @classmethod
    def of(cls, count: int, *, clock: Callable[[], float] = lambda: 1_700_000_000.0) -> FakeSlurm:
        """n1 … nCOUNT, idle, all in partition "all"."""
        names = [f"n{number}" for number in range(1, count + 1)]
        return cls([idle(name) for name in names], clock=clock)

    def put(
        self, name: str, *, flags: str = "", reason: str = "", by: str = "", at: float | None = None
    ) -> None:
        """What somebody else did to a node: flags as `IDLE+DRAIN`, reason, who and when."""
        node = self.table[name]
        new = frozenset(flags.split("+")) if flags else node.flags
        stamp = (self.clock() if at is None else at) if reason else None
        self.table[name] = node._replace(flags=new, reason=reason, reason_by=by, reason_at=stamp)

    # reads

    def node(self, name: str) -> Node:
        self._look()
        if name not in self.table:
            raise SlurmError("unknown", f"Slurm has no node {name}")
        return self.table[name]

    def nodes(self, names: Sequence[str] | None = None) -> tuple[Node, ...]:
        self._look()
        if names is None:
            return tuple(self.table.values())
        missing = [name for name in names if name not in self.table]
        if missing:
            raise SlurmError("unknown", f"Slurm has no node {missing[0]}")
        return tuple(self.table[name] for name in names)

    def job(self, job_id: str) -> Job:
        self._look()
        if job_id not in self.queue:
            raise SlurmError("unknown", f"Slurm has no job {job_id}")
        return self.queue[job_id]

    def jobs_on(self, name: str) -> tuple[Job, ...]:
        self._look()
        there = [job for job in self.queue.values() if name in self._expand(job.nodes)]
        return tuple(job for job in there if job.flags & (INCOMPLETE | {"COMPLETING"}))

    def hostnames(self, expression: str) -> tuple[str, ...]:
        self._look()
        return self._expand(expression)

    def config(self) -> dict[str, str]:
        self._look()
        return dict(self.settings)

    # writes

    def drain(self, name: str, reason: str) -> None:
        self._begin(root_only=True)
        node = self._known(name)
        if not reason and not node.reason:
            raise SlurmError(
                "refused", "You must specify a reason when DOWNING or DRAINING a node. Request denied"
            )
        self.writes.append(("drain", name, reason))
        flags = (node.flags - {"FAIL"}) | {"DRAIN"}
        self.table[name] = node._replace(
            flags=flags, reason=reason or node.reason, reason_by=self.user, reason_at=float(int(self.clock()))
        )

    def undrain(self, name: str) -> None:
        self._begin(root_only=True)
        node = self._known(name)
        self.writes.append(("undrain", name))
        kept = node._replace(flags=node.flags - {"DRAIN", "FAIL"})
        if "DOWN" not in node.flags:
            kept = kept._replace(reason="", reason_by="", reason_at=None)
        self.table[name] = kept

    def requeue(self, job_id: str, *, begin_in_s: int | None, exclude: str | None = None) -> tuple[str, ...]:
        self._begin()
        job = self._job(job_id)
        if job_id == job.array_job_id:
            raise SlurmError("refused", f"job {job_id} is an array of tasks", f"name one task: {job_id}_N")
        if not job.batch:
            raise SlurmError("refused", f"Only batch jobs are accepted or processed for job {job_id}")
        if not job.requeue:
            raise SlurmError("refused", f"Requested operation is presently disabled for job {job_id}")
        if not job.flags & (INCOMPLETE | {"PENDING"}):
            raise SlurmError("refused", f"Job has already finished for job {job_id}")
        self.writes.append(("requeue", job_id, str(begin_in_s), "-" if exclude is None else exclude))
        own_s = 0.0 if job.expedited else REQUEUE_DELAY_S
        delay_s = own_s if begin_in_s is None else begin_in_s
        self._back(job, frozenset({"PENDING"}), "BeginTime" if delay_s else "None", self.clock() + delay_s)
        if exclude is not None:
            self.queue[job_id] = self.queue[job_id]._replace(exc_nodes=exclude)
        return ()

    def abilities(self) -> Abilities:
        self._look()
        return self.able

    def no_requeue(self, job_id: str) -> None:
        self._begin()
        job = self._job(job_id)
        self.writes.append(("no_requeue", job_id))
        self.queue[job_id] = job._replace(requeue=False)

    def allow_requeue(self, job_id: str) -> None:
        self._begin()
        job = self._job(job_id)
        self.writes.append(("allow_requeue", job_id))
        self.queue[job_id] = job._replace(requeue=True)

    def script_ends(self, job_id: str, code: int, *, epilog_fails: bool = False) -> None:
        """The batch script of a running job ends with `code` and its epilogs run, as on 26.05.5; below 0: by a signal."""
        job = self.queue[job_id]
        if "RUNNING" not in job.flags:
            return
        if code <= 0 or not (job.expedited and job.requeue):
            self.queue[job_id] = job._replace(flags=frozenset({"FAILED" if code else "COMPLETED"}))
        elif epilog_fails:
            self._back(job, frozenset({"EXPEDITING"}), "Resources", self.clock())
        else:
            self._back(job, frozenset({"REQUEUE_HOLD"}), "job_requeued_in_held_state", self.clock())
            self.queue[job_id] = self.queue[job_id]._replace(priority=0)

    def _back(self, job: Job, flags: frozenset[str], reason: str, begin: float) -> None:
        """The job waits again, without nodes."""
        again = 0 if "PENDING" in job.flags else 1
        self.queue[job.id] = job._replace(
            flags=flags,
            reason=reason,
            nodes="",
            batch_host="",
            restarts=job.restarts + again,
            eligible_at=begin,
            start_at=begin,
        )

    def start_now(self, job_id: str) -> None:
        self._begin()
        job = self._job(job_id)
        if "PENDING" not in job.flags:
            raise SlurmError("refused", f"Job is no longer pending execution for job {job_id}")
        self.writes.append(("start_now", job_id))
        self.queue[job_id] = job._replace(start_at=self.clock(), eligible_at=self.clock(), reason="None")

    def release(self, job_id: str) -> None:
        self._begin()
        job = self._job(job_id)
        self.writes.append(("release", job_id))
        self.queue[job_id] = job._replace(priority=job.priority or 1, reason="None")

    def _look(self) -> None:
        self.reads += 1
        if self.down:
            raise SlurmError(self.down, "Unable to contact slurm controller (connect failure)")

    def _begin(self, *, root_only: bool = False) -> None:
        if self.before_write is not None:
            self.before_write()
        if self.down:
            raise SlurmError(self.down, "Unable to contact slurm controller (connect failure)")
        if root_only and self.user != "root":
            raise SlurmError("denied", "Invalid user id")

    def _known(self, name: str) -> Node:
        if name not in self.table:
            raise SlurmError("unknown", f"Invalid node name specified: {name}")
        return self.table[name]

    def _job(self, job_id: str) -> Job:
        if job_id not in self.queue:
            raise SlurmError("unknown", f"Invalid job id specified: {job_id}")
        return self.queue[job_id]

    def _expand(self, expression: str) -> tuple[str, ...]:
        return hostlist.expand(expression)


def idle(name: str, *, partitions: tuple[str, ...] = ("all",), hostname: str = "") -> Node:
    """An idle node with sensible fields."""
    return Node(
        name=name,
        flags=frozenset({"IDLE"}),
        hostname=hostname or name,
        addr="127.0.0.1",
        partitions=partitions,
        gres="gpu:8",
        boot_time=1_699_000_000.0,
    )


def running(job_id: str, nodes: str, *, user_id: int = 1000, requeue: bool = True, batch: bool = True) -> Job:
    """A running batch job on a hostlist."""
    return Job(
        id=job_id,
        user_id=user_id,
        flags=frozenset({"RUNNING"}),
        reason="None",
        partition="all",
        nodes=nodes,
        batch_host=nodes,
        num_nodes=1,
        requeue=requeue,
        batch=batch,
        priority=4_294_901_760,
    )
