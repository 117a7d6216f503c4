"""`verify` finds what is broken, each kind of it, and where."""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema
from integration_tests.verify.verifying import Verifying

pytestmark = pytest.mark.share(1)

ORDERS = object_schema(id=INTEGER, name=STRING)
ICEBERG, HIVE_PARQUET, HIVE_JSONL = TABLE_KINDS
BY_DAY = PARTITIONED_KINDS[1]
LINES_BY_DAY = replace(
    HIVE_JSONL, name="hive-jsonl-by-day", options={**BY_DAY.options, "format": HIVE_JSONL.options["format"]}
)

Corrupt = Callable[[Lake, str], str]
"""Breaks something about a data file with this key; returns the key of what is wrong then, or a part of it."""


@pytest.fixture
def verifying(launch: WarmLaunch, tmp_path: Path) -> Verifying:
    return Verifying(launch, tmp_path)


def filled(lake: Lake, platform: Platform, kind: TableKind) -> Warehouse:
    """A table of two syncs, with three rows each."""
    warehouse = Warehouse(lake, platform, kind)
    for first in (1, 4):
        rows = [record("orders", {"id": id_, "name": f"name {id_}"}) for id_ in range(first, first + 3)]
        warehouse.sync([configured_stream("orders", ORDERS)], [*rows, state("orders", 1), status("orders", "COMPLETE")])
    return warehouse


def read(lake: Lake, key: str) -> bytes:
    return lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()


def put(lake: Lake, key: str, content: bytes) -> str:
    lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=content)
    return key


def delete(lake: Lake, key: str) -> str:
    lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    return key


def truncate(lake: Lake, key: str) -> str:
    return put(lake, key, read(lake, key)[:-20])


def changed(change: Callable[[pa.Table], pa.Table]) -> Corrupt:
    """Other rows, and fewer columns, in a file of the same size: zeros are between the rows and the footer."""

    def corrupt(lake: Lake, key: str) -> str:
        content = read(lake, key)
        out = io.BytesIO()
        table = change(pq.read_table(io.BytesIO(content))).select(["_airbyte_raw_id", "id"])
        pq.write_table(table, out, compression="zstd", write_statistics=False)
        rewritten = out.getvalue()
        footer = len(rewritten) - 8 - int.from_bytes(rewritten[-8:-4], "little")
        padding = bytes(len(content) - len(rewritten))
        return put(lake, key, rewritten[:footer] + padding + rewritten[footer:])

    return corrupt


def with_id(change: Callable[[Any], Any]) -> Corrupt:
    """Another column `id`, whose field id is the same."""

    def of_table(table: pa.Table) -> pa.Table:
        place = table.schema.get_field_index("id")
        ids = change(table.column(place))
        field = table.schema.field(place).with_type(ids.type)
        return table.set_column(place, field, ids)

    return changed(of_table)


def of_metadata(pattern: str) -> Corrupt:
    """One metadata object less: the newest of these."""

    def corrupt(lake: Lake, key: str) -> str:
        folder = key.partition("/data/")[0] + "/metadata/"
        return delete(lake, max(object_key for object_key in lake.objects(folder) if re.search(pattern, object_key)))

    return corrupt


def of_no_format(pattern: str) -> Corrupt:
    """Metadata objects that no reader understands: all of these."""

    def corrupt(lake: Lake, key: str) -> str:
        folder = key.partition("/data/")[0] + "/metadata/"
        for object_key in lake.objects(folder):
            if re.search(pattern, object_key):
                put(lake, object_key, b"secret")
        return folder

    return corrupt


def of_first_sync(corrupt: Corrupt) -> Corrupt:
    """The same of the file of the first sync, which is not in the last report."""

    def of_first(lake: Lake, key: str) -> str:
        [first] = {*lake.data_files(lake.database, "orders")} - {key}
        return corrupt(lake, first)

    return of_first


def same_rows_without_a_column(lake: Lake, key: str) -> str:
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(read(lake, key))).drop_columns(["name"]), out)
    return put(lake, key, out.getvalue())


def without_rows(lake: Lake, key: str) -> str:
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(read(lake, key))).slice(0, 0), out)
    return put(lake, key, out.getvalue())


def other_file(lake: Lake, key: str) -> str:
    [other_key] = {*lake.data_files(lake.database, "orders")} - {key}
    return other_key


def with_rows_of_the_other_file(lake: Lake, key: str) -> str:
    """The other sync's file in its place, of the same size: zeros are between the rows and the footer."""
    content, replacement = read(lake, key), read(lake, other_file(lake, key))
    missing = len(content) - len(replacement)
    if key.endswith(".jsonl"):
        assert missing == 0
        return put(lake, key, replacement)
    assert missing >= 0
    footer = len(replacement) - 8 - int.from_bytes(replacement[-8:-4], "little")
    return put(lake, key, replacement[:footer] + bytes(missing) + replacement[footer:])


def rolled_back(lake: Lake, _: str) -> str:
    table = lake.iceberg_table(lake.database, "orders")
    first = next(
        snapshot
        for snapshot in table.metadata.snapshots
        if snapshot.summary and snapshot.summary["total-records"] == "3"
    )
    table.manage_snapshots().set_current_snapshot(first.snapshot_id).commit()
    return "snapshot"


def in_another_partition(lake: Lake, _: str) -> str:
    """The file in the folder of another day, which is registered; nothing in its own, which is not any more."""
    name: Any = {"DatabaseName": lake.database, "TableName": "orders"}
    for file in lake.data_files(lake.database, "orders"):
        moved = re.sub(r"=\d+/(?=[^/]*$)", "=31/", file)
        put(lake, moved, read(lake, file))
        delete(lake, file)
    [partition] = lake.glue.get_partitions(**name)["Partitions"]
    location = f"s3://{lake.bucket}/{moved.rpartition('/')[0]}/"
    descriptor: Any = {**partition["StorageDescriptor"], "Location": location}
    values = [*partition["Values"][:-1], "31"]
    lake.glue.create_partition(**name, PartitionInput={"Values": values, "StorageDescriptor": descriptor})
    lake.glue.delete_partition(**name, PartitionValues=partition["Values"])
    return moved.rpartition("/")[0]


def foreign(name: str) -> Corrupt:
    return lambda lake, key: put(lake, f"{key.rpartition('/')[0]}/{name}", b"theirs")


def in_report(member: str) -> Corrupt:
    """A report that counts one more."""

    def corrupt(lake: Lake, _: str) -> str:
        for report in lake.reports():
            if report.endswith("report.jsonl"):
                lines = [json.loads(line) for line in read(lake, report).splitlines()]
                changed = [{**line, member: (line[member] or 0) + 1} for line in lines]
                put(lake, report, "\n".join(map(json.dumps, changed)).encode())
        return ""

    return corrupt


def broken_line(lake: Lake, key: str) -> str:
    lines = read(lake, key).splitlines()
    return put(lake, key, b"\n".join([lines[0], b'{"id": secret', *lines[2:]]) + b"\n")


ICEBERG_CORRUPTIONS: Sequence[tuple[str, Corrupt, str]] = [
    ("deleted", delete, "does not exist"),
    ("truncated", truncate, r"contains \d+ bytes, but the table's metadata records \d+"),
    ("fewer rows", changed(lambda rows: rows.slice(1)), "contains 2 rows, but the table's metadata records 3"),
    (
        "another schema",
        with_id(lambda ids: ids.cast(pa.string())),
        "stores column id as string, but the table's type is int32",
    ),
    (
        "bounds that lie",
        with_id(lambda ids: pc.add(ids, 100)),
        "values in column id outside the bounds in its manifest",
    ),
    (
        "nulls that lie",
        with_id(lambda ids: pc.if_else(pc.equal(ids, pa.scalar(2, ids.type)), pa.scalar(None, ids.type), ids)),
        "contains 1 nulls in column id, but its manifest records 0",
    ),
    ("no Parquet", lambda lake, key: put(lake, key, bytes(len(read(lake, key)))), "cannot be read as Parquet"),
    ("no manifest", of_metadata(r"-m\d+\.avro$"), "does not exist"),
    ("no manifest list", of_metadata(r"/snap-"), "does not exist|refers to a missing object"),
    ("a manifest that is none", of_no_format(r"-m\d+\.avro$"), "cannot be read|Cannot read"),
    ("a manifest list that is none", of_no_format(r"/snap-"), "cannot be read|Cannot read"),
    (
        "swapped",
        with_rows_of_the_other_file,
        "outside the bounds in its manifest|contains row IDs ",
    ),
    (
        "rolled back",
        rolled_back,
        "was rolled back by another writer to the older snapshot .* committed the lost snapshot",
    ),
    ("a foreign file", foreign("readme.txt"), "does not belong to the table"),
    ("a report of more rows", in_report("table_rows"), "contains 6 rows, but the report of run .* records 7"),
    ("a report of more files", in_report("table_files"), "contains 2 data files, but the report of run .* records 3"),
]
HIVE_CORRUPTIONS: Sequence[tuple[str, TableKind, Corrupt, str]] = [
    ("deleted", HIVE_PARQUET, delete, "contains 0 files with 0 rows of run .* records 1 files with 3 rows"),
    (
        "deleted long ago",
        HIVE_PARQUET,
        of_first_sync(delete),
        "contains 0 files with 0 rows of run .* records 1 files with 3 rows",
    ),
    (
        "emptied long ago",
        HIVE_JSONL,
        of_first_sync(lambda lake, key: put(lake, key, b"")),
        "contains 0 files with 0 rows of run .* records 1 files with 3 rows",
    ),
    (
        "without a column",
        HIVE_PARQUET,
        of_first_sync(same_rows_without_a_column),
        "report records .* so a file was replaced",
    ),
    (
        "in another partition",
        BY_DAY,
        in_another_partition,
        "value of partition key extracted_at_day differs from its folder",
    ),
    (
        "emptied",
        HIVE_PARQUET,
        without_rows,
        "contains 1 files with 0 rows of run .* records 1 files with 3 rows",
    ),
    ("swapped", HIVE_PARQUET, with_rows_of_the_other_file, "contains row IDs (of a different batch|that do not)"),
    ("swapped", HIVE_JSONL, with_rows_of_the_other_file, "contains row IDs (of a different batch|that do not)"),
    (
        "in another partition",
        LINES_BY_DAY,
        in_another_partition,
        "value of partition key extracted_at_day differs from its folder",
    ),
    ("truncated", HIVE_PARQUET, truncate, "cannot be read as Parquet"),
    (
        "another schema",
        HIVE_PARQUET,
        with_id(lambda ids: ids.cast(pa.string())),
        "stores column id as string, but the table's type is int",
    ),
    (
        "a foreign file",
        HIVE_PARQUET,
        foreign("readme.txt"),
        "is not a data file of the table, but engines read it as one",
    ),
    (
        "fewer rows",
        HIVE_PARQUET,
        changed(lambda rows: rows.slice(1)),
        "with 2 rows of run .* records 1 files with 3 rows",
    ),
    (
        "a report of more rows",
        HIVE_JSONL,
        in_report("row_count"),
        "with 3 rows of run .* records 1 files with 4 rows",
    ),
    ("a broken line", HIVE_JSONL, broken_line, "contains no valid JSON object in line 2"),
    ("a truncated file", HIVE_JSONL, truncate, "contains no valid JSON object in line 3"),
]


def last_file(lake: Lake, table: str = "orders") -> str:
    """The key of the file of the last sync: each begins with the run's name, and they are uploaded in order."""
    return max(
        lake.data_files(lake.database, table),
        key=lambda key: lake.s3.head_object(Bucket=lake.bucket, Key=key)["LastModified"],
    )


@pytest.mark.parametrize(
    ("corrupt", "description"), [case[1:] for case in ICEBERG_CORRUPTIONS], ids=[e[0] for e in ICEBERG_CORRUPTIONS]
)
def test_what_is_broken_of_an_iceberg_table_is_found(
    lake: Lake, platform: Platform, verifying: Verifying, corrupt: Corrupt, description: str
) -> None:
    config = filled(lake, platform, ICEBERG).config()
    assert verifying.problems(config) == []
    first = min(lake.data_files(lake.database, "orders"), key=lambda key: 2 not in ids_in(lake, key))

    where = corrupt(lake, first)

    problems = verifying.problems(config)
    assert any(re.search(description, problem["description"]) for problem in problems), problems
    assert all(where in problem["location"] + problem["description"] for problem in problems), problems


def ids_in(lake: Lake, key: str) -> list[int]:
    column: Any = pq.read_table(io.BytesIO(read(lake, key)), columns=["id"]).column("id")
    return list(column.to_pylist())


@pytest.mark.parametrize(
    ("kind", "corrupt", "description"),
    [case[1:] for case in HIVE_CORRUPTIONS],
    ids=[e[0] + " " + e[1].name for e in HIVE_CORRUPTIONS],
)
def test_what_is_broken_of_a_hive_table_is_found(
    lake: Lake, platform: Platform, verifying: Verifying, kind: TableKind, corrupt: Corrupt, description: str
) -> None:
    config = filled(lake, platform, kind).config()
    assert verifying.problems(config) == []

    where = corrupt(lake, last_file(lake))

    problems = verifying.problems(config)
    matches = [problem for problem in problems if re.search(description, problem["description"])]
    # What is broken may be missed in the report besides.
    assert all(problem in matches or "report records" in problem["description"] for problem in problems), problems
    assert matches, problems
    assert where in matches[0]["location"] or "report records" in matches[0]["description"]
    assert "secret" not in str(problems)


def test_partitions_and_objects_that_do_not_agree_are_found(
    lake: Lake, platform: Platform, verifying: Verifying
) -> None:
    config = filled(lake, platform, BY_DAY).config()
    assert verifying.problems(config) == []
    name: Any = {"DatabaseName": lake.database, "TableName": "orders"}
    [partition] = lake.glue.get_partitions(**name)["Partitions"]
    location = partition["StorageDescriptor"]["Location"].rstrip("/")
    empty = re.sub(r"=\d+$", "=31", location)
    descriptor: Any = {**partition["StorageDescriptor"], "Location": f"{empty}/"}
    lake.glue.create_partition(
        **name, PartitionInput={"Values": [*partition["Values"][:-1], "31"], "StorageDescriptor": descriptor}
    )
    lake.glue.delete_partition(**name, PartitionValues=partition["Values"])

    problems = {problem["location"]: problem["description"] for problem in verifying.problems(config)}

    assert problems == {
        empty: "is registered as a partition but contains no objects",
        location: "contains files but is not registered as a partition, so engines do not read these files",
    }


def test_the_terminal_shows_what_was_read_and_what_is_wrong(
    lake: Lake, platform: Platform, verifying: Verifying
) -> None:
    config = filled(lake, platform, ICEBERG).config()
    key = delete(lake, last_file(lake))

    code, out, _ = verifying.run(config, "--stream", "orders")

    assert code == 1
    assert re.search(rf"{lake.database}.orders +unhealthy +\d", out), out
    assert "does not exist" in out
    assert key in out.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--table", "nowhere.nothing"], "nowhere.nothing: the table does not exist"),
        (["--table", "nowhere."], "nowhere.: the table does not exist"),
        (["--stream", "nothing"], "--stream nothing: this configuration has no table for that stream"),
    ],
)
def test_a_table_that_is_not_there_is_an_error(
    lake: Lake, verifying: Verifying, arguments: list[str], message: str
) -> None:
    lake.glue.create_database(DatabaseInput={"Name": lake.database})

    code, out, stderr = verifying.run(lake.config(), *arguments)

    assert (code, out) == (1, "")
    assert message in stderr


@pytest.mark.parametrize("kind", [HIVE_PARQUET, HIVE_JSONL], ids=lambda kind: kind.name)
def test_the_loss_of_an_overwrite_is_found_although_another_sync_followed(
    lake: Lake, platform: Platform, verifying: Verifying, kind: TableKind
) -> None:
    warehouse = filled(lake, platform, kind)
    for id_, minimum in ((7, 1), (8, 0)):
        rows = [record("orders", {"id": id_}), state("orders", 1), status("orders", "COMPLETE")]
        warehouse.sync([configured_stream("orders", ORDERS, generation=1, minimum=minimum)], rows)
        if minimum:
            [overwrite] = lake.data_files(lake.database, "orders")
    assert verifying.problems(warehouse.config()) == []

    delete(lake, overwrite)

    [problem] = verifying.problems(warehouse.config())
    assert re.search("contains 0 files with 0 rows of run .* records 1 files with 1 rows", problem["description"])


def test_all_other_tables_are_reported_if_one_is_broken(lake: Lake, platform: Platform, verifying: Verifying) -> None:
    warehouse = filled(lake, platform, ICEBERG)
    rows = [record("returns", {"id": 1}), state("returns", 1), status("returns", "COMPLETE")]
    warehouse.sync([configured_stream("returns", ORDERS)], rows)
    of_no_format(r"-m\d+\.avro$")(lake, last_file(lake))

    code, out, stderr = verifying.run(warehouse.config(), "--all", "--json")

    assert code == 1
    assert "Traceback" not in stderr
    tables = {table["table"]: table for table in json.loads(out)["tables"]}
    assert {name.partition(".")[2]: bool(table["problems"]) for name, table in tables.items()} == {
        "orders": True,
        "returns": False,
    }
    assert tables[f"{lake.database}.returns"]["rows"] == 1
