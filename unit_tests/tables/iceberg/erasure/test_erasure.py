"""Rows erased from an Iceberg table: of every branch, of all history, and from files that nothing refers to."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat, write_manifest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, LongType, NestedField

from destination_datalake.erasure import tables as iceberg_place
from destination_datalake.erasure import targets
from destination_datalake.erasure.model import Report, Request
from destination_datalake.errors import ConnectorError
from destination_datalake.files.ids import Ids
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.types import Decimal, Field, Int64, String
from destination_datalake.tables.iceberg import pyiceberg_internals
from destination_datalake.tables.iceberg.erasure.plan import manifest_reveals_id
from destination_datalake.tables.iceberg.snapshots.change import Change
from destination_datalake.tables.table import Committed
from integration_tests.erasure.oracle import Id
from unit_tests.tables.iceberg.erasure.people import COLUMNS, FIRST, Killed, People, ids_of, of_table, person
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(5)


@pytest.fixture
def people(lake: Lake) -> People:
    return People(lake)


class Later(datetime):
    """The time in a month."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(days=30)


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["user"]["age"] for row in rows)


def test_rows_are_gone_from_the_table_and_its_history(people: People) -> None:
    people.commit([1, 2], [3, 4], [5, 6])
    other_rows = [row for row in people.rows() if row["user"]["age"] not in (2, 3, 4)]

    report = people.erase(*ids_of(2, 3, 4))

    assert people.traces(*ids_of(2, 3, 4)) == {}
    assert people.rows() == other_rows
    table = of_table(report)
    assert (report.complete, report.found_afterwards, table.rows_removed) == (True, 0, 3)
    assert sorted((object_.outcome, object_.rows_found) for object_ in table.objects) == [
        ("removed", 2),
        ("rewritten", 1),
    ]
    assert (table.objects_searched, table.objects_read) == (3, 2)  # The bounds of the third leave it out.


def test_time_travel_to_an_expired_snapshot_does_not_return_an_older_one(people: People) -> None:
    people.commit([1], [2])
    kept, erased = people.lake.load().metadata.snapshots[-2:]

    people.erase(*ids_of(2))

    table = people.lake.load()
    assert table.snapshot_by_id(kept.snapshot_id) is not None
    assert table.snapshot_as_of_timestamp(erased.timestamp_ms) is None
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == [table.metadata.current_snapshot_id]


def test_distinct_rows_are_counted_beside_their_copies_in_files(people: People) -> None:
    opened = people.lake.open(columns=COLUMNS)
    rows = [{**person(number), "_airbyte_raw_id": str(UUID(int=number))} for number in (1, 2, 3, 3)]
    assert opened.commit([people.lake.write_rows(opened, *rows)], no_rewrite) == Committed()
    people.lake.load().delete(f"id = {ids_of(1)[0]}")

    table = of_table(people.erase(*ids_of(2, 3)))

    assert (table.rows_removed, table.distinct_rows) == (6, 2)


def test_distinct_rows_are_not_guessed_where_a_row_has_no_raw_id(people: People) -> None:
    people.commit([1, 2])

    table = of_table(people.erase(*ids_of(2)))

    assert (table.rows_removed, table.distinct_rows) == (1, None)


def test_a_table_without_the_rows_is_not_touched(people: People) -> None:
    people.commit([1, 2])
    before = people.lake.load().metadata_location

    report = people.erase(*ids_of(7))

    assert (report.complete, of_table(report).objects) == (True, ())
    assert people.lake.load().metadata_location == before


def test_a_field_within_a_column_is_named_by_its_path(people: People) -> None:
    people.commit([1, 2], [3])

    people.erase(f"u{ids_of(2)[0]}", column="user.id")

    assert people.traces(f"u{ids_of(2)[0]}") == {}
    assert numbers(people.rows()) == [1, 3]


def test_rows_of_an_unfinished_overwrite_and_of_other_branches_are_erased_in_the_same_commit(people: People) -> None:
    people.commit([1, 2])
    overwrite = people.lake.open(generation=2, overwrite=True, columns=COLUMNS)
    people.lake.commit_rows(overwrite, person(2), person(3))
    table = people.lake.load()
    table.manage_snapshots().create_branch(table.metadata.refs["main"].snapshot_id, "audit").commit()

    people.erase(*ids_of(2))

    assert people.traces(*ids_of(2)) == {}
    assert [numbers(people.rows(branch)) for branch in ("main", "airbyte_generation_2", "audit")] == [[1], [3], [1]]
    people.lake.commit_rows(overwrite, person(4))
    overwrite.publish(lambda _: [])
    assert numbers(people.rows()) == [3, 4]


def test_rows_that_wait_for_their_deduplication_are_erased(people: People) -> None:
    opened = people.lake.open(columns=COLUMNS, key=("id",))
    people.lake.commit_rows(opened, {**person(1), "_airbyte_raw_id": "a"}, {**person(2), "_airbyte_raw_id": "b"})

    people.erase(*ids_of(2))

    assert people.traces(*ids_of(2)) == {}
    opened.publish(lambda _: [])
    assert numbers(people.rows()) == [1]


def test_rows_that_position_deletes_hide_are_erased_from_the_file(people: People) -> None:
    people.commit([1, 2, 3])
    people.lake.delete_first_row()
    assert numbers(people.rows()) == [2, 3]

    report = people.erase(*ids_of(1))

    assert of_table(report).rows_removed == 1
    assert people.traces(*ids_of(1)) == {}
    assert numbers(people.rows()) == [2, 3]
    assert people.lake.deletes() == []


def position_deletes_with_rows(people: People, *numbers: int) -> bytes:
    """Return a file that deletes the first row of the first data file, with copies of rows, as some engines write."""
    table = people.lake.load()
    columns: Any = [field for field in schema_to_pyarrow(table.schema()) if field.name in ("id", "name", "user")]
    ids = {"file_path": "2147483546", "pos": "2147483545", "row": "2147483544"}
    types = {"file_path": pa.string(), "pos": pa.int64(), "row": pa.struct(columns)}
    schema = pa.schema([pa.field(name, types[name], metadata={"PARQUET:field_id": ids[name]}) for name in ids])
    path = people.lake.files()[0].file_path
    rows = [{"file_path": path, "pos": 0, "row": person(number)} for number in numbers]
    pq.write_table(pa.Table.from_pylist(rows, schema), body := io.BytesIO())
    return body.getvalue()


def test_copies_of_rows_in_position_deletes_are_erased(people: People) -> None:
    people.commit([1, 2])
    people.lake.add_deletes(
        position_deletes_with_rows(people, 1), "main", people.lake.files()[0], content=DataFileContent.POSITION_DELETES
    )

    report = people.erase(*ids_of(1))

    assert report.complete
    assert people.traces(*ids_of(1)) == {}
    assert numbers(people.rows()) == [2]
    assert people.lake.deletes() == []


def test_copies_of_rows_in_position_deletes_of_former_snapshots_are_erased(people: People) -> None:
    people.commit([1, 2])
    people.lake.add_deletes(
        position_deletes_with_rows(people, 7), "main", people.lake.files()[0], content=DataFileContent.POSITION_DELETES
    )
    people.lake.merge(Change(removed=people.lake.deletes()))

    report = people.erase(*ids_of(7))

    assert report.complete
    assert people.traces(*ids_of(7)) == {}
    assert numbers(people.rows()) == [1, 2]


def test_copies_of_rows_in_position_deletes_that_other_files_need_are_refused(people: People) -> None:
    people.commit([1, 2], [3])
    deletes = position_deletes_with_rows(people, 1)
    people.lake.add_deletes(deletes, "main", people.lake.files()[0], content=DataFileContent.POSITION_DELETES)
    before = people.lake.objects()

    with pytest.raises(ConnectorError, match="copies of deleted rows") as refused:
        people.erase(*ids_of(1))

    assert refused.value.failure.type == "config_error"
    assert people.lake.objects() == before
    assert people.erase(*ids_of(9)).complete


def test_copies_of_rows_in_unreferenced_position_deletes_are_left(people: People) -> None:
    people.commit([1])
    stray = people.lake.put(position_deletes_with_rows(people, 2))

    report = people.erase(*ids_of(2))

    assert [(object_.uri, object_.rows_found) for object_ in of_table(report).left] == [(stray, 1)]


@pytest.mark.slow
def test_file_whose_ids_only_its_partition_has_is_refused(people: People) -> None:
    """Files of Hive tables that `add_files` registers have neither field IDs nor the columns of their partition."""
    people.commit([1], partition_by=[{"source": "id", "transform": "identity", "name": "pk"}])
    pq.write_table(pa.table({"name": ["of another program"]}), body := io.BytesIO())
    entry = IcebergFile.from_args(
        file_path=people.lake.put(body.getvalue()),
        file_format=FileFormat.PARQUET,
        partition=Record(*ids_of(2)),
        record_count=1,
        file_size_in_bytes=len(body.getvalue()),
        content=DataFileContent.DATA,
    )
    entry.spec_id = people.lake.files()[0].spec_id
    people.lake.merge(Change([entry]))

    with pytest.raises(ConnectorError, match="does not match the table's metadata"):
        people.erase(*ids_of(2))
    assert people.erase(*ids_of(3)).complete


def test_a_tag_that_keeps_the_rows_is_named_and_nothing_is_changed_until_it_may_be_dropped(people: People) -> None:
    people.commit([1, 2])
    table = people.lake.load()
    table.manage_snapshots().create_tag(table.metadata.refs["main"].snapshot_id, "audit-2026").commit()
    before = people.lake.objects()

    with pytest.raises(ConnectorError, match=r"have tags \(audit-2026\).*--drop-tags") as refused:
        people.erase(*ids_of(2))

    assert refused.value.failure.type == "config_error"
    assert people.lake.objects() == before
    people.erase(*ids_of(2), drop_tags=True)
    assert people.traces(*ids_of(2)) == {}
    assert people.lake.tags() == []


def test_a_tag_on_a_snapshot_without_the_rows_stays(people: People) -> None:
    people.commit([1])
    table = people.lake.load()
    table.manage_snapshots().create_tag(table.metadata.refs["main"].snapshot_id, "audit-2026").commit()
    people.commit([2])

    people.erase(*ids_of(2))

    assert people.lake.tags() == ["audit-2026"]
    assert people.traces(*ids_of(2)) == {}


def test_kept_history_is_said_to_keep_the_rows(people: People) -> None:
    people.commit([1, 2])

    report = people.erase(*ids_of(2), keep_history=7.0)

    assert (report.complete, report.is_left) == (False, False)
    assert [object_.outcome for object_ in of_table(report).left] == ["kept"]
    assert numbers(people.rows()) == [1]
    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


def test_a_table_whose_files_others_may_share_is_refused(people: People) -> None:
    people.commit([1, 2])
    people.lake.set_properties({"gc.enabled": "false"})
    before = people.lake.objects()

    with pytest.raises(ConnectorError, match=r"gc\.enabled is false"):
        people.erase(*ids_of(2))

    assert people.lake.objects() == before


def test_equality_deletes_are_refused(people: People) -> None:
    people.commit([1, 2])
    people.lake.delete_by_equality()

    with pytest.raises(ConnectorError, match="equality deletes"):
        people.erase(*ids_of(2))


@pytest.mark.parametrize(
    ("column", "problem"),
    [("nobody", "no such column"), ("user", "not a single value"), ("user.nobody", "no such column")],
)
def test_a_column_that_has_no_ids_is_refused(people: People, column: str, problem: str) -> None:
    people.commit([1])

    with pytest.raises(ConnectorError, match=problem):
        people.erase(*ids_of(1), column=column)


def test_an_id_that_the_column_cannot_hold_is_refused_before_anything_is_changed(people: People) -> None:
    people.commit([1])
    before = people.lake.objects()

    with pytest.raises(ConnectorError, match="line 2: invalid value for column id"):
        people.erase(*ids_of(1), "anna@example.com")

    assert people.lake.objects() == before


def test_a_file_without_field_ids_is_refused_if_it_would_have_to_be_written_again(people: People) -> None:
    people.commit([1])
    table = people.lake.load()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": ids_of(2, 3)}), sink)
    uri = people.lake.put(sink.getvalue().to_pybytes())
    table.add_files([uri])

    with pytest.raises(ConnectorError, match="without field IDs"):
        people.erase(*ids_of(2))

    people.erase(*ids_of(2, 3))
    assert people.traces(*ids_of(2, 3)) == {}


def test_files_of_dead_syncs_are_deleted_and_those_that_may_be_of_running_ones_are_named(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.commit([1])
    opened = people.lake.open(columns=COLUMNS)
    stray = people.lake.write_rows(opened, person(2), person(3)).uri

    report = people.erase(*ids_of(2))

    assert (report.complete, report.is_left) == (False, True)
    [remaining] = of_table(report).left
    assert (remaining.uri, remaining.rows_found, remaining.outcome) == (stray, 1, "left")
    assert "The command then deletes the file" in remaining.reason

    monkeypatch.setattr(iceberg_place, "datetime", Later)
    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


def moved(people: People) -> None:
    """Give the table another location, as `ALTER TABLE … SET LOCATION` does; its files stay where they are."""
    location, (database, name) = f"s3://{people.lake.bucket}/moved", people.lake.name
    people.lake.edit_metadata({"location": location})
    glue: Any = people.lake.access.client("glue")
    table = glue.get_table(DatabaseName=database, Name=name)["Table"]
    kept = {key: table[key] for key in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    kept["StorageDescriptor"]["Location"] = location
    glue.update_table(DatabaseName=database, TableInput=kept)


def left(report: Report) -> set[str]:
    return {object_.uri for place in report.places for object_ in place.left if object_.outcome == "left"}


def uris_of(people: People, *ids: Id) -> set[str]:
    return {f"s3://{people.lake.bucket}/{name}" for name in people.traces(*ids)}


def test_files_outside_the_folder_are_left_until_somebody_has_deleted_them(people: People) -> None:
    people.commit([1, 2], [3])
    moved(people)
    other_rows = [row for row in people.rows() if row["user"]["age"] != 2]

    first, again = people.erase(*ids_of(2)), people.erase(*ids_of(2))

    assert (first.complete, first.is_left, again.complete) == (False, True, False)
    assert again.request == first.request
    assert left(first) == left(again) == uris_of(people, *ids_of(2))
    assert any(uri.endswith(".parquet") for uri in left(first))
    assert all("outside the table's folder" in object_.reason for object_ in of_table(again).left)
    assert people.rows() == other_rows
    for uri in left(first):
        people.lake.delete_object(uri)
    assert people.erase(*ids_of(2)).complete


def test_a_file_outside_the_folder_is_left_only_as_long_as_it_has_the_rows(people: People) -> None:
    """Another table to which the file belongs too may have replaced it."""
    people.commit([1, 2])
    moved(people)
    uris = left(people.erase(*ids_of(2)))
    pq.write_table(pa.Table.from_pylist([person(1)]), content := io.BytesIO())
    for uri in uris:
        if uri.endswith(".parquet"):
            people.lake.write_object(uri, content.getvalue())
        else:
            people.lake.delete_object(uri)

    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


@pytest.mark.slow
def test_versions_of_files_outside_the_folder_are_left(people: People) -> None:
    bucket, s3 = people.lake.bucket, people.lake.access.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    people.commit([1, 2])
    moved(people)
    uris = left(people.erase(*ids_of(2)))
    for uri in uris:
        people.lake.delete_object(uri)

    report = people.erase(*ids_of(2))

    assert (left(report), report.complete) == (uris, False)
    for version in s3.list_object_versions(Bucket=bucket)["Versions"]:
        if f"s3://{bucket}/{version['Key']}" in uris:
            s3.delete_object(Bucket=bucket, Key=version["Key"], VersionId=version["VersionId"])
    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


def test_files_outside_the_folder_are_found_again_though_their_folder_tells_the_id(people: People) -> None:
    people.commit([1, 2], [3], partition_by=[{"source": "id", "transform": "identity", "name": "pk"}])
    moved(people)

    first, again = people.erase(*ids_of(2)), people.erase(*ids_of(2))

    assert (first.complete, again.complete, left(first)) == (False, False, left(again))
    assert any("/pk=…/" in uri for uri in left(first))
    noted = [key for key in people.lake.objects() if "/_deletions/" in key]
    assert not any(str(*ids_of(2)).encode() in people.lake.read_object(f"s3://{people.lake.bucket}/{k}") for k in noted)


def test_files_outside_the_folder_that_may_not_be_listed_are_left(people: People) -> None:
    people.commit([1, 2])
    moved(people)
    first = left(people.erase(*ids_of(2)))
    events: Any = people.lake.access.client("s3").meta.events

    def refuse(**_: object) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": ""}}, "ListObjectVersions")

    events.register("before-call.s3.ListObjectVersions", refuse)
    try:
        report = people.erase(*ids_of(2))
    finally:
        events.unregister("before-call.s3.ListObjectVersions", refuse)

    assert left(report) >= first
    assert all("could not be listed" in object_.reason for object_ in of_table(report).left)
    assert not report.complete


def test_files_in_other_folders_of_the_table_are_deleted_after_a_kill(people: People) -> None:
    """As those of `write.data.path`, of names that are no data file's or metadata file's."""
    folder = f"s3://{people.lake.bucket}/orders/imported"
    people.commit([1])
    people.lake.set_properties({"write.data.path": folder})
    people.lake.load().append(pa.Table.from_pylist([person(2)]))
    assert any(uri.startswith(folder) for uri in uris_of(people, *ids_of(2)))

    def kill() -> None:
        raise Killed

    people.lake.at_the_next_update(kill, response_lost=True)
    with pytest.raises(Killed):
        people.erase(*ids_of(2))
    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


def test_the_page_begins_with_what_is_left_and_has_no_empty_card(people: People) -> None:
    people.commit([1, 2])
    stray = people.lake.write_rows(people.lake.open(columns=COLUMNS), person(2)).uri

    report = people.erase(*ids_of(2, 99))

    page, nothing = report.page(), people.erase(*ids_of(98)).page()
    cards = ["Remaining objects", "Targets", "Erased objects", "Exclusions"]
    assert re.findall("<h2>(.*)</h2>", page) == [report.verdict, *cards]
    assert page.index(stray) < page.index("<h2>Targets")
    assert re.findall("<h2>(.*)</h2>", nothing)[1:] == ["Targets", "Exclusions"]
    assert not any(re.search(r"<tbody>\s*</tbody>", text) for text in (page, nothing))
    assert (report.ids, report.ids_with_rows) == (2, 1)
    assert "of 2 found in this run" in page


def test_partitions_tell_which_files_have_no_ids(people: People) -> None:
    by = [{"source": "id", "transform": "bucket[8]"}]
    people.commit([*range(64)], partition_by=by)
    files = len(people.lake.files())

    report = people.erase(*ids_of(5))

    assert files == 8
    assert (of_table(report).objects_searched, of_table(report).objects_read) == (files, 1)
    assert people.traces(*ids_of(5)) == {}
    assert numbers(people.rows()) == [number for number in range(64) if number != 5]


@pytest.mark.parametrize(
    ("field", "told"),
    [({"transform": "identity", "name": "pk"}, ids_of(2)[0]), ({"transform": "truncate[10]", "name": "p"}, FIRST)],
)
def test_a_partition_that_tells_the_id_is_in_no_object_and_no_report(
    people: People, field: dict[str, str], told: int
) -> None:
    people.commit([1, 2], [2, 3], partition_by=[{"source": "id", **field}])
    assert any(str(told) in key for key in people.lake.objects())

    report = people.erase(*ids_of(2))

    assert people.traces(*ids_of(2)) == {}
    assert str(told).encode() not in report.encoded()
    noted = [key for key in people.lake.objects() if "/_deletions/" in key]
    assert not any(str(told).encode() in people.lake.read_object(f"s3://{people.lake.bucket}/{key}") for key in noted)
    assert report.ids_with_rows == 1
    assert numbers(people.rows()) == [1, 3]


def test_values_that_another_type_was_given_to_are_erased_from_their_own_column(people: People) -> None:
    people.commit([1, 2])
    columns = (Field("id", "id", String()), *COLUMNS[1:])
    opened = people.lake.open(columns=columns)
    assert [column.name for column in opened.plan().columns] == ["id__string", "name", "user"]
    rows = [{**person(number), "id__string": text} for number, text in ((2, str(ids_of(2)[0])), (3, "other"))]
    assert opened.commit([people.lake.write_rows(opened, *rows)], no_rewrite) == Committed()

    report = people.erase(*ids_of(2))

    assert {row["id__string"] for row in people.rows()} == {"other", None}
    assert report.complete
    assert {target.place: target.rows_removed for target in report.places if target.rows_removed} == {
        f"Iceberg table {people.lake.name}": 1,
        f"Iceberg table {people.lake.name}, column id__string": 1,
    }


def described(people: People) -> None:
    """Describe the table under `_schema/`, as syncs with an archive do."""
    database, name = people.lake.name
    people.config["bucket_prefix"] = ""
    columns = [{"name": column.name, "type": glue_type(column.type), "origin": column.name} for column in COLUMNS]
    schema = {"stream": "orders", "files": f"s3://{people.lake.bucket}/orders", "columns": columns}
    people.lake.write_object(f"s3://{people.lake.bucket}/_schema/{database}/{name}.json", json.dumps(schema).encode())


def rows_by_snapshot(people: People) -> dict[int, int]:
    table = people.lake.load()
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    return {id_: table.scan(snapshot_id=id_).to_arrow().num_rows for id_ in ids}


def test_files_in_the_former_folder_of_a_table_stay_as_long_as_the_table_uses_them(people: People) -> None:
    """The folder looks like a dropped table's. Bounds of texts have 16 characters, so one of them can be an ID."""
    described(people)
    opened, name = people.lake.open(columns=COLUMNS), "0123456789abcdef"
    row = {**person(4), "name": f"{name} and more"}
    assert opened.commit([people.lake.write_rows(opened, row)], no_rewrite) == Committed()
    people.commit([1, 2])
    moved(people)
    before = rows_by_snapshot(people)

    people.erase(name, column="name")
    people.erase(*ids_of(2), keep_history=7.0)

    assert rows_by_snapshot(people).items() >= before.items()
    assert numbers(people.rows()) == [1, 4]


@pytest.mark.slow
def test_rows_in_the_former_folder_of_a_table_are_erased_like_those_of_dropped_tables(people: People) -> None:
    described(people)
    people.commit([1, 2], [3])
    moved(people)

    report = people.erase(*ids_of(2))

    assert (left(report), report.complete) == (set(), True), report.places
    assert people.traces(*ids_of(2)) == {}
    assert numbers(people.rows()) == [1, 3]


def dropped(people: People, *ids: Id) -> Request:
    """Drop the table, of which the description under `_schema/` is left: a request to erase what it has left."""
    described(people)
    asked, (database, name) = people.erasure(*ids).request, people.lake.name
    people.lake.access.client("glue").delete_table(DatabaseName=database, Name=name)
    return asked


def test_files_that_a_dropped_table_has_left_are_erased_and_versions_without_the_rows_stay(people: People) -> None:
    bucket, s3 = people.lake.bucket, people.lake.access.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    people.commit([1, 2], [2, 3], partition_by=[{"source": "id", "transform": "identity", "name": "pk"}])
    deletes = position_deletes_with_rows(people, 2, 3)
    asked = dropped(people, *ids_of(2))
    for file, *batches in (("rewritten", [2, 3]), ("replaced", [2, 4], [4]), ("other", [4], [5])):
        for batch in batches:
            pq.write_table(pa.Table.from_pylist([*map(person, batch)]), content := io.BytesIO())
            s3.put_object(Bucket=bucket, Key=f"orders/data/{file}.parquet", Body=content.getvalue())
    s3.put_object(Bucket=bucket, Key="orders/data/deletes.parquet", Body=deletes)
    removed = [key for key in sorted(people.lake.objects()) if key.endswith(".avro") or f"pk={FIRST + 3}/" in key]
    for key in removed:
        s3.delete_object(Bucket=bucket, Key=key)
    before = {name.partition("?")[0] for name in people.traces(*ids_of(2))}
    assert [key for key in removed if key in before]

    places = targets.erasure_targets(asked, [people.lake.name])
    for place in places:
        place.require()
    erased = [object_ for place in places for object_ in place.erase()]

    assert people.traces(*ids_of(2)) == {}
    assert {object_.outcome for object_ in erased} == {"removed", "rewritten"}
    assert [object_ for place in targets.erasure_targets(asked, [people.lake.name]) for object_ in place.find()] == []
    assert people.traces(*ids_of(1)).keys()
    listed = s3.list_object_versions(Bucket=bucket)
    noncurrent = {version["Key"] for version in listed["Versions"] if not version["IsLatest"]}
    assert noncurrent == {"orders/data/other.parquet", *(key for key in removed if key not in before)}
    assert str(FIRST) not in asked.mask.uri(f"s3://{bucket}/orders/data/pk={FIRST}/file.parquet")


def test_versions_in_the_folder_of_a_table_go_only_if_they_have_the_rows(people: People) -> None:
    bucket, s3 = people.lake.bucket, people.lake.access.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    people.commit([1, 2], [3])
    folder = people.lake.load().location().removeprefix(f"s3://{bucket}/")

    def removed(name: str, *contents: bytes) -> None:
        for content in contents:
            s3.put_object(Bucket=bucket, Key=f"{folder}/data/{name}", Body=content)
        s3.delete_object(Bucket=bucket, Key=f"{folder}/data/{name}")

    def parquet(*numbers: int) -> bytes:
        pq.write_table(pa.Table.from_pylist([*map(person, numbers)]), content := io.BytesIO())
        return content.getvalue()

    removed("replaced.parquet", parquet(2, 4), parquet(4), parquet(2))
    removed("others.parquet", parquet(5))
    removed("text.csv", b"of another program")

    report = people.erase(*ids_of(2))

    assert people.traces(*ids_of(2)) == {}
    listed = s3.list_object_versions(Bucket=bucket, Prefix=f"{folder}/data/")
    noncurrent = [version["Key"].rpartition("/")[2] for version in listed["Versions"] if not version["IsLatest"]]
    assert noncurrent == ["others.parquet", "replaced.parquet", "text.csv"]
    [remaining] = [object_ for place in report.places for object_ in place.left]
    assert (remaining.uri, remaining.outcome) == (f"s3://{bucket}/{folder}/data/text.csv", "left")
    assert "neither Parquet nor an Iceberg manifest" in remaining.reason


def manifest(people: People) -> tuple[str, bytes]:
    """The URI and the content of a manifest of the table."""
    uri = people.lake.manifests()[0].manifest_path
    return uri, people.lake.read_object(uri)


@pytest.mark.parametrize("suffix", [".avro", ".parquet"])
def test_a_damaged_file_that_nothing_refers_to_is_left(people: People, suffix: str) -> None:
    people.commit([1])
    uri, content = manifest(people)
    stray = uri.replace(".avro", f"-stray{suffix}")
    people.lake.write_object(stray, content[:-20])

    report = people.erase(*ids_of(2))

    [remaining] = of_table(report).left
    assert (remaining.uri, remaining.outcome, report.is_left) == (stray, "left", True)


def test_a_damaged_version_of_a_manifest_is_left(people: People) -> None:
    bucket, s3 = people.lake.bucket, people.lake.access.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    people.commit([1])
    uri, content = manifest(people)
    people.lake.write_object(uri, content[:-20])
    people.lake.write_object(uri, content)

    report = people.erase(*ids_of(2))

    [remaining] = [object_ for place in report.places for object_ in place.left]
    assert (remaining.uri, remaining.outcome) == (uri, "left")
    assert "is corrupted" in remaining.reason


def test_damaged_manifests_of_a_dropped_table_are_left(people: People) -> None:
    bucket, s3 = people.lake.bucket, people.lake.access.client("s3")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    people.commit([1])
    uri, content = manifest(people)
    asked = dropped(people, *ids_of(2))
    for _ in range(2):
        people.lake.write_object(uri, content[:-20])

    places = targets.erasure_targets(asked, [people.lake.name])
    erased = [object_ for place in places for object_ in place.erase()]

    assert [(object_.uri, object_.outcome) for object_ in erased] == [(uri, "left")] * 2
    assert all("is corrupted" in object_.reason for object_ in erased)
    assert [object_.uri for place in places for object_ in place.find()] == [uri] * 2


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "zstandard"])
def test_a_manifest_is_unpacked_up_to_the_limit(people: People, monkeypatch: pytest.MonkeyPatch, codec: Any) -> None:
    people.commit([1])
    table, s3 = people.lake.load(), people.lake.access.client("s3")
    uri = f"{table.location()}/metadata/large.avro"
    output = table.io.new_output(uri)
    with write_manifest(2, table.spec(), table.schema(), output, snapshot_id=1, avro_compression=codec) as large:
        for _ in range(200):
            large.add_entry(people.lake.entries()[0])

    def reveals(id_: int) -> bool | None:
        return manifest_reveals_id(s3, uri, [LongType()], Ids.from_array(pa.array([id_])))

    assert [reveals(id_) for id_ in ids_of(1, 2)] == [True, False]
    monkeypatch.setattr(pyiceberg_internals, "MAX_FILE_BYTES", 10_000)
    assert reveals(*ids_of(2)) is None
    people.lake.write_object(uri, people.lake.read_object(uri).replace(codec.encode(), b"x" * len(codec)))
    assert reveals(*ids_of(1)) is None, "of an unknown codec"


def test_old_uploads_that_nobody_completed_are_aborted(people: People) -> None:
    """Moto says of each upload that it was begun in 2010."""
    people.commit([1])
    s3 = people.lake.access.client("s3")
    key = people.erasure(*ids_of(2)).request.config.key("orders/data/a.parquet")
    s3.create_multipart_upload(Bucket=people.lake.bucket, Key=key)

    report = people.erase(*ids_of(2))

    assert s3.list_multipart_uploads(Bucket=people.lake.bucket).get("Uploads", []) == []
    [uploads] = [target for target in report.places if target.place == "Incomplete uploads"]
    assert [object_.outcome for object_ in uploads.objects] == ["removed"]
    assert report.complete


def test_recent_uploads_are_left(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "_MAX_SYNC_AGE", timedelta(days=100_000))
    people.commit([1])
    s3, bucket = people.lake.access.client("s3"), people.lake.bucket
    for name in ("a", "b"):
        key = people.erasure(*ids_of(2)).request.config.key(f"orders/data/{name}.parquet")
        s3.create_multipart_upload(Bucket=bucket, Key=key)

    report = people.erase(*ids_of(2))

    uploads = s3.list_multipart_uploads(Bucket=bucket)["Uploads"]
    remaining = [object_ for place in report.places for object_ in place.left]
    assert [object_.uri for object_ in remaining] == [
        f"s3://{bucket}/{upload['Key']} (upload {upload['UploadId']})" for upload in uploads
    ]
    assert {object_.outcome for object_ in remaining} == {"left"}
    assert all(
        "written by a sync that may still be running. Wait until the sync ends" in object_.reason
        for object_ in remaining
    )
    assert report.verdict.startswith("Incomplete: 2 objects may still contain rows")


def test_bounds_of_files_that_were_removed_long_ago_are_erased_from_manifests(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg's own library lists removed files beside those that are left, in one manifest."""
    people.commit([1], [2])
    people.lake.load().delete(f"id = {ids_of(2)[0]}")
    table = people.lake.load()
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    table.maintenance.expire_snapshots().by_ids(
        [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in heads]
    ).commit()
    assert any(key.endswith(".avro") for key in people.traces(*ids_of(2)))

    report = people.erase(*ids_of(2))

    remaining = {object_.uri.removeprefix(f"s3://{people.lake.bucket}/") for object_ in of_table(report).left}
    assert remaining == people.traces(*ids_of(2)).keys()  # Orphans, which are too young to be deleted.
    assert not remaining.intersection(manifest.manifest_path for manifest in people.lake.manifests())
    monkeypatch.setattr(iceberg_place, "datetime", Later)
    assert people.erase(*ids_of(2)).complete
    assert people.traces(*ids_of(2)) == {}


@pytest.mark.share(1)
@pytest.mark.parametrize(("column", "bound"), [("id", b"abc"), ("name", b"\xff"), ("amount", b"\x7f" * 40)])
def test_bounds_of_removed_files_that_are_no_values_reveal_nothing(people: People, column: str, bound: bytes) -> None:
    columns = (*COLUMNS, Field("amount", "amount", Decimal(38, 2)))
    opened = people.lake.open(columns=columns)
    written = people.lake.write_rows(opened, {**person(1), "amount": None})
    people.commit([2], columns=columns)
    table = people.lake.load()
    bounds = {table.schema().find_field(column).field_id: bound}
    entry = IcebergFile.from_args(
        file_path=written.uri,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=written.size,
        content=DataFileContent.DATA,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )
    entry.spec_id = 0
    people.lake.merge(Change([entry]))
    with people.lake.load().transaction() as transaction, transaction.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(entry)

    ids: dict[str, list[Id]] = {"id": [*ids_of(9)], "name": ["nobody"], "amount": ["1.00"]}

    assert people.erase(*ids[column], column=column).complete
    assert numbers(people.rows()) == [2]


def test_a_table_with_columns_of_unknown_types_is_refused(people: People) -> None:
    people.lake.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "b", BinaryType())))

    with pytest.raises(ConnectorError, match="cannot be IDs"):
        people.erase(*ids_of(1), column="b")


def test_an_id_is_found_in_files_from_before_its_column_was_promoted(people: People) -> None:
    opened = people.lake.open(columns=(Field("id", "id", Int64()),))
    people.lake.commit(opened, 1_700_000_001, 1_700_000_002)

    people.erase(1_700_000_001)

    assert people.traces(1_700_000_001) == {}
    assert people.lake.ids() == [1_700_000_002]


def test_a_finished_request_leaves_hashes_and_no_ids(people: People) -> None:
    people.commit([1, 2])

    first = people.erase(*ids_of(1))
    second = people.erase(*ids_of(1))

    assert first.request != second.request
    assert of_table(second).objects == ()
    assert {key.split("/")[-1] for key in people.lake.objects() if f"_deletions/{first.request}/" in key} >= {
        "request.json",
        "int64.bin",
        "report.json",
    }
    assert datetime.fromisoformat(first.ended) <= datetime.now(UTC)
