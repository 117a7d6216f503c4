"""Commands for a shell that another process answers, which has loaded already what they would load.

A command hands over its arguments, variables, folder, stdin, stdout and stderr, and ends with the exit code that it is
told.
"""

import json
import os
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

# A shebang cannot have a path with spaces: to a shell the second line is a command, to Python a text.
_SCRIPT = """#!/bin/sh
'''exec' {python} -ISB "$0" "$@"
' '''
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect({address!r})
    request = json.dumps([{name!r}, sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    socket.send_fds(connection, [len(request).to_bytes(4, "big")], [0, 1, 2])
    connection.sendall(request)
    sys.exit(int(connection.recv(16) or b"70"))
"""


@dataclass(frozen=True)
class Call:
    """One use of a command."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]


Command = Callable[[Call], int]
"""Does what a command does and returns its exit code."""


def put(folder: Path, name: str, address: str) -> None:
    """Put a command into a folder, to be answered at this address."""
    script = folder / name
    script.write_text(_SCRIPT.format(python=shlex.quote(sys.executable), address=address, name=name))
    script.chmod(0o755)


def listen(address: str) -> socket.socket:
    """Return a socket that waits for uses of commands."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    return listener


def serve(listener: socket.socket, commands: Mapping[str, Command]) -> None:
    """Answer commands one after the other, until the socket is shut down."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        # A command whose shell is gone does not wait for its answer.
        with connection, suppress(BrokenPipeError):
            connection.sendall(str(_answer(connection, commands)).encode())


def _answer(connection: socket.socket, commands: Mapping[str, Command]) -> int:
    size, descriptors, _, _ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as request:
        name, arguments, environment, folder = json.loads(request.read(int.from_bytes(size, "big")))
    modes = ("rb", "wb", "wb")
    stdin, stdout, stderr = (os.fdopen(descriptor, mode) for descriptor, mode in zip(descriptors, modes, strict=True))
    with stdin, stdout, stderr:
        return commands[name](Call(arguments, environment, Path(folder), stdin, stdout, stderr))


@contextmanager
def answered(folder: Path, commands: Mapping[str, Command]) -> Iterator[None]:
    """Put commands into a folder, and answer them in this process as long as this lasts."""
    # The address of a socket may have 104 bytes on some systems (unix(4)), and a test's folder may be deep.
    with tempfile.TemporaryDirectory() as home, listen(f"{home}/commands") as listener:
        thread = threading.Thread(target=serve, args=(listener, commands), daemon=True)
        thread.start()
        for name in commands:
            put(folder, name, f"{home}/commands")
        try:
            yield
        finally:
            # Closing alone would leave the thread in `accept`.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
