"""The configuration of the sandbox's Slurm: slurm.conf, gres.conf, cgroup.conf. Pure text, for Slurm 21.08 to 26.05."""

from __future__ import annotations

import os
from typing import NamedTuple

from hpkit.sandbox.ground import Ground
from hpkit.slurm.abilities import Abilities

CPUS = 16  # per node; config_overrides lets Slurm believe it whatever this machine has
GRES = "gpu"
Row = tuple[str, "str | int"]

FIXED: tuple[Row, ...] = (
    ("AuthType", "auth/munge"),
    ("PrologFlags", "Alloc"),
    ("SelectType", "select/cons_tres"),
    ("SelectTypeParameters", "CR_Core"),
    ("GresTypes", GRES),
    ("SlurmdParameters", "config_overrides"),
    ("MpiDefault", "none"),
    ("JobRequeue", 1),
    ("ReturnToService", 1),
    ("PropagateResourceLimits", "NONE"),
    ("MailProg", "/bin/true"),
)


class Settings(NamedTuple):
    """What a sandbox is like.

    Seconds for all `_s`. `nohold` sets nohold_on_prolog_fail, `hooks` installs hpkit's prolog, epilog and health
    program, `proctrack` is "auto", "cgroup" or "linuxproc", `user` the account for jobs ("" = found),
    `config` is TOML text put behind each node's hpkit.toml. `parameters` are further SlurmctldParameters, `rows`
    further lines of slurm.conf. `expedite` enables expedited requeue where Slurm has it (25.11).
    """

    nodes: int = 4
    gpus: int = 8
    hooks: bool = True
    nohold: bool = True
    proctrack: str = "auto"
    user: str = ""
    health_interval_s: int = 5
    kill_wait_s: int = 5
    message_timeout_s: int = 10
    slurmd_timeout_s: int = 20
    prolog_epilog_timeout_s: int = 60
    schedule_s: int = 3
    note_interval_s: int = 2
    config: str = ""
    expedite: bool = True
    parameters: str = ""
    rows: tuple[str, ...] = ()


class Ports(NamedTuple):
    """TCP ports on 127.0.0.1: the controller's, and one per node."""

    slurmctld: int
    slurmd: tuple[int, ...]


def node_names(count: int) -> tuple[str, ...]:
    """n1 … nN."""
    return tuple(f"n{i}" for i in range(1, count + 1))


def slurm_conf(folder: str, settings: Settings, ground: Ground, ports: Ports, proctrack: str) -> str:
    """The text of slurm.conf. `proctrack` is "cgroup" or "linuxproc"."""
    rows: list[Row] = [
        ("ClusterName", "sandbox"),
        ("SlurmctldHost", f"{ground.hostname}(127.0.0.1)"),
        ("SlurmUser", ground.slurm_account),
        ("SlurmctldPort", ports.slurmctld),
        ("FirstJobId", first_job(ports)),
        ("ProctrackType", f"proctrack/{proctrack}"),
        ("SchedulerParameters", scheduler(settings)),
    ]
    rows += [*path_rows(folder), *FIXED, *time_rows(settings), *controller_rows(settings, ground)]
    if settings.hooks:
        rows += hook_rows(folder, settings)
    lines = [*(f"{key}={value}" for key, value in rows), *settings.rows, *node_lines(settings, ground, ports)]
    return "# Written by `hpkit sandbox up`; the next `up` writes it again.\n" + "\n".join(lines) + "\n"


def scheduler(settings: Settings) -> str:
    """SchedulerParameters: looks often, since nothing here is large."""
    pace = f"batch_sched_delay=1,sched_interval={settings.schedule_s},bf_interval={settings.schedule_s}"
    return f"nohold_on_prolog_fail,{pace}" if settings.nohold else pace


def controller_rows(settings: Settings, ground: Ground) -> list[Row]:
    """SlurmctldParameters; a Slurm that does not know one ignores it."""
    known = Abilities(version=ground.version).knows_expedited and settings.expedite
    parameters = filter(None, ("enable_expedited_requeue" if known else "", settings.parameters))
    text = ",".join(parameters)
    return [("SlurmctldParameters", text)] if text else []


def path_rows(folder: str) -> list[Row]:
    """Everything below one folder."""
    return [
        ("AuthInfo", f"socket={folder}/munge/socket"),
        ("StateSaveLocation", f"{folder}/state"),
        ("SlurmdSpoolDir", f"{folder}/spool/%n"),
        ("SlurmctldPidFile", f"{folder}/state/slurmctld.pid"),
        ("SlurmdPidFile", f"{folder}/spool/slurmd-%n.pid"),
        ("SlurmctldLogFile", f"{folder}/log/slurmctld.log"),
        ("SlurmdLogFile", f"{folder}/log/slurmd-%n.log"),
    ]


def time_rows(settings: Settings) -> list[Row]:
    """Slurm's own timers, in seconds."""
    return [
        ("KillWait", settings.kill_wait_s),
        ("MessageTimeout", settings.message_timeout_s),
        ("SlurmdTimeout", settings.slurmd_timeout_s),
        ("PrologEpilogTimeout", settings.prolog_epilog_timeout_s),
        ("UnkillableStepTimeout", 60),
    ]


def hook_rows(folder: str, settings: Settings) -> list[Row]:
    """The rows that an administrator adds to hook hpkit in."""
    return [
        ("Prolog", f"{folder}/hooks/prolog/hpkit"),
        ("Epilog", f"{folder}/hooks/epilog/hpkit"),
        ("HealthCheckProgram", f"{folder}/hooks/prolog/hpkit-health"),
        ("HealthCheckInterval", settings.health_interval_s),
        ("HealthCheckNodeState", "ANY"),
    ]


def node_lines(settings: Settings, ground: Ground, ports: Ports) -> list[str]:
    """One line per node, all on this host, and the partition with all of them."""
    gres = f" Gres={GRES}:{settings.gpus}" if settings.gpus else ""
    lines = [
        f"NodeName={name} NodeHostName={ground.hostname} NodeAddr=127.0.0.1 Port={port}"
        f" Sockets=2 CoresPerSocket={CPUS // 2} ThreadsPerCore=1 RealMemory=64000{gres} State=UNKNOWN"
        for name, port in zip(node_names(settings.nodes), ports.slurmd, strict=True)
    ]
    return [*lines, "PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]


def first_job(ports: Ports) -> int:
    """A first job number of its own for each sandbox.

    Several sandboxes share the cgroups `slurm_n1` and so on; a step's cgroup is told apart by its job number only.
    """
    return (ports.slurmctld % 10000) * 1000 + 1


def gres_conf(folder: str, settings: Settings) -> str:
    """The GPUs of each node by their device files: Slurm refuses a count without files."""
    if not settings.gpus:
        return "AutoDetect=off\n"
    span = f"[0-{settings.gpus - 1}]" if settings.gpus > 1 else "0"
    lines = [
        f"NodeName={name} Name={GRES} File={os.path.join(folder, 'nodes', name, 'root/dev')}/nvidia{span}"
        for name in node_names(settings.nodes)
    ]
    return "AutoDetect=off\n" + "\n".join(lines) + "\n"


def cgroup_conf(ground: Ground, proctrack: str) -> str:
    """cgroup.conf for what this machine has; Slurm 21.08 knows v1 only.

    slurmd loads a plugin even when nothing uses cgroups. Where it cannot be "disabled", v1 is the plugin that looks at
    nothing of the machine until it is used.
    """
    if ground.version < (22, 5):
        return "ConstrainCores=no\n"
    if proctrack != "cgroup":
        off = Abilities(version=ground.version).cgroups_can_be_off
        return f"CgroupPlugin={'disabled' if off else 'cgroup/v1'}\n"
    lines = [f"CgroupPlugin=cgroup/{ground.cgroup}"]
    if ground.cgroup == "v2" and not ground.systemd:
        lines.append("IgnoreSystemd=yes")
    return "\n".join(lines) + "\n"
