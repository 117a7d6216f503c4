"""Options whose partitions or order change, and tables whose spec other engines change."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.types import Field, Int64, String, Timestamp
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Reencode
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(9)

ID = Field("id", "id", Int64())
AT = Field("at", "at", Timestamp(zoned=False))
COLUMNS = (ID, AT)
FOREIGN_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))


def opened(lake: Lake, units: str = "NO PARTITIONING", **more: Any) -> IcebergTable:
    return lake.open(**{"columns": COLUMNS, "cursor": "at", "partitioning": units, **more})


def row(id_: int, at: str) -> dict[str, Any]:
    return {"id": id_, "at": datetime.fromisoformat(at)}


def spec(lake: Lake) -> list[str]:
    """The fields of the table's default spec."""
    table = lake.load()
    return [
        f"{field.name}={field.transform}({table.schema().find_column_name(field.source_id)})"
        for field in table.spec().fields
    ]


def test_partitions_of_several_units_are_by_the_finest(lake: Lake) -> None:
    opened(lake, "YEAR/MONTH/DAY")

    assert spec(lake) == ["at_day=day(at)"]


def test_a_table_is_partitioned_anew_when_the_options_change_and_its_files_stay(lake: Lake) -> None:
    lake.commit_rows(opened(lake, "YEAR"), row(1, "2023-05-05"), row(2, "2024-01-01"))
    before = lake.objects()
    lake.commit_rows(opened(lake, "DAY"), row(3, "2024-01-01"), row(4, "2024-01-02"))
    lake.commit_rows(opened(lake, partition_by=[]), row(5, "2024-01-01"), row(6, "1969-01-01"))

    assert spec(lake) == []
    assert lake.specs_of_files() == [0, 0, 1, 1, 2]
    assert lake.ids() == [1, 2, 3, 4, 5, 6]
    assert {key for key in before if key.endswith(".parquet")} < lake.objects()
    # One file of a year, one of a day, and the file without a partition.
    assert lake.scanned("at = '2024-01-01T00:00:00'") == 3
    assert lake.scanned("at < '2000-01-01T00:00:00'") == 1


def test_options_that_leave_partitions_open_keep_them(lake: Lake) -> None:
    opened(lake, "DAY")

    lake.commit_rows(opened(lake), row(1, "2024-01-01"), row(2, "2024-01-02"))

    assert spec(lake) == ["at_day=day(at)"]
    assert lake.scanned("at = '2024-01-01T00:00:00'") == 1


def test_a_spec_that_another_engine_has_set_is_kept_until_the_options_change(lake: Lake) -> None:
    opened(lake, "DAY")
    with lake.load().update_spec() as update:
        update.remove_field("at_day").add_field("id", BucketTransform(4), "id_bucket")

    lake.commit_rows(opened(lake, "DAY"), row(1, "2024-01-01"))
    kept = spec(lake)
    lake.commit_rows(opened(lake, "YEAR"), row(2, "2024-01-01"))

    assert kept == ["id_bucket=bucket[4](id)"]
    assert spec(lake) == ["at_year=year(at)"]
    assert lake.ids() == [1, 2]


def test_columns_and_partitions_change_in_one_commit(lake: Lake) -> None:
    opened(lake)
    before = len(lake.load().metadata.metadata_log)

    wide = (*COLUMNS, Field("land", "land", String()))
    lake.open(columns=wide, partition_by=[{"source": "land"}], sort_by=[{"source": "at"}])

    assert spec(lake) == ["land=identity(land)"]
    assert len(lake.load().metadata.metadata_log) == before + 1
    lake.open(columns=wide, partition_by=[{"source": "land"}], sort_by=[{"source": "at"}])
    assert len(lake.load().metadata.metadata_log) == before + 1


def test_a_former_spec_is_taken_up_again(lake: Lake) -> None:
    for units in ("DAY", "YEAR", "DAY"):
        opened(lake, units)

    table = lake.load()
    assert table.metadata.default_spec_id == 0
    assert len(table.specs()) == 2


def test_a_field_of_another_transform_gets_another_name(lake: Lake) -> None:
    """Readers of the table's partitions see the fields of all specs together."""
    for size in (4, 8):
        opened(lake, partition_by=[{"source": "id", "transform": f"bucket[{size}]", "name": "b"}])

    assert spec(lake) == ["b_1001=bucket[8](id)"]


def test_a_field_can_be_renamed(lake: Lake) -> None:
    for name in ("x", "y"):
        opened(lake, partition_by=[{"source": "id", "name": name}])

    table = lake.load()
    assert spec(lake) == ["y=identity(id)"]
    assert {field.field_id for partition_spec in table.specs().values() for field in partition_spec.fields} == {1000}


def test_fields_are_removed_from_a_table_of_format_version_1_by_making_them_void(lake: Lake) -> None:
    """In such a table the fields of each spec begin with those of the last (Iceberg spec: Partition Evolution)."""
    opened(lake, "DAY")
    lake.edit_metadata({"format-version": 1, "partition-spec": [], "schema": {"type": "struct", "fields": []}})
    lake.commit_rows(opened(lake, "DAY"), row(1, "2024-01-01"))
    lake.commit_rows(opened(lake, "YEAR"), row(2, "2024-01-01"))
    voided = spec(lake)
    lake.commit_rows(opened(lake, partition_by=[]), row(3, "2024-01-01"))
    lake.commit_rows(opened(lake, "DAY"), row(4, "2024-01-01"))

    assert lake.load().format_version == 1
    assert voided == ["at_day=void(at)", "at_year=year(at)"]
    assert spec(lake) == ["at_day=day(at)", "at_year=void(at)"]
    assert lake.ids() == [1, 2, 3, 4]
    assert lake.scanned("at > '2025-01-01T00:00:00'") == 1


def test_a_table_of_another_stays_as_it_is_with_a_warning(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    by_month = PartitionSpec(PartitionField(2, 1000, MonthTransform(), "month"))
    lake.create(FOREIGN_SCHEMA, partition_spec=by_month)

    lake.commit_rows(opened(lake, "DAY", sort_by=[{"source": "id"}]), row(1, "2024-01-01"), row(2, "2024-02-01"))

    assert spec(lake) == ["month=month(at)"]
    assert lake.scanned("at < '2024-02-01T00:00:00'") == 1
    assert f"Table {lake.name} is not partitioned and sorted as the options configure" in caplog.text


@pytest.mark.parametrize("units", ["MONTH", "NO PARTITIONING"])
def test_a_table_of_another_that_is_as_the_options_say_needs_no_warning(
    lake: Lake, caplog: pytest.LogCaptureFixture, units: str
) -> None:
    lake.create(FOREIGN_SCHEMA, partition_spec=PartitionSpec(PartitionField(2, 1000, MonthTransform(), "month")))

    opened(lake, units)

    assert "as the options configure" not in caplog.text


def test_the_table_of_another_stream_stays_as_it_is(lake: Lake) -> None:
    """Two streams with different options would change it at every sync."""
    opened(lake, "DAY")

    opened(lake, "YEAR", stream=StreamId("shop", "Returns"))

    assert spec(lake) == ["at_day=day(at)"]


def test_a_batch_is_encoded_again_when_the_spec_has_changed_since_it_was_planned(lake: Lake) -> None:
    syncing = opened(lake, "DAY")
    planned = lake.write_partitions(syncing, row(1, "2024-01-01"), row(2, "2024-01-02"))
    late = lake.write_partitions(syncing, row(3, "2024-01-01"))
    with lake.load().update_spec() as update:
        update.remove_field("at_day").add_identity("id")

    reason = "its partition spec was changed after the files were planned"
    assert syncing.commit(planned, no_rewrite) == Reencode(reason)
    # It was planned before the answer.
    assert syncing.commit(late, no_rewrite) == Reencode(reason)

    assert not any(key in file.uri for key in lake.objects() for file in (*planned, *late))
    lake.commit_rows(syncing, row(1, "2024-01-01"), row(2, "2024-01-02"), row(3, "2024-01-01"))
    assert lake.ids() == [1, 2, 3]
    assert lake.scanned("id = 2") == 1


def test_a_batch_is_encoded_again_when_the_spec_changes_between_two_attempts_to_commit(lake: Lake) -> None:
    syncing = opened(lake, "DAY")
    files = lake.write_partitions(syncing, row(1, "2024-01-01"))

    def evolve() -> None:
        with lake.load().update_spec() as update:
            update.add_identity("id")

    lake.at_the_next_update(evolve)

    assert isinstance(syncing.commit(files, no_rewrite), Reencode)
    assert lake.ids() == []


@pytest.mark.parametrize("unpartitioned_first", [True, False])
def test_files_without_and_with_partitions_are_not_taken_for_each_other(
    lake: Lake, *, unpartitioned_first: bool
) -> None:
    before, after = ("NO PARTITIONING", "DAY") if unpartitioned_first else ("DAY", "NO PARTITIONING")
    syncing = opened(lake, before)
    files = lake.write_partitions(syncing, row(1, "2024-01-01"))
    opened(lake, after, partition_by=None if unpartitioned_first else [])

    assert isinstance(syncing.commit(files, no_rewrite), Reencode)
    lake.commit_rows(syncing, row(1, "2024-01-01"))

    assert lake.ids() == [1]


def test_of_two_syncs_with_different_options_the_last_decides_and_no_row_is_lost(lake: Lake) -> None:
    first, second = opened(lake, "DAY"), opened(lake, "YEAR")
    files = lake.write_partitions(first, row(1, "2024-01-01"))
    lake.commit_rows(second, row(2, "2024-01-01"))

    assert isinstance(first.commit(files, no_rewrite), Reencode)
    lake.commit_rows(first, row(1, "2024-01-01"))

    assert spec(lake) == ["at_year=year(at)"]
    assert lake.ids() == [1, 2]


def test_options_that_change_while_the_table_is_committed_to_are_applied_at_the_next_attempt(lake: Lake) -> None:
    opened(lake, "DAY")
    lake.at_the_next_update(lambda: opened(lake, "MONTH"))

    opened(lake, "YEAR")

    assert spec(lake) == ["at_year=year(at)"]


@pytest.mark.parametrize(
    ("source", "transform", "message"),
    [
        ("id", "day", "rows cannot be partitioned by day(id), because the type of field id is bigint"),
        ("at", "truncate[2]", "timestamp"),
    ],
)
def test_a_transform_that_the_type_does_not_permit_is_refused_before_there_is_a_table(
    lake: Lake, source: str, transform: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=r"partition_by of stream shop\.Orders") as refused:
        opened(lake, partition_by=[{"source": source, "transform": transform}])

    assert message in str(refused.value)
    assert lake.objects() == set()


def test_a_field_that_has_the_name_of_a_partition_field_gets_a_column_with_a_suffix(lake: Lake) -> None:
    """Other engines could not load a table that has both, in a former spec either."""
    lake.commit_rows(opened(lake, "DAY"), row(1, "2024-01-01"))
    columns = (*COLUMNS, Field("atDay", "at_day", String()))

    for units in ("DAY", "MONTH"):
        table = opened(lake, units, columns=columns)
        [name] = {column.name for column in table.plan().columns} - {"id", "at"}
        lake.commit_rows(table, row(2, "2024-01-02") | {name: "x"})

    assert name.startswith("at_day_")
    assert {field.name for field in lake.load().schema().fields} >= {"id", "at", name}
    assert lake.ids() == [1, 2, 2]
    assert len(lake.load().scan(f"{name} = 'x'").to_arrow()) == 2


@pytest.mark.parametrize("now", [(ID,), (ID, Field("at", "at", String()))], ids=["removed", "retyped"])
def test_a_table_goes_on_without_the_field_that_it_is_partitioned_and_sorted_by(
    lake: Lake, now: tuple[Field, ...], caplog: pytest.LogCaptureFixture
) -> None:
    arranged: dict[str, Any] = {"partition_by": [{"source": "at", "transform": "day"}], "sort_by": [{"source": "at"}]}
    lake.commit_rows(opened(lake, **arranged), row(1, "2024-01-01"))

    table = opened(lake, columns=now, **arranged)
    lake.commit_rows(table, {"id": 2, **{column.name: "x" for column in table.plan().columns[1:]}})

    assert spec(lake) == ["at_day=day(at)"]
    assert lake.ids() == [1, 2]
    assert lake.scanned("at is null") == 1
    assert "so new rows cannot be partitioned by day(at)" in caplog.text
    with pytest.raises(ConfigError, match="names the field other, but the stream has no such field"):
        opened(lake, columns=now, partition_by=[{"source": "other"}])


def test_a_column_can_have_the_name_that_a_partition_field_would_have(lake: Lake) -> None:
    opened(lake, "DAY", columns=(*COLUMNS, Field("at_day", "at_day", String())))

    assert spec(lake) == ["at_day_1=day(at)"]


def test_names_of_partition_fields_do_not_clash_with_columns_that_the_stream_lacks(lake: Lake) -> None:
    opened(lake, columns=(*COLUMNS, Field("at_day", "at_day", String())))

    opened(lake, "DAY")

    assert spec(lake) == ["at_day_1000=day(at)"]


def test_partitions_of_a_column_that_another_engine_has_renamed_stay_with_it(lake: Lake) -> None:
    """The stream fills a new column of the old name; what fills the renamed one is null from now on."""
    lake.commit_rows(opened(lake, "DAY"), row(1, "2024-01-01"))
    with lake.load().update_schema() as update:
        update.rename_column("at", "was_at")

    lake.commit_rows(opened(lake, "DAY"), row(2, "2024-01-02"))

    assert spec(lake) == ["at_day=day(was_at)"]
    assert lake.ids() == [1, 2]
    assert lake.scanned("was_at is null") == 1
    assert len(lake.load().scan("at >= '2024-01-02T00:00:00'").to_arrow()) == 1


def test_partitions_by_columns_that_the_stream_does_not_have_are_null(lake: Lake) -> None:
    fields = (*FOREIGN_SCHEMA.fields, NestedField(3, "region", StringType()))
    by = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "region"), PartitionField(2, 1001, DayTransform(), "day")
    )
    lake.create(Schema(*fields), partition_spec=by)

    lake.commit_rows(opened(lake), row(1, "2024-01-01"), row(2, "2024-01-02"))
    lake.commit_rows(lake.open(), {"id": 3})

    assert lake.ids() == [1, 2, 3]
    assert lake.scanned("region is null") == 3
    assert lake.scanned("region = 'eu'") == 0
    assert lake.scanned("at = '2024-01-02T00:00:00'") == 1


def test_a_change_of_the_options_whose_response_is_lost_is_made_once(lake: Lake) -> None:
    opened(lake, "DAY")
    lake.at_the_next_update(lambda: None, response_lost=True)

    lake.commit_rows(opened(lake, "YEAR"), row(1, "2024-01-01"))

    assert spec(lake) == ["at_year=year(at)"]
    assert len(lake.load().specs()) == 2
