"""The one writer of protocol lines: whole lines, whoever writes, whatever the reader does."""

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
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.stdout import ProtocolLogHandler, Stdout, StdoutClosedError, route_logging


class Pipe:
    """A pipe with a `Stdout` at one end and a reader, which never tires, at the other."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        self.out = Stdout(self.write_end)
        self._received = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with open(self._read_end, "rb") as reader:  # noqa: PTH123 (a descriptor, not a path)
            self._received = reader.read()

    def lines(self) -> list[bytes]:
        self.out.flush()
        os.close(self.write_end)
        self._reader.join()
        assert self._received.endswith(b"\n") or not self._received
        return self._received.split(b"\n")[:-1]

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines()]


@contextmanager
def logging_as_it_was() -> Iterator[None]:
    root, names = logging.getLogger(), ("", "airbyte", "destination_datalake")
    handlers, levels = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers = handlers
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def test_a_line_arrives_as_it_is_at_once_and_ends_in_a_line_feed() -> None:
    read_end, write_end = os.pipe()

    Stdout(write_end).write_line(b'{"type": "STATE"}')

    assert os.read(read_end, 100) == b'{"type": "STATE"}\n'
    os.close(read_end)
    os.close(write_end)


def test_a_session_token_that_nobody_here_knows_is_masked_by_its_name() -> None:
    pipe = Pipe()

    pipe.out.log("ERROR", "host:glue\nx-amz-security-token:IQoJb3JpZ2lu/+=\n\nhost;x-amz-date")
    pipe.out.trace_error("{'X-Amz-Security-Token': 'IQoJb3JpZ2lu', 'a': 1} X-Amz-Security-Token=IQoJ%2B&X-Amz-Date=1")

    log, trace = pipe.messages()
    assert log["log"]["message"] == "host:glue\nx-amz-security-token:****\n\nhost;x-amz-date"
    assert trace["trace"]["error"]["message"] == (
        "{'X-Amz-Security-Token': '****', 'a': 1} X-Amz-Security-Token=****&X-Amz-Date=1"
    )


def test_secrets_that_come_later_are_masked_too() -> None:
    pipe, secrets = Pipe(), list[str]()
    pipe.out.mask_from(lambda: secrets)

    secrets.append("a-session-token")
    pipe.out.log("INFO", "it is a-session-token")

    assert pipe.messages()[0]["log"]["message"] == "it is ****"


def test_lines_of_many_threads_and_of_any_length_never_mix() -> None:
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


def test_a_pipe_that_does_not_block_still_gets_whole_lines() -> None:
    pipe = Pipe()
    os.set_blocking(pipe.write_end, False)

    pipe.out.write_line(b"x" * 1_000_000)

    assert pipe.lines() == [b"x" * 1_000_000]


def test_a_finaliser_that_logs_in_the_middle_of_a_line_comes_after_it() -> None:
    pipe = Pipe()
    os.set_blocking(pipe.write_end, False)

    def finalise(_signal: int, _frame: object) -> None:
        pipe.out.log("INFO", "finalised")

    # A signal's handler runs wherever its thread happens to be, as a finaliser does.
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


def test_a_reader_that_does_not_read_is_given_up_when_there_is_no_more_time() -> None:
    read_end, write_end = os.pipe()
    out = Stdout(write_end)

    out.give_up_after(0.01)

    with pytest.raises(StdoutClosedError, match="does not read"):
        out.write_line(b"x" * 1_000_000)
    out.log("INFO", "nor does this wait")
    # What is read after all begins with a line of its own.
    os.read(read_end, 1_000_000)
    out.write_line(b"whole")
    torn, log, whole = os.read(read_end, 1000).splitlines()
    assert (torn, b"nor does this wait" in log, whole) == (b"", True, b"whole")
    os.close(read_end)
    os.close(write_end)


def test_a_log_waits_for_no_reader_and_comes_before_the_next_line() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = os.write(write_end, b"x" * 1_000_000)
    out = Stdout(write_end)

    for number in range(2000):
        out.log("INFO", f"log {number}")

    assert os.read(read_end, filled) == b"x" * filled
    received: list[bytes] = []

    def read() -> None:
        with open(read_end, "rb") as reader:  # noqa: PTH123 (a descriptor, not a path)
            received.append(reader.read())

    reader = threading.Thread(target=read)
    reader.start()
    out.write_line(b"{}")
    os.close(write_end)
    reader.join()
    *logs, last = received[0].splitlines()
    assert last == b"{}"
    assert [json.loads(line)["log"]["message"] for line in logs] == [f"log {number}" for number in range(1000)]


def test_a_log_for_which_there_is_some_room_but_not_enough_waits_for_no_reader_either() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    filled = os.write(write_end, b"x" * 1_000_000)
    out = Stdout(write_end)
    os.read(read_end, 8192)

    logging_thread = threading.Thread(target=out.log, args=("INFO", "long " * 10_000), daemon=True)
    logging_thread.start()
    logging_thread.join(30)
    waits = logging_thread.is_alive()

    # Its rest comes before the next line.
    received: list[bytes] = []

    def read() -> None:
        with open(read_end, "rb") as reader:  # noqa: PTH123 (a descriptor, not a path)
            received.append(reader.read())

    reader = threading.Thread(target=read)
    reader.start()
    out.write_line(b"{}")
    os.close(write_end)
    reader.join()
    log, last = received[0][filled - 8192 :].splitlines()
    assert (waits, json.loads(log)["log"]["message"], last) == (False, "long " * 10_000, b"{}")


def test_what_was_logged_without_room_comes_when_it_is_flushed() -> None:
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


def test_a_file_on_a_full_disk_is_a_failure_for_states_but_not_for_logs() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    out = Stdout(full)

    out.log("INFO", "nobody will know")
    with pytest.raises(OSError, match="No space left"):
        out.write_line(b"{}")
    os.close(full)


def test_a_stream_whose_name_has_no_utf8_form_can_fail_all_the_same() -> None:
    pipe = Pipe()

    pipe.out.trace_error("Oh.", stream_descriptor=("a", "b\ud83d"))

    assert pipe.messages()[0]["trace"]["error"]["stream_descriptor"] == {"namespace": "a", "name": "b\\ud83d"}


def test_what_is_not_one_line_is_refused() -> None:
    with pytest.raises(ValueError, match="line feed"):
        Stdout(1).write_line(b"{}\n{}")


def test_a_reader_that_has_gone_is_a_failure_for_states_but_not_for_logs() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    out = Stdout(write_end)

    out.log("INFO", "nobody listens")
    out.trace_error("nobody listens")
    for _ in range(2):
        with pytest.raises(StdoutClosedError):
            out.write_line(b"{}")
    os.close(write_end)


@given(text=st.text())
def test_a_log_of_any_text_is_one_message_that_says_it(text: str) -> None:
    pipe = Pipe()

    pipe.out.log("INFO", text)

    [message] = pipe.messages()
    assert message == {"type": "LOG", "log": {"level": "INFO", "message": text}}


def test_a_log_that_has_no_utf8_form_is_still_written() -> None:
    pipe = Pipe()

    pipe.out.log("INFO", "file \udcff")

    assert pipe.messages()[0]["log"]["message"] == "file \\udcff"


def test_a_log_too_long_for_the_platform_is_cut_and_says_so() -> None:
    pipe = Pipe()

    pipe.out.log("INFO", "x" * 100_010)

    assert pipe.messages()[0]["log"]["message"].endswith("x… (10 characters more)")


def test_a_trace_error_holds_what_the_platform_acts_on() -> None:
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


def test_secrets_are_masked_in_logs_and_traces_even_when_one_contains_another_or_needs_escaping() -> None:
    pipe = Pipe()
    pipe.out.mask(["ab", 'ab"c\n', ""])
    pipe.out.mask(["abcd"])

    pipe.out.log("INFO", 'ab abcd ab"c\n end')
    pipe.out.trace_error("abcd", "ab", stack_trace="abcd")

    log, trace = pipe.messages()
    assert log["log"]["message"] == "**** **** **** end"
    assert "ab" not in json.dumps(trace["trace"]["error"])


def test_protocol_lines_are_echoed_unmasked() -> None:
    pipe = Pipe()
    pipe.out.mask(["cursor"])

    pipe.out.write_line(b'{"type":"STATE","cursor":1}')

    assert pipe.lines() == [b'{"type":"STATE","cursor":1}']


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
def test_python_s_levels_become_the_protocol_s(level: int, name: str) -> None:
    pipe = Pipe()

    ProtocolLogHandler(pipe.out).handle(logging.LogRecord("any", level, "f.py", 1, "said %s", ("so",), None))

    assert pipe.messages() == [{"type": "LOG", "log": {"level": name, "message": "said so"}}]


def test_our_own_logs_are_heard_from_info_and_libraries_from_warning() -> None:
    pipe = Pipe()
    with warnings.catch_warnings(), logging_as_it_was():
        warnings.simplefilter("always")
        route_logging(pipe.out)

        for name in ("destination_datalake.sync.conductor", "airbyte", "py4j", "botocore.credentials", "pyiceberg.io"):
            logging.getLogger(name).info("info of %s", name)
            logging.getLogger(name).warning("warning of %s", name)
        warnings.warn("python's warning", UserWarning, stacklevel=1)

    said = [message["log"]["message"] for message in pipe.messages()]
    assert said[:3] == [
        "info of destination_datalake.sync.conductor",
        "warning of destination_datalake.sync.conductor",
        "info of airbyte",
    ]
    assert [text for text in said if text.startswith("info")] == said[0:1] + said[2:3]
    assert [text for text in said if text.startswith("warning")][2:] == [
        "warning of py4j",
        "warning of botocore.credentials",
        "warning of pyiceberg.io",
    ]
    assert "python's warning" in said[-1]


def test_an_exception_is_logged_in_one_message_with_its_stack_trace() -> None:
    pipe = Pipe()
    with logging_as_it_was():
        route_logging(pipe.out)
        try:
            raise KeyError("nothing there")
        except KeyError:
            logging.getLogger("destination_datalake").exception("It failed.")

    [message] = pipe.messages()
    assert message["log"]["level"] == "ERROR"
    assert "It failed.\nTraceback" in message["log"]["message"]


def test_after_claiming_stdout_prints_of_this_process_and_its_children_go_to_stderr() -> None:
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


def test_the_platform_sees_the_end_of_our_output_though_a_child_lives_on() -> None:
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

    # The child is alive until its stdin, our `write_end`, closes: this read would wait for it for ever.
    assert connector.stdout.read() == b"{}\n"
    assert connector.wait() == 0
    connector.stdout.close()
    os.close(write_end)
