"""gpu.count: PCI bus, NVML and the expectation must agree; the message says which of them is short.

A GPU that PCI has lost, or that NVML no longer reaches, is a failure. NVML that hangs or answers garbage is an error:
it tells nothing about the GPUs. MIG parts are never counted. Without an expectation PCI and NVML are held against each
other. Without NVML's library GPUs on the bus are an error where they are wanted or the NVIDIA driver is loaded, and are
skipped elsewhere: a laptop whose GPU runs on nouveau is not broken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hpkit.checks.gpu_names import listed, none_here
from hpkit.checks.model import Seen
from hpkit.model import Action, Finding, Status, View
from hpkit.past import Past
from hpkit.probes import nvml as nvml_probe
from hpkit.probes import pci as pci_probe
from hpkit.probes import place as place_probe
from hpkit.probes.nvml import Gpu, Nvml
from hpkit.probes.pci import Function, Pci
from hpkit.probes.place import Place
from hpkit.want import Want

NAME = "gpu.count"
RESET_REQUIRED, LOST = 16, 15
"""NVML_ERROR_RESET_REQUIRED and NVML_ERROR_GPU_IS_LOST of nvml.h."""
HINTS = {
    Action.RESET: "drain the node and reset the GPU (nvidia-smi --gpu-reset), or reboot",
    Action.REBOOT: "reboot the node; if the GPU is still missing then, replace it",
    Action.RETEST: "load the NVIDIA driver (modprobe nvidia); see dmesg if it does not load",
    Action.OPERATOR: "compare the configuration ([want] gpus) with the machine",
}
COULD_NOT = "run nvidia-smi by hand; if it hangs too, the node needs a reboot"


class Problem(NamedTuple):
    """One thing that is wrong or could not be told."""

    status: Status
    action: Action
    text: str


class Scene(NamedTuple):
    """What the judge looks at."""

    place: Place
    pci: Pci
    nvml: Nvml
    want: Want

    @property
    def step(self) -> bool:
        """Inside a job step, where device cgroups hide GPUs from NVML."""
        return self.place.view is View.STEP

    @property
    def ours(self) -> tuple[Function, ...]:
        """The functions that the NVIDIA driver holds or ought to; a GPU given to nouveau or vfio-pci is not one."""
        expected = bool(self.want.gpus) or self.nvml.driver_here or self.nvml.state == "ok"
        return tuple(f for f in self.pci.gpus if f.driver == "nvidia" or (not f.driver and expected))


def judge(seen: Seen, want: Want, _past: Past, _options: Any) -> Iterable[Finding]:
    """One finding for the node."""
    scene = Scene(seen(place_probe.probe), seen(pci_probe.probe), seen(nvml_probe.probe), want)
    nothing = none_here(scene.pci, scene.nvml, want)
    problems = () if nothing else (*_on_the_bus(scene), *_in_nvml(scene), *_too_many(scene))
    data = {
        "pci": sum(f.alive for f in scene.pci.gpus),
        "nvml": len(scene.nvml.answering) if scene.nvml.state == "ok" else None,
        "want": want.gpus,
    }
    if nothing:
        yield Finding(NAME, "", Status.SKIP, Action.NONE, nothing, data=data)
    elif problems:
        yield _finding(problems, data)
    else:
        yield _good(scene, data)


def _finding(problems: tuple[Problem, ...], data: dict[str, Any]) -> Finding:
    """All problems in one finding: the worst status, the heaviest cure among the problems of that status."""
    worst, action = _worst(problems)
    texts = [p.text for p in sorted(problems, key=lambda p: p.status.rank)]
    hint = HINTS.get(action, COULD_NOT if worst is Status.ERROR else "")
    return Finding(NAME, "", worst, action, "; ".join(texts), hint, data=data)


def _worst(problems: tuple[Problem, ...]) -> tuple[Status, Action]:
    """The worst status, and the heaviest cure among the problems of that status."""
    worst = min((p.status for p in problems), key=lambda s: s.rank)
    return worst, max((p.action for p in problems if p.status is worst), key=lambda a: a.weight)


def _good(scene: Scene, data: dict[str, Any]) -> Finding:
    shown, want = len(scene.pci.gpus), scene.want
    expected = (
        f"{want.gpus} wanted by {want.gpus_source or 'nobody'}"
        if want.gpus is not None
        else "none are configured"
    )
    if scene.nvml.state == "ok" and not (scene.step and not scene.nvml.answering):
        unsaid = "" if want.gpus is not None else " (no number is configured to hold them against)"
        text = f"{len(scene.nvml.answering)} GPUs in NVML, {shown} on the PCI bus{unsaid}"
        if scene.step:
            text = f"{shown} GPUs on the PCI bus, {len(scene.nvml.answering)} of them in this step"
        return Finding(NAME, "", Status.PASS, Action.NONE, text, data=data)
    if scene.step and shown and want.gpus:
        text = f"{shown} GPUs on the PCI bus, {expected}; this step sees none of them in NVML"
        return Finding(NAME, "", Status.PASS, Action.NONE, text, data=data)
    text = (
        f"{shown} NVIDIA GPUs on the PCI bus are not used: no NVIDIA driver is loaded, and no GPU is wanted"
    )
    if scene.step:
        text = "this step was given no GPU, and NVML shows none"
    return Finding(NAME, "", Status.SKIP, Action.NONE, text, data=data)


def _on_the_bus(scene: Scene) -> Iterable[Problem]:
    """GPUs that are missing on the PCI bus, or that no longer answer there: the same truth in every view."""
    pci, want = scene.pci, scene.want
    if pci.unread:
        if want.gpus and scene.place.sees_all:
            yield Problem(Status.ERROR, Action.NONE, f"the PCI bus cannot be read ({pci.unread})")
        return
    dead = [f.address for f in pci.gpus if not f.alive and (want.gpus or f in scene.ours)]
    alive = sum(f.alive for f in pci.gpus)
    silent = f"{listed(dead)} no longer answers (reads as ff)" if dead else ""
    if want.gpus and alive < want.gpus:
        text = f"PCI shows {alive} of {want.gpus} GPUs" + (f": {silent}" if silent else "")
        yield Problem(Status.FAIL, Action.REBOOT, text)
    elif dead:
        yield Problem(Status.FAIL, Action.REBOOT, f"on the PCI bus {silent}")


def _in_nvml(scene: Scene) -> Iterable[Problem]:
    """What NVML tells, or that it tells nothing."""
    nvml = scene.nvml
    if nvml.state == "ok":
        return _listed_in_step(scene) if scene.step else _listed_on_host(scene)
    if nvml.state == "failed":
        return _silent(scene)
    if scene.step:  # the library or the driver's devices are not in this step's container: that says nothing
        return ()
    if scene.want.gpus and nvml.state == "no driver":
        return (
            Problem(
                Status.FAIL,
                Action.RETEST,
                f"{scene.want.gpus} GPUs wanted, but the NVIDIA driver is not loaded",
            ),
        )
    if scene.want.gpus and nvml.state == "mismatch":
        text = "NVML and the NVIDIA driver are of different releases (upgraded without a reboot)"
        return (Problem(Status.FAIL, Action.REBOOT, text),)
    return _silent(scene)


def _silent(scene: Scene) -> tuple[Problem, ...]:
    """NVML could not be asked: an error where GPUs are wanted or its driver is loaded, nothing on a nouveau laptop."""
    if scene.want.gpus or scene.nvml.driver_here:
        return (Problem(Status.ERROR, Action.NONE, f"NVML: {scene.nvml.why.removeprefix('NVML: ')}"),)
    return ()


def _listed_on_host(scene: Scene) -> Iterable[Problem]:
    """NVML's list on the host, where nothing is hidden from root."""
    nvml, want = scene.nvml, scene.want
    if any(g.code == nvml_probe.NO_PERMISSION for g in nvml.gpus) and not scene.place.sees_all:
        return
    there = len(nvml.answering)
    gone = (*_refused(scene), *_unlisted(scene))
    short = (want.gpus or 0) - there - len(gone)
    if short > 0:
        untold = Problem(Status.FAIL, Action.REBOOT, "")
        gone = (*gone, *(*_lent(scene), *([untold] * short))[:short])
    if gone:
        whose = listed([p.text for p in gone if p.text])
        text = f"NVML shows {there} of {there + len(gone)} GPUs" + (f": {whose}" if whose else "")
        yield Problem(*_worst(gone), text)


def _refused(scene: Scene) -> list[Problem]:
    """The GPUs that NVML counts and gives no handle for, with its reason, and their address where it can be told."""
    refused = [g for g in scene.nvml.gpus if g.error]
    lacking = _lacking(scene, scene.ours)
    pairs = (
        zip(refused, lacking, strict=True) if len(refused) == len(lacking) else ((g, g.pci) for g in refused)
    )
    return [Problem(*_cure(g), f"{at or g.pci or f'index {g.number}'} ({g.error})") for g, at in pairs]


def _cure(gpu: Gpu) -> tuple[Status, Action]:
    if gpu.code == nvml_probe.NO_PERMISSION:
        return Status.ERROR, Action.NONE
    return Status.FAIL, Action.RESET if gpu.code == RESET_REQUIRED else Action.REBOOT


def _unlisted(scene: Scene) -> list[Problem]:
    """The GPUs that PCI shows alive and NVML does not even count.

    Where no GPU is wanted, one that no driver holds is only worth a look: somebody may have taken it away on purpose.
    """
    if len(_lacking(scene, scene.ours)) <= sum(bool(g.error) for g in scene.nvml.gpus):
        return []
    lacking = _lacking(scene, tuple(f for f in scene.ours if f.alive))
    known = {g.pci for g in scene.nvml.gpus if g.error}
    drivers = {f.address: f.driver for f in scene.pci.gpus}
    return [
        Problem(Status.FAIL, Action.REBOOT, at)
        if scene.want.gpus or drivers[at]
        else Problem(Status.WARN, Action.OPERATOR, f"{at} (no driver holds it)")
        for at in lacking
        if at not in known
    ]


def _lacking(scene: Scene, functions: tuple[Function, ...]) -> list[str]:
    """The addresses of those that NVML does not show; nothing when NVML did not tell where its GPUs are."""
    answering = scene.nvml.answering
    if not all(g.pci for g in answering):
        return []
    there = {g.pci for g in answering}
    return [f.address for f in functions if f.address not in there]


def _lent(scene: Scene) -> list[Problem]:
    """GPUs that another driver holds, such as vfio-pci: nothing is broken, but they are not there for jobs."""
    return [
        Problem(Status.FAIL, Action.OPERATOR, f"{f.address} (held by the driver {f.driver})")
        for f in scene.pci.gpus
        if f.alive and f not in scene.ours
    ]


def _listed_in_step(scene: Scene) -> Iterable[Problem]:
    """NVML's list inside a step, against what Slurm says that the step was given; no GPU at all proves nothing."""
    nvml, place = scene.nvml, scene.place
    lost = [g for g in nvml.gpus if g.code in (LOST, RESET_REQUIRED)]
    there = len(nvml.answering)
    if lost:
        action = Action.RESET if all(g.code == RESET_REQUIRED for g in lost) else Action.REBOOT
        yield Problem(Status.FAIL, action, f"NVML in this step: {listed([_told(g) for g in lost])}")
    elif there and place.own_gpus is not None and there < place.own_gpus:
        text = f"NVML shows {there} of the {place.own_gpus} GPUs of this step ({place.own_source})"
        if place.own_source == "SLURM_STEP_GPUS":
            yield Problem(Status.FAIL, Action.REBOOT, text)
        else:  # inherited from the batch script, perhaps: a smaller step is no broken node
            yield Problem(Status.ERROR, Action.NONE, text)


def _told(gpu: Gpu) -> str:
    return f"{gpu.pci or f'index {gpu.number}'}: {gpu.error}"


def _too_many(scene: Scene) -> Iterable[Problem]:
    """More GPUs than the site or the catalogue expects; gres.conf may well offer fewer than there are."""
    want, shown = scene.want, sum(f.alive for f in scene.pci.gpus)
    if (
        want.gpus is not None
        and shown > want.gpus
        and want.gpus_source != "gres.conf"
        and (want.gpus or scene.ours)
    ):
        yield Problem(
            Status.WARN, Action.OPERATOR, f"{shown} GPUs found, but {want.gpus} wanted by {want.gpus_source}"
        )
