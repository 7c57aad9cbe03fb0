"""The sh hooks run for real, by dash and bash, in the bare environment that Slurm gives them."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from hpkit import installing, proc
from hpkit.node import verdict
from tests.support.hanging_mount import hanging_mount

SHELLS = [shell for shell in ("/bin/dash", "/bin/bash") if os.path.exists(shell)]
BOOT = "0f6a9c1e-boot"
FAKE_PYTHON = """#!/bin/sh
echo "$@" >> {calls}
echo reason-line
exit {rc}
"""


class Ground(NamedTuple):
    """A node root with hooks installed and an interpreter that only notes how it was called."""

    folder: Path
    shell: str

    @property
    def run_dir(self) -> Path:
        return self.folder / "nodes" / "n1" / "root" / "run" / "hpkit"

    def python_exits(self, rc: int) -> None:
        path = self.folder / "python3"
        path.write_text(FAKE_PYTHON.format(calls=shlex.quote(f"{self.folder}/calls"), rc=rc))
        path.chmod(0o755)

    def hook(self, name: str, env: Mapping[str, str] | None = None) -> proc.Ran:
        """Run a hook with nothing in its environment but the node's name and `env`: no PATH."""
        argv = ("/usr/bin/env", "-i", "SLURMD_NODENAME=n1", *(f"{k}={v}" for k, v in (env or {}).items()))
        return proc.run((*argv, self.shell, str(self.folder / name)), timeout_s=60)

    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def verdict(self, line: str) -> None:
        (self.run_dir / "verdict").write_text(line)


def now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME))


def good(**changes: object) -> str:
    words = {
        "format": "hpkit/1", "boot": BOOT, "until": now() + 600, "verdict": "healthy",
        "written": now() - 1, "suite": "health", "hooks": "prolog,epilog,health",
    }  # fmt: skip
    return " ".join(str(w) for w in {**words, **changes}.values() if w is not None) + "\n"


@pytest.fixture(params=SHELLS)
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Ground:
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    found = Ground(folder, request.param)
    (found.run_dir / "suspects").mkdir(parents=True)
    boot = folder / "nodes" / "n1" / "root" / "proc" / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text(f"{BOOT}\n")
    installing.write_hooks(
        str(folder), str(folder / "python3"), str(folder / "lib"), f'{folder}/nodes/"$SLURMD_NODENAME"'
    )
    found.python_exits(0)
    found.verdict(good())
    return found


BOTH = pytest.mark.parametrize("name", ["prolog/hpkit", "epilog/hpkit"])


@BOTH
def test_a_fresh_verdict_is_trusted_without_python(ground: Ground, name: str) -> None:
    ran = ground.hook(name)
    assert (ran.rc, ran.stdout, ran.stderr) == (0, b"", b"")
    assert ground.calls() == []


@BOTH
def test_the_healthy_path_forks_nothing(ground: Ground, name: str) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    trace = ground.folder / "trace"
    argv = (strace, "-f", "-e", "trace=process", "-o", str(trace), ground.shell, str(ground.folder / name))
    ran = proc.run(argv, timeout_s=60, env={"PATH": "", "SLURMD_NODENAME": "n1"})
    if not trace.exists() or "execve(" not in trace.read_text():
        pytest.skip(f"strace cannot trace here: {ran.stderr!r}")
    assert ran.rc == 0
    started = [
        line
        for line in trace.read_text().splitlines()
        if any(c in line for c in ("clone", "fork(", "execve("))
    ]
    assert len(started) == 1, started
    assert ground.calls() == []


UNTRUSTED = {
    "expired": lambda: good(until=now() - 1),
    "from the future": lambda: good(written=now() + 300),
    "of another boot": lambda: good(boot="another"),
    "unhealthy": lambda: good(verdict="unhealthy"),
    "unknown": lambda: good(verdict="unknown"),
    "of another format": lambda: good(format="hpkit/2"),
    "for other hooks": lambda: good(hooks="health"),
    "without hooks": lambda: good(hooks=None),
    "no number": lambda: good(until="soon"),
    "negative": lambda: good(written=-5),
    "number too large": lambda: good(until="9" * 40),
    "an injection": lambda: good(until="a[$(touch /tmp/hpkit-injected)]"),
    "half a line": lambda: good()[:40],
    "without newline": lambda: good().strip(),
    "garbage": lambda: "\x01\xff*?[~$(id)`id`" * 20,
    "empty": lambda: "",
}


@BOTH
@pytest.mark.parametrize("kind", UNTRUSTED)
def test_any_other_verdict_is_not_trusted(ground: Ground, name: str, kind: str) -> None:
    ground.verdict(UNTRUSTED[kind]())
    ran = ground.hook(name)
    assert ran.rc == 0
    assert ran.stderr == b""
    kind = name.split("/")[0]
    assert ground.calls() == [
        f"-I -S {ground.folder}/lib/hpkit/start.py {kind} --root {ground.folder}/nodes/n1"
    ]
    assert not os.path.exists("/tmp/hpkit-injected")


@BOTH
def test_a_verdict_of_somebody_else_is_not_trusted(ground: Ground, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(ground.run_dir / "verdict", 65534, 65534)
    ground.hook(name)
    assert len(ground.calls()) == 1


@BOTH
def test_no_verdict_or_no_boot_id_is_not_trusted(ground: Ground, name: str) -> None:
    (ground.run_dir / "verdict").unlink()
    assert ground.hook(name).rc == 0
    ground.verdict(good())
    shutil.rmtree(ground.folder / "nodes" / "n1" / "root" / "proc")
    ran = ground.hook(name)
    assert (ran.rc, ran.stderr) == (0, b"")
    assert len(ground.calls()) == 2


@BOTH
@pytest.mark.parametrize("note", ["job-1-x", ".hidden", "..two", "-n", "with space", "dangling"])
def test_a_note_makes_python_run(ground: Ground, name: str, note: str) -> None:
    path = ground.run_dir / "suspects" / note
    if note == "dangling":
        path.symlink_to("nowhere")
    else:
        path.touch()
    ground.hook(name)
    assert len(ground.calls()) == 1


@BOTH
def test_a_note_that_hangs_whoever_looks_at_it_only_counts(ground: Ground, name: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    ground.verdict(good())
    note = ground.run_dir / "suspects" / "evil"
    note.touch()
    with hanging_mount(note):
        assert ground.hook(name).failure == ""
        assert len(ground.calls()) == 1


@BOTH
@pytest.mark.parametrize(("python", "rc"), [(101, 1), (0, 0), (1, 0), (2, 0), (3, 0), (127, 0), (130, 0)])
def test_only_the_private_code_rejects(ground: Ground, name: str, python: int, rc: int) -> None:
    ground.python_exits(python)
    ground.verdict("")
    ran = ground.hook(name)
    assert (ran.rc, ran.text) == (rc, "reason-line\n")


@BOTH
def test_a_killed_interpreter_does_not_reject(ground: Ground, name: str) -> None:
    ground.verdict("")
    (ground.folder / "python3").write_text("#!/bin/sh\nkill -9 $$\n")
    assert ground.hook(name).rc == 0


@pytest.mark.parametrize("name", installing.HOOKS)
@pytest.mark.parametrize("kind", ["missing", "a folder", "not executable", "no program"])
def test_a_broken_interpreter_stops_no_job(ground: Ground, name: str, kind: str) -> None:
    python = ground.folder / "python3"
    ground.verdict("")
    python.unlink()
    if kind == "a folder":
        python.mkdir()
    elif kind != "missing":
        python.write_text("\x7fELF nonsense" if kind == "no program" else "#!/bin/sh\nexit 101\n")
        python.chmod(0o755 if kind == "no program" else 0o644)
    ran = ground.hook(name)
    assert (ran.rc, ran.failure) == (0, "")


@pytest.mark.parametrize(
    ("env", "python_runs"),
    [
        ({"SLURM_JOB_EXIT_CODE": "0", "SLURM_JOB_EXIT_CODE2": "0:0"}, False),
        ({"SLURM_JOB_EXIT_CODE": "256", "SLURM_JOB_EXIT_CODE2": "1:0"}, True),
        ({"SLURM_JOB_EXIT_CODE": "9", "SLURM_JOB_EXIT_CODE2": "0:9"}, True),
        ({"SLURM_JOB_EXIT_CODE2": "0:15"}, True),
        ({"SLURM_JOB_EXIT_CODE": "256"}, True),
        ({"SLURM_JOB_ID": "812"}, False),
        ({"SLURM_JOB_ID": "813"}, True),
    ],
)
def test_the_epilog_of_a_failed_or_answered_job_runs_python(
    ground: Ground, env: dict[str, str], python_runs: bool
) -> None:
    (ground.run_dir / "answered").mkdir()
    (ground.run_dir / "answered" / "813").write_text("1000")
    ground.hook("epilog/hpkit", env)
    assert len(ground.calls()) == (1 if python_runs else 0)


def test_the_prolog_does_not_mind_how_another_job_ended(ground: Ground) -> None:
    ground.hook("prolog/hpkit", {"SLURM_JOB_EXIT_CODE": "256", "SLURM_JOB_WORK_DIR": "/scratch/Smith Lab"})
    assert ground.calls() == []


@pytest.mark.parametrize("rc", [0, 1, 101])
def test_the_health_program_always_runs_and_exits_0(ground: Ground, rc: int) -> None:
    ground.python_exits(rc)
    assert ground.hook("prolog/hpkit-health").rc == 0
    assert ground.calls() == [
        f"-I -S {ground.folder}/lib/hpkit/start.py health --root {ground.folder}/nodes/n1"
    ]


def test_the_format_is_the_one_that_is_written() -> None:
    """The sh hooks and node/verdict.py name the same format."""
    source = Path(installing.source_folder())
    for name in ("prolog/hpkit", "epilog/hpkit"):
        assert f'"$format" = {verdict.FORMAT} ' in (source / name).read_text()


def test_installed_hooks_are_executable_and_start_with_their_constants(tmp_path: Path) -> None:
    written = installing.write_hooks(str(tmp_path), "/opt/x y/python3", "/opt/lib")
    assert [os.path.relpath(p, tmp_path) for p in written] == list(installing.HOOKS)
    for path in written:
        lines = Path(path).read_text().splitlines()
        assert lines[0] == "#!/bin/sh"
        assert "PYTHON='/opt/x y/python3'" in lines and "LIB=/opt/lib" in lines and "ROOT=" in lines
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o755


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("shellcheck is not installed")
    source = installing.source_folder()
    ran = proc.run((shellcheck, *(os.path.join(source, n) for n in installing.HOOKS)), timeout_s=60)
    assert (ran.rc, ran.text) == (0, "")
