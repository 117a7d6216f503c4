"""The one writer of protocol lines.

Everything the platform may read from us goes through one `Stdout`: whole lines, one at a time, unbuffered, on a
duplicate of file descriptor 1. Descriptor 1 itself is pointed at stderr, so that whatever a library, the JVM or a child
process prints ends up among the logs instead of inside a STATE.
"""

from __future__ import annotations

import logging
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from destination_datalake.protocol.errors import FailureType

LogLevel = Literal["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]

_MASK = "****"
# A request in an error text of AWS's may be another process's, an executor's say, whose token nobody here knows.
_SESSION_TOKEN = re.compile(r"(x-amz-security-token[\"']?\s*[:=]\s*[\"']?)[^\s\"'&<>,;\\]+", re.IGNORECASE)
# The platform warns about lines of 20,000,000 characters and drops what it cannot parse; no log is worth that.
_LONGEST_TEXT = 100_000
_ENCODER = msgspec.json.Encoder()


class StdoutClosedError(Exception):
    """The platform has closed its end of our stdout: nothing can be acknowledged any more."""


class Stdout:
    """Writes protocol lines to a file descriptor; safe to share between threads, not to call from a signal handler."""

    def __init__(self, fd: int) -> None:
        """Write to `fd`, which stays the caller's to close."""
        self._fd = fd
        self._lock = threading.Lock()
        self._closed = False
        self._secrets: tuple[str, ...] = ()
        self._more_secrets: Callable[[], Iterable[str]] = tuple

    @classmethod
    def claim(cls) -> Stdout:
        """Take file descriptor 1 for the protocol alone; prints of this process and its children go to stderr.

        The duplicate is close-on-exec: the platform sees the end of our output when *we* end, not when the last child
        process does.
        """
        fd = os.dup(1)
        os.dup2(2, 1)
        return cls(fd)

    def mask(self, secrets: Iterable[str]) -> None:
        """Show `****` instead of these values in every log and trace from now on. Empty values are ignored."""
        known = {*self._secrets, *(secret for secret in secrets if secret)}
        # The longest first: a secret that contains another one must not leave its tail behind.
        self._secrets = tuple(sorted(known, key=lambda secret: (-len(secret), secret)))

    def mask_also(self, secrets: Callable[[], Iterable[str]]) -> None:
        """Show `****` too instead of what `secrets` returns whenever something is written, the longest first."""
        self._more_secrets = secrets

    def write_line(self, line: bytes) -> None:
        """Write `line`, a message without its line feed, as it is.

        Raises StdoutClosedError if the reader has gone, now or at an earlier line; ValueError if it is not one line.
        """
        if b"\n" in line:
            raise ValueError("a protocol line must not contain a line feed")
        with self._lock:
            if self._closed:
                raise StdoutClosedError("stdout was closed by its reader")
            try:
                self._write(line + b"\n")
            except BrokenPipeError as error:
                self._closed = True
                raise StdoutClosedError("stdout was closed by its reader") from error

    def log(self, level: LogLevel, text: str) -> None:
        """Write `text`, its secrets masked, as one LOG message. Never raises: a lost log must not lose data."""
        self._say({"type": "LOG", "log": {"level": level, "message": self._clean(text)}})

    def trace_error(
        self,
        message: str,
        internal_message: str | None = None,
        failure_type: FailureType = "system_error",
        stream_descriptor: tuple[str | None, str] | None = None,
        stack_trace: str | None = None,
    ) -> None:
        """Write a TRACE ERROR, its secrets masked. Never raises: it is the last thing said about a failure.

        `message` is for the user, `internal_message` and `stack_trace` for the log; `stream_descriptor` is the
        (namespace, name) of the stream that failed.
        """
        error: dict[str, object] = {"message": self._clean(message), "failure_type": failure_type}
        if internal_message is not None:
            error["internal_message"] = self._clean(internal_message)
        if stack_trace is not None:
            error["stack_trace"] = self._clean(stack_trace)
        if stream_descriptor is not None:
            namespace, name = stream_descriptor
            error["stream_descriptor"] = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
        trace = {"type": "ERROR", "emitted_at": time.time_ns() // 1_000_000, "error": error}
        self._say({"type": "TRACE", "trace": trace})

    def _say(self, message: dict[str, object]) -> None:
        try:
            self.write_line(_ENCODER.encode(message))
        except (StdoutClosedError, OSError):
            # `write_line` tells whoever has something to acknowledge.
            return

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                # The pipe was handed to us non-blocking: wait for room, then go on with the same line.
                select.select([], [self._fd], [])

    def _clean(self, text: str) -> str:
        for secret in (*self._secrets, *self._more_secrets()):
            text = text.replace(secret, _MASK)
        text = _SESSION_TOKEN.sub(rf"\g<1>{_MASK}", text)
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}… ({len(text) - _LONGEST_TEXT} characters more)"
        # A lone surrogate (from a file name, say) has no UTF-8 form and would make the line unwritable.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


class ProtocolLogHandler(logging.Handler):
    """Turns Python's log records into LOG messages."""

    def __init__(self, out: Stdout) -> None:
        """Write records to `out`."""
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record as one line, a stack trace included."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._out.log(_level(record.levelno), text)


def route_logging(out: Stdout) -> None:
    """Send all logging and warnings of this process to `out`: our own from INFO, libraries' from WARNING.

    Replaces the handlers of the root logger, the CDK's included (it installs one when imported).
    """
    root = logging.getLogger()
    root.handlers = [ProtocolLogHandler(out)]
    root.setLevel(logging.WARNING)
    for ours in ("airbyte", "destination_datalake"):
        logging.getLogger(ours).setLevel(logging.INFO)
    logging.captureWarnings(True)


def _level(number: int) -> LogLevel:
    if number >= logging.CRITICAL:
        return "FATAL"
    if number >= logging.ERROR:
        return "ERROR"
    if number >= logging.WARNING:
        return "WARN"
    if number >= logging.INFO:
        return "INFO"
    return "DEBUG"
