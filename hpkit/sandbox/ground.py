"""What this machine offers for a sandbox: Slurm's programs and version, cgroups, an account and a Python for jobs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import sys
from collections.abc import Mapping
from typing import NamedTuple

from hpkit import proc
from hpkit.errors import HpkitError, UsageError

TOOLS = (
    "munged",
    "slurmctld",
    "slurmd",
    "scontrol",
    "sinfo",
    "squeue",
    "sbatch",
    "srun",
    "scancel",
    "setpriv",
)
OPT = "/opt/slurm/bin:/opt/slurm/sbin"  # where AWS ParallelCluster and HyperPod put Slurm
PACKAGES = "munge slurmctld slurmd slurm-client"  # Debian's and Ubuntu's names
LOW_ACCOUNTS = ("daemon", "games", "mail", "www-data")  # never nobody: Slurm's credentials refuse uid 65534
SOCKET_LIMIT = 100  # sun_path holds 108 bytes; munged appends ".lock"
CALL_S = 20.0


class Account(NamedTuple):
    """The unprivileged user whose jobs run."""

    name: str
    uid: int
    gid: int


class Ground(NamedTuple):
    """`version` is Slurm's (major, minor); `cgroup` is "v1", "v2" or "" when this machine has no usable one."""

    tools: dict[str, str]
    version: tuple[int, int]
    hostname: str
    account: Account
    slurm_account: str
    python: str
    cgroup: str
    systemd: bool


def look(folder: str, user: str = "") -> Ground:
    """Look at this machine; raises HpkitError with what to do when a sandbox cannot run here."""
    need_root("a sandbox starts slurmd and munged, which need root")
    if len(os.path.join(folder, "munge", "socket")) > SOCKET_LIMIT:
        raise UsageError(
            f"the folder name is too long for a Unix socket: {folder}", "use --dir with a shorter one"
        )
    tools = find_tools()
    account = job_account(user)
    return Ground(
        tools=tools,
        version=slurm_version(tools["slurmd"]),
        hostname=socket.gethostname().split(".")[0],
        account=account,
        slurm_account="slurm" if known("slurm") else "root",
        python=usable_python(account, tools["setpriv"]),
        cgroup=cgroup_here(),
        systemd=os.path.isdir("/run/systemd/system"),
    )


def need_root(why: str) -> None:
    """Raise HpkitError with the command to type when we are not root."""
    if os.geteuid() != 0:
        raise HpkitError(why, f"run: sudo {command_line()}")


def program() -> str:
    """The program that the person typed; by its name only where root finds it by that."""
    typed = sys.argv[0] or "hpkit"
    name = os.path.basename(typed)
    return name if shutil.which(name, path=proc.PATH) else typed


def command_line() -> str:
    """The command that the person typed, for a hint."""
    return " ".join([program(), *sys.argv[1:]])


def search_path() -> str:
    """Where programs are looked for: the folders in HPKIT_SLURM_BIN, root's usual path, /opt/slurm."""
    return ":".join(filter(None, (os.environ.get("HPKIT_SLURM_BIN", ""), proc.PATH, OPT)))


def path_with(tools: Mapping[str, str]) -> str:
    """A PATH on which these programs come first: the usual one where they lie on it."""
    usual = proc.PATH.split(":")
    folders = dict.fromkeys(os.path.dirname(path) for path in tools.values())
    return ":".join([*(folder for folder in folders if folder not in usual), *usual])


def missing_tools() -> tuple[str, ...]:
    """The programs of Slurm, munge and util-linux that a sandbox needs and this machine lacks."""
    return tuple(name for name in TOOLS if not shutil.which(name, path=search_path()))


def find_tools() -> dict[str, str]:
    """Full paths of every program needed; raises HpkitError naming all that are missing."""
    missing = missing_tools()
    if missing:
        hint = f"run: apt-get install {PACKAGES} (make demo does it for you)"
        raise HpkitError(f"these programs are missing here: {', '.join(missing)}", hint)
    return {name: shutil.which(name, path=search_path()) or name for name in TOOLS}


def slurm_version(slurmd: str) -> tuple[int, int]:
    """(22, 5) for `slurm-wlm 22.05.8`; raises HpkitError when slurmd does not tell."""
    ran = proc.run([slurmd, "-V"], timeout_s=CALL_S)
    found = re.search(r"(\d+)\.(\d+)\.", ran.text)
    if not found:
        words = (ran.stdout or ran.stderr).decode(errors="replace").strip()
        raise HpkitError(f"{slurmd} -V did not tell a version: {words}")
    return int(found[1]), int(found[2])


def known(name: str) -> bool:
    """Whether this machine has an account of that name."""
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def job_account(user: str = "") -> Account:
    """`user`, else who called sudo, else a low-privilege account of the system; never root."""
    asked = user or os.environ.get("SUDO_USER", "")
    for name in (asked, *LOW_ACCOUNTS):
        if name and name != "root" and known(name):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(name, entry.pw_uid, entry.pw_gid)
        if user:
            raise UsageError(
                f"jobs cannot run as {user!r}: no such account, or root", "name an unprivileged user"
            )
    raise HpkitError("no unprivileged account to run jobs as", "create one and name it with --user")


def as_user(setpriv: str, account: Account) -> list[str]:
    """The words before a command that make it run as `account`.

    setpriv still has root's capabilities when it starts the program, so that root's own folders are open to it: the
    shell between them has none.
    """
    words = [setpriv, f"--reuid={account.uid}", f"--regid={account.gid}", "--init-groups"]
    return [*words, "/bin/sh", "-c", 'exec "$@"', "sh"]


def usable_python(account: Account, setpriv: str) -> str:
    """A Python ≥ 3.10 that the job user can start: ours when it may, else the system's.

    A virtual environment often lives below a home folder that nobody else may enter.
    """
    test = "import sys; sys.exit(sys.version_info < (3, 10))"
    candidates = [os.path.realpath(sys.executable), "/usr/bin/python3", "/usr/local/bin/python3"]
    candidates += [f"/usr/bin/python3.{minor}" for minor in range(14, 9, -1)]
    for path in candidates:
        if os.path.exists(path):
            ran = proc.run([*as_user(setpriv, account), path, "-I", "-S", "-c", test], timeout_s=CALL_S)
            if ran.ok:
                return path
    raise HpkitError(
        f"user {account.name} has no Python 3.10 or newer: {sys.executable} lies where only root may go",
        "run: apt-get install python3",
    )


def cgroup_here() -> str:
    """Which cgroup version could hold job steps: "v1" with a freezer, "v2" when it is the only one, else ""."""
    if os.access("/sys/fs/cgroup/freezer/cgroup.procs", os.W_OK):
        return "v1"
    if os.access("/sys/fs/cgroup/cgroup.subtree_control", os.W_OK):
        return "v2"
    return ""
