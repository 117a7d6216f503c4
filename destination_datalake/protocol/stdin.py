"""Standard input as chunks of whole lines."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
from collections.abc import Iterator

READ_BYTES = 1024 * 1024
QUIET_SECONDS = 1.0


class InputUnreadable(Exception):
    """The operating system does not let standard input be read: it is a folder, say, or open for writing only."""


def chunks(stdin: int, wake: int) -> Iterator[memoryview]:
    """Yield whole lines as they arrive, about READ_BYTES at a time; the last chunk may lack its newline.

    A chunk is a view of a buffer that the next one overwrites. An empty chunk means that nothing arrived for
    QUIET_SECONDS. Ends with the input, or as soon as `wake` (a file descriptor) is readable; an incomplete line is
    then dropped: it was never acknowledged. Raises InputUnreadable.
    """
    with contextlib.suppress(OSError, AttributeError):
        # A larger pipe means fewer context switches between writer and reader; not every input is a pipe.
        fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, READ_BYTES)
    buffer: bytearray | mmap.mmap = bytearray(READ_BYTES)
    filled = 0
    while True:
        readable, _, _ = select.select([stdin, wake], [], [], QUIET_SECONDS)
        if wake in readable:
            return
        if not readable:
            yield memoryview(b"")
            continue
        try:
            received = os.readv(stdin, [memoryview(buffer)[filled:]])
        except OSError as error:
            raise InputUnreadable(f"Standard input cannot be read: {error.strerror}") from error
        if not received:
            break
        end = buffer.rfind(b"\n", filled, filled + received) + 1
        filled += received
        if end:
            yield memoryview(buffer)[:end]
            rest = bytes(memoryview(buffer)[end:filled])
            buffer = buffer if len(buffer) == READ_BYTES else _sized(len(rest))
            buffer[: len(rest)] = rest
            filled = len(rest)
        elif filled == len(buffer):
            buffer = _doubled(buffer)
    if filled:
        yield memoryview(buffer)[:filled]


def _doubled(buffer: bytearray | mmap.mmap) -> mmap.mmap:
    """Return a buffer of twice the size with the same content. Its pages take no memory until they are written."""
    larger = mmap.mmap(-1, 2 * len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    larger[: len(buffer)] = buffer
    return larger


def _sized(length: int) -> bytearray:
    """Return a buffer for `length` bytes that remain of a longer one: the space of a long line is freed."""
    return bytearray(max(READ_BYTES, 2 * length))
