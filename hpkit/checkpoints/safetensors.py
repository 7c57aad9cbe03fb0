"""safetensors: one file, or a folder with at least one such file (torch files beside it are examined too).

There is no end marker. Proof: the header's own length and the tensors' last byte give the file's exact size; an index
or `-of-` names tell which files belong together.
"""

from __future__ import annotations

from hpkit.checkpoints import names, tensors
from hpkit.checkpoints.model import Proof
from hpkit.checkpoints.tree import Place

NAME = "safetensors"
MARKED = False


def recognise(place: Place) -> bool:
    """A *.safetensors file that is no piece of a larger set, or a folder that has one, or an index of them."""
    if not place.folder:
        return place.name.endswith(tensors.SAFETENSORS) and not names.piece(place.name)
    return any(name.endswith((*tensors.SAFETENSORS, ".safetensors.index.json")) for name in place.entries)


def prove(place: Place) -> Proof:
    """Whole by structure, nothing promised missing."""
    return tensors.prove_folder(place) if place.folder else Proof(True, size=tensors.whole(place))
