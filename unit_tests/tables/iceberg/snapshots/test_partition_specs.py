"""Snapshots with files of several partition specs: every file keeps its own, whoever adds or replaces it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, TimestampType

from destination_datalake.schema.types import Field, Float32, Float64, Int32, Int64, String, Timestamp
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.test_promotion import Executors

pytestmark = pytest.mark.share(4)

ID = Field("id", "id", Int64())
AT = Field("at", "at", Timestamp(zoned=False))
PRICE = Field("price", "price", Float32())
COLUMNS = (ID, AT, PRICE)
BRANCH = "airbyte_generation_2"


def opened(lake: Lake, units: str = "NO PARTITIONING", **more: Any) -> IcebergTable:
    return lake.open(**{"columns": COLUMNS, "cursor": "at", "partitioning": units, **more})


def row(id_: int, at: str) -> dict[str, Any]:
    return {"id": id_, "at": datetime.fromisoformat(at), "price": 0.5}


def filled_with_three_specs(lake: Lake, **more: Any) -> None:
    lake.commit_rows(opened(lake, "YEAR", **more), row(1, "2023-05-05"), row(2, "2024-01-01"))
    lake.commit_rows(opened(lake, "DAY", **more), row(3, "2024-01-01"), row(4, "2024-01-02"))
    lake.commit_rows(opened(lake, partition_by=[], **more), row(5, "2024-01-01"))


def test_an_unpublished_overwrite_of_several_specs_is_adopted_with_a_manifest_for_each(lake: Lake) -> None:
    opened(lake, "YEAR")
    filled_with_three_specs(lake, generation=2, overwrite=True)
    assert lake.ids() == []

    opened(lake, generation=3)

    assert lake.ids() == [1, 2, 3, 4, 5]
    assert lake.specs_of_files() == [0, 0, 1, 1, 2]
    assert lake.scanned("at = '2024-01-02T00:00:00'") == 3
    assert lake.branches() == []
    manifests = [(manifest.partition_spec_id, len(manifest.partitions or [])) for manifest in lake.manifests()]
    assert sorted(manifests) == [(0, 1), (1, 1), (2, 0)]


def test_an_overwrite_of_another_spec_is_published(lake: Lake) -> None:
    filled_with_three_specs(lake)
    overwriting = opened(lake, "MONTH", generation=2, overwrite=True)
    lake.commit_rows(overwriting, row(6, "2024-01-01"), row(7, "2024-02-01"))
    assert lake.ids() == [1, 2, 3, 4, 5]

    overwriting.publish(no_rewrite)

    assert lake.ids() == [6, 7]
    assert lake.specs_of_files() == [3, 3]
    assert lake.scanned("at = '2024-01-31T00:00:00'") == 1


def test_files_of_all_specs_are_replaced_when_a_column_becomes_double(lake: Lake) -> None:
    filled_with_three_specs(lake)
    overwriting = opened(lake, "DAY", generation=2, overwrite=True)
    lake.commit_rows(overwriting, row(6, "2024-01-01"), {"id": 7, "at": None, "price": 0.5})
    before = {entry.file.file_path for entry in lake.load().scan().plan_files()}

    wide = lake.write_partitions(
        overwriting,
        {**row(8, "2024-01-01"), "price": 0.1},
        columns=(ID, AT, Field("price", "price", Float64())),
    )
    assert overwriting.commit(wide, Executors()) == Committed()

    assert lake.ids() == [1, 2, 3, 4, 5]
    assert lake.specs_of_files() == [0, 0, 1, 1, 2]
    assert lake.specs_of_files(BRANCH) == [1, 1, 1]
    assert lake.scanned("at = '2024-01-02T00:00:00'") == 3
    assert lake.scanned("at is null", BRANCH) == 1
    folders = [{path.rpartition("/")[0] for path in paths} for paths in (before, paths_of(lake))]
    assert folders[0] == folders[1]
    assert not before & paths_of(lake)


def test_a_file_that_is_not_replaced_stays_beside_one_that_is(lake: Lake) -> None:
    """Both are in one manifest, which is written anew; sequence numbers decide to which files deletes apply."""
    by: dict[str, Any] = {"partition_by": [{"source": "id"}]}
    before = lake.write_partitions(lake.open(columns=(ID,), **by), {"id": 1})
    syncing = lake.open(columns=(ID, PRICE), **by)
    files = [*before, *lake.write_partitions(syncing, {"id": 2, "price": 0.5})]
    assert syncing.commit(files, no_rewrite) == Committed()
    [manifest] = lake.manifests()

    wide = lake.write_partitions(syncing, {"id": 3, "price": 0.1}, columns=(ID, Field("price", "price", Float64())))
    assert syncing.commit(wide, Executors()) == Committed()

    entries = lake.entries()
    [kept] = [entry for entry in entries if entry.data_file.file_path == before[0].uri]
    assert (kept.status, kept.sequence_number) == (ManifestEntryStatus.EXISTING, manifest.sequence_number)
    assert kept.data_file.partition[0] == 1
    assert len(entries) == 3
    assert lake.ids() == [1, 2, 3]
    assert lake.scanned("id = 2") == 1


def paths_of(lake: Lake) -> set[str]:
    return {task.file.file_path for task in lake.load().scan().plan_files()}


def test_partitions_by_a_column_that_becomes_double_stay_right(lake: Lake) -> None:
    """An identity partition may be promoted: the value is the same (Iceberg spec: Schema Evolution)."""
    by_price: dict[str, Any] = {"partition_by": [{"source": "price"}]}
    syncing = opened(lake, **by_price)
    lake.commit_rows(syncing, row(1, "2024-01-01"), {**row(2, "2024-01-01"), "price": None})

    wide = lake.write_partitions(
        syncing, {**row(3, "2024-01-01"), "price": 0.1}, columns=(ID, AT, Field("price", "price", Float64()))
    )
    assert syncing.commit(wide, Executors()) == Committed()

    assert lake.load().schema().find_type("price") == DoubleType()
    assert lake.ids() == [1, 2, 3]
    promote_again = {**row(4, "2024-01-01"), "price": None}
    lake.commit_rows(opened(lake, **by_price), promote_again)
    partitions = [file.partition[0] for file in lake.files()]
    assert sorted(partitions, key=str) == [0.1, 0.5, None, None]
    assert lake.scanned("price = 0.5") == 1
    assert lake.scanned("price is null") == 2


def test_partitions_by_doubles_are_adopted_exactly(lake: Lake) -> None:
    columns = (ID, Field("price", "price", Float64()))
    by_price: dict[str, Any] = {"columns": columns, "partition_by": [{"source": "price"}]}
    lake.open(**by_price)
    lake.commit_rows(lake.open(2, overwrite=True, **by_price), {"id": 1, "price": 0.1})

    lake.open(3, **by_price)

    [file] = lake.files()
    assert file.partition[0] == 0.1


@pytest.mark.parametrize("transform", ["identity", "bucket[8]", "truncate[10]"])
def test_partitions_by_a_column_that_becomes_long_stay_right(lake: Lake, transform: str) -> None:
    """These transforms give an int and a long the same value (Iceberg spec: Schema Evolution)."""
    by: dict[str, Any] = {"partition_by": [{"source": "n", "transform": transform}]}
    narrow, wide = (Field("n", "n", Int32()), ID), (Field("n", "n", Int64()), ID)
    lake.commit_rows(lake.open(columns=narrow, **by), {"id": 1, "n": -7}, {"id": 2, "n": 34})

    lake.commit_rows(lake.open(columns=wide, **by), {"id": 3, "n": 2**40}, {"id": 4, "n": 34})

    assert lake.load().schema().find_type("n") == LongType()
    assert lake.ids() == [1, 2, 3, 4]
    assert lake.scanned("n = 34") == 2
    assert len(lake.load().scan("n = 34").to_arrow()) == 2


FOREIGN_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "n", IntegerType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "price", FloatType()),
)
OURS = (ID, Field("region", "region", String()), Field("n", "n", Int32()), PRICE)


def test_a_table_that_another_engine_partitions_by_several_fields_is_continued(lake: Lake) -> None:
    """One of the fields was removed: it is null in every row, although its column is required."""
    spec = PartitionSpec(
        PartitionField(2, 1000, TruncateTransform(1), "region_trunc"),
        PartitionField(1, 1001, VoidTransform(), "was_id"),
        PartitionField(3, 1002, BucketTransform(4), "n_bucket"),
    )
    lake.create(FOREIGN_SCHEMA, partition_spec=spec)

    lake.commit_rows(
        lake.open(columns=OURS),
        {"id": 1, "region": "eu", "n": 1, "price": 0.5},
        {"id": 2, "region": "us", "n": 1, "price": 0.5},
        {"id": 3, "region": None, "n": None, "price": 0.5},
    )

    assert lake.ids() == [1, 2, 3]
    assert lake.scanned("region = 'eu'") == 1
    assert lake.scanned("region is null and n is null") == 1
    assert lake.scanned("region = 'eu' and n is null") == 0


def test_rows_without_a_value_are_not_in_the_partition_of_the_others(lake: Lake) -> None:
    """A partition made of column statistics would have them there: those leave nulls out."""
    by_region = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    lake.create(FOREIGN_SCHEMA, partition_spec=by_region, properties={"write.metadata.metrics.default": "none"})

    lake.commit_rows(lake.open(columns=OURS), {"id": 1, "region": "eu", "n": 1}, {"id": 2, "region": None, "n": None})

    table_rows = lake.load().scan("region is null", selected_fields=("id",)).to_arrow().to_pylist()
    assert table_rows == [{"id": 2}]
    assert lake.scanned("region = 'eu'") == 1


def test_files_of_a_spec_whose_column_was_dropped_keep_their_partitions(lake: Lake) -> None:
    """Their manifests are written anew when they are promoted."""
    by_region = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    foreign_rows = pa.table({"id": [1], "region": ["eu"], "price": pa.array([0.5], pa.float32())})
    optional = Schema(*(field.model_copy(update={"required": False}) for field in FOREIGN_SCHEMA.fields))
    lake.create(optional, partition_spec=by_region).append(foreign_rows)
    with lake.load().update_spec() as update:
        update.remove_field("region")
    with lake.load().update_schema() as update_schema:
        update_schema.delete_column("region")
    syncing = lake.open(columns=(ID, PRICE))

    wide = lake.write_rows(syncing, {"id": 2, "price": 0.1}, columns=(ID, Field("price", "price", Float64())))
    assert syncing.commit([wide], Executors()) == Committed()

    assert lake.ids() == [1, 2]
    partitions = [list(file.partition._data) for file in lake.files()]
    assert sorted(partitions, key=len) == [[], ["eu"]]
