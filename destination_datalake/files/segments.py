"""Segments as executors find them: on this machine's disk, or staged in S3."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file on the driver's disk: only executors on the same machine can read it."""

    path: str


@dataclass(frozen=True, slots=True)
class StagedObject:
    """An object in S3, which executors anywhere can read.

    `etag` is what S3 answered when it was written: another object under the same key is not read in its place.
    """

    uri: str
    etag: str


@dataclass(frozen=True, slots=True)
class StagedSegment:
    """A segment that executors can read: where it is, and its size in bytes."""

    location: LocalFile | StagedObject
    bytes: int
