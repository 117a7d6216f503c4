"""Partitions of a Hive table are registered with its rows, and seen by engines as the files hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud, another_client
from unit_tests.tables.hive.partitions.events import (
    AT,
    FEB,
    ID,
    JAN,
    MAR,
    NOTE,
    WIDE,
    Sync,
    between_calls,
    calls,
    glue_table,
    ids,
    location,
    locations,
    partitions,
    register,
    rows,
    sync,
)

pytestmark = pytest.mark.share(8)

NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("partitioning", "keys", "folders"),
    [
        ("DATE", {"created_at_date": "date"}, {JAN: f"created_at_date={JAN}/", NULL: f"created_at_date={NULL}/"}),
        ("YEAR", {"created_at_year": "bigint"}, {"2023": "created_at_year=2023/", NULL: f"created_at_year={NULL}/"}),
        (
            "YEAR/MONTH",
            {"created_at_year": "bigint", "created_at_month": "bigint"},
            {
                "2023/1": "created_at_year=2023/created_at_month=1/",
                f"{NULL}/{NULL}": f"created_at_year={NULL}/created_at_month={NULL}/",
            },
        ),
    ],
)
@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_rows_lie_in_registered_partitions(
    cloud: Cloud, format: FileFormat, partitioning: str, keys: dict[str, str], folders: dict[str, str]
) -> None:
    sync(cloud, partitioning=partitioning, format=format).commit((1, JAN), (2, None), (3, JAN))

    assert {key["Name"]: key["Type"] for key in glue_table(cloud)["PartitionKeys"]} == keys
    assert locations(cloud) == folders
    assert ids(cloud) == [1, 2, 3]


def test_partition_is_described_as_the_table_is(cloud: Cloud) -> None:
    sync(cloud).commit((1, JAN))

    [partition] = partitions(cloud).values()
    table = glue_table(cloud)["StorageDescriptor"]
    assert partition["StorageDescriptor"] == {**table, "Location": f"{location(cloud)}/created_at_date={JAN}/"}


def test_no_row_is_visible_before_its_partition_is_registered(cloud: Cloud) -> None:
    access = another_client()
    syncing, completed = sync(cloud, access=access), list[list[str]]()

    def look(_number: int, call: str) -> None:
        if call == "CompleteMultipartUpload":
            completed.append(sorted(locations(cloud)))

    with between_calls(access, look):
        syncing.commit((1, JAN), (2, FEB))

    assert completed == [[JAN, FEB], [JAN, FEB]]


def test_known_partitions_cost_no_call(cloud: Cloud) -> None:
    access = another_client()
    syncing, plain = sync(cloud, access=access), ["GetTable", "GetTable", "UpdateTable"]

    assert calls(access, lambda: syncing.commit((1, JAN))) == [
        "GetTable", "BatchGetPartition", "BatchCreatePartition", *plain[1:]
    ]  # fmt: skip
    assert calls(access, lambda: syncing.commit((2, JAN))) == plain

    next_sync = sync(cloud, access=access)
    assert calls(access, lambda: next_sync.commit((3, JAN))) == ["GetTable", "BatchGetPartition", *plain[1:]]
    assert calls(access, lambda: next_sync.commit((4, JAN))) == plain
    assert calls(access, lambda: sync(cloud, access=access)) == ["GetTable", "UpdateTable"]


@pytest.mark.slow
def test_partitions_are_changed_in_batches_and_listed_in_pages_as_glue_has_them(cloud: Cloud) -> None:
    """The tests' AWS refuses larger ones, and values that are not one for each key."""
    access = another_client()
    many = [(day, f"{2000 + day // 28}-02-{day % 28 + 1:02}") for day in range(101)]
    syncing = sync(cloud, generation=1, access=access)

    created = calls(access, lambda: syncing.commit(*many))
    assert (created.count("BatchGetPartition"), created.count("BatchCreatePartition")) == (1, 2)
    assert ids(cloud) == [id for id, _ in many]

    changed = calls(access, lambda: sync(cloud, columns=(ID, AT, NOTE), generation=1, access=access))
    assert (changed.count("GetPartitions"), changed.count("BatchUpdatePartition")) == (2, 2)
    assert all("note" in str(partition["StorageDescriptor"]["Columns"]) for partition in partitions(cloud).values())

    overwriting = sync(cloud, columns=(ID, AT, NOTE), generation=2, overwrite=True, access=access)
    overwriting.commit((7, JAN))
    replaced = calls(access, overwriting.publish)
    assert (replaced.count("BatchDeletePartition"), replaced.count("BatchCreatePartition")) == (5, 1)
    assert ids(cloud) == [7]


def test_another_engine_registers_the_same_partition_at_once(cloud: Cloud) -> None:
    access = another_client()
    syncing, foreign_locations = sync(cloud, access=access), list[str]()

    def insert(_number: int, call: str) -> None:
        if call == "BatchCreatePartition" and not foreign_locations:
            foreign_locations.append(f"{location(cloud)}/created_at_date={JAN}/")
            register(cloud, [JAN], *foreign_locations)

    with between_calls(access, insert):
        syncing.commit((1, JAN), (3, FEB))

    assert foreign_locations
    assert ids(cloud) == [1, 3]


def test_partition_that_another_writer_dropped_is_registered_with_the_next_syncs_rows(cloud: Cloud) -> None:
    syncing = sync(cloud)
    syncing.commit((1, JAN), (2, FEB))
    glue = cloud.access.client("glue")
    for day in (JAN, FEB):
        glue.delete_partition(DatabaseName="shop", TableName="events", PartitionValues=[day])

    sync(cloud).commit((3, JAN))

    assert ids(cloud) == [1, 3], "what others drop stays dropped until there are new rows"


def test_partition_registered_elsewhere_is_a_conflict_and_no_row_is_lost_in_it(cloud: Cloud) -> None:
    syncing = sync(cloud)
    register(cloud, [JAN], f"s3://{BUCKET}/theirs/january/")
    before = partitions(cloud)

    with pytest.raises(TableConflict) as refused:
        syncing.commit((1, JAN), (2, FEB))

    assert (
        f"Cannot write stream shop.Events to table shop.events: its partition {JAN} is registered at "
        f"s3://{BUCKET}/theirs/january, outside the table's location. Move the partition's files"
    ) in str(refused.value)
    assert partitions(cloud) == before
    assert cloud.objects() == {}
    assert cloud.unfinished_uploads() == []
    syncing.commit((3, MAR))
    assert ids(cloud) == [3]


@pytest.mark.parametrize("spelled", ["s3a://{}", "s3://{}", "s3://{}/"])
def test_partition_registered_where_its_rows_lie_stays_as_others_registered_it(cloud: Cloud, spelled: str) -> None:
    syncing = sync(cloud)
    foreign_location = spelled.format(f"{location(cloud).removeprefix('s3://')}/created_at_date={JAN}")
    register(cloud, [JAN], foreign_location)
    before = partitions(cloud)

    syncing.commit((1, JAN))

    assert partitions(cloud) == before


def with_note(cloud: Cloud, format: FileFormat) -> Sync:
    return sync(cloud, columns=(ID, AT, NOTE), format=format)


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_new_column_reaches_partitions_that_exist_and_what_others_set_in_them_stays(
    cloud: Cloud, format: FileFormat
) -> None:
    sync(cloud, format=format).commit((1, JAN), (2, FEB))
    register(cloud, ["2020-01-01"], f"s3://{BUCKET}/theirs/", Columns=[{"Name": "id", "Type": "int", "Comment": "!"}])
    glue, january = cloud.access.client("glue"), partitions(cloud)[(JAN,)]
    january["StorageDescriptor"]["Columns"].append({"Name": "theirs", "Type": "map<string,int>", "Comment": "Theirs."})
    kept: Any = {key: january[key] for key in ("Values", "StorageDescriptor")} | {"Parameters": {"rows": "1"}}
    glue.update_partition(
        DatabaseName="shop", TableName="events", PartitionValueList=january["Values"], PartitionInput=kept
    )

    with_note(cloud, format).commit((3, JAN), note=7)

    registered = partitions(cloud)
    assert {id: note for id, _, note in rows(cloud)} == {1: None, 2: None, 3: 7}
    assert registered[(JAN,)]["Parameters"] == {"rows": "1"}
    columns = registered[(JAN,)]["StorageDescriptor"]["Columns"]
    assert [column["Name"] for column in columns][-2:] == ["theirs", "note"]
    assert columns[-2]["Comment"] == "Theirs."
    assert registered[(FEB,)]["StorageDescriptor"]["Columns"][-1] == {"Name": "note", "Type": "int"}
    assert [column["Name"] for column in registered[("2020-01-01",)]["StorageDescriptor"]["Columns"]] == ["id"]


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_wider_column_reaches_all_partitions(cloud: Cloud, format: FileFormat) -> None:
    syncing = sync(cloud, format=format)
    syncing.commit((1, JAN), (2, FEB))
    register(cloud, ["2020-01-01"], f"s3://{BUCKET}/theirs/")

    syncing.commit((WIDE, JAN))

    assert ids(cloud) == [1, 2, WIDE]
    types = {
        values: {column["Name"]: column["Type"] for column in entry["StorageDescriptor"]["Columns"]}["id"]
        for values, entry in partitions(cloud).items()
    }
    assert types == {(JAN,): "bigint", (FEB,): "bigint", ("2020-01-01",): "int"}
    assert set(locations(cloud)) == {JAN, FEB, "2020-01-01"}
    assert locations(cloud)[FEB] == f"created_at_date={FEB}/"


def at_its_root(cloud: Cloud, old_location: str) -> None:
    """Read what the table had, as a partition of another day."""
    descriptor: Any = {**glue_table(cloud)["StorageDescriptor"], "Location": f"{old_location}/"}
    cloud.access.client("glue").create_partition(
        DatabaseName="shop",
        TableName="events",
        PartitionInput={"Values": ["1999-12-31"], "StorageDescriptor": descriptor},
    )


def below_its_parent(cloud: Cloud, old_location: str) -> None:
    """Read all that the table has and had, as a partition of another day."""
    at_its_root(cloud, old_location.rpartition("/")[0])


@pytest.mark.parametrize("locate", [at_its_root, below_its_parent])
def test_a_folder_that_the_table_has_left_stays_while_a_partition_of_others_is_there(
    cloud: Cloud, locate: Callable[[Cloud, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    sync(cloud, generation=1).commit((1, JAN))
    old_location = location(cloud)
    new = sync(cloud, generation=2, overwrite=True)
    new.commit((2, FEB))
    new.publish()
    locate(cloud, old_location)
    before = set(ids(cloud))

    sync(cloud, generation=2).publish()

    assert before == set(ids(cloud)) == {1, 2}
    assert f"{old_location} was not deleted" in caplog.text
    cloud.access.client("glue").delete_partition(
        DatabaseName="shop", TableName="events", PartitionValues=["1999-12-31"]
    )
    sync(cloud, generation=2).publish()
    assert not any(key.startswith(old_location.removeprefix(f"s3://{BUCKET}/")) for key in cloud.objects())
