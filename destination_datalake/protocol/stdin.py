"""Standard input as chunks of whole lines."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
from collections.abc import Iterator

READ_BYTES = 1024 * 1024
QUIET_SECONDS = 1.0


def chunks(stdin: int, wake: int) -> Iterator[bytes]:
    """Whole lines as they come, about READ_BYTES at a time; the last chunk may lack its newline.

    An empty chunk says that nothing has come for a second. Ends with the input, or as soon as `wake` (a file
    descriptor) becomes readable; an unfinished line is then dropped, as nothing has acknowledged it.
    """
    with contextlib.suppress(OSError, AttributeError):
        # A larger pipe means fewer turns between the writer and us; not every input is a pipe.
        fcntl.fcntl(stdin, fcntl.F_SETPIPE_SZ, READ_BYTES)
    parts: list[bytes] = []
    while True:
        readable, _, _ = select.select([stdin, wake], [], [], QUIET_SECONDS)
        if wake in readable:
            return
        if not readable:
            yield b""
            continue
        piece = os.read(stdin, READ_BYTES)
        if not piece:
            break
        end = piece.rfind(b"\n") + 1
        if end:
            parts.append(piece[:end])
            yield b"".join(parts)
            parts = [piece[end:]] if end < len(piece) else []
        else:
            parts.append(piece)
    if rest := b"".join(parts):
        yield rest
