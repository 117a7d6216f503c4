"""Partition keys whose source has another type by now, or whose partitions have values of another one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.paths import PartitionKey, key_type
from destination_datalake.partitioning.spec import NULL_PARTITION, Identity, PartitionField
from destination_datalake.partitioning.transforms import transformed
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field, Int32, String
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.records.values.coercion import coerce_value
from unit_tests.strategies import json_texts, scalars
from unit_tests.tables.hive.partitions.events import ID, Sync, ids, location, locations, partitions, register, sync


@given(scalars, scalars, st.data())
def test_every_value_that_a_key_takes_is_one_of_its_type(
    first: ColumnType, now: ColumnType, data: st.DataObject
) -> None:
    # Given a key made for a column of one type, and a value of a column of another one
    field = PartitionField("c_key", ("c",), Identity())
    recorded = parse_glue_type(glue_type(key_type(field, first, digits=False)))
    assert recorded is not None
    key = PartitionKey(field, recorded, now)
    [value, _] = coerce_value(data.draw(json_texts(now)).encode(), now)

    # When the key takes that type
    if key.takes(now):
        [kept] = transformed(pa.array([value], arrow_type(widest(now))), Identity()).to_pylist()
        text = key.text(kept)

        # Then engines can read the value; and a column as it was is always taken
        assert key.holds(text)
        assert text == NULL_PARTITION or isinstance(recorded, String) or type(recorded) is type(widest(now))
    else:
        assert now != first


def by_note(cloud: Cloud, type_: ColumnType | None, **more: Any) -> Sync:
    """A sync of the stream into its table, which is partitioned by the field `note`; None if the field is gone."""
    note = [] if type_ is None else [Field("note", "note", type_)]
    by = [{"stream": "Events", "namespace": "shop", "partition_by": [{"source": "note", **more}]}]
    return sync(cloud, columns=(ID, *note), partitioning="NO PARTITIONING", streams=by)


@pytest.mark.parametrize(
    ("before", "first", "after", "second", "key"),
    [(Int32(), 7, String(), "abc", "bigint"), (String(), "x", Int32(), 5, "string")],
    ids=["text", "number"],
)
def test_values_of_a_field_that_is_of_another_type_by_now_are_in_the_null_partition(
    cloud: Cloud,
    caplog: pytest.LogCaptureFixture,
    before: ColumnType,
    first: Any,
    after: ColumnType,
    second: Any,
    key: str,
) -> None:
    by_note(cloud, before).commit((1, None), note=first)
    caplog.clear()

    by_note(cloud, after).commit((2, None), **{f"note__{glue_type(after)}": second})

    assert locations(cloud) == {f"{first}": f"note_key={first}/", NULL_PARTITION: f"note_key={NULL_PARTITION}/"}
    assert ids(cloud) == [1, 2]
    [forked, unplaced] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert f"written to column note__{glue_type(after)}" in forked
    assert f"new rows are written to the null partition of partition key note_key ({key})" in unplaced


def test_partitions_go_on_without_a_field_that_the_stream_has_no_longer(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    by_note(cloud, Int32()).commit((1, None), note=7)
    caplog.clear()

    by_note(cloud, None).commit((2, None))

    assert locations(cloud) == {"7": "note_key=7/", NULL_PARTITION: f"note_key={NULL_PARTITION}/"}
    assert ids(cloud) == [1, 2]
    assert "so new rows cannot be partitioned by identity(note)" in caplog.text
    with pytest.raises(ConfigError, match="names the field nota, but the stream has no such field"):
        by_note(cloud, None, source="nota")


def test_table_whose_partitions_have_values_of_another_type_is_mended_as_the_docs_say(
    cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a partition with a text in a key of integers, as earlier versions made them
    by_note(cloud, Int32()).commit((1, None), note=7)
    by_note(cloud, String()).commit((2, None), note__string="abc")
    [key] = [key for key in cloud.objects() if NULL_PARTITION in key]
    move(cloud, key, f"{location(cloud)}/note_key=abc/x".removeprefix(f"s3://{BUCKET}/"))
    register(cloud, ["abc"], f"{location(cloud)}/note_key=abc/")
    caplog.clear()

    # When the next sync begins, it warns
    by_note(cloud, String())
    assert "1 partitions have values that are invalid for the types of their partition keys" in caplog.text
    assert "abc" not in caplog.text

    # And once its files are moved, and it is dropped
    move(cloud, f"{location(cloud)}/note_key=abc/x".removeprefix(f"s3://{BUCKET}/"), key)
    glue = cloud.access.client("glue")
    glue.delete_partition(DatabaseName="shop", TableName="events", PartitionValues=["abc"])
    caplog.clear()
    by_note(cloud, String()).commit((3, None), note__string="abc")

    # Then the table has all rows, and values of its key's type alone
    assert ids(cloud) == [1, 2, 3]
    assert {*partitions(cloud)} == {("7",), (NULL_PARTITION,)}
    assert "invalid for the types of their partition keys" not in caplog.text


def move(cloud: Cloud, key: str, to: str) -> None:
    s3 = cloud.access.client("s3")
    s3.copy_object(Bucket=BUCKET, Key=to, CopySource={"Bucket": BUCKET, "Key": key})
    s3.delete_object(Bucket=BUCKET, Key=key)
