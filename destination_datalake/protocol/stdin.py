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


def chunks(stdin: int, wake: int) -> Iterator[memoryview]:
    """Whole lines as they come, about READ_BYTES at a time; the last chunk may lack its newline.

    A chunk is a view of a buffer that the next one overwrites. An empty chunk says that nothing has come for a second.
    Ends with the input, or as soon as `wake` (a file descriptor) becomes readable; an unfinished line is then dropped,
    as nothing has acknowledged it.
    """
    with contextlib.suppress(OSError, AttributeError):
        # A larger pipe means fewer turns between the writer and us; not every input is a pipe.
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
        came = os.readv(stdin, [memoryview(buffer)[filled:]])
        if not came:
            break
        end = buffer.rfind(b"\n", filled, filled + came) + 1
        filled += came
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
    """A buffer with room for as much again, which takes no memory before it is filled: lines may be huge."""
    larger = mmap.mmap(-1, 2 * len(buffer), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    larger[: len(buffer)] = buffer
    return larger


def _sized(length: int) -> bytearray:
    """A buffer for what is left of a longer one: a long line has gone, and its space need not stay."""
    return bytearray(max(READ_BYTES, 2 * length))
