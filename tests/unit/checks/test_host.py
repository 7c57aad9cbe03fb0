"""host.disk, host.mounts, host.memory: sound on laptops, containers and VMs; what is dead, full or turned read-only."""

from __future__ import annotations

import errno

import pytest

from hpkit.checks.host import DiskOptions, MemoryOptions
from hpkit.model import Space, View
from hpkit.past import Past
from hpkit.want import Want
from tests.support.machine import GIB, MEMINFO, ROOT, Machine
from tests.support.rounds import findings, short

FSX = "40 30 0:51 / /fsx rw,noatime shared:9 - lustre 10.0.1.17@tcp:/fsx rw,flock\n"
ROOMY = Space(500 * GIB, 300 * GIB, 1000, 900, False)
WANTED = Want(mounts=("/fsx",))


def room(used: float, total: int = 500, inodes_used: float = 0.0, read_only: bool = False) -> Space:
    """A file system of `total` GiB with these percentages used."""
    free = round((100 - inodes_used) * 100)
    return Space(total * GIB, int(total * GIB * (100 - used) / 100), 10_000, free, read_only)


def disk(root: Space | int, table: str = ROOT, **more: Space | int) -> Machine:
    return Machine(
        {"/proc/self/mountinfo": table}, space={"/": root, **{f"/{k}": v for k, v in more.items()}}
    )


TMP = "31 30 259:2 / /tmp rw - xfs /dev/nvme1n1 rw\n"
DISKS = [
    ("fine", disk(room(60)), "/", "pass", "none"),
    ("nearly full", disk(room(96)), "/", "warn", "operator"),
    ("full", disk(room(99.7)), "/", "fail", "retest"),
    ("full, but much is left", disk(room(99.2, total=100_000)), "/", "warn", "operator"),
    ("no inodes", disk(room(10, inodes_used=99.9)), "/", "fail", "retest"),
    ("few inodes", disk(room(10, inodes_used=96)), "/", "warn", "operator"),
    ("no inode limit", disk(Space(GIB, GIB, 0, 0, False)), "/", "pass", "none"),
    ("no size", disk(Space(0, 0, 0, 0, False)), "/", "skip", "none"),
    ("full /var of its own", disk(ROOMY, ROOT + "31 30 259:2 / /var rw - ext4 /dev/x rw\n", var=room(100)), "/var", "fail", "retest"),
    ("full /tmp of its own", disk(ROOMY, ROOT + TMP, tmp=room(100)), "/tmp", "warn", "operator"),
    ("turned read-only, by its state", disk(ROOMY, ROOT.replace("nvme0n1p1 rw", "nvme0n1p1 ro")), "/", "fail", "operator"),
    ("turned read-only, by statvfs", disk(room(60, read_only=True)), "/", "fail", "operator"),
    ("turned read-only beats full", disk(room(100, read_only=True)), "/", "fail", "operator"),
    ("mounted read-only", disk(room(60, read_only=True), ROOT.replace(" rw", " ro")), "/", "skip", "none"),
    ("overlay of a container", disk(room(60, read_only=True), "1 0 0:5 / / rw - overlay overlay ro,lowerdir=a\n"), "/", "skip", "none"),
    ("squashfs of a live image", disk(room(100, read_only=True), "1 0 7:0 / / rw - squashfs /dev/loop0 ro\n"), "/", "skip", "none"),
    ("does not answer", disk(errno.ETIMEDOUT), "/", "error", "none"),
    ("not in the table", disk(room(60), "31 30 259:2 / /data rw - xfs /dev/nvme1n1 rw\n"), "/", "pass", "none"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("host", "subject", "status", "action"), [d[1:] for d in DISKS], ids=[d[0] for d in DISKS]
)
def test_disk(host: Machine, subject: str, status: str, action: str) -> None:
    assert (subject, status, action) in short(findings(host, "host.disk"))


def test_disk_asks_each_file_system_once() -> None:
    host = disk(ROOMY, ROOT + TMP + FSX, tmp=ROOMY, fsx=room(99.9))
    assert short(findings(host, "host.disk", "host.mounts", want=WANTED)) == [
        ("/", "pass", "none"),
        ("/tmp", "pass", "none"),
        ("/fsx", "warn", "operator"),
        ("/fsx", "pass", "none"),
    ]
    assert [c.split()[1] for c in host.calls if c.startswith("space")] == ["/", "/tmp", "/fsx"]


def test_jobs_fill_disks_so_a_step_only_warns() -> None:
    host = disk(room(100))
    host.view = View.STEP
    assert short(findings(host, "host.disk")) == [("/", "warn", "operator")]


def test_disk_thresholds_are_options() -> None:
    options = DiskOptions(warn_percent=50, fail_percent=60, fail_below_gib=1000)
    assert short(findings(disk(room(55)), "host.disk", host_disk=options)) == [("/", "warn", "operator")]
    assert short(findings(disk(room(65)), "host.disk", host_disk=options)) == [("/", "fail", "retest")]


def test_plain_mount_table_cannot_tell_who_made_it_read_only() -> None:
    host = Machine({"/proc/mounts": "/dev/sda1 / ext4 ro 0 0\n"}, space={"/": room(10, read_only=True)})
    assert short(findings(host, "host.disk")) == [("/", "skip", "none")]


def mounted(answer: Space | int, table: str = ROOT + FSX, view: View = View.NODE, uid: int = 0) -> Machine:
    return Machine({"/proc/self/mountinfo": table}, space={"/fsx": answer}, view=view, uid=uid)


AUTO = "39 30 0:50 / /fsx rw - autofs systemd-1 rw,fd=1\n"
MOUNTS = [
    ("there", mounted(ROOMY), "pass", "none", "lustre is mounted and answers"),
    ("not mounted", mounted(ROOMY, ROOT), "fail", "retest", "/fsx is not mounted"),
    ("not mounted, no folder", mounted(errno.ENOENT, ROOT), "fail", "retest", "/fsx is not mounted"),
    ("not mounted in a step", mounted(ROOMY, ROOT, View.STEP), "skip", "none", "not mounted in this step"),
    ("only the automounter", mounted(ROOMY, ROOT + AUTO), "fail", "retest", "/fsx is not mounted"),
    ("mounted by the automounter", mounted(ROOMY, ROOT + AUTO + FSX), "pass", "none", "lustre"),
    ("dead", mounted(errno.ETIMEDOUT), "fail", "retest", "/fsx (lustre) does not answer"),
    ("dead in a step", mounted(errno.ETIMEDOUT, view=View.STEP), "fail", "retest", "does not answer"),
    ("stale", mounted(errno.ESTALE), "fail", "retest", "Stale file handle"),
    ("disconnected", mounted(errno.ENOTCONN), "fail", "retest", "not connected"),
    ("closed to a user", mounted(errno.EACCES, uid=1000), "skip", "none", "may not be looked at"),
    ("closed to root", mounted(errno.EACCES), "error", "none", "could not be asked"),
    ("strange", mounted(errno.EMFILE), "error", "none", "could not be asked"),
    ("hidden below another mount", mounted(ROOMY, ROOT + FSX + FSX.replace("lustre", "tmpfs")), "pass", "none", "tmpfs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("host", "status", "action", "text"), [m[1:] for m in MOUNTS], ids=[m[0] for m in MOUNTS]
)
def test_mounts(host: Machine, status: str, action: str, text: str) -> None:
    (found,) = findings(host, "host.mounts", want=WANTED)
    assert (found.subject, found.status.value, found.action.value) == ("/fsx", status, action)
    assert text in found.message
    assert bool(found.hint) == (status == "fail")


def test_nothing_wanted_is_skipped() -> None:
    assert short(findings(mounted(ROOMY), "host.mounts")) == [("", "skip", "none")]


def test_wanted_paths_may_be_links_and_end_with_a_slash() -> None:
    host = Machine(
        {"/proc/self/mountinfo": ROOT + FSX}, space={"/fsx": ROOMY}, links={"/data": "fsx", "/home": "/fsx/"}
    )
    want = Want(mounts=("/data", "/home/", "/fsx/"))
    assert short(findings(host, "host.mounts", want=want)) == [(p, "pass", "none") for p in want.mounts]


@pytest.mark.parametrize("letter", ["\r", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_a_users_mount_point_breaks_no_line_of_the_table(letter: str) -> None:
    """FUSE lets users name mount points; the kernel escapes blanks, newlines and backslashes alone."""
    row = f"40 21 0:5 / /home/u/a{letter}b rw - fuse.sshfs u@h{letter}: rw\n"
    assert short(findings(disk(ROOMY, ROOT + row), "host.disk")) == [("/", "pass", "none")]


def test_spaces_in_a_mount_point() -> None:
    table = ROOT + FSX.replace("/fsx rw", "/my\\040fsx rw", 1)
    host = Machine({"/proc/self/mountinfo": table}, space={"/my fsx": ROOMY})
    assert short(findings(host, "host.mounts", want=Want(mounts=("/my fsx",)))) == [
        ("/my fsx", "pass", "none")
    ]


class Slow(Machine):
    """A machine whose dead mounts take all the time that they are given, on a clock of their own."""

    def __init__(self, dead: int, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [f"/m{n}" for n in range(dead)]
        rows = "".join(FSX.replace("/fsx rw", f"{n} rw", 1) for n in [*names, "/alive"])
        spaces: dict[str, Space | int] = {**dict.fromkeys(names, errno.ETIMEDOUT), "/alive": ROOMY}
        super().__init__({"/proc/self/mountinfo": ROOT + rows}, space=spaces)
        self.want = Want(mounts=(*names, "/alive"))
        self.time = 0.0
        monkeypatch.setattr("time.monotonic", lambda: self.time)

    def space(self, path: str, timeout_s: float) -> object:  # type: ignore[override]
        found = super().space(path, timeout_s)
        self.time += 0.0 if isinstance(found, Space) else timeout_s
        return found


def test_many_dead_mounts_stay_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Slow(20, monkeypatch)
    found = {f.subject: f.status.value for f in findings(host, "host.mounts", want=host.want)}
    assert host.time <= 5.0 + 20 * 0.2
    assert [found[f"/m{n}"] for n in range(20)] == ["fail"] * 3 + [
        "error"
    ] * 17  # the others were not asked for long
    assert found["/alive"] == "pass"
    assert min(float(c.split()[-1]) for c in host.calls if c.startswith("space")) >= 0.2


def test_budget_that_ends_meanwhile_accuses_no_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Slow(3, monkeypatch)
    found = findings(host, "host.mounts", want=host.want, budget_s=3.0)
    assert [f.status.value for f in found] == ["fail", "error", "error", "error"]
    assert host.time <= 3.0


@pytest.mark.parametrize("table", ["", "36 35 98:0 / /mnt rw\n", ROOT.rstrip("\n"), ROOT + "cut", "\x00\n"])
def test_mount_table_that_cannot_be_understood(table: str) -> None:
    host = Machine({"/proc/self/mountinfo": table})
    found = findings(host, "host.disk", "host.mounts", want=WANTED)
    assert short(found) == [("", "error", "none")] * 2
    assert "own fault" not in found[0].message


def memory(total_gib: float, available_gib: float | None) -> Machine:
    rows = f"MemTotal: {int(total_gib * (1 << 20))} kB\nMemFree: 5 kB\nBuffers: 6 kB\n"
    if available_gib is not None:
        rows += f"MemAvailable: {int(available_gib * (1 << 20))} kB\n"
    return Machine({"/proc/meminfo": rows})


MEMORY = [
    ("fine", memory(16, 8), Want(), MemoryOptions(), "pass", "none"),
    ("nearly used up", memory(2000, 1.5), Want(), MemoryOptions(), "warn", "operator"),
    ("small, but enough", memory(2, 0.5), Want(), MemoryOptions(), "pass", "none"),
    ("large, 30 GiB left", memory(2000, 30), Want(), MemoryOptions(), "pass", "none"),
    ("old kernel", memory(16, None), Want(), MemoryOptions(), "pass", "none"),
    (
        "catalogue, as it should be",
        memory(2012, 2000),
        Want(memory_gib=2048),
        MemoryOptions(),
        "pass",
        "none",
    ),
    ("catalogue, much less", memory(1790, 1700), Want(memory_gib=2048), MemoryOptions(), "warn", "operator"),
    (
        "site, a module is missing",
        memory(896, 800),
        Want(),
        MemoryOptions(total_gib=1024),
        "fail",
        "operator",
    ),
    (
        "site beats catalogue",
        memory(1024, 800),
        Want(memory_gib=2048),
        MemoryOptions(total_gib=1024),
        "pass",
        "none",
    ),
]


@pytest.mark.parametrize(
    ("host", "want", "options", "status", "action"), [m[1:] for m in MEMORY], ids=[m[0] for m in MEMORY]
)
def test_memory(host: Machine, want: Want, options: MemoryOptions, status: str, action: str) -> None:
    assert short(findings(host, "host.memory", want=want, host_memory=options)) == [("", status, action)]


@pytest.mark.parametrize("text", ["", "MemTotal: 5", "MemTotal: 5 kB\n", MEMINFO[:60], "\x00\xff"])
def test_meminfo_that_cannot_be_understood(text: str) -> None:
    (found,) = findings(Machine({"/proc/meminfo": text}), "host.memory")
    assert (found.status.value, "own fault" in found.message) == ("error", False)


def test_third_round_without_an_answer_is_a_warning_of_its_own() -> None:
    from tests.support.rounds import round_of

    host, past, seen = Machine({"/proc/meminfo": errno.EIO}), Past(), []
    for _ in range(4):
        done = round_of(host, "host.memory", past=past)
        past = done.past
        seen.append(short(done.report.findings))
    error, warning = ("", "error", "none"), ("blind", "warn", "operator")
    assert seen == [[error], [error], [error, warning], [error, warning]]
    assert "4 rounds in a row" in done.report.findings[1].message
    host.files["/proc/meminfo"] = MEMINFO
    assert round_of(host, "host.memory", past=past).past.blind == {}
