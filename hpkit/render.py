"""The only module that prints: a table for people, JSON, a Nagios line; progress while a command works."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from hpkit.errors import ConfigError, HpkitError
from hpkit.model import SCHEMA, Event, Status
from hpkit.result import Result, Running

SCHEMA_ERROR = "hpkit.error/1"
LOG_EVERY_S = 60.0
_RESET = "\x1b[0m"
_PAINT = {
    "fail": "\x1b[1;31m",
    "unhealthy": "\x1b[1;31m",
    "error": "\x1b[35m",
    "unknown": "\x1b[35m",
    "warn": "\x1b[33m",
    "degraded": "\x1b[33m",
    "pass": "\x1b[32m",
    "healthy": "\x1b[32m",
    "skip": "\x1b[2m",
}
_NAGIOS = {"healthy": "OK", "degraded": "WARNING", "unhealthy": "CRITICAL", "unknown": "UNKNOWN"}
_NAGIOS_WIDTH = 80


class Style(NamedTuple):
    """How text is laid out: with colours or not; `width` 0 means that nothing is wrapped or cut."""

    color: bool = False
    width: int = 0

    def paint(self, word: str, text: str = "") -> str:
        """`text` (or the word itself) in the colour of the word, when colours are wanted."""
        shown = text or word
        paint = _PAINT.get(word.strip(), "")
        return f"{paint}{shown}{_RESET}" if self.color and paint else shown


def style(stream: TextIO, color: str, env: Mapping[str, str] = os.environ) -> Style:
    """The style for a stream: `color` always or never wins, then NO_COLOR, TERM=dumb, whether it is a terminal."""
    terminal = stream.isatty() and env.get("TERM") != "dumb"
    wanted = color == "always" or (color == "auto" and terminal and not env.get("NO_COLOR"))
    return Style(wanted, _columns(stream) if stream.isatty() else 0)


def show(value: Result | Running, form: str, color: str) -> int:
    """Run a command's generator to its end, if it is one, print its result, and return the exit code."""
    result = value if isinstance(value, Result) else _drive(value, form)
    for note in result.notes:
        print(plain(note), file=sys.stderr)
    for line in text_of(result, form, style(sys.stdout, color)):
        print(line)
    sys.stdout.flush()
    return result.code


def text_of(result: Result, form: str, look: Style) -> Sequence[str]:
    """The lines of a result in one format."""
    document = result.document
    if form == "json":
        return [json.dumps(document, indent=2)]
    if document.get("schema") != SCHEMA:
        return list(result.lines)
    if form == "nagios":
        return nagios(document)
    return [*table(document, look), *result.lines]


def lines(texts: Sequence[str], stream: TextIO) -> None:
    """Lines as they are."""
    for text in texts:
        print(text, file=stream)


def raw(data: bytes) -> None:
    """Bytes on standard output: a file name need not be text in any encoding."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def error(message: str, hint: str = "") -> None:
    """One line on standard error, and what to do next on a second."""
    print(f"hpkit: {plain(message)}", file=sys.stderr)
    if hint:
        print(f"  {plain(hint)}", file=sys.stderr)


def failure(problem: HpkitError, form: str) -> None:
    """An expected error; with -o json also as a document: a reader of standard output gets one in every case."""
    if isinstance(problem, ConfigError):
        error("the configuration is not usable:")
        for line in problem.problems:
            print(f"  {plain(line)}", file=sys.stderr)
        print(f"  {plain(problem.hint)}", file=sys.stderr)
    else:
        error(problem.message, problem.hint)
    if form == "json":
        told = {"message": problem.message, "hint": problem.hint, "code": problem.code}
        print(json.dumps({"schema": SCHEMA_ERROR, "error": told}, indent=2))


def plain(text: str) -> str:
    """Text that is safe on a terminal: control characters are shown as escapes, line ends as blanks."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def table(document: Mapping[str, Any], look: Style) -> list[str]:
    """A report for people: one head line, then the findings, worst first, with their hints."""
    verdict = document["verdict"]
    head = f"{plain(document['node'])}: {look.paint(verdict)}"
    cure = f", needs: {document['action']}" if document["action"] != "none" else ""
    lines = [f"{head}{cure} (suite {plain(document['suite'])}, {document['seconds']:.1f} s)"]
    findings = _sorted(document["findings"])
    rows = [(f["status"], plain(f["check"]), plain(f["subject"]), plain(f["message"])) for f in findings]
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
    for row, finding in zip(rows, findings, strict=True):
        cells = [
            look.paint(row[0], row[0].ljust(widths[0])),
            row[1].ljust(widths[1]),
            row[2].ljust(widths[2]),
        ]
        indent = sum(widths) + 6
        message = _wrap(row[3], indent, look.width)
        lines.append("  ".join([*cells, message]).rstrip())
        if finding["hint"] and finding["status"] not in ("pass", "skip"):
            lines.append(" " * indent + "-> " + _wrap(plain(finding["hint"]), indent + 3, look.width))
    return lines


def nagios(document: Mapping[str, Any]) -> list[str]:
    """A report as a Nagios plugin prints it: the state and the worst finding, performance data, then the rest."""
    findings = _sorted(document["findings"])
    bad = [f for f in findings if f["status"] in ("fail", "error", "warn")]
    counts = {s.value: sum(f["status"] == s.value for f in findings) for s in Status}
    text = _bare(_sentence(bad[0])) if bad else f"{counts['pass']} pass, {counts['skip']} skipped"
    more = f" (+{len(bad) - 1} more)" if len(bad) > 1 else ""
    first = f"HPKIT {_NAGIOS[document['verdict']]} - {text}"
    room = _NAGIOS_WIDTH - len(more)
    numbers = " ".join(f"{word}={counts[word]}" for word in ("fail", "error", "warn"))
    perf = f"{numbers} time={document['seconds']:.3f}s"
    cut = first if len(first) <= room else first[: room - 3] + "..."
    return [f"{cut}{more} | {perf}", *(f"{f['status']} {_bare(_sentence(f))}" for f in bad)]


def _sorted(findings: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(findings, key=lambda f: Status(f["status"]).rank)


def _sentence(finding: Mapping[str, Any]) -> str:
    subject = f" {finding['subject']}" if finding["subject"] else ""
    return f"{finding['check']}{subject}: {finding['message']}"


def _bare(text: str) -> str:
    """Nagios reads everything after a bar as numbers."""
    return plain(text).replace("|", "/")


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _wrap(text: str, indent: int, width: int) -> str:
    if not width or len(text) + indent <= width or width - indent < 20:
        return text
    return ("\n" + " " * indent).join(textwrap.wrap(text, width - indent))


def _drive(running: Generator[Event | str, None, Result], form: str) -> Result:
    """Run a command to its end, telling what it does; ^C closes it, which ends the programs it started."""
    progress = Progress(sys.stderr)
    try:
        while True:
            told = next(running)
            if isinstance(told, Event):
                progress.tell(told)
            else:
                progress.clear()
                print(plain(told), file=sys.stdout if form == "table" else sys.stderr, flush=True)
    except StopIteration as end:
        result: Result = end.value
        return result
    finally:
        progress.clear()
        running.close()


class Progress:
    """Events as one updating line on a terminal, and as one line a minute anywhere else."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began = self._last = clock()
        self._found: dict[str, int] = {}
        self._shown = False

    def tell(self, event: Event) -> None:
        """Take one event, and show the state of things when it is time to."""
        if event.finding is not None:
            word = event.finding.status.value
            self._found[word] = self._found.get(word, 0) + 1
        now = self._clock()
        line = self._line(event, now)
        if self._live:
            width = _columns(self._stream) - 1
            self._stream.write(f"\r\x1b[2K{line[:width]}")
            self._stream.flush()
            self._shown = True
        elif now - self._last >= LOG_EVERY_S:
            self._last = now
            print(f"hpkit: {line}", file=self._stream, flush=True)

    def clear(self) -> None:
        """Wipe the updating line, so that other text can follow."""
        if self._shown:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._shown = False

    def _line(self, event: Event, now: float) -> str:
        counts = " ".join(f"{self._found[s.value]} {s.value}" for s in Status if s.value in self._found)
        text = f": {event.text}" if event.text else ""
        found = f" [{counts}]" if counts else ""
        return plain(f"{now - self._began:.0f} s {event.check}{text}{found}")
