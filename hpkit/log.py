"""One line per event to syslog (ident `hpkit`): key=value text that neither a newline nor a quote can break.

Logging never fails and never waits longer than `WAIT_S`: a missing or stuck syslog costs the line, not the hook.
"""

from __future__ import annotations

import os
import time

WAIT_S = 0.2
SOCKET = "/dev/log"
FILE_LIMIT = 4 << 20
TEXT_LIMIT = 4000
DAEMON = 3 << 3  # the facility LOG_DAEMON of <syslog.h>
_SEVERITY = {"audit": 5, "info": 6, "warning": 4, "error": 3}  # LOG_NOTICE, LOG_INFO, LOG_WARNING, LOG_ERR
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:;/@%+*[]()|-")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class _Sinks:
    """Where this process logs to, as openlog(3) keeps it: set once by the program's main."""

    syslog = True
    file = ""


def setup(root: str = "", *, syslog: bool = True) -> None:
    """Choose where lines go: syslog or not; a sandbox node also keeps them in `root`/hpkit.log.

    At 4 MiB that file becomes hpkit.log.1 and a new one is begun.
    """
    _Sinks.syslog = syslog
    _Sinks.file = f"{root}/hpkit.log" if root else ""


def audit(event: str, /, **fields: object) -> None:
    """Record one change of state (a drain, a return, a release); exactly one line for each change."""
    _write("audit", event, fields)


def info(event: str, /, **fields: object) -> None:
    """Something worth knowing that changed nothing."""
    _write("info", event, fields)


def warning(event: str, /, **fields: object) -> None:
    """Something that somebody should look at."""
    _write("warning", event, fields)


def error(event: str, /, **fields: object) -> None:
    """hpkit itself did not work as it should."""
    _write("error", event, fields)


def line(kind: str, event: str, fields: dict[str, object]) -> str:
    """`kind=… event=… key=value …`; values are quoted when they need it, and control characters escaped."""
    pairs = [("kind", kind), ("event", event), *fields.items()]
    return " ".join(f"{key}={_value(value)}" for key, value in pairs)[:TEXT_LIMIT]


def _value(value: object) -> str:
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    if text and _BARE.issuperset(text):
        return text
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\x{code:02x}" if code < 32 or 127 <= code < 160 or 0xD800 <= code < 0xE000 else character


def _write(kind: str, event: str, fields: dict[str, object]) -> None:
    text = line(kind, event, fields)
    if _Sinks.syslog:
        _send(_SEVERITY[kind], text)
    if _Sinks.file:
        _append(_Sinks.file, text)


def _send(severity: int, text: str) -> None:
    """One datagram in the form of syslog(3), which itself would wait for ever on a stuck reader."""
    import socket

    stamp = time.strftime("%b %e %H:%M:%S")
    message = f"<{DAEMON | severity}>{stamp} hpkit[{os.getpid()}]: {text}".encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(WAIT_S)
            channel.sendto(message, SOCKET)
    except OSError:
        return  # no syslog here, or a stuck one: the line is lost, the caller goes on


def _append(path: str, text: str) -> None:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
        try:
            if os.fstat(fd).st_size > FILE_LIMIT:
                os.replace(path, f"{path}.1")
            os.write(fd, f"{stamp} {os.getpid()} {text}\n".encode())
        finally:
            os.close(fd)
    except OSError:
        return  # the node's folder is gone or full
