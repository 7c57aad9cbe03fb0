"""docs/reference/slurm.md on the release that runs here: every cell of its table is tried."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from hpkit import pids, proc
from hpkit.errors import HpkitError
from hpkit.sandbox import cluster as clusters
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm.abilities import Abilities, version_of
from hpkit.slurm.commands import Commands
from tests.slurm.conftest import needs_slurm

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/slurm.md"
SLEEP = "#!/bin/sh\nexec sleep 600\n"
HET = "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nexec sleep 600\n"
FIRST_RUN = (
    '#!/bin/sh\necho "${SLURM_RESTART_COUNT-unset}"\n[ "${SLURM_RESTART_COUNT:-0}" = 0 ] && exec sleep 600\n'
)
# A step that is up when it is cancelled: before that its daemon has no output to write to.
CANCELLED = """#!/bin/sh
srun sh -c 'echo up; exec sleep 60' >up &
until [ -s up ]; do sleep 0.1; done
scancel $SLURM_JOB_ID.0
wait
"""
NONE = "–"  # noqa: RUF001  # as the page has it
TRIED = ("22.05", "24.11", "26.05")
DELAY_S, EXPIRE_S = 3, 30


def rows() -> dict[str, dict[str, str]]:
    """The page's table: feature → release → cell."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    head, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0]: dict(zip(head[1:-1], cells[1:-1], strict=True)) for cells in body}


class Lab(NamedTuple):
    """A cluster with a slurm.conf of its own, and what a job met on it: see `lab`."""

    cluster: Cluster
    hooks: Path
    job: str
    delay_s: float

    def ran(self, hook: str) -> dict[str, str]:
        """The environment that a hook had; empty when it did not run."""
        path = self.hooks / f"{hook}.{self.job}"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.partition("=")[::2] for line in lines)

    def with_line(self, line: str) -> proc.Ran:
        """sinfo with one more line in slurm.conf."""
        etc = Path(self.cluster.state.conf).parent
        other = self.hooks / "etc"
        other.mkdir(exist_ok=True)
        for path in etc.iterdir():
            (other / path.name).write_text(path.read_text())
        with open(other / "slurm.conf", "a") as file:
            file.write(line + "\n")
        return proc.run(
            [self.cluster.state.tools["sinfo"], "-h"],
            timeout_s=30,
            env={"SLURM_CONF": str(other / "slurm.conf")},
        )


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two prologs and an epilog that keep their environment, both delays, and a job that was requeued once."""
    needs_slurm()
    hooks = tmp_path_factory.mktemp("lab")
    for name in ("first", "second", "epilog"):
        script = f"#!/bin/sh\n/usr/bin/env >{hooks}/{name}.$SLURM_JOB_ID\necho {name} >>{hooks}/order.$SLURM_JOB_ID\n"
        (hooks / name).write_text(script)
        (hooks / name).chmod(0o755)
    folder = f"/var/tmp/hpkit-lab-{os.getpid()}"
    made = clusters.up(
        folder,
        nodes=1,
        gpus=0,
        hooks=False,
        proctrack="linuxproc",
        rows=(
            f"Prolog={hooks}/first",
            f"Prolog={hooks}/second",
            f"Epilog={hooks}/epilog",
            f"SchedulerParameters=batch_sched_delay=1,sched_interval=3,bf_interval=3,requeue_delay={DELAY_S}",
            f"AuthInfo=socket={folder}/munge/socket,cred_expire={EXPIRE_S}",
        ),
    )
    try:
        job = made.submit(FIRST_RUN, f"--output={folder}/home/run-%r")
        made.wait(job, "RUNNING")
        made.until(lambda: output(made), bool, 30, "the job's first word")
        made.root("scontrol", "requeue", "incomplete", job)
        again = made.wait(job, "PENDING")
        assert again.eligible_at is not None
        yield Lab(made, hooks, job, again.eligible_at - time.time())
    finally:
        made.down()


def output(cluster: Cluster) -> dict[str, str]:
    """The files that the lab's job wrote, those with something in them."""
    home = Path(cluster.folder, "home")
    texts = {path.name: path.read_text() for path in home.glob("run-*")}
    return {name: text for name, text in texts.items() if text}


class Scene(NamedTuple):
    """What a probe may use: the session's cluster with its client, and the lab."""

    cluster: Cluster
    client: Commands
    lab: Lab

    @property
    def able(self) -> Abilities:
        return self.client.abilities()

    def document(self, asked: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(
            self.cluster.root("scontrol", "--all", "--json", "show", "job", asked)
        )
        return found

    def started(self, *args: str, script: str = SLEEP) -> str:
        job = self.cluster.submit(script, "--output=/dev/null", *args)
        self.cluster.wait(job, ("RUNNING", "COMPLETED", "FAILED", "CANCELLED"))
        return job

    def records(self, asked: str) -> list[dict[str, object]]:
        jobs = self.document(asked)["jobs"]
        assert isinstance(jobs, list)
        return jobs

    def works(self, tool: str, *args: str) -> bool:
        return self.cluster.run_as_user([tool, *args]).ok


def yes(is_so: bool, so: str = "yes", other: str = "no") -> str:
    return so if is_so else other


def agreed(seen: bool, told: bool, so: str = "yes", other: str = "no") -> str:
    """The cell for what was seen, where Abilities says the same."""
    assert told is seen, f"seen: {seen}, Abilities says {told}"
    return yes(seen, so, other)


def json_there(scene: Scene) -> str:
    try:
        tried = isinstance(scene.records(scene.started()), list)
    except HpkitError as error:
        assert "unrecognized option" in error.message
        tried = False
    return agreed(tried, scene.client.reads_json())


def json_state(scene: Scene) -> str:
    return type(scene.records(scene.started())[0]["job_state"]).__name__


def json_number(scene: Scene) -> str:
    record = scene.records(scene.started())[0]
    shapes = {
        type(record[key]) for key in ("priority", "start_time", "node_count", "array_task_id", "time_limit")
    }
    return yes(shapes == {dict}, "object", str(shapes))


def json_without_controller(scene: Scene) -> str:
    conf = scene.lab.hooks / "away.conf"
    text = Path(scene.cluster.state.conf).read_text()
    conf.write_text(re.sub(r"SlurmctldPort=\d+", "SlurmctldPort=9", text))
    ran = proc.run(
        [scene.cluster.state.tools["scontrol"], "--json", "show", "job", "1"],
        timeout_s=60,
        env={"SLURM_CONF": str(conf)},
    )
    document = json.loads(ran.text)
    assert (document["errors"], ran.failure) == ([], "")
    return f"{yes(document['jobs'] == [], 'no jobs', 'jobs')}, exit {ran.rc}"


def json_of_a_task(scene: Scene) -> str:
    array = scene.cluster.submit(SLEEP, "--output=/dev/null", "--array=1-3")
    scene.cluster.wait(f"{array}_2", "RUNNING")
    return yes(len(scene.records(f"{array}_2")) == 3, "the whole array", "the task")


def components(scene: Scene) -> str:
    job = scene.cluster.submit(HET, "--output=/dev/null")
    text = scene.cluster.root("scontrol", "show", "job", job)
    scene.cluster.root("scancel", job)  # 26.05 cancels no component that waits, which the tidying would try
    return yes(text.count("HetJobOffset=") == 2, "all components", "its leader")


def submit_line(scene: Scene) -> str:
    return yes("SubmitLine=" in scene.cluster.root("scontrol", "show", "job", scene.started()))


def reason_after_undrain(scene: Scene) -> str:
    scene.client.drain("n2", "hpkit: a.b: c")
    scene.client.undrain("n2")
    return yes("Reason=" in scene.cluster.root("scontrol", "show", "node", "n2"), "kept", "gone")


def host_list(scene: Scene) -> str:
    text = scene.cluster.root("scontrol", "show", "hostnames", "g[1-2]-ib")
    return yes(text.split() == ["g1-ib", "g2-ib"], "read", "refused")


def known_state(tool: str, word: str) -> Callable[[Scene], str]:
    def look(scene: Scene) -> str:
        assert not scene.works(tool, "--noheader", "--states=NONSENSE")
        return yes(scene.works(tool, "--noheader", f"--states={word}"))

    return look


def expedite(scene: Scene) -> str:
    ran = scene.cluster.run_as_user(
        ["sbatch", "--parsable", "--requeue=expedite", "--output=/dev/null"], stdin=SLEEP.encode()
    )
    seen = ran.ok and scene.client.job(ran.text.strip()).expedited
    assert scene.able.expedited_requeue is seen  # the sandbox enables it where it is known
    return agreed(seen, scene.able.knows_expedited, "accepted", "refused")


def delay(scene: Scene) -> str:
    told = scene.lab.cluster.client.abilities()
    assert told.requeue_delay_s == (DELAY_S if told.knows_requeue_delay else EXPIRE_S)
    waited = next(d for d in (DELAY_S, EXPIRE_S) if abs(scene.lab.delay_s - d - 1) < 2)
    assert waited == told.requeue_delay_s
    return f"{waited + 1} s"


def restart_count(scene: Scene) -> str:
    first = min(output(scene.lab.cluster).items())
    return first[1].split()[0]


def restart_in_names(scene: Scene) -> str:
    name = min(output(scene.lab.cluster))
    assert name in ("run-0", "run-%r")
    return yes(name == "run-0")


def cancelled_line(scene: Scene) -> str:
    """The step's daemon may be gone before srun has its line (seen on 22.05): then another try shows it."""
    home = Path(scene.cluster.folder, "home")
    for _ in range(5):
        (home / "up").unlink(missing_ok=True)
        job = scene.cluster.submit(CANCELLED, "--output=cancelled-%j")
        scene.cluster.wait(job, ("COMPLETED", "FAILED"))
        text = (home / f"cancelled-{job}").read_text()
        for line in text.splitlines():
            if "*** STEP" in line:
                return line
    raise AssertionError(f"srun never showed the line: {text}")


def cancelled_begins(scene: Scene) -> str:
    begin = cancelled_line(scene).partition(" error: ")[0]
    return re.sub(r"\[[\d:T.-]+\]", "`[TIME]`", re.sub(r"slurmstepd-n\d:", "`slurmstepd-NODE:`", begin))


def cancelled_signal(scene: Scene) -> str:
    return yes("DUE to SIGNAL" in cancelled_line(scene))


def prologs(scene: Scene) -> str:
    lines = (scene.lab.hooks / f"order.{scene.lab.job}").read_text().split()
    ran = lines[: lines.index("epilog")]
    assert ran in (["second"], ["first", "second"])
    told = scene.lab.cluster.client.abilities().many_hooks
    return agreed(len(ran) == 2, told, "all run in order", "the last runs")


def prolog_shown(scene: Scene) -> str:
    found = sorted(
        key for key, value in scene.lab.cluster.client.config().items() if value.endswith("/first")
    )
    last = sorted(
        key for key, value in scene.lab.cluster.client.config().items() if value.endswith("/second")
    )
    return f"`{(found or last)[0]}`"


def key(*lines: str) -> Callable[[Scene], str]:
    def look(scene: Scene) -> str:
        ran = [scene.lab.with_line(line) for line in lines]
        assert all(each.ok or b"unrecognized key" in each.stderr for each in ran)
        if lines[0].startswith("PrologTimeout"):
            assert scene.able.hook_timeouts is all(each.ok for each in ran)
        return yes(all(each.ok for each in ran))

    return look


def health_state(word: str) -> Callable[[Scene], str]:
    def look(scene: Scene) -> str:
        ran = scene.lab.with_line(f"HealthCheckNodeState={word}")
        assert ran.ok
        return yes(b"ignored" not in ran.stderr, "read", "ignored")

    return look


def in_hooks(name: str, *hooks: str) -> Callable[[Scene], str]:
    def look(scene: Scene) -> str:
        found = [name in scene.lab.ran(hook) for hook in hooks]
        assert all(scene.lab.ran(hook) for hook in hooks)
        return yes(all(found), "yes", "no" if not any(found) else "in some")

    return look


def no_cgroups(scene: Scene) -> str:
    """The lab's last probe: its node is started again with the plugin named."""
    lab = scene.lab.cluster
    lab.stop("n1")
    (Path(lab.state.conf).parent / "cgroup.conf").write_text("CgroupPlugin=disabled\n")
    lab.start("n1")
    log = Path(lab.folder, "log/slurmd-n1.log")
    ended = lab.until(
        lambda: (not pids.alive(lab.state.processes["n1"]), log.read_text()),
        lambda seen: seen[0] or seen[1].count("slurmd started on") == 2,
        30,
        "slurmd",
    )
    return agreed(not ended[0], scene.able.cgroups_can_be_off)


PROBES: dict[str, Callable[[Scene], str]] = {
    "`scontrol --json`": json_there,
    "JSON: `job_state`": json_state,
    "JSON: a number": json_number,
    "JSON: answer without a controller": json_without_controller,
    "JSON: asked about one task": json_of_a_task,
    "`show job` by a heterogeneous job's number": components,
    "`SubmitLine` in `show job`": submit_line,
    "a node's Reason after `undrain`": reason_after_undrain,
    "host list `g[1-2]-ib`": host_list,
    "node state BLOCKED": known_state("sinfo", "BLOCKED"),
    "node state EXTERNAL": known_state("sinfo", "EXTERNAL"),
    "job state EXPEDITING": known_state("squeue", "EXPEDITING"),
    "`sbatch --requeue=expedite`": expedite,
    "how long a requeue waits with `requeue_delay=3` and `cred_expire=30`": delay,
    "`SLURM_RESTART_COUNT` in the first run": restart_count,
    "`%r` in the name of an output file": restart_in_names,
    "a cancelled step's line begins with": cancelled_begins,
    "and names the signal": cancelled_signal,
    "several `Prolog=` lines": prologs,
    "`show config` names a Prolog": prolog_shown,
    "`PrologTimeout`, `EpilogTimeout`": key("PrologTimeout=40", "EpilogTimeout=40"),
    "`HealthCheckTimeout`": key("HealthCheckTimeout=40"),
    "`HealthCheckNodeState=NONDRAINED_IDLE`": health_state("NONDRAINED_IDLE"),
    "`HealthCheckNodeState=START_ONLY`": health_state("START_ONLY"),
    "`HealthCheckNodeState=REBOOT_ONLY`": health_state("REBOOT_ONLY"),
    "`SLURM_JOB_NODELIST` in prolog and epilog": in_hooks("SLURM_JOB_NODELIST", "second", "epilog"),
    "`SLURM_NODELIST` in prolog and epilog": in_hooks("SLURM_NODELIST", "second", "epilog"),
    "`SLURM_JOB_EXIT_CODE2` in the epilog": in_hooks("SLURM_JOB_EXIT_CODE2", "epilog"),
    "`CgroupPlugin=disabled`": no_cgroups,
}


def test_each_row_of_the_page_has_a_probe_and_no_other() -> None:
    table = rows()
    assert list(table) == list(PROBES)
    assert {tuple(cells) for cells in table.values()} == {TRIED}


@pytest.mark.parametrize("feature", list(PROBES))
def test_a_row_of_the_page(cluster: Cluster, lab: Lab, feature: str) -> None:
    client = cluster.client
    assert isinstance(client, Commands)
    release = "{:02d}.{:02d}".format(*version_of(client.abilities().release))
    if release not in TRIED:
        pytest.skip(f"the page says nothing of Slurm {release}")
    cell = rows()[feature][release]
    if cell == NONE:
        assert not client.reads_json()
        return
    assert PROBES[feature](Scene(cluster, client, lab)) == cell
