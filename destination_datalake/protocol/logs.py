"""Python's logging and warnings as LOG messages."""

from __future__ import annotations

import logging

from destination_datalake.protocol.stdout import LogLevel, Stdout


class ProtocolLogHandler(logging.Handler):
    """Writes Python's log records as LOG messages."""

    def __init__(self, out: Stdout) -> None:
        super().__init__()
        self._out = out

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record as one message, with its stack trace if it has one."""
        try:
            text = self.format(record)
        except Exception:
            self.handleError(record)
            return
        self._out.log(_level(record.levelno), text)


def route_logging(out: Stdout) -> None:
    """Write all logging and warnings of this process to `out`: our own from INFO, those of libraries from WARNING.

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
