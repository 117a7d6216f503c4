"""Write protocol messages to stdout. No other module writes there.

`Stdout` writes whole lines, unbuffered, to a duplicate of file descriptor 1. Descriptor 1 itself is redirected to
stderr. Output of a library, the JVM or a child process can therefore not corrupt a message.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from destination_datalake.errors import FailureType, printable

LogLevel = Literal["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"]

_TEXTS = frozenset({"message", "internal_message", "stack_trace"})
"""Members of messages that contain free text. Masking and shortening affect only these members, because programs read
all others."""

# The platform warns about lines of 20,000,000 characters, and drops lines that it cannot parse.
_MAX_CHARACTERS = 100_000
_ENCODER = msgspec.json.Encoder()
_MAX_QUEUED_LINES = 1000
"""Maximum number of queued lines. If the queue is full, logs are dropped."""
_POLL_SECONDS = 0.2
"""The interval, in seconds, at which a blocked writer checks its deadline."""


class StdoutClosedError(Exception):
    """Raised if the platform closes stdout, or does not read stdout until the deadline. No state can follow."""


class Stdout:
    """Writes protocol messages to a file descriptor. Thread-safe, but not safe in signal handlers."""

    def __init__(self, fd: int, mask: Callable[[str], str] = str) -> None:
        """Write to the file descriptor `fd`, which the caller must close. `mask` replaces the secrets in a string."""
        self._fd = fd
        self._mask = mask
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)
        # The lock is reentrant, because a finaliser may log a message while its thread is writing a line. The message
        # then follows this line.
        self._lock = threading.RLock()
        self._lines: deque[bytes] = deque()
        self._rest = memoryview(b"")
        self._begun = False
        self._writing = False
        self._partial = False
        self._closed = False
        self._deadline: float | None = None

    @classmethod
    def claim(cls, mask: Callable[[str], str] = str) -> Stdout:
        """Reserve stdout for protocol messages, and redirect all other output of this process to stderr.

        Returns the writer. Programs that this process starts do not inherit the writer's descriptor. The platform
        therefore sees the end of the output when this process ends, even if such programs are still running.
        """
        fd = os.dup(1)
        os.dup2(2, 1)
        return cls(fd, mask)

    def give_up_after(self, seconds: float) -> None:
        """Set a deadline, `seconds` from now, after which writers no longer wait for the reader.

        Later calls do not move the deadline. Safe in signal handlers.
        """
        if self._deadline is None:
            self._deadline = time.monotonic() + seconds

    def write_line(self, line: bytes) -> None:
        """Write a line unchanged. Return when the line is written.

        Raises StdoutClosedError if the reader closes stdout, or does not read the line until the deadline. Raises
        OSError if stdout is a file on a full disk, and ValueError if `line` contains a line feed.
        """
        if b"\n" in line:
            raise ValueError("a protocol line must not contain a line feed")
        with self._lock:
            self._lines.append(line)
            self._write_lines(wait=True)
        self._write_queue()

    def write_message(self, message: dict[str, Any]) -> None:
        """Write a message of the connector, with secrets masked. Raises the same errors as `write_line`."""
        self.write_line(_ENCODER.encode(self._masked(message)))

    def flush(self) -> None:
        """Wait until all queued logs are written, or until writing fails. Never raises an error."""
        with contextlib.suppress(StdoutClosedError, OSError), self._lock:
            self._write_lines(wait=True)

    def log(self, level: LogLevel, text: str) -> None:
        """Write a LOG message, with secrets masked. Never raises an error, and never waits for the reader.

        If the pipe is full, queues the log, and writes the log before the next message. Logs therefore do not delay
        data. If the queue is full, drops the log.
        """
        if len(self._lines) < _MAX_QUEUED_LINES:
            message = self._masked({"type": "LOG", "log": {"level": level, "message": text}})
            self._lines.append(_ENCODER.encode(message))
            self._write_queue()

    def trace_error(
        self,
        message: str,
        internal_message: str | None = None,
        failure_type: FailureType = "system_error",
        stream_descriptor: tuple[str | None, str] | None = None,
        stack_trace: str | None = None,
    ) -> None:
        """Write a TRACE ERROR, with secrets masked. Never raises an error.

        `message` is for the user; `internal_message` and `stack_trace` are for the log. `stream_descriptor` is the
        namespace and name of the failed stream, or None if the whole sync failed.
        """
        error: dict[str, object] = {"message": message, "failure_type": failure_type}
        if internal_message is not None:
            error["internal_message"] = internal_message
        if stack_trace is not None:
            error["stack_trace"] = stack_trace
        if stream_descriptor is not None:
            namespace, name = stream_descriptor
            descriptor = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
            error["stream_descriptor"] = {key: printable(value) for key, value in descriptor.items()}
        trace = {"type": "ERROR", "emitted_at": time.time_ns() // 1_000_000, "error": error}
        # Ignore a closed stdout here, because the thread that writes states reports it.
        with contextlib.suppress(StdoutClosedError, OSError):
            self.write_message({"type": "TRACE", "trace": trace})

    def _write_queue(self) -> None:
        """Write queued lines while the pipe has space. Do nothing if another thread is writing.

        `write_line` calls this method after it has released the lock, for logs that other threads queued in the
        meantime.
        """
        with contextlib.suppress(StdoutClosedError, OSError):
            while self._has_more and self._lock.acquire(blocking=False):
                try:
                    if self._writing or not self._poll.poll(0):
                        return
                    self._write_lines(wait=False)
                finally:
                    self._lock.release()

    @property
    def _has_more(self) -> bool:
        return bool(self._rest or self._lines)

    def _write_lines(self, *, wait: bool) -> None:
        """Write the queued lines in order. Unless `wait` is set, stop when the pipe is full, even within a line.

        The caller must hold the lock. A nested call does nothing, because the outer call writes all queued lines.
        """
        if self._writing:
            return
        self._writing = True
        try:
            while self._has_more and (wait or self._poll.poll(0)):
                self._write_some()
        except BaseException:
            # Drop the rest of the line, and remember that the reader has its beginning: the next line must start on a
            # new line.
            self._partial |= self._begun
            self._rest, self._begun = memoryview(b""), False
            self._lines.clear()
            raise
        finally:
            self._writing = False

    def _write_some(self) -> None:
        """Write a part of the current line or, if the current line is complete, of the next line."""
        if self._closed:
            raise StdoutClosedError("the reader closed stdout")
        if not self._rest:
            # If the previous line was written only in part, start with a line feed.
            self._rest = memoryview(b"\n" * self._partial + self._lines.popleft() + b"\n")
        self._wait_for_reader()
        try:
            # Write at most PIPE_BUF bytes, which a writable pipe always accepts. A larger write could block beyond the
            # deadline.
            written = os.write(self._fd, self._rest[: select.PIPE_BUF])
        except BlockingIOError:
            return  # The pipe is non-blocking, and another process has filled it since the poll.
        except BrokenPipeError as error:
            self._closed = True
            raise StdoutClosedError("the reader closed stdout") from error
        self._rest = self._rest[written:]
        self._begun, self._partial = bool(self._rest), False

    def _wait_for_reader(self) -> None:
        while True:
            is_late = self._deadline is not None and time.monotonic() >= self._deadline
            if self._poll.poll(0 if is_late else _POLL_SECONDS * 1000):
                return
            if is_late:
                raise StdoutClosedError("the reader does not read stdout")

    def _masked(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            key: self._masked(value)
            if isinstance(value, dict)
            else self._clean(value)
            if key in _TEXTS and isinstance(value, str)
            else value
            for key, value in message.items()
        }

    def _clean(self, text: str) -> str:
        text = printable(self._mask(text))
        if len(text) > _MAX_CHARACTERS:
            text = f"{text[:_MAX_CHARACTERS]}… ({len(text) - _MAX_CHARACTERS:,} more characters)"
        return text


# --- Python's logging -----------------------------------------------------------------------------------------------


class ProtocolLogHandler(logging.Handler):
    """Writes Python's log records as LOG messages to a `Stdout`."""

    def __init__(self, out: Stdout) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record as one LOG message. The message includes the stack trace if the record has one."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._out.log(_level(record.levelno), text)


def route_logging(out: Stdout) -> None:
    """Write all logs and warnings of this process as LOG messages to `out`.

    Writes logs of the connector from level INFO, and logs of libraries from level WARNING. Replaces all handlers of the
    root logger, including the CDK's.
    """
    root = logging.getLogger()
    root.handlers = [ProtocolLogHandler(out)]
    root.setLevel(logging.WARNING)
    for name in ("airbyte", "destination_datalake"):
        logging.getLogger(name).setLevel(logging.INFO)
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
