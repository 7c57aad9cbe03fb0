"""The Slurm client against a real controller: what it reads, what its writes do, and how each failure is named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from hpkit import hostlist
from hpkit.errors import SlurmError
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import connect
from hpkit.slurm.client import Client
from hpkit.slurm.names import own_node
from tests.support.fake_slurm import FakeSlurm, idle

SLEEP = "#!/bin/sh\nexec sleep 600\n"
QUIET = ("--output=/dev/null", "--nodes=1")


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return cluster.client


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


def refusal(call: object, *args: object, **more: object) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        call(*args, **more)  # type: ignore[operator]
    return caught.value


def test_reading_nodes(cluster: Cluster, client: Client) -> None:
    names = [node.name for node in client.nodes()]
    assert names == list(cluster.names)
    assert [node.name for node in client.nodes(["n3", "n1"])] == ["n3", "n1"]
    one = client.node("n2")
    assert (one.flags, one.partitions, one.reason, one.reason_at) == ({"IDLE"}, ("train",), "", None)
    assert one.addr == "127.0.0.1"
    assert one.gres.startswith("gpu:8")
    assert one.boot_time is not None


def test_an_unknown_node_is_named_so(client: Client) -> None:
    for call in (client.node, client.jobs_on, client.undrain):
        assert refusal(call, "n77").kind == "unknown"
    assert refusal(client.nodes, ["n1", "n77"]).kind == "unknown"
    assert refusal(client.drain, "n77", "hpkit: test: x").kind == "unknown"


def test_own_name(client: Client) -> None:
    hosts = {node.hostname for node in client.nodes()}
    assert refusal(own_node, client, hosts.pop()).kind == "unknown"  # all four share this host
    assert own_node(client, "x", given="n2") == "n2"


def test_drain_and_undrain(client: Client) -> None:
    reason = 'hpkit: gpu.xid: gpu3: Xid 79 "quoted" a=b Owner=x State=DOWN'
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


def test_reasons_of_several_lines_and_comments(cluster: Cluster, client: Client) -> None:
    reason = "count 7!=8\nsee OPS-1 Key=Val\n[eve@2026-01-01T00:00:00]"
    cluster.root("scontrol", "update", "nodename=n2", "state=drain", f"reason={reason}")
    cluster.root("scontrol", "update", "nodename=n3", "comment=x Reason=hpkit: y [root@2026-01-01T00:00:00]")
    assert client.node("n2").reason == "count 7!=8"
    assert client.node("n3").reason == ""
    cluster.root("scontrol", "update", "nodename=n3", "comment=")


def test_a_user_may_not_drain(cluster: Cluster) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from hpkit.config import SlurmConfig\nfrom hpkit.errors import SlurmError\nfrom hpkit.slurm import connect\n"
        "client = connect(SlurmConfig(), trusted_only=False)\n"
        "for call in (lambda: client.drain('n1', 'hpkit: x: y'), lambda: client.undrain('n1')):\n"
        "    try: call(); print('done')\n"
        "    except SlurmError as error: print(error.kind)\n"
    )
    library = f"{cluster.folder}/lib"
    ran = cluster.run_as_user([cluster.state.python, "-I", "-c", program, library])
    assert ran.text.split() == ["denied", "denied"], ran.stderr
    assert cluster.node("n1").flags == {"IDLE"}


def test_a_job_and_its_node(cluster: Cluster, client: Client) -> None:
    job = started(cluster, "--exclude=n4", "--nodelist=n2", "--gres=gpu:2")
    seen = client.job(job)
    assert (seen.id, seen.user_id, seen.flags) == (job, cluster.state.account.uid, {"RUNNING"})
    assert (seen.nodes, seen.batch_host, seen.num_nodes) == ("n2", "n2", 1)
    assert (seen.req_nodes, seen.exc_nodes, seen.partition) == ("n2", "n4", "train")
    assert (seen.requeue, seen.batch, seen.restarts) == (True, True, 0)
    assert seen.start_at is not None
    assert [j.id for j in client.jobs_on("n2")] == [job]
    assert client.jobs_on("n1") == ()
    assert refusal(client.job, "999999999").kind == "unknown"


def test_forged_job_fields(cluster: Cluster, client: Client) -> None:
    name = "x NodeList=n9 UserId=root(0)\n   JobState=PENDING Reason=ok\nJobId=7 JobName=y"
    job = started(cluster, f"--job-name={name}", "--comment=Requeue=0 NodeList=n9", "--nodelist=n1")
    seen = client.job(job)
    assert (seen.id, seen.nodes, seen.user_id, seen.requeue) == (job, "n1", cluster.state.account.uid, True)
    forged = "x UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=9 Nice=0"
    worse = cluster.submit(SLEEP, *QUIET, f"--job-name={forged}", "--nodelist=n1")
    cluster.until(lambda: client.jobs_on("n1"), lambda jobs: len(jobs) == 2, 60, "both jobs")
    assert {(j.id, j.user_id) for j in client.jobs_on("n1")} == {
        (each, cluster.state.account.uid) for each in (job, worse)
    }  # test_readers.py: read as JSON where there is any, else refused


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
    assert refusal(client.requeue, "999999999", begin_in_s=4).kind == "unknown"


def test_one_array_task_and_no_other(cluster: Cluster, client: Client) -> None:
    array = cluster.submit(SLEEP, *QUIET, "--array=1-3")
    for task in (1, 2, 3):
        cluster.wait(f"{array}_{task}", "RUNNING")
    error = refusal(client.requeue, array, begin_in_s=600)
    assert (error.kind, error.hint) == ("refused", f"name one task: {array}_N")
    client.requeue(f"{array}_2", begin_in_s=600)
    cluster.wait(f"{array}_2", "PENDING")
    states = {task: sorted(client.job(f"{array}_{task}").flags) for task in (1, 2, 3)}
    assert states == {1: ["RUNNING"], 2: ["PENDING"], 3: ["RUNNING"]}
    assert refusal(client.job, array).kind == "refused"


def test_the_requeue_outlives_the_job_it_ends(cluster: Cluster) -> None:
    """From inside the job: SIGTERM reaches all its processes, and all three orders still arrive."""
    program = (
        "import sys\nsys.path.insert(0, sys.argv[1])\n"
        "from hpkit.config import SlurmConfig\nfrom hpkit.slurm import connect\nfrom hpkit.slurm.names import own_job\n"
        "import os\nclient = connect(SlurmConfig(), trusted_only=False)\n"
        "print(client.requeue(own_job(os.environ), begin_in_s=600, exclude='n4'))\n"
    )
    path = f"{cluster.folder}/home/requeue.py"
    with open(path, "w") as file:
        file.write(program)
    script = (
        '#!/bin/sh\nif [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then\n'
        f"  {cluster.state.python} -I {path} {cluster.folder}/lib\nfi\nexec sleep 600\n"
    )
    job = cluster.submit(script, *QUIET)
    waiting = cluster.until(
        lambda: cluster.job(job), lambda j: j.restarts == 1 and "PENDING" in j.flags, 60, "the requeued job"
    )
    assert waiting.exc_nodes == "n4"
    assert waiting.eligible_at is not None
    assert 400 < waiting.eligible_at - time.time() < 700


def test_release(cluster: Cluster, client: Client) -> None:
    job = cluster.submit(SLEEP, *QUIET, "--hold")
    assert client.job(job).reason == "JobHeldUser"
    assert client.job(job).priority == 0
    client.release(job)
    cluster.wait(job, "RUNNING")


@pytest.mark.parametrize(
    "expression",
    ["n[9-11]", "n[09-11]", "rack[0-1]_b[0-1]", "a,b[001,003],c", "login", " n1 , n2 ", "(null)", "c1-s[11,17]", "a[2-4,1]"],
)  # fmt: skip
def test_our_host_lists_are_slurms(client: Client, expression: str) -> None:
    assert hostlist.expand(expression) == client.hostnames(expression)


@pytest.mark.parametrize("expression", ["x[1-2", "x[]", "x[3-1]", "n[1-100000]"])
def test_what_is_no_host_list(client: Client, expression: str) -> None:
    assert refusal(client.hostnames, expression).kind == "refused"
    with pytest.raises(ValueError):
        hostlist.expand(expression)


@pytest.mark.parametrize("expression", ["g[1-3,07]-ib", "b1n1,b2[05]n3"])
def test_what_only_newer_releases_take(client: Client, expression: str) -> None:
    try:
        names = client.hostnames(expression)
    except SlurmError as error:
        assert error.kind == "refused"
    else:
        assert names == hostlist.expand(expression)


def test_settings(client: Client, cluster: Cluster) -> None:
    found = client.config()
    assert found["ClusterName"] == "sandbox"
    assert found["SLURM_VERSION"].startswith("2")


def test_a_controller_that_does_not_answer(frozen: Cluster) -> None:
    impatient = connect(frozen.slurm._replace(timeout_s=1.0), trusted_only=False)
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


def test_no_controller_at_all(cluster: Cluster) -> None:
    cluster.stop("slurmctld")
    try:
        impatient = connect(cluster.slurm._replace(timeout_s=2.0), trusted_only=False)
        assert refusal(impatient.nodes).kind in ("timeout", "unreachable")
        assert refusal(impatient.undrain, "n1").kind in ("timeout", "unreachable")
    finally:
        cluster.start("slurmctld")
    cluster.until(lambda: answers(cluster), bool, 30, "the controller")


def answers(cluster: Cluster) -> bool:
    try:
        return bool(cluster.client.nodes())
    except SlurmError:
        return False


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
