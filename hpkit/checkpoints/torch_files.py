"""Files written by torch.save (*.pt, *.pth, *.bin, *.ckpt): one file, or a folder of them, such as one per rank.

There is no end marker. Proof: torch's zip archive is only complete with its directory at the end; the old form has a
length that its pickles tell. A folder must not lack a file that the step before it has.
"""

from __future__ import annotations

from hpkit.checkpoints import names, tensors
from hpkit.checkpoints.model import Proof
from hpkit.checkpoints.tree import Place

NAME = "torch"
MARKED = False


def recognise(place: Place) -> bool:
    """A torch file that is no piece of a larger set, or a folder that has one.

    Data sets end in .bin too, so for those the name of the candidate must say "checkpoint".
    """
    ends = tensors.TORCH if names.telling(place.name) else tuple(e for e in tensors.TORCH if e != ".bin")
    if not place.folder:
        return place.name.endswith(ends) and not names.piece(place.name)
    return any(name.endswith(ends) for name in place.entries)


def prove(place: Place) -> Proof:
    """Whole by structure, nothing promised missing."""
    return tensors.prove_folder(place) if place.folder else Proof(True, size=tensors.whole(place))
