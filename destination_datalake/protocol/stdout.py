"""The one writer of protocol lines.

Everything the platform may read from us goes through one `Stdout`: whole lines, one at a time, unbuffered, on a
duplicate of file descriptor 1. Descriptor 1 itself is pointed at stderr, so that whatever a library, the JVM or a child
process prints ends up among the logs instead of inside a STATE.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from destination_datalake.errors import FailureType

LogLevel = Literal["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]

_MASK = "****"
# A request in an error text of AWS's may be another process's, an executor's say, whose token nobody here knows.
_SESSION_TOKEN = re.compile(r"(x-amz-security-token[\"']?\s*[:=]\s*[\"']?)[^\s\"'&<>,;\\]+", re.IGNORECASE)
# The platform warns about lines of 20,000,000 characters and drops what it cannot parse; no log is worth that.
_LONGEST_TEXT = 100_000
_ENCODER = msgspec.json.Encoder()
_LONGEST_QUEUE = 1000
"""Lines that may wait for room; what is logged beyond is lost."""
_LOOK_SECONDS = 0.2
"""How often somebody who waits for room looks whether there is still time to."""


class StdoutClosedError(Exception):
    """The platform has closed its end of our stdout, or does not read: nothing can be acknowledged any more."""


class Stdout:
    """Writes protocol lines to a file descriptor; safe to share between threads, not to call from a signal handler."""

    def __init__(self, fd: int) -> None:
        """Write to `fd`, which stays the caller's to close."""
        self._fd = fd
        self._room = select.poll()
        self._room.register(fd, select.POLLOUT)
        # A finaliser may log while its own thread is in the middle of a line: its line comes after that.
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._rest = memoryview(b"")
        self._begun = False
        self._writing = False
        self._torn = False
        self._closed = False
        self._deadline: float | None = None
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

    def mask_from(self, secrets: Callable[[], Iterable[str]]) -> None:
        """Show `****` too instead of what `secrets` returns whenever something is written, the longest first."""
        self._more_secrets = secrets

    def give_up_after(self, seconds: float) -> None:
        """Wait no longer than that, from now on, for a reader that does not read. Safe in a signal's handler."""
        self._deadline = time.monotonic() + seconds

    def write_line(self, line: bytes) -> None:
        """Write `line`, a message without its line feed, as it is.

        Raises StdoutClosedError if the reader has gone, now or at an earlier line, or does not read and there is no
        time to wait; OSError if stdout is a file on a full disk; ValueError if it is not one line.
        """
        if b"\n" in line:
            raise ValueError("a protocol line must not contain a line feed")
        with self._lock:
            self._lines.append(line)
            self._write_lines(wait=True)
        self._write_what_came()

    def flush(self) -> None:
        """Write the logs that found no room. Never raises."""
        with contextlib.suppress(StdoutClosedError, OSError), self._lock:
            self._write_lines(wait=True)

    def log(self, level: LogLevel, text: str) -> None:
        """Write `text`, its secrets masked, as one LOG message. Never raises, and never waits for a reader.

        A log must not keep data from landing: what has no room comes before the next line that has some.
        """
        if len(self._lines) < _LONGEST_QUEUE:
            self._lines.append(_ENCODER.encode({"type": "LOG", "log": {"level": level, "message": self._clean(text)}}))
            self._write_what_came()

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
            descriptor = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
            error["stream_descriptor"] = {key: _encodable(value) for key, value in descriptor.items()}
        trace = {"type": "ERROR", "emitted_at": time.time_ns() // 1_000_000, "error": error}
        # `write_line` tells whoever has something to acknowledge.
        with contextlib.suppress(StdoutClosedError, OSError):
            self.write_line(_ENCODER.encode({"type": "TRACE", "trace": trace}))

    def _write_what_came(self) -> None:
        """Write what is queued as long as there is room, if nobody else is at it: whoever is comes here afterwards."""
        with contextlib.suppress(StdoutClosedError, OSError):
            while self._has_more and self._lock.acquire(blocking=False):
                try:
                    if self._writing or not self._room.poll(0):
                        return
                    self._write_lines(wait=False)
                finally:
                    self._lock.release()

    @property
    def _has_more(self) -> bool:
        return bool(self._rest or self._lines)

    def _write_lines(self, *, wait: bool) -> None:
        """Write what is queued, in order; if it may not `wait`, until there is no room, be it within a line.

        The lock must be held; within another line, that line goes on first.
        """
        if self._writing:
            return
        self._writing = True
        try:
            while self._has_more and (wait or self._room.poll(0)):
                self._write_on()
        except BaseException:
            self._torn |= self._begun
            self._rest, self._begun = memoryview(b""), False
            self._lines.clear()
            raise
        finally:
            self._writing = False

    def _write_on(self) -> None:
        """Write some more of the line that is begun, or else of the next."""
        if self._closed:
            raise StdoutClosedError("stdout was closed by its reader")
        if not self._rest:
            # What follows half a line that could not be finished must not become a part of it.
            self._rest = memoryview(b"\n" * self._torn + self._lines.popleft() + b"\n")
        self._wait_for_room()
        try:
            # No more than a pipe with room has room for: a write that waits cannot be given up.
            written = os.write(self._fd, self._rest[: select.PIPE_BUF])
        except BlockingIOError:
            return  # Somebody else has filled a pipe that was handed to us non-blocking.
        except BrokenPipeError as error:
            self._closed = True
            raise StdoutClosedError("stdout was closed by its reader") from error
        self._rest = self._rest[written:]
        self._begun, self._torn = bool(self._rest), False

    def _wait_for_room(self) -> None:
        while True:
            late = self._deadline is not None and time.monotonic() >= self._deadline
            if self._room.poll(0 if late else _LOOK_SECONDS * 1000):
                return
            if late:
                raise StdoutClosedError("stdout's reader does not read")

    def _clean(self, text: str) -> str:
        for secret in (*self._secrets, *self._more_secrets()):
            text = text.replace(secret, _MASK)
        text = _SESSION_TOKEN.sub(rf"\g<1>{_MASK}", text)
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}… ({len(text) - _LONGEST_TEXT} characters more)"
        return _encodable(text)


def _encodable(text: str) -> str:
    """The text without lone surrogates (from a file name, say), which have no UTF-8 form."""
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
