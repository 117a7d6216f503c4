"""What killed syncs have staged: segments, and indexes of merges.

Nothing is deleted that is not known to be ours, of a sync that is dead.

A folder is ours if it has a lease that says so. Its sync is dead if neither the lease nor any other object of the
folder was written within LEASE_SECONDS, by S3's own clock: those of the machines of two syncs may differ. The lease is
deleted last, so that a removal that is interrupted is continued by a later sync.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from destination_datalake.aws.address import S3Address
from destination_datalake.buffer.staging.lease import LEASE_NAME, LEASE_SECONDS, content_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from destination_datalake.aws.access import AwsAccess

_logger = logging.getLogger(__name__)

_SYNC = re.compile(r"[0-9a-f]{12}")
_SCRATCH = "scratch"
_STAGED = re.compile(rf"\d{{8}}\.jsonl|{_SCRATCH}/[0-9a-f]{{32}}/index-\d{{5,}}-[0-9a-f]{{8}}\.arrow")
"""The keys of a sync's segments and indexes, below its folder."""


class _Folder(NamedTuple):
    """A sync's folder as it was listed at `now`, a time of S3's.

    It has what the sync has staged, and when the last object was written.
    """

    prefix: str
    staged: list[str]
    written: datetime | None
    now: datetime | None


def remove_leftovers(root: str, own: str, access: AwsAccess) -> None:
    """Delete what is staged, and the leases, of dead syncs under `root`, an S3 URI; `own` is the sync that is running.

    Raises what S3's client raises.
    """
    s3, address = access.client("s3"), S3Address.parse(f"{root}/")
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=address.bucket, Prefix=address.key, Delimiter="/"):
        for prefix in (each["Prefix"] for each in page.get("CommonPrefixes", [])):
            sync = prefix.removeprefix(address.key).rstrip("/")
            if _SYNC.fullmatch(sync) and sync != own:
                _remove_dead(_listed(s3, address.bucket, prefix), sync, address.bucket, s3)


def remove_indexes(folder: str, access: AwsAccess) -> None:
    """Delete the indexes in a sync's folder, an S3 URI without a slash at its end. Raises what S3's client raises."""
    s3, address = access.client("s3"), S3Address.parse(f"{folder}/")
    for key in _listed(s3, address.bucket, address.key).staged:
        if key.startswith(f"{address.key}{_SCRATCH}/"):
            s3.delete_object(Bucket=address.bucket, Key=key)


def _remove_dead(folder: _Folder, sync: str, bucket: str, s3: S3Client) -> None:
    lease = f"{folder.prefix}{LEASE_NAME}"
    if not (_is_old(folder.written, folder.now) and _has_expired(bucket, lease, sync, folder.now, s3)):
        return
    for key in (*folder.staged, lease):
        s3.delete_object(Bucket=bucket, Key=key)
    _logger.info("%d segments and indexes that sync %s left behind were removed.", len(folder.staged), sync)


def _listed(s3: S3Client, bucket: str, prefix: str) -> _Folder:
    staged: list[str] = []
    written = now = None
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        now = now or _time_of(page)
        for entry in page.get("Contents", []):
            written = max(written or entry["LastModified"], entry["LastModified"])
            if _STAGED.fullmatch(entry["Key"].removeprefix(prefix)):
                staged.append(entry["Key"])
    return _Folder(prefix, staged, written, now)


def _has_expired(bucket: str, lease: str, sync: str, now: datetime | None, s3: S3Client) -> bool:
    """Whether there is a lease, it is that of a sync of ours, and it is still not renewed."""
    try:
        answer = s3.get_object(Bucket=bucket, Key=lease)
    except s3.exceptions.NoSuchKey:
        return False
    return _is_old(answer["LastModified"], now) and answer["Body"].read() == content_of(sync)


def _is_old(written: datetime | None, now: datetime | None) -> bool:
    return written is not None and now is not None and now - written > timedelta(seconds=LEASE_SECONDS)


def _time_of(answer: Mapping[str, Any]) -> datetime | None:
    """Return S3's time of an answer; None from a store that does not say it, where nothing is known to be old."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    return None if date is None else parsedate_to_datetime(date)
