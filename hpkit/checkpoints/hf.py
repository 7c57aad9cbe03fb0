"""Hugging Face Trainer: folders `checkpoint-N`.

Order of writing: model, optimizer and scheduler, random states of each rank, last `trainer_state.json` (rank 0, not
atomic, and no barrier after it). Proof: trainer_state.json is whole and its global_step is N; every tensor file is
whole; nothing that an index, a `-of-` name or the rank numbers promise is missing; FSDP folders inside are complete DCP
checkpoints. Source: transformers/trainer.py, `_save_checkpoint`.
"""

from __future__ import annotations

import re

from hpkit.checkpoints import dcp, tensors
from hpkit.checkpoints.model import Proof
from hpkit.checkpoints.tree import Place, Unusable

NAME = "hf"
MARKED = True
STATE = "trainer_state.json"
MAX_STATE = 256 << 20
"""Bytes of trainer_state.json that are examined: its log grows by some 150 bytes with each logged step."""
_FOLDER = re.compile(r"^checkpoint-[0-9]+$")
_MODEL = re.compile(
    r"^(?:model|pytorch_model|adapter_model)(?:-[0-9]+-of-[0-9]+)?\.(?:safetensors|bin)(?:\.index\.json)?$"
    r"|^pytorch_model_fsdp|^(?:adapter_)?config\.json$|^training_args\.bin$"
)
_ACCELERATE = re.compile(r"^(?:optimizer\.bin|scheduler\.bin|random_states_[0-9]+\.pkl)$")
_FSDP = re.compile(r"^(?:pytorch_model_fsdp|optimizer)_[0-9]+$")
_NO_MODEL = re.compile(r"^(?:optimizer|scheduler|scaler|training_args|rng_state)")


def recognise(place: Place) -> bool:
    """A folder with trainer_state.json, or one that is named checkpoint-N and holds a model under Trainer's names.

    Accelerate's own `save_state` uses the same folder names; its file names tell it apart.
    """
    if not place.folder:
        return False
    entries = place.entries
    if STATE in entries:
        return True
    if not _FOLDER.match(place.name) or any(_ACCELERATE.match(name) for name in entries):
        return False
    return any(_MODEL.match(name) for name in entries)


def prove(place: Place) -> Proof:
    """Marker first, then every file."""
    tensors.no_temporary(place)
    step = _global_step(place)
    if place.step is not None and step != place.step:
        raise Unusable(f"{STATE} is of step {step}, not of {place.step}")
    tensors.indexed(place)
    tensors.numbered(place)
    members = [name for name in place.files() if name.endswith(tensors.BOTH)]
    folders = list(place.folders())
    if not folders and all(_NO_MODEL.match(name) for name in members):
        raise Unusable("no model in it")
    size = sum(tensors.whole(place, name) for name in members)
    return Proof(True, size=size + sum(_inside(place.inner(name)) for name in folders), step=step)


def _global_step(place: Place) -> int:
    if STATE not in place.entries:
        raise Unusable(f"no {STATE}: the save did not end")
    state = tensors.read_json(place, STATE, MAX_STATE)
    step = state.get("global_step") if isinstance(state, dict) else None
    if type(step) is not int:
        raise Unusable(f"{STATE} has no global_step")
    return step


def _inside(place: Place) -> int:
    """The size of a folder inside: FSDP's are DCP checkpoints; DeepSpeed's and others' tensor files must be whole."""
    if dcp.recognise(place) or _FSDP.match(place.name):
        return dcp.prove(place).size
    members = [name for name in place.files() if name.endswith(tensors.BOTH)]
    tensors.numbered(place)
    return sum(tensors.whole(place, name) for name in members)
