"""Store the lines of states that wait for the commit of their records: the first in memory, the rest on disk."""

from __future__ import annotations

import os
from pathlib import Path

from destination_datalake.buffer.disk import MiB, disk_errors

MEMORY_BYTES = 8 * MiB
FILE_BYTES = 16 * MiB


class StateStore:
    """Stores STATE lines: up to `memory_bytes` in memory, the rest in files of `file_bytes` each.

    Not thread-safe: the owner locks, except for `read` of a line. `disk_bytes` is the size of the files. A file is
    deleted when all its lines are released.
    """

    def __init__(self, directory: Path, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._max_memory_bytes = memory_bytes
        self._max_file_bytes = file_bytes
        self._files = 0
        self._file: _File | None = None
        self.memory_bytes = 0
        self.disk_bytes = 0

    def keep(self, line: bytes) -> _InMemory | _OnDisk:
        """Store a line until it is released. Raises DiskFailed."""
        if self.memory_bytes + len(line) <= self._max_memory_bytes:
            self.memory_bytes += len(line)
            return _InMemory(self, line)
        if self._file is None or self._file.size >= self._max_file_bytes:
            self._files += 1
            self._file = _File(self._directory / f"held-{self._files:08d}")
        with disk_errors(self._directory):
            offset = self._file.append(line)
        self.disk_bytes += len(line)
        return _OnDisk(self, self._file, offset, len(line))

    def _release_on_disk(self, file: _File) -> None:
        file.lines -= 1
        if not file.lines:
            self.disk_bytes -= file.size
            file.path.unlink(missing_ok=True)
            if file is self._file:
                self._file = None


class _File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.lines = 0

    def append(self, line: bytes) -> int:
        offset = self.size
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view, end = memoryview(line), offset
            while view:
                written = os.pwrite(descriptor, view, end)
                view, end = view[written:], end + written
        finally:
            os.close(descriptor)
        self.size = end
        self.lines += 1
        return offset


class _InMemory:
    __slots__ = ("_store", "_text")

    def __init__(self, store: StateStore, text: bytes) -> None:
        self._store = store
        self._text = text

    def read(self) -> bytes:
        return self._text

    def release(self) -> None:
        self._store.memory_bytes -= len(self._text)


class _OnDisk:
    __slots__ = ("_file", "_length", "_offset", "_store")

    def __init__(self, store: StateStore, file: _File, offset: int, length: int) -> None:
        self._store = store
        self._file = file
        self._offset = offset
        self._length = length

    def read(self) -> bytes:
        with disk_errors(self._file.path.parent), self._file.path.open("rb") as file:
            file.seek(self._offset)
            return file.read(self._length)

    def release(self) -> None:
        self._store._release_on_disk(self._file)
