"""What the GPU checks share: the name of a GPU, and whether there is anything to look at."""

from __future__ import annotations

from hpkit.probes.nvml import Nvml
from hpkit.probes.pci import Pci
from hpkit.want import Want


class Names:
    """`gpuN` by order on the PCI bus, which is NVML's order too and does not shift when NVML loses one of them."""

    def __init__(self, pci: Pci, nvml: Nvml | None = None) -> None:
        self._names = {g.pci: f"gpu{g.number}" for g in nvml.gpus if g.pci} if nvml else {}
        shifted = nvml is not None and 0 < len(nvml.gpus) < len(pci.gpus)
        self._by_number = "nvml" if shifted else "gpu"
        self._names.update({f.address: f"gpu{n}" for n, f in enumerate(pci.gpus)})

    def __call__(self, address: str, index: int | None = None) -> str:
        """The GPU at a PCI address; the address itself when it is not known.

        Without an address NVML's index stands for it; as `nvmlN` where NVML sees a part of the GPUs and counts its own.
        """
        if not address and index is not None:
            return f"{self._by_number}{index}"
        return self._names.get(address, address)


def none_here(pci: Pci, nvml: Nvml, want: Want) -> str:
    """Why there is nothing to check, "" when there is."""
    if want.gpus or pci.gpus or nvml.gpus or nvml.driver_here:
        return ""
    if want.gpus == 0:
        return "no GPU is wanted here, and none was found"
    return "no NVIDIA GPU found, and none is wanted"


def listed(addresses: list[str], limit: int = 3) -> str:
    """A few names in a row, and how many more there are."""
    more = f" and {len(addresses) - limit} more" if len(addresses) > limit else ""
    return ", ".join(addresses[:limit]) + more
