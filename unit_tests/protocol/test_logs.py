"""Python's logging and warnings as LOG messages."""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.protocol.logs import ProtocolLogHandler, route_logging
from destination_datalake.protocol.stdout import Stdout


class LogFile:
    """A file with a `Stdout` that writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
        self.out = Stdout(self._descriptor)

    def messages(self) -> list[dict[str, Any]]:
        os.close(self._descriptor)
        return [json.loads(line) for line in self._path.read_bytes().splitlines()]


@pytest.fixture
def log_file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "stdout")


@contextmanager
def logging_restored() -> Iterator[None]:
    root, names = logging.getLogger(), ("", "airbyte", "destination_datalake")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@pytest.mark.parametrize(
    ("level", "name"),
    [
        (logging.CRITICAL, "FATAL"),
        (logging.ERROR, "ERROR"),
        (logging.WARNING, "WARN"),
        (logging.INFO, "INFO"),
        (logging.DEBUG, "DEBUG"),
        (35, "WARN"),
    ],
)
def test_each_level_of_python_has_one_of_the_protocol(log_file: LogFile, level: int, name: str) -> None:
    record = logging.LogRecord("any", level, "f.py", 1, "logged %s", ("so",), None)

    ProtocolLogHandler(log_file.out).handle(record)

    assert log_file.messages() == [{"type": "LOG", "log": {"level": name, "message": "logged so"}}]


def test_our_own_logs_are_written_from_info_and_those_of_libraries_from_warning(log_file: LogFile) -> None:
    with warnings.catch_warnings(), logging_restored():
        warnings.simplefilter("always")
        route_logging(log_file.out)

        for name in ("destination_datalake.sync.conductor", "airbyte", "py4j", "botocore.credentials", "pyiceberg.io"):
            logging.getLogger(name).info("info of %s", name)
            logging.getLogger(name).warning("warning of %s", name)
        warnings.warn("python's warning", UserWarning, stacklevel=1)

    *logged, last = [message["log"]["message"] for message in log_file.messages()]
    assert logged == [
        "info of destination_datalake.sync.conductor",
        "warning of destination_datalake.sync.conductor",
        "info of airbyte",
        "warning of airbyte",
        "warning of py4j",
        "warning of botocore.credentials",
        "warning of pyiceberg.io",
    ]
    assert "python's warning" in last


def test_an_exception_is_one_message_with_its_stack_trace(log_file: LogFile) -> None:
    with logging_restored():
        route_logging(log_file.out)
        try:
            raise KeyError("missing")
        except KeyError:
            logging.getLogger("destination_datalake").exception("It failed.")

    [message] = log_file.messages()
    assert message["log"]["level"] == "ERROR"
    assert "It failed.\nTraceback" in message["log"]["message"]
