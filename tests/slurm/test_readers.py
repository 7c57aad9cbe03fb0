"""Both readers of a job on a real controller: where scontrol prints JSON, it says of every job what the text form says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpkit.errors import HpkitError, SlurmError
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm import documents, parse
from hpkit.slurm.client import Job
from hpkit.slurm.commands import Commands
from tests.unit.slurm.test_parse import FORGERIES

SLEEP = "#!/bin/sh\nexec sleep 600\n"
HET = "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nexec sleep 600\n"
QUIET = ("--output=/dev/null", "--nodes=1")
ODD = 'it\'s "x" {1}, NodeList=n9 JobState=FAILED\n   Reason=ok\n\nJobId=7 JobName=y'


@pytest.fixture
def client(cluster: Cluster) -> Commands:
    found = cluster.client
    assert isinstance(found, Commands)
    return found


@pytest.fixture
def featured(cluster: Cluster) -> Iterator[None]:
    cluster.root(
        "scontrol", "update", "nodename=n1,n2", "availablefeatures=h100,efa", "activefeatures=h100,efa"
    )
    yield
    cluster.root("scontrol", "update", "nodename=n1,n2", "availablefeatures=", "activefeatures=")


def by_text(cluster: Cluster, asked: str) -> Job:
    text = cluster.root("scontrol", "--all", "show", "job", asked)
    leader = parse.leader(text, asked)
    return parse.job(cluster.root("scontrol", "--all", "show", "job", leader) if leader else text, asked)


def by_json(cluster: Cluster, asked: str) -> Job:
    return documents.job(cluster.root("scontrol", "--all", "--json", "show", "job", asked), asked)


def same(cluster: Cluster, client: Commands, asked: str, *flags: str) -> Job:
    """What both readers make of a job, when it is in one of these states and did not change while it was read."""

    def look() -> tuple[Job, Job, Job, Job]:
        before = by_text(cluster, asked)
        found = client.job(asked), by_json(cluster, asked) if client.reads_json() else before
        return before, *found, by_text(cluster, asked)

    text, own, json, _ = cluster.until(look, lambda four: four[0] == four[3], 30, f"job {asked}")
    assert text.flags & set(flags), text
    assert own == text
    assert json == text
    return text


def test_who_has_json(cluster: Cluster, client: Commands) -> None:
    assert client.reads_json() == (client.abilities().version >= (23, 2))
    if not client.reads_json():
        with pytest.raises(HpkitError, match="unrecognized option"):
            cluster.root("scontrol", "--json", "show", "job", "1")


def test_jobs_that_wait(cluster: Cluster, client: Commands, featured: None) -> None:
    held = cluster.submit(SLEEP, *QUIET, "--hold", "--time=30", "--constraint=h100&efa")
    later = cluster.submit(
        SLEEP, *QUIET, "--begin=now+600", "--nodelist=n3", "--exclude=n[1-2]", "--no-requeue"
    )
    many = cluster.submit(
        SLEEP, "--output=/dev/null", "--nodes=2-4", "--begin=now+600", "--time=1-0", "--priority=7"
    )
    assert same(cluster, client, held, "PENDING").features == "h100&efa"
    assert not same(cluster, client, later, "PENDING").requeue
    same(cluster, client, many, "PENDING")


def test_jobs_that_run(cluster: Cluster, client: Commands) -> None:
    plain = cluster.submit(SLEEP, *QUIET, "--gres=gpu:2")
    wide = cluster.submit(SLEEP, "--output=/dev/null", "--nodes=3", "--time=45", "--exclude=n4")
    odd = cluster.submit(SLEEP, *QUIET, f"--job-name={ODD}", f"--comment={ODD}")
    suspended = cluster.submit(SLEEP, *QUIET, "--nodelist=n4")
    for job in (plain, wide, odd, suspended):
        cluster.wait(job, "RUNNING")
    cluster.root("scontrol", "suspend", suspended)
    assert same(cluster, client, wide, "RUNNING").end_at is not None
    assert same(cluster, client, plain, "RUNNING").batch
    assert same(cluster, client, odd, "RUNNING").id == odd
    same(cluster, client, suspended, "SUSPENDED")
    cluster.root("scontrol", "requeue", "incomplete", plain)
    cluster.wait(plain, "PENDING")
    assert same(cluster, client, plain, "PENDING").restarts == 1


def test_arrays(cluster: Cluster, client: Commands) -> None:
    array = cluster.submit(SLEEP, *QUIET, "--array=1-6%2")
    for task in (1, 2):
        cluster.wait(f"{array}_{task}", "RUNNING")
        assert same(cluster, client, f"{array}_{task}", "RUNNING").array_task_id == str(task)
    assert same(cluster, client, f"{array}_5", "PENDING").id == f"{array}_5"
    own = parse.number(cluster.root("scontrol", "show", "job", f"{array}_2"))
    assert same(cluster, client, own, "RUNNING").id == f"{array}_2"
    readers = [client.job, lambda asked: by_text(cluster, asked)]
    readers += [lambda asked: by_json(cluster, asked)] if client.reads_json() else []
    for read in readers:
        with pytest.raises(SlurmError) as caught:
            read(array)
        assert (caught.value.kind, caught.value.hint) == ("refused", f"name one task: {array}_N")


def test_heterogeneous_jobs(cluster: Cluster, client: Commands) -> None:
    job = cluster.submit(HET, "--output=/dev/null")
    cluster.wait(job, "RUNNING")
    one = str(int(job) + 1)
    for asked, ident in ((job, job), (f"{job}+0", job), (f"{job}+1", one), (one, one)):
        assert same(cluster, client, asked, "RUNNING").id == ident


def test_jobs_that_are_over(cluster: Cluster, client: Commands) -> None:
    good = cluster.submit("#!/bin/sh\nexit 0\n", *QUIET)
    bad = cluster.submit("#!/bin/sh\nexit 3\n", *QUIET, "--no-requeue")
    gone = cluster.submit(SLEEP, *QUIET)
    cluster.wait(gone, "RUNNING")
    cluster.root("scancel", gone)
    for job, state in ((good, "COMPLETED"), (bad, "FAILED"), (gone, "CANCELLED")):
        cluster.wait(job, state)
        assert same(cluster, client, job, state).end_at is not None


def test_an_expedited_job(cluster: Cluster, client: Commands) -> None:
    if not client.abilities().expedited_requeue:
        pytest.skip("this Slurm has no expedited requeue")
    job = cluster.submit(SLEEP, *QUIET, "--requeue=expedite")
    cluster.wait(job, "RUNNING")
    assert same(cluster, client, job, "RUNNING").expedited
    # A user's own text does not make a job one.
    other = cluster.submit(SLEEP, *QUIET, "--comment=x\n   ExpeditedRequeue=Yes\n   y")
    cluster.wait(other, "RUNNING")
    assert not same(cluster, client, other, "RUNNING").expedited


@pytest.mark.parametrize("forged", FORGERIES[::2], ids=["who", "state", "place", "wants"])
def test_imitated_fields(cluster: Cluster, client: Commands, forged: str) -> None:
    """The text form cannot tell and says so; JSON can, and it changes nothing there."""
    job = cluster.submit(
        SLEEP, *QUIET, f"--comment=x {forged} y", f"--job-name=x\n   {forged}", "--nodelist=n2"
    )
    cluster.until(lambda: client.jobs_on("n2"), bool, 60, "the job")
    with pytest.raises(SlurmError, match="cannot be told apart"):
        by_text(cluster, job)
    if not client.reads_json():
        with pytest.raises(SlurmError, match="cannot be told apart"):
            client.job(job)
        return
    found = client.job(job)
    assert (found.id, found.user_id, found.nodes) == (job, cluster.state.account.uid, "n2")
    assert (found.flags, found.partition, found.features, found.requeue) == ({"RUNNING"}, "train", "", True)


def test_no_answer_is_not_taken_for_no_job(cluster: Cluster, client: Commands) -> None:
    """Where there is JSON, scontrol prints an empty list and ends well when nobody answers."""
    job = cluster.submit(SLEEP, *QUIET)
    cluster.wait(job, "RUNNING")
    json = client.reads_json()
    cluster.stop("slurmctld")
    try:
        with pytest.raises(SlurmError) as caught:
            client.job(job)
        assert caught.value.kind in ("unreachable", "timeout")
        if json:
            with pytest.raises(SlurmError) as caught:
                by_json(cluster, job)
            assert caught.value.kind == "garbled"
    finally:
        cluster.start("slurmctld")
    cluster.until(lambda: answers(client), bool, 60, "the controller")


def answers(client: Commands) -> bool:
    try:
        return bool(client.nodes())
    except SlurmError:
        return False
