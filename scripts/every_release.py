"""Runs the tests on a real Slurm (tests/slurm) on every release that scripts/release.sh knows, and prints the counts.

    scripts/every_release.py [--others] [pytest's own arguments]

`--others` leaves out the release that this machine has itself, which `make test` tests, and forgives a root that cannot
be made: a mirror out of reach, or a Debian that has moved on, is no fault of the code. Exits 0 when every release ran
and no test failed, 1 otherwise. Needs root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

TOP = Path(__file__).resolve().parents[1]
RELEASE_SH = str(TOP / "scripts/release.sh")
HEAD = ("RELEASE", "SLURM", "PYTHON", "PASSED", "FAILED", "SKIPPED", "TIME")
VERSIONS = "slurmd -V; python -c 'import platform; print(platform.python_version())'"


class Row(NamedTuple):
    """What came of one release; `passed` is -1 when the tests did not run to their end, `made` whether it has a root.

    `code` is pytest's exit code: one that was interrupted leaves a report in which no test failed.
    """

    release: str
    slurm: str
    python: str
    passed: int
    failed: int
    skipped: int
    seconds: float
    recoveries: tuple[tuple[str, str], ...] = ()
    broken: tuple[str, ...] = ()
    made: bool = True
    code: int = 0

    @property
    def good(self) -> bool:
        """Whether tests ran, all of them, and none failed."""
        return self.passed > 0 and not self.failed and not self.code


def main(args: Sequence[str]) -> int:
    """Run, print, and say whether all is well."""
    words = [word for word in args if word != "--others"]
    others = len(words) != len(args)
    names = releases()
    if others:
        own = own_release()
        names = [name for name in names if name != own]
        print(f"Slurm {own or '(none)'} is this machine's own: make test covers it", flush=True)
    rows = [run(name, words) for name in names]
    for line in table(rows):
        print(line)
    return 0 if rows and all(row.good or (others and not row.made) for row in rows) else 1


def releases() -> list[str]:
    """The releases that there are roots for."""
    text = subprocess.run([RELEASE_SH, "list"], check=True, capture_output=True, text=True).stdout
    return [line.split()[0] for line in text.splitlines()]


def own_release() -> str:
    """`22.05` for this machine's own slurmd, "" without one."""
    slurmd = shutil.which("slurmd", path="/usr/sbin:/usr/local/sbin:/opt/slurm/sbin")
    if slurmd is None:
        return ""
    text = subprocess.run([slurmd, "-V"], check=True, capture_output=True, text=True).stdout
    return ".".join(text.split()[-1].split(".")[:2])


def run(release: str, words: Sequence[str]) -> Row:
    """The tests on one release; their own output is shown as it comes."""
    print(f"== Slurm {release}", flush=True)
    if subprocess.run([RELEASE_SH, "make", release]).returncode:
        return Row(release, "-", "-", -1, 0, 0, 0.0, made=False)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        env = {**os.environ, "HPKIT_OUT": out}
        versions = subprocess.run(
            [RELEASE_SH, "run", release, "sh", "-c", VERSIONS], env=env, stdout=subprocess.PIPE, text=True
        ).stdout.split()
        code = subprocess.run(
            [RELEASE_SH, "run", release, "python", "-m", "pytest", "tests/slurm"]
            + ["-q", "-p", "no:cacheprovider", "--junitxml=/out/junit.xml", *words],
            env=env,
        ).returncode
        seconds = time.monotonic() - began
        slurm, python = (versions[-2], versions[-1]) if len(versions) > 1 else ("-", "-")
        report = Path(out, "junit.xml")
        if not report.is_file():
            return Row(release, slurm, python, -1, 0, 0, seconds, code=code)
        return count(
            Row(release, slurm, python, 0, 0, 0, seconds, code=code), ElementTree.parse(report).getroot()
        )


def count(row: Row, root: ElementTree.Element) -> Row:
    """The counts and recovery times of pytest's report."""
    cases = list(root.iter("testcase"))
    broken = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    return row._replace(
        passed=len(cases) - len(broken) - skipped,
        failed=len(broken),
        skipped=skipped,
        recoveries=tuple(recoveries(cases)),
        broken=tuple(f"{case.get('classname')}::{case.get('name')}" for case in broken),
    )


def recoveries(cases: Sequence[ElementTree.Element]) -> Iterator[tuple[str, str]]:
    """(way, seconds) from the fault to the step that runs again, as tests recorded them: property `recovery_s`."""
    for case in cases:
        for each in case.iter("property"):
            if each.get("name") == "recovery_s":
                yield str(case.get("name")), str(each.get("value"))


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Release by counts, then what failed, then the recovery times."""
    cells = [HEAD]
    for row in rows:
        passed = "-" if row.passed < 0 else str(row.passed)
        took = f"{int(row.seconds) // 60}:{int(row.seconds) % 60:02d}"
        cells.append((row.release, row.slurm, row.python, passed, str(row.failed), str(row.skipped), took))
    widths = [max(len(line[at]) for line in cells) for at in range(len(HEAD))]
    for line in cells:
        yield "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
    for row in rows:
        for name in row.broken:
            yield f"failed on {row.release}: {name}"
        if row.passed < 0:
            yield f"failed on {row.release}: {'the tests did not run' if row.made else 'its root was not made'}"
        elif row.code and not row.broken:
            yield f"failed on {row.release}: pytest ended with code {row.code}"
        for way, seconds in row.recoveries:
            yield f"{row.release}: from the fault to the step running again {seconds} s: {way}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
