"""An installation of hpkit inside the sandbox's folder: the package, commands for users, hooks, node configuration.

A copy, because the checkout may lie in a folder that the job user cannot enter, and because root's hooks trust
nothing that others could change.
"""

from __future__ import annotations

import os
import shutil
import sysconfig

import hpkit
from hpkit import proc
from hpkit.errors import HpkitError
from hpkit.files import ensure_dir, write_atomic
from hpkit.sandbox.state import State

COMPILE_S = 120.0
LIBRARIES = ("click", "tomli")
COMMANDS = {"hpkit": "hpkit.cli", "hp-srun": "hpkit.resume.main"}

LAUNCHER = """\
#!{python} -I
import sys

sys.path.insert(0, {lib!r})
sys.path += {more!r}
from {module} import main

sys.exit(main())
"""

NODE_CONFIG = """\
# The configuration of a sandbox node. A real installation starts with mode = "observe".
mode = "enforce"

[want]
gpus = {gpus}
mounts = ["/fsx"]

[hooks]
interval_s = {interval}
note_interval_s = {note_interval}

[slurm]
conf = "{conf}"
bin = "{bin}"

[drain]
jitter_s = 0.0
"""


def package(state: State) -> None:
    """Copy the package to lib/ and write the commands; compiled for the sandbox's Python, since users cannot."""
    source = os.path.dirname(os.path.abspath(hpkit.__file__))
    target = f"{state.folder}/lib/hpkit"
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    libraries(f"{state.folder}/lib")
    open_to_users(f"{state.folder}/lib")
    ran = proc.run([state.python, "-I", "-m", "compileall", "-q", target], timeout_s=COMPILE_S)
    if not ran.ok:
        why = (ran.text or ran.stderr.decode(errors="replace")).strip()
        raise HpkitError(f"hpkit does not compile with {state.python}: {why}")
    ensure_dir(f"{state.folder}/bin")
    for name, module in COMMANDS.items():
        text = LAUNCHER.format(
            python=state.python, lib=f"{state.folder}/lib", more=site_packages(), module=module
        )
        write_atomic(f"{state.folder}/bin/{name}", text, 0o755, durable=False)


def libraries(lib: str) -> None:
    """click and, for Python 3.10, tomli beside the package: hooks and users have no site-packages of ours.

    Our own may lie in a folder that the user cannot enter. Compiled forms stay behind.
    """
    from importlib.util import find_spec

    compiled = shutil.ignore_patterns("__pycache__", "*.so")
    for name in LIBRARIES:
        found = find_spec(name)
        if found is not None and found.origin:
            shutil.copytree(os.path.dirname(found.origin), f"{lib}/{name}", ignore=compiled)
    pyslurm(lib)


def pyslurm(lib: str) -> None:
    """Links to pyslurm and its metadata, where our own Python has it: too large to copy, and made for one Slurm."""
    from hpkit.slurm import backend

    found = backend.installed(backend.places())
    if found is not None:
        for name in os.listdir(found.folder):
            if name == backend.PACKAGE or name.startswith(f"{backend.PACKAGE}-"):
                os.symlink(f"{found.folder}/{name}", f"{lib}/{name}")


def site_packages() -> list[str]:
    """Where the other libraries of our own interpreter lie."""
    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})


def open_to_users(folder: str) -> None:
    """Readable for everybody, writable for root alone, whatever the checkout's modes and the umask were."""
    for where, _, names in os.walk(folder):
        os.chmod(where, 0o755)
        for name in names:
            path = os.path.join(where, name)
            os.chown(path, 0, 0)
            os.chmod(path, 0o755 if os.access(path, os.X_OK) and not name.endswith(".py") else 0o644)


def hooks(state: State) -> None:
    """hpkit's prolog, epilog and health program, as an installation writes them; the node root follows the node."""
    from hpkit.installing import write_hooks

    folder = f"{state.folder}/hooks"
    ensure_dir(folder)
    write_hooks(folder, state.python, f"{state.folder}/lib", f"{state.folder}/nodes/%n")


def node_config(state: State) -> str:
    """hpkit.toml of a node."""
    settings = state.settings
    text = NODE_CONFIG.format(
        gpus=settings.gpus,
        interval=float(settings.health_interval_s),
        note_interval=float(settings.note_interval_s),
        conf=state.conf,
        bin=state.slurm_bin,
    )
    return text + settings.config
