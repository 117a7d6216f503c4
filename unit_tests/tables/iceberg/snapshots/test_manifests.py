"""Manifests of other writers that PyIceberg reads in part: none of their files is lost."""

from __future__ import annotations

import pytest

from destination_datalake.tables.iceberg.snapshots.branch_files import live_entries
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.lake import Lake
from unit_tests.tables.iceberg.snapshots.test_merging import FAN_IN, manifests, opened

EMPTY_BLOCK = b"\x00\x04\x03\x00"
"""No objects, in two bytes of deflate (Avro spec: Object Container Files). PyIceberg takes it for the file's end."""


def with_empty_block(body: bytes) -> bytes:
    marker = body[-16:]
    header, rest = body.split(marker, 1)
    return header + marker + EMPTY_BLOCK + marker + rest


def test_a_manifest_that_seems_to_end_too_early_is_not_merged(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.append(id_)
    [theirs, *_] = manifests(lake.load())
    s3, key = lake.access.client("s3"), theirs.manifest_path.removeprefix(f"s3://{lake.bucket}/")
    body = s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
    s3.put_object(Bucket=lake.bucket, Key=key, Body=with_empty_block(body))

    lake.commit(syncing, 10)

    assert theirs in manifests(lake.load())
    with pytest.raises(TableConflict, match="0 of 1 live files"):
        live_entries(theirs, lake.load().io)
    s3.put_object(Bucket=lake.bucket, Key=key, Body=body)
    assert lake.ids() == [*range(FAN_IN), 10]
