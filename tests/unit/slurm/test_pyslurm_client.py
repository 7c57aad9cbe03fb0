"""The backend over pyslurm: what it asks its worker, what it leaves to the commands, and a worker that fails.

The worker is the real one, over a package in pyslurm's place; the commands are small programs in Slurm's place.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpkit import proc
from hpkit.config import SlurmConfig
from hpkit.errors import SlurmError
from hpkit.slurm import pyslurm_client
from hpkit.slurm.pyslurm_client import Pyslurm
from tests.support import slurm_texts as texts
from tests.support.fake_pyslurm import Orders, plant
from tests.support.slurm_tools import Tools, kind


@pytest.fixture
def orders(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Orders]:
    monkeypatch.setattr(pyslurm_client, "SECOND_S", 0.0)
    monkeypatch.setattr(pyslurm_client, "workers", {})
    plant(tmp_path / "packages")
    tools.say("scontrol", texts.node("t1", gres="by:commands:1"))
    yield Orders(tmp_path / "orders")
    forget()


def forget() -> None:
    """As if no client had asked anything yet."""
    for worker in pyslurm_client.workers.values():
        worker.end()
    pyslurm_client.workers.clear()


def client(tools: Tools, timeout_s: float = 30.0) -> Pyslurm:
    folder = str(tools.folder)
    config = SlurmConfig(conf=f"{folder}/orders", bin=folder, timeout_s=timeout_s)
    return Pyslurm(config, trusted_only=False, folder=f"{folder}/packages")


def pid_of(it: Pyslurm) -> int:
    return it._worker.talk.pid if it._worker.talk else 0


def gone(pid: int) -> bool:
    """Whether a process ends soon; one that we started is reaped by then."""
    for _ in range(1000):
        if (found := proc.stamp(pid)) is None or not proc.alive(found):
            return True
        signal.sigtimedwait((), 0.01)
    return False


def test_reads_come_from_one_worker(tools: Tools, orders: Orders) -> None:
    orders.set(attributes={"nodes": [{"name": "t1"}, {"name": "t2"}]})
    it = client(tools)
    assert it.node("t1").gres == "gpu:h100:8"
    pid = pid_of(it)
    assert [n.name for n in it.nodes()] == ["t1", "t2"]
    assert [n.name for n in it.nodes(["t2", "t1", "t2"])] == ["t2", "t1"]
    assert it.nodes([]) == ()
    assert (it.job("41").restarts, [j.id for j in it.jobs_on("t2")]) == (3, ["41"])
    assert it.jobs_on("t1")[0].nodes == "t[1-2]"
    assert (pid_of(it), it.given_up, tools.calls) == (pid, "", [])


def test_jobs_that_have_ended_or_lie_elsewhere_are_not_on_a_node(tools: Tools, orders: Orders) -> None:
    rows = [
        {"id": 1, "state": "COMPLETING"},
        {"id": 2, "state": "COMPLETED"},
        {"id": 3, "state": "PENDING", "allocated_nodes": None},
        {"id": 4, "allocated_nodes": "t9"},
        {"id": 5, "array_id": 9, "array_task_id": None},
    ]
    orders.set(attributes={"jobs": rows})
    it = client(tools)
    assert [job.id for job in it.jobs_on("t1")] == ["1", "9_0"]
    expedited_perhaps = {"id": 6, "state": "CANCELLED", "requeue_count": 9}  # which does not matter any more
    orders.set(version="25.11.7", attributes={"jobs": [*rows[1:3], expedited_perhaps]})
    assert client(tools).jobs_on("t1") == ()
    assert tools.calls == []


def test_writes(tools: Tools, orders: Orders) -> None:
    it = client(tools)
    it.drain("t1", "hpkit: gpu.xid: ü")
    it.undrain("t1")
    it.no_requeue("41")
    it.release("41")
    it.start_now("41")
    *others, begin = orders.wrote
    assert others == [
        ["node", "t1", {"state": "DRAIN", "reason": "hpkit: gpu.xid: ü"}],
        ["node", "t1", {"state": "UNDRAIN"}],
        ["job", 41, {"is_requeueable": False}],
        ["release", 41],
    ]
    assert begin[:2] == ["job", 41] and begin[2]["begin_time"] > 1_700_000_000
    assert tools.calls == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Unable to contact slurm controller (connect failure)", "unreachable"),
        ("Access/permission denied", "denied"),
        ("Invalid node name specified", "unknown"),
        ("Requested operation is presently disabled", "refused"),
    ],
)
def test_slurms_errors_have_the_commands_kinds(
    tools: Tools, orders: Orders, text: str, expected: str
) -> None:
    orders.set(Nodes_load=f"error: {text}", Node_modify=f"error: {text}")
    it = client(tools)
    for call in (lambda: it.node("t1"), it.nodes, lambda: it.undrain("t1"), lambda: it.drain("t1", "x")):
        with pytest.raises(SlurmError) as caught:
            call()
        assert (caught.value.kind, caught.value.message) == (expected, text)
    assert (tools.calls, it.given_up, orders.wrote) == ([], "", [])


def test_names_that_slurm_does_not_have(tools: Tools, orders: Orders) -> None:
    it = client(tools)
    assert kind(it.node, "t9") == "unknown"
    assert kind(it.node, "ip-10-1-0-1") == "unknown"  # the controller finds t1 by it
    assert kind(it.nodes, ["t1", "t9"]) == "unknown"
    assert kind(it.jobs_on, "t9") == "unknown"
    orders.set(attributes={"nodes": []})
    assert kind(client(tools).nodes) == "unknown"
    assert tools.calls == []


@pytest.mark.parametrize("name", ["t[1-2]", "t1,t2", "-a", "", "t1\nt2", "t1=x"])
def test_only_a_plain_name_reaches_slurm(tools: Tools, orders: Orders, name: str) -> None:
    it = client(tools)
    for call in (it.node, it.undrain, it.jobs_on):
        assert kind(call, name) == "unknown"
    assert kind(it.drain, name, "x") == "unknown"
    assert kind(it.drain, "t1", "two\nlines") == "refused"
    assert (tools.calls, orders.wrote, pid_of(it)) == ([], [], 0)


def test_a_job_that_pyslurm_does_not_find_is_asked_of_the_commands(tools: Tools, orders: Orders) -> None:
    tools.say("scontrol", texts.job("77"))  # one in a hidden partition
    assert client(tools).job("77").id == "77"
    assert tools.calls == ["scontrol --all show job 77"]


@pytest.mark.parametrize("job_id", ["41_3", "41+1"])
def test_tasks_and_components_are_left_to_the_commands(tools: Tools, orders: Orders, job_id: str) -> None:
    tools.say("scontrol", "", "slurm_load_jobs error: Invalid job id specified", 1)
    it = client(tools)
    assert kind(it.job, job_id) == "unknown"
    for call in (it.no_requeue, it.release, it.start_now):
        assert kind(call, job_id) == "unknown"
    assert len(tools.calls) == 4
    assert orders.wrote == []


def test_a_task_by_number_is_changed_by_its_name(tools: Tools, orders: Orders) -> None:
    orders.set(attributes={"jobs": [{"array_id": 40, "array_task_id": 3}]})
    tools.say("scontrol")
    client(tools).no_requeue("41")
    assert tools.calls == ["scontrol update jobid=40_3 requeue=0"]


@pytest.mark.parametrize(
    ("given", "served"),
    [
        ({}, True),
        ({"parameters": {"Enable_Expedited_Requeue": True, "x": 1}}, False),
        ({"boot_time": 1777968000}, False),  # submitted to an earlier controller, which may have had it
        ({"attributes": {"jobs": [{"requeue_count": 1}]}}, False),  # a requeue changes the time of submission
        ({"boot_time": 1777968000, "version": "25.05.3"}, True),  # which knows none
    ],
)
def test_a_job_that_may_have_expedited_requeue_is_left_to_the_commands(
    tools: Tools, orders: Orders, given: dict[str, Any], served: bool
) -> None:
    orders.set(**{"version": "25.11.7", "attributes": {"jobs": [{"requeue_count": 0}]}, **given})
    tools.say("scontrol", texts.job("41", flags="\n   ExpeditedRequeue=Yes"))
    tools.say("squeue", "41|N/A|41|2001|RUNNING|train|t[1-2]|t1|2\n")
    it = client(tools)
    assert it.job("41").expedited is not served
    assert [job.expedited for job in it.jobs_on("t1")] == [not served]
    assert (not tools.calls, it.given_up) == (served, "")


def test_the_rest_is_left_to_the_commands(tools: Tools, orders: Orders) -> None:
    tools.say("scontrol", "t1\nt2\n")
    assert client(tools).hostnames("t[1-2]") == ("t1", "t2")
    tools.orders({})
    assert client(tools).requeue("41", begin_in_s=4) == ()
    assert tools.fed[0] == "requeue incomplete 41"


def test_a_node_that_pyslurm_cannot_read_comes_from_the_commands(tools: Tools, orders: Orders) -> None:
    odd = {"name": "t1", "configured_gres": {"raise": "invalid literal for int(): '4G'"}}
    orders.set(attributes={"nodes": [odd, {"name": "t2"}]})
    found = client(tools).nodes()
    assert [(n.name, n.gres) for n in found] == [("t1", "by:commands:1"), ("t2", "gpu:h100:8")]
    assert tools.calls == ["scontrol --all show node t1"]


def test_a_job_that_pyslurm_cannot_read_comes_from_the_commands(tools: Tools, orders: Orders) -> None:
    orders.set(attributes={"jobs": [{"partition": {"raise": "invalid byte"}}]})
    tools.say("scontrol", texts.job("41"))
    tools.say("squeue", "41|N/A|41|2001|RUNNING|train|t[1-2]|t1|2\n")
    it = client(tools)
    assert (it.job("41").id, it.jobs_on("t1")[0].id) == ("41", "41")


def test_what_pyslurm_stumbles_over_is_done_by_the_commands(tools: Tools, orders: Orders) -> None:
    orders.set(
        Nodes_load="fail: too large", Node_modify="fail: x", Job_modify="fail: x", Job_release="fail: x"
    )
    it = client(tools)
    assert it.node("t1").gres == "by:commands:1"
    it.drain("t1", "x")
    it.undrain("t1")
    it.no_requeue("41")
    it.start_now("41")
    it.release("41")
    assert tools.calls[1:] == [
        "scontrol update nodename=t1 state=drain reason=x",
        "scontrol update nodename=t1 state=undrain",
        "scontrol update jobid=41 requeue=0",
        "scontrol update jobid=41 starttime=now",
        "scontrol release 41",
    ]
    assert it.given_up == ""


def test_a_worker_that_cannot_start_is_given_up_and_the_commands_do_all(tools: Tools, orders: Orders) -> None:
    orders.set(**{"import": "exit"})
    it = client(tools)
    assert it.node("t1").gres == "by:commands:1"
    assert it.given_up == "its process ended with 1: fatal: Could not establish a configuration source"
    it.drain("t1", "x")
    assert tools.calls == ["scontrol --all show node t1", "scontrol update nodename=t1 state=drain reason=x"]


def test_no_python_at_all(tools: Tools, orders: Orders) -> None:
    it = client(tools)
    it._argv = ("/no/such/python", *it._argv[1:])
    assert it.node("t1").gres == "by:commands:1"
    assert "No such file" in it.given_up


def test_another_interface_than_ours_is_given_up(tools: Tools, orders: Orders) -> None:
    orders.set(lacks=["configured_gres", "requeue_count"])
    it = client(tools)
    assert it.node("t1").gres == "by:commands:1"
    assert it.given_up.endswith("pyslurm 25.11.2 has no Node.configured_gres, Job.requeue_count")


def test_a_crash_is_an_error_once_and_then_the_commands_serve(tools: Tools, orders: Orders) -> None:
    orders.set(Node_modify="segv")
    it = client(tools)
    assert it.node("t1").gres == "gpu:h100:8"
    with pytest.raises(SlurmError) as caught:
        it.drain("t1", "x")
    told = (caught.value.kind, caught.value.message)
    assert told == ("unreachable", "pyslurm: its process ended with -11")
    assert (tools.calls, orders.wrote) == ([], [])
    assert it.node("t1").gres == "by:commands:1"


def test_a_hang_is_a_timeout_and_a_new_worker_follows(tools: Tools, orders: Orders) -> None:
    orders.set(Nodes_load="hang", Node_modify="hang")
    it = client(tools, timeout_s=1.0)
    for call in (lambda: it.node("t1"), lambda: it.undrain("t1")):
        with pytest.raises(SlurmError) as caught:
            call()
        assert (caught.value.kind, pid_of(it)) == ("timeout", 0)
    assert caught.value.hint.startswith("it may have been done")
    orders.set()
    it._timeout_s = 30.0
    assert it.node("t1").gres == "gpu:h100:8"
    assert (tools.calls, it.given_up) == ([], "")


def test_a_worker_that_does_not_come_up_in_time_is_given_up(tools: Tools, orders: Orders) -> None:
    orders.set(**{"import": "hang"})
    it = client(tools, timeout_s=1.0)
    assert kind(it.node, "t1") == "timeout"
    orders.set()
    assert it.node("t1").gres == "by:commands:1"
    assert it.given_up == "its process gave no answer (timeout)"


def test_a_slurm_conf_that_is_not_there_is_named_so(tools: Tools, orders: Orders) -> None:
    orders.set(**{"import": "wait"})
    assert kind(client(tools, timeout_s=1.0).node, "t1") == "missing"


def test_what_the_library_prints_is_no_answer(tools: Tools, orders: Orders) -> None:
    orders.set(Nodes_load="say")
    assert client(tools).node("t1").gres == "gpu:h100:8"


def test_an_answer_to_another_question_is_not_taken(tools: Tools, orders: Orders) -> None:
    orders.set(Job_load="other")  # descriptor 3 is where the worker answers
    it = client(tools)
    it.node("t1")
    assert kind(it.job, "41") == "garbled"
    assert it.node("t1").gres == "by:commands:1"


def test_a_worker_that_went_home_or_was_ended_is_replaced(tools: Tools, orders: Orders) -> None:
    it = client(tools)
    it.node("t1")
    first = pid_of(it)
    os.kill(first, signal.SIGTERM)
    assert gone(first)
    assert it.node("t1").gres == "gpu:h100:8"
    assert pid_of(it) not in (0, first)
    assert (tools.calls, it.given_up) == ([], "")


def test_a_worker_that_goes_home_as_it_is_asked_is_replaced(tools: Tools, orders: Orders) -> None:
    orders.set(Nodes_load="home")
    it = client(tools)
    assert it.node("t1").gres == "gpu:h100:8"
    assert (tools.calls, it.given_up) == ([], "")


def test_a_worker_knows_slurm_conf_as_it_is(
    tools: Tools, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = client(tools)
    it.node("t1")
    first = pid_of(it)
    it.node("t1")
    assert pid_of(it) == first
    orders.set(attributes={"nodes": [{"total_cpus": 1}]})  # the file is another slurm.conf
    assert it.node("t1").cpus == 1
    second = pid_of(it)
    monkeypatch.setattr(pyslurm_client, "AGE_S", 0.0)
    it.node("t1")
    assert len({first, second, pid_of(it)}) == 3
    assert gone(first) and gone(second)
    orders.path.unlink()
    assert it.node("t1").gres == "by:commands:1"


def test_after_an_unreachable_controller_the_worker_starts_anew(tools: Tools, orders: Orders) -> None:
    orders.set(Nodes_load="error: Unable to contact slurm controller (connect failure)")
    it = client(tools)
    assert kind(it.node, "t1") == "unreachable"
    assert (pid_of(it), it.given_up) == (0, "")


def test_the_clients_of_a_process_share_a_worker(tools: Tools, orders: Orders) -> None:
    one, other = client(tools), client(tools, timeout_s=20.0)
    assert one.node("t1") == other.node("t1")
    assert pid_of(one) == pid_of(other) != 0
    elsewhere = Pyslurm(
        SlurmConfig(conf=f"{tools.folder}/../x", bin=str(tools.folder)),
        trusted_only=False,
        folder=f"{tools.folder}/packages",
    )
    assert pid_of(elsewhere) == 0
    orders.set(**{"import": "exit"})
    one, other = client(tools), client(tools)
    assert one.node("t1").gres == "by:commands:1"
    assert other.given_up == one.given_up != ""


def test_the_worker_ends_itself_when_nobody_else_can(tools: Tools, orders: Orders) -> None:
    """Its parent is killed while it sits in the library."""
    orders.set(Nodes_load="hang")
    program = (
        "import os, sys, threading\nsys.path.insert(0, sys.argv[1])\n"
        "from hpkit.config import SlurmConfig\nfrom hpkit.slurm import pyslurm_client\n"
        "pyslurm_client.SPARE_S = -58.0\n"  # of the 60 seconds
        "here = sys.argv[2]\n"
        "it = pyslurm_client.Pyslurm(SlurmConfig(conf=here + '/orders', bin=here, timeout_s=60.0),\n"
        "    trusted_only=False, folder=here + '/packages')\n"
        "def end():\n    print(it._worker.talk.pid, flush=True)\n    os.kill(os.getpid(), 9)\n"
        "threading.Timer(1.0, end).start()\nit.node('t1')\n"
    )
    library = str(Path(proc.__file__).parents[1])
    ran = proc.run([sys.executable, "-I", "-c", program, library, str(tools.folder)], timeout_s=60)
    assert ran.rc == -9, ran.stderr
    assert gone(int(ran.text))


def test_the_worker_gets_slurms_environment_and_no_other(
    tools: Tools, orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_TIME_FORMAT", "spoiled")
    it = client(tools)
    it.node("t1")
    found = Path(f"/proc/{pid_of(it)}/environ").read_bytes().decode().split("\0")
    assert f"SLURM_CONF={tools.folder}/orders" in found
    assert "spoiled" not in "".join(found)
