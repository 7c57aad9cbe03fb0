"""A small training program: what a real one does to hpkit and to Slurm, without a GPU and without torch.

Run by srun, one process per rank. All ranks go step by step in lockstep, as a collective forces them to, through files
in a shared folder. Every rank saves its shard of a checkpoint in the layout of torch.distributed.checkpoint. The result
is one number that depends on every step and on nothing else, so that a resumed run can be held against an
uninterrupted one. A lost GPU of the (simulated) node ends the process as CUDA would: traceback, exit code 1.

Standard library only; Python 3.10 or newer.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import time
from typing import NamedTuple

import dcp_like

MULTIPLIER, INCREMENT, MODULUS = 6364136223846793005, 1442695040888963407, 1 << 64  # Knuth's MMIX generator
POLL_S = 0.02
PEER_S = 120.0  # a collective waits this long for its peers; NCCL's own default is 600
USER_BUG = 3


class Place(NamedTuple):
    """Who we are in the job step."""

    rank: int
    world: int
    node: str
    launch: str


class GpuError(RuntimeError):
    """What a CUDA call raises."""


def main() -> int:
    """Train, or resume; exit code 0 when the last step is done."""
    options = parse(sys.argv[1:])
    place = where()
    state, step = load(options.resume, place)
    sync = os.path.join(options.dir, f".sync-{place.launch}")
    os.makedirs(sync, exist_ok=True)
    ranks_meet(sync, place, "start", step, options)
    tell(options, place, "start", step, origin=options.resume, nodes=nodes_of(sync, place))
    while step < options.steps:
        step += 1
        time.sleep(options.step_seconds)
        look(options)
        state = advance(state, step)
        if step == options.die_at:
            raise ValueError(f"a bug of the user in step {step}")
        ranks_meet(sync, place, "step", step, options)
        tell(options, place, "step", step)
        if step % options.save_every == 0:
            save(options, place, sync, state, step)
    tell(options, place, "end", step, result=state)
    if place.rank == 0:
        write(os.path.join(options.dir, "result"), f"{state}\n")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description="a small training program")
    parser.add_argument("--dir", required=True, help="shared folder for checkpoints, progress and the result")
    parser.add_argument("--resume", default="", help="checkpoint to go on from")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument(
        "--save-seconds", type=float, default=0.0, help="from the shards to the finished checkpoint"
    )
    parser.add_argument("--die-at", type=int, default=-1, help="a bug of the user: exit 3 in this step")
    parser.add_argument(
        "--die-when", default="", help="die as from a hardware error as soon as this file is there"
    )
    return parser.parse_args(argv)


def where() -> Place:
    """Our rank and launch, from Slurm's environment; alone when there is none."""
    env = os.environ
    launch = "-".join(env.get(f"SLURM_{key}", "0") for key in ("JOB_ID", "RESTART_COUNT", "STEP_ID"))
    return Place(
        int(env.get("SLURM_PROCID", "0")),
        int(env.get("SLURM_NTASKS", "1")),
        env.get("SLURMD_NODENAME", "") or os.uname().nodename,
        launch,
    )


def advance(state: int, step: int) -> int:
    """One step: the new state depends on the old one and on the step's number only."""
    return (state * MULTIPLIER + INCREMENT + step) % MODULUS


def load(checkpoint: str, place: Place) -> tuple[int, int]:
    """State and step of a checkpoint; the beginning when there is none. A run with more ranks reads what is there."""
    if not checkpoint:
        return 1, 0
    shards = len(glob.glob(os.path.join(glob.escape(checkpoint), "*.distcp")))
    found = json.loads(dcp_like.load_shard(checkpoint, place.rank % max(shards, 1)))
    return int(found["state"]), int(found["step"])


def save(options: argparse.Namespace, place: Place, sync: str, state: int, step: int) -> None:
    """Every rank writes its shard; when all have, rank 0 finishes the checkpoint."""
    folder = os.path.join(options.dir, f"step-{step}")
    payload = json.dumps({"rank": place.rank, "state": state, "step": step}).encode()
    dcp_like.save_shard(folder, place.rank, payload)
    tell(options, place, "saving", step)
    until = time.monotonic() + options.save_seconds
    while time.monotonic() < until:
        look(options)
        time.sleep(POLL_S)
    ranks_meet(sync, place, "shard", step, options)
    if place.rank == 0:
        names = [dcp_like.shard_name(rank) for rank in range(place.world)]
        dcp_like.finish(folder, {name: os.path.getsize(os.path.join(folder, name)) for name in names})
        tell(options, place, "saved", step)
    ranks_meet(sync, place, "saved", step, options)


def ranks_meet(sync: str, place: Place, what: str, step: int, options: argparse.Namespace) -> None:
    """Wait until every rank has come this far, as an all-reduce does; a lost GPU is noticed while waiting."""
    write(os.path.join(sync, f"{what}-{step}-{place.rank}"), place.node)
    until = time.monotonic() + PEER_S
    missing = set(range(place.world))
    while True:
        missing = {
            rank for rank in missing if not os.path.exists(os.path.join(sync, f"{what}-{step}-{rank}"))
        }
        if not missing:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"ranks {sorted(missing)} did not come to {what} {step}")
        look(options)
        time.sleep(POLL_S)


def nodes_of(sync: str, place: Place) -> list[str]:
    """The nodes of all ranks, in order, as they told when they started."""
    found: list[str] = []
    for rank in range(place.world):
        for path in glob.glob(os.path.join(glob.escape(sync), f"start-*-{rank}")):
            with open(path, encoding="utf-8") as file:
                found.append(file.read())
    return sorted(set(found))


def look(options: argparse.Namespace) -> None:
    """Raise GpuError when a GPU of ours is gone, or when the test says so."""
    if options.die_when and os.path.exists(options.die_when):
        raise GpuError("CUDA error: unspecified launch failure")
    root = os.environ.get("HPKIT_ROOT", "").replace("%n", os.environ.get("SLURMD_NODENAME", ""))
    ours = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if root and ours:
        found = gpus(root)
        for index in ours.split(","):
            if index.isdigit() and (int(index) >= len(found) or not found[int(index)]):
                raise GpuError(f"CUDA error: GPU {index} is lost")


def gpus(root: str) -> list[bool]:
    """For each NVIDIA 3D controller of the node, in PCI order, whether it answers (all ones is no answer)."""
    found = []
    for folder in sorted(glob.glob(os.path.join(glob.escape(root), "root/sys/bus/pci/devices/*"))):
        if read(folder, "vendor") == "0x10de" and read(folder, "class").startswith("0x0302"):
            found.append(read(folder, "revision") != "0xff")
    return found


def read(folder: str, name: str) -> str:
    """A small file's text, "" when there is none."""
    try:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def tell(options: argparse.Namespace, place: Place, event: str, step: int, **more: object) -> None:
    """Rank 0 prints a line and adds it to progress.jsonl."""
    if place.rank != 0:
        return
    line = {"wall": round(time.time(), 3), "event": event, "step": step, **more}
    with open(os.path.join(options.dir, "progress.jsonl"), "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    details = " ".join(f"{name}={value}" for name, value in more.items() if value)
    print(f"{time.strftime('%H:%M:%S')} {event} step {step} {details}".rstrip(), flush=True)


def write(path: str, text: str) -> None:
    """A small file that is there whole or not at all."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)


if __name__ == "__main__":
    try:
        code = main()
    except ValueError:
        import traceback

        traceback.print_exc()
        code = USER_BUG
    sys.exit(code)
