"""Lines that wait for others to land: a few in memory, and the rest on disk, where it counts as what is buffered."""

from __future__ import annotations

import os
from pathlib import Path

from destination_datalake.buffer.buffer import MiB
from destination_datalake.buffer.disk import on_disk

MEMORY_BYTES = 8 * MiB
FILE_BYTES = 16 * MiB


class HeldLines:
    """Keeps lines: up to `memory_bytes` of them in memory, what comes beyond in files of `file_bytes` each.

    Not thread-safe: its owner locks; only a line's `read` may be called at any time. `disk` counts the files' bytes;
    a file goes when all its lines are forgotten.
    """

    def __init__(self, directory: Path, memory_bytes: int = MEMORY_BYTES, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._memory_bytes = memory_bytes
        self._file_bytes = file_bytes
        self._files = 0
        self._file: _File | None = None
        self.memory = 0
        self.disk = 0

    def keep(self, line: bytes) -> _InMemory | _OnDisk:
        """Keep a line until it is forgotten. Raises DiskFailed."""
        if self.memory + len(line) <= self._memory_bytes:
            self.memory += len(line)
            return _InMemory(self, line)
        if self._file is None or self._file.size >= self._file_bytes:
            self._files += 1
            self._file = _File(self._directory / f"held-{self._files:08d}")
        with on_disk(self._directory):
            offset = self._file.append(line)
        self.disk += len(line)
        return _OnDisk(self, self._file, offset, len(line))

    def _forgotten_in_memory(self, size: int) -> None:
        self.memory -= size

    def _forgotten_on_disk(self, file: _File) -> None:
        file.lines -= 1
        if not file.lines:
            self.disk -= file.size
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
            view, place = memoryview(line), offset
            while view:
                written = os.pwrite(descriptor, view, place)
                view, place = view[written:], place + written
        finally:
            os.close(descriptor)
        self.size = place
        self.lines += 1
        return offset


class _InMemory:
    __slots__ = ("_lines", "_text")

    def __init__(self, lines: HeldLines, text: bytes) -> None:
        self._lines = lines
        self._text = text

    def read(self) -> bytes:
        return self._text

    def forget(self) -> None:
        self._lines._forgotten_in_memory(len(self._text))


class _OnDisk:
    __slots__ = ("_file", "_length", "_lines", "_offset")

    def __init__(self, lines: HeldLines, file: _File, offset: int, length: int) -> None:
        self._lines = lines
        self._file = file
        self._offset = offset
        self._length = length

    def read(self) -> bytes:
        with on_disk(self._file.path.parent), self._file.path.open("rb") as file:
            file.seek(self._offset)
            return file.read(self._length)

    def forget(self) -> None:
        self._lines._forgotten_on_disk(self._file)
