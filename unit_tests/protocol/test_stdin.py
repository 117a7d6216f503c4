"""Standard input as chunks of whole lines, from any kind of input, until its end or until reading is interrupted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.messages import READ_BYTES, InputUnreadable, chunks


class Pipe:
    """The two ends of a pipe."""

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        self._writing = True

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._write_end, view) :]

    def close_writer(self) -> None:
        if self._writing:
            self._writing = False
            os.close(self._write_end)

    def close(self) -> None:
        self.close_writer()
        os.close(self.read_end)


@pytest.fixture
def stdin() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@pytest.fixture
def wake() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


@given(pieces=st.lists(st.sampled_from([b"a", b"bc\n", b"\n", b"d\ne", b"\r\n"])))
def test_chunks_are_whole_lines_and_together_the_input(pieces: list[bytes]) -> None:
    stdin, wake = Pipe(), Pipe()
    for piece in pieces:
        stdin.write(piece)
    stdin.close_writer()

    read = list(map(bytes, chunks(stdin.read_end, wake.read_end)))

    assert b"".join(read) == b"".join(pieces)
    assert all(chunk.endswith(b"\n") for chunk in read[:-1])
    assert all(read)
    stdin.close()
    wake.close()


def test_a_line_that_arrives_in_pieces_is_one_line(stdin: Pipe, wake: Pipe) -> None:
    read = map(bytes, chunks(stdin.read_end, wake.read_end))

    stdin.write(b"first\nbegun and ")
    assert next(read) == b"first\n"
    stdin.write(b"ended\nlast ")
    assert next(read) == b"begun and ended\n"
    stdin.write(b"line")
    stdin.close_writer()
    assert list(read) == [b"last line"]


def test_lines_are_yielded_while_the_input_stays_open(stdin: Pipe, wake: Pipe) -> None:
    stdin.write(b"a\nb\n")

    assert bytes(next(chunks(stdin.read_end, wake.read_end))) == b"a\nb\n"


def test_a_line_longer_than_any_read_is_one_line(stdin: Pipe, wake: Pipe) -> None:
    line = b"x" * (3 * READ_BYTES + 7) + b"\n"

    def send() -> None:
        stdin.write(line + b"next\n")
        stdin.close_writer()

    writer = threading.Thread(target=send)
    writer.start()
    read = list(map(bytes, chunks(stdin.read_end, wake.read_end)))
    writer.join()

    assert b"".join(read) == line + b"next\n"
    assert read[0].startswith(line)


def test_a_huge_line_takes_at_most_twice_its_size_in_memory() -> None:
    """Twice, because the buffer doubles: a copy has less than the line, and the new buffer is not filled further."""
    program = """
import os
from destination_datalake.protocol.messages import MessageReader
from destination_datalake.protocol.messages import chunks
from unit_tests.memory import peak_memory
before = peak_memory()
reader = MessageReader()
assert sum(item.count for chunk in chunks(0, os.pipe()[0]) for item in reader.read(chunk)) == 2
print(peak_memory() - before)
"""
    head = b'{"type":"RECORD","record":{"stream":"a","emitted_at":1,"data":{"x":"'
    line = head + b"x" * (150 * READ_BYTES) + b'"}}}\n'

    done = subprocess.run([sys.executable, "-c", program], input=line + head + b'"}}}', capture_output=True, check=True)

    assert int(done.stdout) < 2.1 * len(line)


def test_wake_ends_reading_while_the_input_is_quiet_and_open(stdin: Pipe, wake: Pipe) -> None:
    stdin.write(b"whole\nunfinished")
    read = map(bytes, chunks(stdin.read_end, wake.read_end))
    assert next(read) == b"whole\n"

    threading.Timer(0.05, wake.write, [b"!"]).start()

    assert list(read) == []


def test_wake_takes_precedence_over_input(stdin: Pipe, wake: Pipe) -> None:
    stdin.write(b"more\n")
    wake.write(b"!")

    assert list(chunks(stdin.read_end, wake.read_end)) == []


def test_a_process_with_many_open_files_reads_its_input(wake: Pipe) -> None:
    with contextlib.ExitStack() as files:
        while files.enter_context(open(os.devnull, "rb")).fileno() < 1024:  # noqa: PTH123 (a device)
            pass
        stdin = Pipe()
        stdin.write(b"a\n")
        stdin.close_writer()

        assert list(map(bytes, chunks(stdin.read_end, wake.read_end))) == [b"a\n"]

        stdin.close()


@pytest.mark.parametrize("content", [b"", b"a\n", b"a\nb", b"x\n" * READ_BYTES])
def test_a_file_is_read_like_a_pipe(content: bytes, tmp_path: Path, wake: Pipe) -> None:
    path = tmp_path / "messages.jsonl"
    path.write_bytes(content)

    with path.open("rb") as file:
        assert b"".join(map(bytes, chunks(file.fileno(), wake.read_end))) == content


def test_an_empty_input_has_no_chunks(wake: Pipe) -> None:
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123 (a device, not a path of ours)
        assert list(chunks(nothing.fileno(), wake.read_end)) == []


@pytest.mark.parametrize(
    ("path", "flags", "reason"),
    [("/", os.O_RDONLY, "Is a directory"), (os.devnull, os.O_WRONLY, "Bad file descriptor")],
    ids=["a folder", "open for writing"],
)
def test_an_input_that_cannot_be_read_is_named(path: str, flags: int, reason: str, wake: Pipe) -> None:
    descriptor = os.open(path, flags)

    with pytest.raises(InputUnreadable, match=f"Cannot read standard input: {reason}"):
        list(chunks(descriptor, wake.read_end))

    os.close(descriptor)
