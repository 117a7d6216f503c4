"""The only writer of protocol lines: whole lines from all threads, whatever the reader does."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.stdout import ProtocolLogHandler, Stdout, StdoutClosedError, route_logging


def read_all(read_end: int) -> bytes:
    with open(read_end, "rb") as reader:
        return reader.read()


class Pipe:
    """A pipe with a `Stdout` at one end and a thread that reads all at the other."""

    def __init__(self) -> None:
        read_end, self.write_end = os.pipe()
        self.out = Stdout(self.write_end, lambda text: text.replace("secret", "****"))
        self._reader = ThreadPoolExecutor(1)
        self._received = self._reader.submit(read_all, read_end)

    def lines(self) -> list[bytes]:
        self.out.flush()
        os.close(self.write_end)
        self._reader.shutdown()
        received = self._received.result()
        assert received.endswith(b"\n") or not received
        return received.split(b"\n")[:-1]

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


def test_a_line_is_written_unchanged_and_unbuffered_with_a_line_feed() -> None:
    read_end, write_end = os.pipe()

    Stdout(write_end).write_line(b'{"type": "STATE"}')

    assert os.read(read_end, 100) == b'{"type": "STATE"}\n'
    os.close(read_end)
    os.close(write_end)


def test_lines_of_several_threads_and_of_any_length_do_not_mix() -> None:
    pipe = Pipe()
    # Longer than a pipe holds, so that one line takes many writes.
    lengths = [1, 100, 70_000, 300_000]

    def write(letter: str) -> None:
        for length in lengths * 5:
            pipe.out.write_line(letter.encode() * length)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "abcdef"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    lines = pipe.lines()
    assert len(lines) == 6 * len(lengths) * 5
    assert {(len(set(line)), len(line)) for line in lines} == {(1, length) for length in lengths}


def test_a_non_blocking_pipe_gets_whole_lines() -> None:
    pipe = Pipe()
    os.set_blocking(pipe.write_end, False)

    pipe.out.write_line(b"x" * 1_000_000)

    assert pipe.lines() == [b"x" * 1_000_000]


def test_a_log_of_a_finaliser_within_a_line_is_written_after_it() -> None:
    pipe = Pipe()
    os.set_blocking(pipe.write_end, False)

    def finalise(_signal: int, _frame: object) -> None:
        pipe.out.log("INFO", "finalised")

    # A signal handler runs at any point of its thread, as a finaliser does.
    before = signal.signal(signal.SIGALRM, finalise)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(20):
            pipe.out.write_line(b"x" * 1_000_000)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    lines = pipe.lines()
    assert sum(line == b"x" * 1_000_000 for line in lines) == 20
    assert len(lines) > 20
    assert all(b"finalised" in line for line in lines if not line.startswith(b"x"))


def test_a_reader_that_does_not_read_until_the_deadline_is_an_error() -> None:
    read_end, write_end = os.pipe()
    out = Stdout(write_end)

    out.give_up_after(0.01)
    out.give_up_after(3600.0)  # As for each further SIGTERM

    with pytest.raises(StdoutClosedError, match="does not read"):
        out.write_line(b"x" * 1_000_000)
    out.log("INFO", "this does not wait")
    # What follows the partial line begins a new one.
    os.read(read_end, 1_000_000)
    out.write_line(b"whole")
    partial, log, whole = os.read(read_end, 1000).splitlines()
    assert (partial, b"this does not wait" in log, whole) == (b"", True, b"whole")
    os.close(read_end)
    os.close(write_end)


def test_a_log_does_not_wait_for_the_reader_and_is_written_before_the_next_line() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = os.write(write_end, b"x" * 1_000_000)
    out = Stdout(write_end)

    for number in range(2000):
        out.log("INFO", f"log {number}")

    assert os.read(read_end, filled) == b"x" * filled
    with ThreadPoolExecutor(1) as reader:
        received = reader.submit(read_all, read_end)
        out.write_line(b"{}")
        os.close(write_end)
    *logs, last = received.result().splitlines()
    assert last == b"{}"
    assert [json.loads(line)["log"]["message"] for line in logs] == [f"log {number}" for number in range(1000)]


def test_a_log_that_fits_only_in_part_does_not_wait_for_the_reader_either() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = os.write(write_end, b"x" * 1_000_000)
    out = Stdout(write_end)
    os.read(read_end, 8192)

    logging_thread = threading.Thread(target=out.log, args=("INFO", "long " * 10_000), daemon=True)
    logging_thread.start()
    logging_thread.join(30)
    waits = logging_thread.is_alive()

    # The rest of it is written before the next line.
    with ThreadPoolExecutor(1) as reader:
        received = reader.submit(read_all, read_end)
        out.write_line(b"{}")
        os.close(write_end)
    log, last = received.result()[filled - 8192 :].splitlines()
    assert (waits, json.loads(log)["log"]["message"], last) == (False, "long " * 10_000, b"{}")


def test_flush_waits_until_queued_logs_are_written() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = os.write(write_end, b"x" * 1_000_000)
    out = Stdout(write_end)
    out.log("INFO", "the summary")

    threading.Timer(0.05, os.read, (read_end, filled)).start()
    out.flush()

    assert b"the summary" in os.read(read_end, 1000)
    os.close(read_end)
    os.close(write_end)


def test_a_full_disk_is_an_error_for_lines_but_not_for_logs() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    out = Stdout(full)

    out.log("INFO", "lost")
    with pytest.raises(OSError, match="No space left"):
        out.write_line(b"{}")
    os.close(full)


def test_lone_surrogates_are_escaped() -> None:
    pipe = Pipe()

    pipe.out.trace_error("Oh.", stream_descriptor=("a", "b\ud83d"))
    pipe.out.log("INFO", "file \udcff")

    trace, log = pipe.messages()
    assert trace["trace"]["error"]["stream_descriptor"] == {"namespace": "a", "name": "b\\ud83d"}
    assert log["log"]["message"] == "file \\udcff"


def test_a_line_with_a_line_feed_is_refused() -> None:
    with pytest.raises(ValueError, match="line feed"):
        Stdout(1).write_line(b"{}\n{}")


def test_a_closed_stdout_is_an_error_for_lines_but_not_for_logs_and_traces() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    out = Stdout(write_end)

    out.log("INFO", "lost")
    out.trace_error("lost")
    for _ in range(2):
        with pytest.raises(StdoutClosedError):
            out.write_line(b"{}")
    os.close(write_end)


@given(text=st.text(st.characters(exclude_categories=["Cc", "Cf", "Zl", "Zp", "Cs"], include_characters="\n\t")))
def test_a_log_of_any_printable_text_is_one_message_with_that_text(text: str) -> None:
    pipe = Pipe()

    pipe.out.log("INFO", text)

    [message] = pipe.messages()
    assert message == {"type": "LOG", "log": {"level": "INFO", "message": text}}


@given(text=st.text(st.characters(categories=["Cc", "Cs"], include_characters="\u202e\u2028a")))
def test_what_a_terminal_would_act_on_is_escaped_in_every_message(text: str) -> None:
    pipe = Pipe()

    pipe.out.log("INFO", text)
    pipe.out.trace_error(text)

    log, trace = pipe.messages()
    for message in (log["log"]["message"], trace["trace"]["error"]["message"]):
        assert message.replace("\n", "").replace("\t", "").isprintable()


def test_a_log_too_long_for_the_platform_is_cut() -> None:
    pipe = Pipe()

    pipe.out.log("INFO", "x" * 100_010)

    assert pipe.messages()[0]["log"]["message"].endswith("x… (10 more characters)")


def test_a_trace_error_has_the_members_of_the_protocol() -> None:
    pipe = Pipe()

    pipe.out.trace_error("Make the bucket.", "NoSuchBucket", "config_error", ("shop", "orders"), "Traceback …")
    pipe.out.trace_error("Oh.", stream_descriptor=(None, "orders"))

    first, second = (message["trace"] for message in pipe.messages())
    assert (first["type"], isinstance(first["emitted_at"], int)) == ("ERROR", True)
    assert first["error"] == {
        "message": "Make the bucket.",
        "internal_message": "NoSuchBucket",
        "failure_type": "config_error",
        "stream_descriptor": {"namespace": "shop", "name": "orders"},
        "stack_trace": "Traceback …",
    }
    assert second["error"] == {
        "message": "Oh.",
        "failure_type": "system_error",
        "stream_descriptor": {"name": "orders"},
    }


def test_every_message_of_ours_is_masked_where_people_read_it_and_nowhere_else() -> None:
    pipe = Pipe()

    pipe.out.log("INFO", "a secret")
    pipe.out.trace_error("the secret", "secret", stream_descriptor=("secret", "orders"), stack_trace="at secret")
    pipe.out.write_message(
        {"type": "CONNECTION_STATUS", "connectionStatus": {"status": "FAILED", "message": "no secret"}}
    )

    log, trace, status = pipe.messages()
    assert log["log"] == {"level": "INFO", "message": "a ****"}
    error = trace["trace"]["error"]
    assert (error["message"], error["internal_message"], error["stack_trace"]) == ("the ****", "****", "at ****")
    assert error["stream_descriptor"] == {"namespace": "secret", "name": "orders"}
    assert status["connectionStatus"] == {"status": "FAILED", "message": "no ****"}


def test_lines_are_not_masked() -> None:
    pipe = Pipe()

    pipe.out.write_line(b'{"type":"STATE","message":"secret"}')

    assert pipe.lines() == [b'{"type":"STATE","message":"secret"}']


def test_prints_of_the_process_and_its_children_go_to_stderr_once_stdout_is_claimed() -> None:
    program = """
import os, subprocess, sys
from destination_datalake.protocol.stdout import Stdout
out = Stdout.claim()
print("a library prints", flush=True)
os.write(1, b"native code prints\\n")
subprocess.run([sys.executable, "-c", "print('a child prints')"], check=True)
out.write_line(b"{}")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "{}\n"
    assert done.stderr.splitlines() == ["a library prints", "native code prints", "a child prints"]


def test_stdout_ends_with_the_process_though_a_child_lives_on() -> None:
    program = """
import subprocess, sys
from destination_datalake.protocol.stdout import Stdout
out = Stdout.claim()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=0)
out.write_line(b"{}")
"""
    read_end, write_end = os.pipe()
    connector = subprocess.Popen(
        [sys.executable, "-c", program], stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    os.close(read_end)
    assert connector.stdout is not None

    # The child lives until `write_end` is closed, so that this would block if it had inherited stdout.
    assert connector.stdout.read() == b"{}\n"
    assert connector.wait() == 0
    connector.stdout.close()
    os.close(write_end)


# --- Python's logging -----------------------------------------------------------------------------------------------


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
def test_each_level_of_python_has_one_of_the_protocol(level: int, name: str) -> None:
    record, pipe = logging.LogRecord("any", level, "f.py", 1, "logged %s", ("so",), None), Pipe()

    ProtocolLogHandler(pipe.out).handle(record)

    assert pipe.messages() == [{"type": "LOG", "log": {"level": name, "message": "logged so"}}]


def test_our_own_logs_are_written_from_info_and_those_of_libraries_from_warning() -> None:
    pipe = Pipe()
    with warnings.catch_warnings(), logging_restored():
        warnings.simplefilter("always")
        route_logging(pipe.out)

        for name in ("destination_datalake.sync.conductor", "airbyte", "py4j", "botocore.credentials", "pyiceberg.io"):
            logging.getLogger(name).info("info of %s", name)
            logging.getLogger(name).warning("warning of %s", name)
        warnings.warn("python's warning", UserWarning, stacklevel=1)

    *logged, last = [message["log"]["message"] for message in pipe.messages()]
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


def test_an_exception_is_one_message_with_its_stack_trace() -> None:
    pipe = Pipe()
    with logging_restored():
        route_logging(pipe.out)
        try:
            raise KeyError("missing")
        except KeyError:
            logging.getLogger("destination_datalake").exception("It failed.")

    [message] = pipe.messages()
    assert message["log"]["level"] == "ERROR"
    assert "It failed.\nTraceback" in message["log"]["message"]
