"""Merged manifests: the same files with the same sequence numbers, partitions and metrics, for every reader."""

from __future__ import annotations

import decimal
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import date, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, ConnectionClosedError
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    String,
    Timestamp,
)
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.cloud import during
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(5)

FAN_IN = 3
BRANCH = "airbyte_generation_2"


def opened(lake: Lake, *arguments: Any, **options: Any) -> IcebergTable:
    """The table, whose manifests are merged by threes."""
    lake.open(**{key: value for key, value in options.items() if key != "overwrite"})
    lake.set_properties({"commit.manifest.min-count-to-merge": str(FAN_IN)})
    return lake.open(*arguments, **options)


def entries(lake: Lake) -> dict[str, tuple[object, ...]]:
    """All that a manifest says of each live file but whether its snapshot has added it."""
    return {
        entry.data_file.file_path: (
            entry.snapshot_id,
            entry.sequence_number,
            entry.file_sequence_number,
            entry.data_file.spec_id,
            *(repr(dict(value) if isinstance(value, Mapping) else value) for value in entry.data_file._data),
        )
        for entry in lake.entries()
    }


def test_a_table_of_many_commits_has_few_manifests(lake: Lake) -> None:
    syncing = opened(lake)
    before: dict[str, tuple[object, ...]] = {}
    for id_ in range(14):
        lake.commit(syncing, id_)
        after = entries(lake)
        assert before.items() <= after.items()
        before = after

    assert lake.ids() == list(range(14))
    assert len(before) == 14
    assert len(lake.manifests()) <= 2 * FAN_IN


def test_former_snapshots_keep_the_manifests_that_were_merged(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN + 2):
        lake.commit(syncing, id_)

    table = lake.load()
    for number, snapshot in enumerate(table.metadata.snapshots, start=1):
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        assert sorted(row["id"] for row in rows) == list(range(number))


def test_the_files_of_a_commit_are_new_in_its_own_manifest(lake: Lake) -> None:
    """Readers of what a snapshot has added read the manifests that it has added."""
    syncing = opened(lake)
    for id_ in range(FAN_IN + 1):
        lake.commit(syncing, id_)

    head = lake.load().current_snapshot()
    assert head is not None
    own = [manifest for manifest in lake.manifests() if manifest.added_snapshot_id == head.snapshot_id]
    counts = [
        (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count) for manifest in own
    ]
    assert sorted(counts) == [(0, FAN_IN, 0), (1, 0, 0)]
    merged = next(manifest for manifest in own if manifest.existing_files_count)
    assert (merged.sequence_number, merged.min_sequence_number) == (FAN_IN + 1, 1)


def test_rows_that_others_have_deleted_stay_deleted(lake: Lake) -> None:
    """A delete file applies to data files of lower sequence numbers, and no other row may be hit."""
    syncing = opened(lake)
    lake.commit(syncing, 0, 1)
    lake.delete_first_row()
    for id_ in range(2, 7):
        lake.commit(syncing, id_)
    lake.delete_first_row()

    contents = Counter(manifest.content for manifest in lake.manifests())
    assert contents[ManifestContent.DELETES] == 2
    assert contents[ManifestContent.DATA] <= 2 * FAN_IN + 1
    assert len(lake.ids()) == 5
    assert 0 not in lake.ids()


def test_manifests_of_each_spec_are_merged_by_themselves(lake: Lake) -> None:
    more: dict[str, Any] = {"columns": (Field("id", "id", Int64()), Field("at", "at", Timestamp(zoned=False)))}
    more["cursor"] = "at"
    at = {"at": datetime(2024, 1, 2)}
    for syncing in (opened(lake, partitioning=units, **more) for units in ("YEAR", "DAY")):
        for id_ in range(FAN_IN + 1):
            lake.commit_rows(syncing, {"id": id_, **at})

    assert lake.specs_of_files() == [0] * 4 + [1] * 4
    assert Counter(manifest.partition_spec_id for manifest in lake.manifests()) == {0: 2, 1: 2}
    assert len(lake.ids()) == 8
    assert lake.scanned("at = '2025-01-02T00:00:00'") == 0


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (Boolean(), [True, False, None]),
        (Int32(), [-(2**31), 0, None]),
        (Int64(), [-(2**63), 2**63 - 1, None]),
        (Float32(), [0.1, -0.0, float("inf"), None]),
        (Float64(), [0.1, -0.0, 1e308, float("-inf"), None]),
        (Decimal(38, 9), [decimal.Decimal("0.100000001"), decimal.Decimal("-1.000000000"), None]),
        (String(), ["", "a/b", "\U0001f600", None]),
        (Date(), [date(1, 1, 1), date(2024, 2, 29), None]),
        (Timestamp(zoned=False), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31), None]),
    ],
    ids=str,
)
def test_values_of_partitions_stay_exact(lake: Lake, type_: ColumnType, values: list[Any]) -> None:
    by: dict[str, Any] = {"columns": (Field("id", "id", Int64()), Field("v", "v", type_))}
    syncing = opened(lake, partition_by=[{"source": "v"}], **by)
    for _ in range(FAN_IN):
        lake.commit_rows(syncing, *({"id": id_, "v": value} for id_, value in enumerate(values)))
    written = entries(lake)

    lake.commit_rows(syncing, {"id": 10, "v": None})

    assert len(lake.manifests()) == 2
    assert written.items() <= entries(lake).items()
    assert len(lake.ids()) == FAN_IN * len(values) + 1


@pytest.mark.parametrize("type_", [Float32(), Float64()], ids=str)
@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_bounds_of_partitions_order_negative_zero_before_zero(
    lake: Lake, type_: ColumnType, zeros: tuple[float, float]
) -> None:
    by: dict[str, Any] = {"columns": (Field("id", "id", Int64()), Field("v", "v", type_))}
    syncing = opened(lake, partition_by=[{"source": "v"}], **by)

    lake.commit_rows(syncing, *({"id": id_, "v": value} for id_, value in enumerate((*zeros, float("nan")))))

    (summary,) = [field for manifest in lake.manifests() for field in manifest.partitions or ()]
    width = 4 if type_ == Float32() else 8
    assert (summary.lower_bound, summary.upper_bound) == (bytes(width - 1) + b"\x80", bytes(width))
    assert summary.contains_nan


def test_manifests_of_an_unpublished_overwrite_are_merged_beside_those_of_the_table(lake: Lake) -> None:
    appending = opened(lake)
    for id_ in range(2):
        lake.commit(appending, id_)
    untouched = entries(lake)
    overwriting = lake.open(2, overwrite=True)
    for id_ in range(10, 15):
        lake.commit(overwriting, id_)

    assert entries(lake) == untouched
    assert len(lake.manifests(BRANCH)) == FAN_IN

    overwriting.publish(no_rewrite)

    assert lake.ids() == list(range(10, 15))


def test_manifests_of_other_writers_are_merged_too(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.append(id_)
    before = entries(lake)

    lake.commit(syncing, 10)

    assert len(lake.manifests()) == 2
    assert before.items() <= entries(lake).items()
    assert lake.ids() == [*range(FAN_IN), 10]


def test_a_table_of_format_version_1_is_merged(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()))
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    properties = {"format-version": "1", "commit.manifest.min-count-to-merge": str(FAN_IN)}
    lake.create(schema, partition_spec=by_id, properties=properties).append(pa.table({"id": [0]}))
    syncing = lake.open()
    for id_ in range(1, 6):
        lake.commit_rows(syncing, {"id": id_})

    assert lake.load().metadata.format_version == 1
    assert lake.ids() == list(range(6))
    assert lake.scanned("id = 3") == 1
    assert len(lake.manifests()) == 2


def avro(lake: Lake) -> set[str]:
    return {key for key in lake.objects() if key.endswith(".avro")}


def test_what_a_refused_commit_has_merged_is_deleted_and_merged_again_with_the_others(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.commit(syncing, id_)
    before = avro(lake)
    lake.at_the_next_update(lambda: lake.append(10))

    lake.commit(syncing, 11)

    assert lake.ids() == [*range(FAN_IN), 10, 11]
    # The other writer's list and manifest; ours, and the merged one.
    assert len(avro(lake) - before) == 2 + 3
    assert before <= avro(lake)


def test_two_syncs_that_merge_the_same_manifests_lose_no_file(lake: Lake) -> None:
    syncing, other_sync = opened(lake), lake.open()
    for id_ in range(0, 12, 2):
        lake.at_the_next_update(partial(lake.commit, other_sync, id_ + 1))
        lake.commit(syncing, id_)

    assert lake.ids() == list(range(12))
    assert len(entries(lake)) == 12
    assert len(lake.manifests()) <= 3 * FAN_IN


def test_an_answer_that_was_lost_leaves_every_manifest_in_place(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.commit(syncing, id_)
    before = avro(lake)
    lake.at_the_next_update(lambda: None, response_lost=True)

    lake.commit(syncing, 10)

    assert lake.ids() == [*range(FAN_IN), 10]
    assert len(avro(lake) - before) == 3
    assert before <= avro(lake)


def test_a_manifest_that_cannot_be_read_stays_as_it_is_and_files_are_appended(lake: Lake) -> None:
    """An append has no need of it: another writer's may be where the connector has no access."""
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.append(id_)
    [lost, *intact] = (manifest.manifest_path for manifest in lake.manifests())
    body = lake.read_object(lost)
    lake.delete_object(lost)

    for id_ in (10, 11):
        lake.commit(syncing, id_)

    lake.write_object(lost, body)
    assert lake.ids() == [*range(FAN_IN), 10, 11]
    left = {manifest.manifest_path for manifest in lake.manifests()}
    assert lost in left
    assert left.isdisjoint(intact)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionClosedError(endpoint_url="s3"),
        ClientError({"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}, "GetObject"),  # type: ignore[typeddict-item]
    ],
    ids=["connection", "SlowDown"],
)
def test_manifests_are_merged_by_the_commit_after_a_failed_read(lake: Lake, error: Exception) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.append(id_)
    former = {manifest.manifest_path for manifest in lake.manifests()}

    def fail(params: dict[str, Any], **_: object) -> None:
        if f"s3://{params['Bucket']}/{params['Key']}" in former:
            raise error

    with during(lake.access, "provide-client-params.s3.GetObject", fail):
        lake.commit(syncing, 10)
    assert former < {manifest.manifest_path for manifest in lake.manifests()}
    lake.commit(syncing, 11)

    assert former.isdisjoint(manifest.manifest_path for manifest in lake.manifests())
    assert lake.ids() == [*range(FAN_IN), 10, 11]


def test_a_merged_manifest_that_cannot_be_written_leaves_nothing_behind(lake: Lake) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.commit(syncing, id_)
    before, merged = avro(lake), list[str]()

    def lose(key: str) -> bool:
        merged.extend([key] * key.endswith("-m1.avro"))
        return key.endswith("-m1.avro")

    with broken(lake, lose):
        lake.commit(syncing, 10)

    assert len(merged) == 1
    assert len(avro(lake) - before) == 2
    assert lake.ids() == [*range(FAN_IN), 10]


@pytest.mark.parametrize("fragment", ["-m0.avro", "snap-", ".metadata.json"])
def test_a_sync_that_dies_in_the_middle_of_merging_changes_nothing(lake: Lake, fragment: str) -> None:
    syncing = opened(lake)
    for id_ in range(FAN_IN):
        lake.commit(syncing, id_)
    before = entries(lake)
    file = lake.write(syncing, 10)

    with broken(lake, lambda key: fragment in key), pytest.raises(ConnectionClosedError):
        syncing.commit([file], no_rewrite)

    assert entries(lake) == before
    resumed = lake.open()
    assert resumed.commit([lake.write(resumed, 10)], no_rewrite) == Committed()
    assert lake.ids() == [*range(FAN_IN), 10]
    assert before.items() <= entries(lake).items()


def broken(lake: Lake, breaks: Callable[[str], bool]) -> AbstractContextManager[None]:
    """Puts of these keys do not come back meanwhile."""

    def lose(params: dict[str, Any], **_: object) -> None:
        if breaks(params["Key"]):
            raise ConnectionClosedError(endpoint_url="s3")

    return during(lake.access, "provide-client-params.s3.PutObject", lose)
