"""A package in pyslurm's place, with the attributes of 25.11 and any misbehaviour that is asked for.

What it must do at which call stands in the JSON file that SLURM_CONF names: {"CALL": "hang" | "wait" | "segv" | "exit" |
"say" | "other" | "home" | "error: text" | "fail: text"}. CALL is "import", "Nodes.load", "Job.load", "Jobs.load",
"Config.load", "Node.modify", "Job.modify" or "Job.release". "attributes" overrides attributes of nodes and jobs; reading
one whose value is {"raise": text} fails. Every accepted write goes as a line to a file beside that one, `.wrote`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

NODE: dict[str, Any] = {
    "name": "t1", "state": "IDLE", "reason": None, "reason_user": None, "reason_time": None, "hostname": "ip-10-1-0-1",
    "address": "10.1.0.1", "partitions": ["train", "all"], "configured_gres": {"gpu:h100": 8}, "boot_time": 1777863721,
    "active_features": ["h100"], "total_cpus": 224, "real_memory": 2048000, "allocated_cpus": 0, "allocated_tres": {},
}  # fmt: skip
JOB: dict[str, Any] = {
    "id": 41, "user_id": 2001, "state": "RUNNING", "state_reason": "None", "partition": "train",
    "allocated_nodes": "t[1-2]", "required_nodes": None, "excluded_nodes": "t[7-8]", "batch_host": "t1", "num_nodes": 2,
    "max_nodes": None, "is_requeueable": True, "is_batch_job": True, "requeue_count": 3, "priority": 4294901700,
    "array_id": None, "array_task_id": None, "array_tasks_waiting": None, "array_tasks_parallel": None,
    "submit_time": 1777968000, "eligible_time": 1777968001, "start_time": 1777968060, "end_time": 1809504060, "time_limit": None, "constraints": [],
}  # fmt: skip

SOURCE = """
import json, os, signal, sys, time

with open(os.environ["SLURM_CONF"]) as file:
    ORDERS = json.load(file)
GIVEN = ORDERS.get("attributes", {})
__version__ = "25.11.2"


class RPCError(Exception):
    def __init__(self, errno=-1, msg=None):
        self.errno = errno
        super().__init__(msg)


def does(call):
    order = ORDERS.get(call, "")
    if order == "hang":
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(600)
    if order == "wait":
        print("error: cannot stat file /x: No such file, retrying in 1sec", file=sys.stderr, flush=True)
        time.sleep(600)
    if order == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if order == "exit":
        print("fatal: Could not establish a configuration source", file=sys.stderr, flush=True)
        os._exit(1)
    if order == "say":
        os.write(1, b"libslurm speaks on stdout\\n")
    if order == "home" and not os.path.exists(os.environ["SLURM_CONF"] + ".home"):
        open(os.environ["SLURM_CONF"] + ".home", "w").close()
        os._exit(0)
    if order == "other":
        os.write(3, b'{"id": 0, "ok": []}\\n')
        time.sleep(600)
    if order.startswith("error: "):
        raise RPCError(1800, order[7:])
    if order.startswith("fail: "):
        raise OverflowError(order[6:])


def wrote(*words):
    with open(os.environ["SLURM_CONF"] + ".wrote", "a") as file:
        print(json.dumps(words), file=file)


class Thing:
    ROWS = ()

    def __init__(self, row):
        self.row = row

    def value(self, name):
        found = self.row[name]
        if isinstance(found, dict) and "raise" in found:
            raise ValueError(found["raise"])
        return found


def shown(cls, names):
    for name in names:
        setattr(cls, name, property(lambda self, name=name: self.value(name)))
    return cls


class Node(Thing):
    def __init__(self, name=None, **changes):
        self.row, self.changes = {"name": name}, changes

    @staticmethod
    def of(row):
        node = Node()
        node.row = row
        return node

    def modify(self, changes):
        does("Node.modify")
        wrote("node", self.row["name"], changes.changes)


class Nodes(dict):
    @staticmethod
    def load():
        does("Nodes.load")
        return Nodes((row["name"], Node.of(row)) for row in rows("nodes"))


class JobSubmitDescription:
    def __init__(self, **changes):
        self.changes = changes


class Job(Thing):
    def __init__(self, number, row=None):
        self.number, self.row = number, row

    @staticmethod
    def load(number):
        does("Job.load")
        for row in rows("jobs"):
            if number in (row["id"], row["array_id"]):
                return Job(number, row)
        raise RPCError(2017, "Invalid job id specified")

    def modify(self, changes):
        does("Job.modify")
        wrote("job", self.number, changes.changes)

    def release(self):
        does("Job.release")
        wrote("release", self.number)


class Jobs(dict):
    @staticmethod
    def load():
        does("Jobs.load")
        return Jobs((row["id"], Job(row["id"], row)) for row in rows("jobs"))


class hostlist:
    def create(self, text):
        self.names = text.split(",") if "[" not in text else [text]

    def uniq(self):
        self.names = sorted(set(self.names))

    def ranged_string(self):
        return ",".join(self.names)


class slurmctld:
    class Config:
        @staticmethod
        def load():
            does("Config.load")
            found = slurmctld.Config()
            found.slurmctld_parameters = ORDERS.get("parameters", {})
            found.slurmctld_boot_time = ORDERS.get("boot_time", 1777967000)
            found.version = ORDERS.get("version", "25.05.3")
            return found


class utils:
    class helpers:
        @staticmethod
        def nodelist_from_range_str(text):
            return {"t[1-2]": ["t1", "t2"]}.get(text, text.split(","))


def rows(kind):
    plain = DEFAULTS[kind]
    return [{**plain, **row} for row in GIVEN.get(kind, [{}])]


DEFAULTS = {"nodes": NODE, "jobs": JOB}
shown(Node, [n for n in NODE if n not in ORDERS.get("lacks", [])])
shown(Job, [n for n in JOB if n not in ORDERS.get("lacks", [])])
does("import")
"""


def plant(folder: Path, version: str = "25.11.2", info: str = "") -> Path:
    """Put the package and its metadata into a folder; the folder."""
    package = folder / "pyslurm"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(f"NODE, JOB = {NODE!r}, {JOB!r}\n{SOURCE}")
    (folder / (info or f"pyslurm-{version}.dist-info")).mkdir()
    return folder


class Orders:
    """The file that steers the package."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set()

    def set(self, **orders: Any) -> None:
        """What the package does from the next start of a worker on; `Node_load="hang"` is the call Node.load."""
        named = {re.sub("_(?=load|modify|release)", ".", key): order for key, order in orders.items()}
        self.path.write_text(json.dumps(named))

    @property
    def wrote(self) -> list[Any]:
        """The writes that were accepted."""
        path = Path(f"{self.path}.wrote")
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
