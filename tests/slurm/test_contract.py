"""The client's contract against a real controller: what it reads, what its writes do, how each failure is named.

One suite for every backend. It runs over Slurm's commands everywhere, and over pyslurm where that is installed for the
Slurm that is here; there both must also tell the same of every node and job.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from hpkit.errors import SlurmError
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import connect, pyslurm_client
from hpkit.slurm.backend import choose
from hpkit.slurm.client import Client, Job
from hpkit.slurm.pyslurm_client import Pyslurm
from tests.slurm.conftest import nodes_out
from tests.support.fake_slurm import FakeSlurm, idle
from tests.support.refused import refusal

T = TypeVar("T")

BACKENDS = ("commands", "pyslurm")
SLEEP = "#!/bin/sh\nexec sleep 600\n"
QUIET = ("--output=/dev/null", "--nodes=1")
EXPEDITED = "enable_expedited_requeue"


def of(cluster: Cluster, backend: str, timeout_s: float = 10.0) -> Client:
    """A client over that backend, with a worker of its own; skips where there is none."""
    pyslurm_client.workers.clear()
    config = cluster.slurm._replace(backend=backend, timeout_s=timeout_s)
    choice = choose(config, trusted_only=False)
    if choice.name != backend:
        pytest.skip(choice.why)
    return connect(config, trusted_only=False)


def reconfigure(cluster: Cluster, old: str, new: str) -> None:
    """Change slurm.conf and tell the controller, which begins anew with it."""
    path = Path(cluster.state.conf)
    path.write_text(path.read_text().replace(old, new))
    cluster.root("scontrol", "reconfigure")
    cluster.until(lambda: answers(cluster) and not nodes_out(cluster), bool, 60, "the controller")
    time.sleep(1.1)  # what is submitted now is submitted in a later second than the controller's first


@pytest.fixture(scope="module", autouse=True)
def plain(session_cluster: Cluster) -> Iterator[None]:
    """No expedited requeue for this module: pyslurm does not show it, and would leave every job to the commands."""
    row = f"SlurmctldParameters={EXPEDITED}"
    if row not in Path(session_cluster.state.conf).read_text():
        yield
        return
    reconfigure(session_cluster, row, f"#{row}")
    yield
    reconfigure(session_cluster, f"#{row}", row)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(cluster: Cluster, backend: str) -> Iterator[Client]:
    made = of(cluster, backend)
    yield made
    assert getattr(made, "given_up", "") == ""


@pytest.fixture
def frozen(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a controller that takes connections and never answers."""
    controller = cluster.state.processes["slurmctld"].pid
    os.kill(controller, signal.SIGSTOP)
    try:
        yield cluster
    finally:
        os.kill(controller, signal.SIGCONT)


def started(cluster: Cluster, *args: str, script: str = SLEEP) -> str:
    job = cluster.submit(script, *QUIET, *args)
    cluster.wait(job, "RUNNING")
    return job


def answers(cluster: Cluster) -> bool:
    try:
        return bool(cluster.client.nodes())
    except SlurmError:
        return False


# nodes


def test_reading_nodes(cluster: Cluster, client: Client) -> None:
    names = [node.name for node in client.nodes()]
    assert names == list(cluster.names)
    assert [node.name for node in client.nodes(["n3", "n1"])] == ["n3", "n1"]
    one = client.node("n2")
    assert (one.flags, one.partitions, one.reason, one.reason_at) == ({"IDLE"}, ("train",), "", None)
    assert (one.addr, one.gres, one.cpus, one.memory_mib) == ("127.0.0.1", "gpu:8", 16, 64000)
    assert one.boot_time is not None


def test_an_unknown_node_is_named_so(client: Client) -> None:
    for call in (client.node, client.jobs_on, client.undrain):
        assert refusal(call, "n77").kind == "unknown"
    assert refusal(client.nodes, ["n1", "n77"]).kind == "unknown"
    assert refusal(client.drain, "n77", "hpkit: test: x").kind == "unknown"
    assert refusal(client.node, client.node("n1").hostname).kind == "unknown"


def test_drain_and_undrain(client: Client) -> None:
    reason = 'hpkit: gpu.xid: gpu3: Xid 79 "quoted" a=b Owner=x State=DOWN µ'
    before = int(time.time())
    client.drain("n2", reason)
    seen = client.node("n2")
    assert (seen.flags, seen.reason, seen.reason_by) == ({"IDLE", "DRAIN"}, reason, "root")
    assert seen.reason_at is not None
    assert before <= seen.reason_at <= time.time()
    client.undrain("n2")
    seen = client.node("n2")
    assert not seen.flags & {"DRAIN", "DOWN"}
    assert seen.reason in ("", reason)  # newer releases keep it until the next job


def test_undrain_keeps_down(cluster: Cluster, client: Client) -> None:
    cluster.root("scontrol", "update", "nodename=n2", "state=down", "reason=broken")
    client.drain("n2", "hpkit: test: x")
    client.undrain("n2")
    seen = client.node("n2")
    assert "DOWN" in seen.flags
    assert "DRAIN" not in seen.flags


def test_a_drain_needs_a_reason_of_one_line(client: Client) -> None:
    for reason in ("", " ", "two\nlines"):
        assert refusal(client.drain, "n2", reason).kind == "refused"
    assert client.node("n2").flags == {"IDLE"}


def test_reasons_of_several_lines_and_comments(cluster: Cluster, client: Client) -> None:
    reason = "count 7!=8\nsee OPS-1 Key=Val\n[eve@2026-01-01T00:00:00]"
    cluster.root("scontrol", "update", "nodename=n2", "state=drain", f"reason={reason}")
    cluster.root("scontrol", "update", "nodename=n3", "comment=x Reason=hpkit: y [root@2026-01-01T00:00:00]")
    assert client.node("n2").reason == "count 7!=8"
    assert client.node("n3").reason == ""
    cluster.root("scontrol", "update", "nodename=n3", "comment=")


def test_a_user_may_not_drain(cluster: Cluster, client: Client, backend: str) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from hpkit.config import SlurmConfig\nfrom hpkit.errors import SlurmError\nfrom hpkit.slurm import connect\n"
        "client = connect(SlurmConfig(bin=sys.argv[2], backend=sys.argv[3]), trusted_only=False)\n"
        "for call in (lambda: client.drain('n1', 'hpkit: x: y'), lambda: client.undrain('n1')):\n"
        "    try: call(); print('done')\n"
        "    except SlurmError as error: print(error.kind)\n"
        "print(type(client).__name__, getattr(client, 'given_up', ''))\n"
    )
    words = [f"{cluster.folder}/lib", cluster.state.slurm_bin, backend]
    ran = cluster.run_as_user([cluster.state.python, "-I", "-c", program, *words])
    assert ran.text.split() == ["denied", "denied", type(client).__name__], ran.stderr
    assert cluster.node("n1").flags == {"IDLE"}


# jobs


def test_a_job_and_its_node(cluster: Cluster, client: Client) -> None:
    job = started(cluster, "--exclude=n4", "--nodelist=n2", "--gres=gpu:2")
    seen = client.job(job)
    assert (seen.id, seen.user_id, seen.flags) == (job, cluster.state.account.uid, {"RUNNING"})
    assert (seen.nodes, seen.batch_host, seen.num_nodes) == ("n2", "n2", 1)
    assert (seen.req_nodes, seen.exc_nodes, seen.partition) == ("n2", "n4", "train")
    assert (seen.requeue, seen.batch, seen.restarts, seen.expedited) == (True, True, 0, False)
    assert seen.start_at is not None
    assert "MIXED" in client.node("n2").flags
    assert [j.id for j in client.jobs_on("n2")] == [job]
    assert client.jobs_on("n1") == ()
    assert refusal(client.job, "999999999").kind == "unknown"


def test_a_job_in_a_hidden_partition(cluster: Cluster, client: Client) -> None:
    job = started(cluster, "--nodelist=n3")
    cluster.root("scontrol", "update", "partitionname=train", "hidden=yes")
    try:
        assert (client.job(job).id, [j.id for j in client.jobs_on("n3")]) == (job, [job])
        assert client.node("n3").partitions == ("train",)
    finally:
        cluster.root("scontrol", "update", "partitionname=train", "hidden=no")


def test_forged_job_fields(cluster: Cluster, client: Client) -> None:
    name = "x NodeList=n9 UserId=root(0)\n   JobState=PENDING Reason=ok\nJobId=7 JobName=y"
    job = started(cluster, f"--job-name={name}", "--comment=Requeue=0 NodeList=n9", "--nodelist=n1")
    seen = client.job(job)
    assert (seen.id, seen.nodes, seen.user_id, seen.requeue) == (job, "n1", cluster.state.account.uid, True)
    forged = "x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=9 Nice=0"
    worse = cluster.submit(SLEEP, *QUIET, f"--job-name={forged}", "--nodelist=n1")
    cluster.until(lambda: client.jobs_on("n1"), lambda jobs: len(jobs) == 2, 60, "both jobs")
    assert {j.id for j in client.jobs_on("n1")} == {job, worse}
    try:
        assert client.job(worse).user_id == cluster.state.account.uid
    except SlurmError as error:  # where there is nothing but text to read
        assert error.kind == "garbled"


def test_one_array_task_and_no_other(cluster: Cluster, client: Client) -> None:
    array = cluster.submit(SLEEP, *QUIET, "--array=0-2")
    for task in (0, 1, 2):
        cluster.wait(f"{array}_{task}", "RUNNING")
    error = refusal(client.requeue, array, begin_in_s=600)
    assert (error.kind, error.hint) == ("refused", f"name one task: {array}_N")
    client.requeue(f"{array}_1", begin_in_s=600)
    cluster.wait(f"{array}_1", "PENDING")
    states = {task: sorted(client.job(f"{array}_{task}").flags) for task in (0, 1, 2)}
    assert states == {0: ["RUNNING"], 1: ["PENDING"], 2: ["RUNNING"]}
    assert refusal(client.job, array).kind == "refused"
    there = [job for node in cluster.names for job in client.jobs_on(node)]
    assert {job.id for job in there} == {f"{array}_0", f"{array}_2"}
    client.no_requeue(f"{array}_2")
    assert [client.job(f"{array}_{task}").requeue for task in (0, 1, 2)] == [True, True, False]


def test_an_expedited_job_is_told(cluster: Cluster, client: Client) -> None:
    if cluster.state.slurm < "25.11":
        pytest.skip(f"Slurm {cluster.state.slurm} has none")
    with expedited(cluster):
        job = started(cluster, "--requeue=expedite", "--nodelist=n2")
        other = started(cluster, "--nodelist=n2")
        assert [client.job(each).expedited for each in (job, other)] == [True, False]
        assert {j.id: j.expedited for j in client.jobs_on("n2")} == {job: True, other: False}
        cluster.root("scancel", job, other)
        for each in (job, other):
            cluster.wait(each, "CANCELLED")
    assert client.job(job).expedited


@contextmanager
def expedited(cluster: Cluster) -> Iterator[None]:
    row = f"SlurmctldParameters={EXPEDITED}"
    reconfigure(cluster, f"#{row}", row)
    try:
        yield
    finally:
        reconfigure(cluster, row, f"#{row}")


# writes to jobs


def test_requeue_of_a_running_job(cluster: Cluster, client: Client) -> None:
    job = started(cluster)
    assert client.requeue(job, begin_in_s=4, exclude="n4") == ()
    again = cluster.until(
        lambda: client.job(job), lambda j: j.restarts == 1 and "RUNNING" in j.flags, 60, "the job"
    )
    assert again.exc_nodes == "n4"
    assert client.requeue(job, begin_in_s=600, exclude="") == ()
    waiting = cluster.wait(job, "PENDING")
    assert waiting.exc_nodes == ""
    client.start_now(job)
    # In the second of the requeue slurmd would refuse the launch, and the job would be FAILED.
    assert "RUNNING" in cluster.wait(job, ("RUNNING", "FAILED", "COMPLETED")).flags
    assert refusal(client.start_now, job).kind == "refused"


def test_requeue_tells_what_was_refused_afterwards(cluster: Cluster, client: Client) -> None:
    job = started(cluster)
    refused = client.requeue(job, begin_in_s=4, exclude="n77")
    assert len(refused) == 1
    assert "Invalid node name" in refused[0]
    assert client.job(job).restarts == 1


def test_a_cancelled_job_stays_cancelled(cluster: Cluster, client: Client) -> None:
    job = started(cluster)
    cluster.root("scancel", job)
    assert refusal(client.requeue, job, begin_in_s=4).kind == "refused"
    ended = cluster.wait(job, "CANCELLED")
    assert ended.restarts == 0
    assert refusal(client.requeue, job, begin_in_s=4).kind == "refused"
    assert client.job(job).flags == {"CANCELLED"}


def test_requeue_refusals(cluster: Cluster, client: Client) -> None:
    job = started(cluster, "--no-requeue")
    error = refusal(client.requeue, job, begin_in_s=4)
    assert (error.kind, "sbatch --requeue" in error.hint) == ("refused", True)
    for call in (client.no_requeue, client.allow_requeue, client.release, client.start_now):
        assert refusal(call, "999999999").kind == "unknown"
    assert refusal(client.requeue, "999999999", begin_in_s=4).kind == "unknown"


def test_whether_a_job_may_be_requeued(cluster: Cluster, client: Client) -> None:
    job = started(cluster, "--comment=kept", "--time=7", "--nice=3")
    before = unchanging(cluster, job)
    client.no_requeue(job)
    assert not client.job(job).requeue
    assert refusal(client.requeue, job, begin_in_s=4).kind == "refused"
    client.allow_requeue(job)
    assert client.job(job).requeue
    assert unchanging(cluster, job) == before


def unchanging(cluster: Cluster, job: str) -> list[str]:
    """What scontrol prints of a job, without what time alone changes."""
    words = cluster.root("scontrol", "show", "job", job).split()
    return [word for word in words if not word.startswith(("RunTime=", "LastSchedEval=", "Reason="))]


def test_the_requeue_outlives_the_job_it_ends(cluster: Cluster, client: Client, backend: str) -> None:
    """From inside the job: SIGTERM reaches all its processes, and all three orders still arrive."""
    program = (
        "import os, sys\nsys.path.insert(0, sys.argv[1])\n"
        "from hpkit.config import SlurmConfig\nfrom hpkit.slurm import connect\nfrom hpkit.slurm.names import own_job\n"
        "client = connect(SlurmConfig(bin=sys.argv[2], backend=sys.argv[3]), trusted_only=False)\n"
        "print(client.requeue(own_job(os.environ), begin_in_s=600, exclude='n4'))\n"
    )
    path = f"{cluster.folder}/home/requeue.py"
    Path(path).write_text(program)
    words = f"{cluster.folder}/lib {cluster.state.slurm_bin} {backend}"
    script = (
        '#!/bin/sh\nif [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then\n'
        f"  {cluster.state.python} -I {path} {words}\nfi\nexec sleep 600\n"
    )
    job = cluster.submit(script, *QUIET)
    waiting = cluster.until(
        lambda: client.job(job),
        lambda j: (j.restarts, j.exc_nodes, j.flags) == (1, "n4", {"PENDING"}),
        60,
        "the requeued job",
    )
    assert waiting.eligible_at is not None
    assert 400 < waiting.eligible_at - time.time() < 700


def test_release(cluster: Cluster, client: Client) -> None:
    job = cluster.submit(SLEEP, *QUIET, "--hold")
    assert client.job(job).reason == "JobHeldUser"
    assert client.job(job).priority == 0
    client.release(job)
    cluster.wait(job, "RUNNING")


# the rest


def test_settings(client: Client) -> None:
    found = client.config()
    assert found["ClusterName"] == "sandbox"
    assert found["SLURM_VERSION"].startswith("2")
    assert client.abilities().release == found["SLURM_VERSION"]


def test_host_lists(client: Client) -> None:
    assert client.hostnames("n[9-11],x") == ("n9", "n10", "n11", "x")
    assert refusal(client.hostnames, "n[3-1]").kind == "refused"


def test_a_controller_that_does_not_answer(frozen: Cluster, backend: str) -> None:
    impatient = of(frozen, backend, timeout_s=1.0)
    calls = (
        lambda: impatient.nodes(),
        lambda: impatient.job("1"),
        lambda: impatient.jobs_on("n1"),
        lambda: impatient.drain("n1", "hpkit: test: x"),
        lambda: impatient.requeue("1_1", begin_in_s=4),
    )
    for call in calls:
        begun = time.monotonic()
        assert refusal(call).kind == "timeout"
        assert time.monotonic() - begun < 30  # its own deadline, not Slurm's patience


def test_no_controller_at_all(cluster: Cluster, backend: str) -> None:
    impatient = of(cluster, backend, timeout_s=2.0)
    cluster.stop("slurmctld")
    try:
        assert refusal(impatient.nodes).kind in ("timeout", "unreachable")
        assert refusal(impatient.undrain, "n1").kind in ("timeout", "unreachable")
    finally:
        cluster.start("slurmctld")
    cluster.until(lambda: answers(cluster), bool, 30, "the controller")
    assert len(impatient.nodes()) == 4


def test_the_fake_does_as_the_real_one(cluster: Cluster, client: Client) -> None:
    """The stand-in of the unit tests: the same sequence of writes leaves the same flags and reasons."""
    fake = FakeSlurm([idle("n2", partitions=("train",))])

    def told(slurm: Client) -> list[object]:
        found: list[object] = []
        for write in (
            lambda: slurm.drain("n2", "hpkit: a.b: one"),
            lambda: slurm.drain("n2", "hpkit: a.b: two"),
            lambda: slurm.undrain("n2"),
            lambda: slurm.undrain("n2"),
            lambda: slurm.drain("n2", ""),
            lambda: slurm.drain("n9", "hpkit: a.b: x"),
        ):
            try:
                write()
                found.append("done")
            except SlurmError as error:
                found.append(error.kind)
            node = slurm.node("n2")
            # On a node in service a reason is a note; some releases leave it there until the next job.
            reason = node.reason if node.flags & {"DRAIN", "DOWN"} else ""
            found.append((sorted(node.flags - {"NOT_RESPONDING"}), reason))
        return found

    assert told(fake) == told(client)


# both alike


@pytest.fixture
def alike(cluster: Cluster) -> Callable[[Callable[[Client], object]], None]:
    """Asserts that both backends tell the same; a change between the two questions is looked at again."""
    clients = [of(cluster, name) for name in BACKENDS]

    def told(client: Client, look: Callable[[Client], object]) -> object:
        try:
            return look(client)
        except SlurmError as error:
            return error.kind

    def compare(look: Callable[[Client], object]) -> None:
        for _ in range(5):
            one, other = (told(client, look) for client in clients)
            if one == other:
                return
        assert one == other

    return compare


def by_name(jobs: tuple[Job, ...]) -> dict[str, Job]:
    return {job.id: job for job in jobs}


def test_both_tell_the_same_of_jobs(
    cluster: Cluster, alike: Callable[[Callable[[Client], object]], None]
) -> None:
    """From its submission to long after its end, of every kind of job."""
    begun = [
        cluster.submit(SLEEP, *QUIET, "--nodelist=n2", "--exclude=n3,n4", "--gres=gpu:2"),
        cluster.submit(SLEEP, "--output=/dev/null", "--nodes=2-3", "--time=30", "--no-requeue"),
        cluster.submit(SLEEP, *QUIET, "--array=0-3%2", "--job-name=a b"),
        cluster.submit(SLEEP, *QUIET, "--hold"),
        cluster.submit(SLEEP, "--output=/dev/null", "--begin=now+1hour", "--nodes=2-4", "--time=10"),
        cluster.submit(SLEEP, *QUIET, "--dependency=singleton", "--job-name=a b"),
        cluster.submit("#!/bin/sh\nexit 3\n", *QUIET),
        cluster.submit(SLEEP, "--output=/dev/null", "--nodes=4", "--exclusive", "--time=5"),
    ]
    cluster.wait(begun[1], "RUNNING")

    def all_alike() -> None:
        numbers = cluster.root("squeue", "-h", "-t", "all", "-o", "%A").split()
        assert set(begun) <= {*numbers, begun[2]}
        for number in dict.fromkeys([*begun, *numbers]):
            alike(lambda client, job=number: client.job(job))
        for node in cluster.names:
            alike(lambda client, name=node: by_name(client.jobs_on(name)))

    all_alike()
    cluster.client.requeue(begun[0], begin_in_s=600, exclude="n4")
    cluster.root("scancel", begun[1])
    for _ in range(4):
        all_alike()
        time.sleep(0.5)


def test_both_tell_the_same_of_nodes(
    cluster: Cluster, alike: Callable[[Callable[[Client], object]], None]
) -> None:
    """Idle, in part in use, drained, down with a job on it, resumed."""
    started(cluster, "--nodelist=n1", "--gres=gpu:2")
    started(cluster, "--nodelist=n2", "--exclusive")
    for change in (
        ("nodename=n3", "state=drain", "reason=count 7!=8\nsee OPS-1 [eve@x]"),
        ("nodename=n1", "state=down", "reason= lead"),
        ("nodename=n2", "state=fail", "reason=None"),
        ("nodename=n4", "availablefeatures=a,b", "activefeatures=a"),
        ("nodename=n4", "availablefeatures=", "activefeatures=", "comment=Reason=x"),
        ("nodename=n4", "comment="),
        ("nodename=n1", "state=resume"),
        ("nodename=n2", "state=undrain"),
    ):
        cluster.root("scontrol", "update", *change)
        for _ in range(3):
            alike(lambda client: client.nodes())
        alike(lambda client: client.node("n1"))
        alike(lambda client: client.nodes(["n4", "n2"]))


def test_pyslurm_itself_serves(cluster: Cluster) -> None:
    """With no command that works, but for what is left to the commands."""
    client = of(cluster, "pyslurm")
    assert isinstance(client, Pyslurm)
    job = started(cluster, "--nodelist=n2")
    held = cluster.submit(SLEEP, *QUIET, "--hold")
    client._found = {"scontrol": "/bin/false", "squeue": "/bin/false"}
    assert (len(client.nodes()), client.node("n2").name, client.job(job).nodes) == (4, "n2", "n2")
    assert [each.id for each in client.jobs_on("n2")] == [job]
    client.drain("n1", "hpkit: test: x")
    assert client.node("n1").reason == "hpkit: test: x"
    client.undrain("n1")
    client.no_requeue(job)
    client.allow_requeue(job)
    client.release(held)
    cluster.wait(held, "RUNNING")
    for call in (client.config, lambda: client.requeue(job, begin_in_s=4), lambda: client.job(f"{job}_1")):
        assert refusal(call).kind == "refused"
    assert client.given_up == ""
