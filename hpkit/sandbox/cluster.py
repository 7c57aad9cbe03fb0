"""A real Slurm cluster on this machine, with simulated GPU nodes: start it, use it, break it, end it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hpkit import pids, proc
from hpkit.config import SlurmConfig
from hpkit.errors import DeadlineError, HpkitError, UsageError
from hpkit.files import ensure_dir, write_atomic
from hpkit.sandbox import daemons, faults, install, leftovers, nodes, slurmconf
from hpkit.sandbox import ground as ground_module
from hpkit.sandbox import state as states
from hpkit.sandbox.ground import Ground
from hpkit.sandbox.slurmconf import Settings, node_names
from hpkit.sandbox.state import State

if TYPE_CHECKING:
    from hpkit.slurm.client import Client, Job, Node

T = TypeVar("T")

CALL_S = 30.0
POLL_S = 0.1
MOST_NODES, MOST_GPUS = 64, 16


class Cluster:
    """A running sandbox. Everything about it is in its folder, so any process (as root) may hold one."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.folder = state.folder
        self.names = node_names(state.settings.nodes)
        self.children: dict[str, pids.Child] = {}

    @property
    def slurm(self) -> SlurmConfig:
        """How hpkit reaches this cluster's Slurm."""
        return SlurmConfig(conf=self.state.conf, bin=self.state.slurm_bin, timeout_s=10.0)

    @property
    def client(self) -> Client:
        """hpkit's Slurm client for this cluster, as root."""
        from hpkit.slurm import connect

        return connect(self.slurm, trusted_only=False)

    def env(self) -> dict[str, str]:
        """What a user of the cluster has in his environment."""
        home = f"{self.folder}/home"
        return {
            "SLURM_CONF": self.state.conf,
            "HPKIT_ROOT": f"{self.folder}/nodes/%n",
            "PATH": f"{self.folder}/bin:{ground_module.path_with(self.state.tools)}",
            "HOME": home,
            "USER": self.state.account.name,
            "LOGNAME": self.state.account.name,
        }

    def run_as_user(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = CALL_S,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        cwd: str = "",
    ) -> proc.Ran:
        """Run a program as the unprivileged user, in his home folder unless `cwd` is given."""
        words = [*ground_module.as_user(self.state.tools["setpriv"], self.state.account), *argv]
        return proc.run(
            words,
            timeout_s=timeout_s,
            env={**self.env(), **(env or {})},
            stdin=stdin,
            cwd=cwd or f"{self.folder}/home",
        )

    def submit(self, script: str, *args: str, env: Mapping[str, str] | None = None) -> str:
        """Submit a batch script (its text, or the path of a file) as the user; the job's number."""
        path = script if "\n" not in script else ""
        text = b"" if path else script.encode()
        ran = self.run_as_user(
            ["sbatch", "--parsable", *args, *([path] if path else [])], stdin=text, env=env
        )
        found = re.match(r"\d+", ran.text.strip())
        if not ran.ok or not found:
            raise HpkitError(
                f"sbatch refused the job: {(ran.stderr or ran.stdout).decode(errors='replace').strip()}"
            )
        return found[0]

    def root(self, tool: str, *args: str) -> str:
        """Run one of Slurm's commands as root; its output; raises HpkitError when it fails."""
        ran = daemons.slurm(self.state, tool, *args, timeout_s=CALL_S)
        if not ran.ok:
            words = (ran.stderr or ran.stdout).decode(errors="replace").strip()
            raise HpkitError(f"{tool} {' '.join(args)} failed: {words or ran.failure or ran.rc}")
        return ran.text

    def job(self, job_id: str) -> Job:
        """A job as Slurm shows it."""
        return self.client.job(job_id)

    def node(self, name: str) -> Node:
        """A node as Slurm shows it."""
        return self.client.node(name)

    def wait(self, job_id: str, flags: str | Sequence[str], timeout_s: float = 60.0) -> Job:
        """Wait until a job has one of the state flags (`RUNNING`, `COMPLETED`, …)."""
        wanted = {flags} if isinstance(flags, str) else set(flags)
        return self.until(
            lambda: self.job(job_id), lambda job: bool(job.flags & wanted), timeout_s, f"job {job_id}"
        )

    def wait_node(self, name: str, ready: Callable[[Node], bool], timeout_s: float = 60.0) -> Node:
        """Wait until a node is as wanted."""
        return self.until(lambda: self.node(name), ready, timeout_s, f"node {name}")

    def until(self, look: Callable[[], T], ready: Callable[[T], bool], timeout_s: float, what: str) -> T:
        """Poll `look` until `ready`; raises DeadlineError with the last answer."""
        until = time.monotonic() + timeout_s
        while not ready(found := look()):
            if time.monotonic() > until:
                raise DeadlineError(f"{what} is not as wanted after {timeout_s:.0f} s: {found}")
            time.sleep(POLL_S)
        return found

    def state_of(self, name: str) -> nodes.NodeState:
        """The simulated hardware of a node."""
        self.known(name)
        return nodes.load(self.state.node(name))

    def known(self, name: str) -> None:
        """Raise UsageError when there is no such node."""
        if name not in self.names:
            raise UsageError(
                f"no node {name!r} in this sandbox", f"it has {self.names[0]} to {self.names[-1]}"
            )

    def brk(self, name: str, fault: str) -> None:
        """Give a node one more fault."""
        folder = self.state.node(name)
        nodes.save(folder, faults.inject(folder, self.state_of(name), fault))

    def heal(self, name: str, reboot: bool = True) -> None:
        """Mend a node; with `reboot` it gets a new boot id and kernel log, and loses its state of this boot."""
        folder = self.state.node(name)
        before = self.state_of(name)
        after = nodes.boot(name, before.gpus) if reboot else before._replace(faults=())
        nodes.save(folder, after)
        if reboot:
            nodes.fresh_run(folder)
        shutil.rmtree(os.path.join(folder, faults.INJECTED), ignore_errors=True)

    def start(self, name: str) -> None:
        """Start a daemon ("slurmctld", "munged" or a node's slurmd) and remember it."""
        child = daemons.start(self.state, name)
        self.children[name] = child
        self.state = self.state._replace(processes={**self.state.processes, name: child.stamp})
        states.save(self.state)

    def stop(self, name: str, grace_s: float = 3.0) -> None:
        """End one daemon."""
        if name in self.state.processes and not pids.end(self.state.processes[name], grace_s=grace_s):
            raise HpkitError(f"{name} does not end")
        self.children.pop(name, None)

    def down(self, keep: bool = False) -> None:
        """End everything of the sandbox, make sure that nothing of it runs, and remove its folder unless `keep`."""
        left = leftovers.down(self.state)
        for child in self.children.values():
            child.wait(1.0)
        if left:
            listed = ", ".join(f"{each.what} {each.stamp.pid}" for each in left)
            raise HpkitError(
                f"these processes of the sandbox cannot be ended: {listed}", "try again, or reboot"
            )
        if keep:
            os.rename(f"{self.folder}/{states.FILE}", f"{self.folder}/{states.FILE}.old")
        else:
            shutil.rmtree(self.folder)


def attach(folder: str = "") -> Cluster:
    """The sandbox that runs in a folder."""
    return Cluster(states.load(os.path.abspath(folder or states.default_folder())))


def up(folder: str = "", nodes: int = 4, gpus: int = 8, **settings: Any) -> Cluster:
    """Start a sandbox; raises HpkitError when that is not possible, and then leaves nothing running."""
    steps = starting(folder, Settings(nodes=nodes, gpus=gpus, **settings))
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            cluster: Cluster = stop.value
            return cluster


def starting(folder: str, settings: Settings) -> Generator[str, None, Cluster]:
    """`up` step by step: yields what it did; the same errors."""
    folder = os.path.realpath(folder or states.default_folder())
    check(folder, settings)
    ground = ground_module.look(folder, settings.user)
    trials = ["cgroup"] if settings.proctrack != "linuxproc" and ground.cgroup else []
    if settings.proctrack != "cgroup":
        trials.append("linuxproc")
    for proctrack in trials:
        cluster = prepare(folder, settings, ground)
        try:
            yield from bring_up(cluster, ground, proctrack)
            return cluster
        except BaseException as error:
            last = proctrack == trials[-1] or not isinstance(error, HpkitError)
            cluster.down(keep=last)
            if last:
                raise
            yield f"job steps cannot be held in cgroups here, so they are tracked by parentage: {error}"
    raise HpkitError("job steps cannot be held in cgroups on this machine", "leave process tracking to auto")


def check(folder: str, settings: Settings) -> None:
    """Raise UsageError for settings that make no sense, HpkitError when a sandbox is there already."""
    if not 1 <= settings.nodes <= MOST_NODES:
        raise UsageError(f"a sandbox has 1 to {MOST_NODES} nodes, not {settings.nodes}")
    if not 0 <= settings.gpus <= MOST_GPUS:
        raise UsageError(f"a node has 0 to {MOST_GPUS} GPUs, not {settings.gpus}")
    if settings.proctrack not in ("auto", "cgroup", "linuxproc"):
        raise UsageError(f"no such process tracking: {settings.proctrack}")
    if states.exists(folder):
        running = leftovers.belonging(states.load(folder))
        hint = "use it, or end it with: hpkit sandbox down"
        if running:
            raise HpkitError(f"a sandbox runs in {folder} already", hint)
        raise HpkitError(f"a sandbox in {folder} died and was not taken down", hint)
    if os.path.isdir(folder) and os.listdir(folder) and not os.path.isfile(f"{folder}/{states.FILE}.old"):
        raise UsageError(f"{folder} is not empty and no sandbox of ours", "name a new folder with --dir")


def prepare(folder: str, settings: Settings, ground: Ground) -> Cluster:
    """The folder of a sandbox with everything in it but the ports and what depends on them."""
    if os.path.isdir(folder):
        shutil.rmtree(folder)
    state = State(
        folder=folder,
        token=os.urandom(16).hex(),
        started=time.time(),
        settings=settings,
        account=ground.account,
        python=ground.python,
        slurm=".".join(f"{part:02d}" for part in ground.version),
        proctrack="",
        tools=ground.tools,
        processes={},
    )
    for name in ("", "etc", "munge", "spool", "nodes", "jobs"):
        ensure_dir(f"{folder}/{name}".rstrip("/"))
    slurm_owner = pwd.getpwnam(ground.slurm_account)
    for name, owner, group in (
        ("state", slurm_owner.pw_uid, slurm_owner.pw_gid),
        ("log", slurm_owner.pw_uid, slurm_owner.pw_gid),
        ("home", ground.account.uid, ground.account.gid),
    ):
        ensure_dir(f"{folder}/{name}")
        os.chown(f"{folder}/{name}", owner, group)
    write_atomic(f"{folder}/munge/key", os.urandom(128), 0o400)
    states.save(state)
    cluster = Cluster(state)
    if not cluster.run_as_user(["test", "-w", f"{folder}/home"], cwd="/").ok:
        shutil.rmtree(folder)
        hint = "name a folder with --dir that every user may enter, for example below /var/tmp"
        raise UsageError(f"user {state.account.name}, whose jobs run, cannot enter {folder}", hint)
    return cluster


def bring_up(cluster: Cluster, ground: Ground, proctrack: str) -> Generator[str, None, None]:
    """Install hpkit and the nodes, write Slurm's configuration, start everything, and see a job through."""
    settings, folder = cluster.state.settings, cluster.folder
    cluster.state = cluster.state._replace(proctrack=proctrack)
    install.package(cluster.state)
    if settings.hooks:
        install.hooks(cluster.state)
    config = install.node_config(cluster.state)
    for name in cluster.names:
        nodes.create(cluster.state.node(name), nodes.boot(name, settings.gpus), config)
    with daemons.reserved(settings.nodes) as ports:
        texts = {
            "slurm.conf": slurmconf.slurm_conf(folder, settings, ground, ports, proctrack),
            "gres.conf": slurmconf.gres_conf(folder, settings),
            "cgroup.conf": slurmconf.cgroup_conf(ground, proctrack),
        }
        for name, text in texts.items():
            write_atomic(f"{folder}/etc/{name}", text, durable=False)
    yield from start_daemons(cluster)
    see_a_job_through(cluster)
    cluster.state = cluster.state._replace(ready=True)
    states.save(cluster.state)
    yield f"{settings.nodes} nodes are idle, {settings.gpus} GPUs each; jobs run as user {ground.account.name}"


def start_daemons(cluster: Cluster) -> Generator[str, None, None]:
    """munged, slurmctld, one slurmd per node, each when the one before it answers."""
    state = cluster.state
    cluster.start("munged")
    daemons.wait_until(
        state, "munged does not answer", lambda: daemons.munge_answers(state), cluster.children
    )
    cluster.start("slurmctld")
    daemons.wait_until(
        state, "slurmctld does not answer", lambda: daemons.controller_answers(state), cluster.children
    )
    yield f"Slurm {state.slurm} controller is up; job steps are tracked by {state.proctrack}"
    for name in cluster.names:
        ensure_dir(f"{cluster.folder}/spool/{name}")
        cluster.start(name)
    daemons.wait_until(state, "not all nodes are idle", lambda: daemons.all_idle(state), cluster.children)


def see_a_job_through(cluster: Cluster) -> None:
    """One tiny job on all nodes as the user: what would break a real one shows here."""
    gres = [f"--gres=gpu:{cluster.state.settings.gpus}"] if cluster.state.settings.gpus else []
    count = str(len(cluster.names))
    ran = cluster.run_as_user(
        ["srun", "-Q", f"-N{count}", f"-n{count}", *gres, "/bin/sh", "-c", 'echo "$SLURMD_NODENAME"']
    )
    if sorted(ran.text.split()) != sorted(cluster.names):
        words = ran.stderr.decode(errors="replace").strip() or ran.text.strip()
        raise HpkitError(
            f"a first job did not run on all nodes: {words or 'no output'}",
            f"see the logs in {cluster.folder}/log",
        )
    daemons.wait_until(
        cluster.state, "nodes are not idle again", lambda: daemons.all_idle(cluster.state), cluster.children
    )
