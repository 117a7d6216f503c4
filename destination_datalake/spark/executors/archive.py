"""The archive for executors: built once for each content, kept on the driver's disk, the same bytes wherever built.

`python -m destination_datalake.spark.executors.archive` builds it beforehand, for an image.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import os
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from destination_datalake.spark.executors.contents import Contents, contents, launcher

_logger = logging.getLogger(__name__)

_PREFIX = "executors-"
_COMPRESSION = 6
_MIB = 1024 * 1024
_UNUSED_SECONDS = 30 * 24 * 3600
_KEPT = 8
"""How many archives the cache keeps: each version of the connector or of a library makes another."""


@dataclass(frozen=True, slots=True)
class Archive:
    """A gzip-compressed tar file: `bin/python` starts the executor's Python with what is in `packages/`."""

    path: Path
    bytes: int


def archive(scratch: Path, *, with_json_lines: bool) -> Archive:
    """Return the archive of this environment; build it if it is neither in the image nor in the user's cache.

    That takes some seconds and 50 MB, 73 MB `with_json_lines`. Raises OSError if the disk is full.
    """
    return packed(contents(with_json_lines=with_json_lines), scratch)


def packed(content: Contents, scratch: Path) -> Archive:
    """Return the archive of these files. `scratch` is where it is built if the user has no cache. Raises OSError."""
    name = f"{_PREFIX}{content.fingerprint}.tar.gz"
    for folder in (_prebuilt(), _cache()):
        found = folder / name
        if _is_ours(found):
            with contextlib.suppress(OSError):
                os.utime(found)
            return _told(found, "is used again")
    started = time.monotonic()
    path = _writable(scratch) / name
    _build(content, path)
    return _told(path, f"was built in {time.monotonic() - started:.0f} s")


def _told(path: Path, how: str) -> Archive:
    size = path.stat().st_size
    _logger.info("The archive of the connector for executors has %.0f MB and %s: %s", size / _MIB, how, path)
    return Archive(path, size)


def _prebuilt() -> Path:
    return Path(sys.prefix) / "share" / "destination-datalake"


def _cache() -> Path:
    """Return the user's folder for what can be made again (XDG Base Directory Specification)."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(chosen) if chosen.startswith("/") else Path.home() / ".cache") / "destination-datalake"


def _is_ours(path: Path) -> bool:
    """Return whether the file is there, and nobody but this user or root can have written it: executors will run it."""
    try:
        states = (path.stat(), path.parent.stat())
    except OSError:
        return False
    return all(state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022 for state in states)


def _writable(scratch: Path) -> Path:
    folder = _cache()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _remove_unused(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return scratch
    return folder


def _remove_unused(folder: Path) -> None:
    """Make room for another archive: remove what was used longest ago, and what killed builds have left."""
    by_use = sorted(((path.stat().st_mtime, path) for path in folder.glob(f"{_PREFIX}*")), reverse=True)
    for position, (used, path) in enumerate(by_use):
        if position >= _KEPT - 1 or time.time() - used > _UNUSED_SECONDS:
            path.unlink(missing_ok=True)


def _build(content: Contents, path: Path) -> None:
    """Write the archive beside its path and rename it: a build that is killed leaves no archive, two make the same."""
    descriptor, unfinished = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX)
    try:
        with (
            os.fdopen(descriptor, "wb") as file,
            # Neither a name nor a time: the same content makes the same bytes.
            gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
        ):
            script = launcher().encode()
            tar.addfile(_member("bin/python", len(script), 0o755), io.BytesIO(script))
            for each in content.files:
                with each.source.open("rb") as source:
                    size = os.fstat(source.fileno()).st_size
                    tar.addfile(_member(f"packages/{each.path}", size, 0o644), source)
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _member(name: str, size: int, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, mode
    return member


def build() -> None:
    """Build the archives of both formats beside the interpreter, and print their paths."""
    folder = _prebuilt()
    folder.mkdir(parents=True, exist_ok=True)
    for with_json_lines in (False, True):
        content = contents(with_json_lines=with_json_lines)
        path = folder / f"{_PREFIX}{content.fingerprint}.tar.gz"
        _build(content, path)
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    build()
