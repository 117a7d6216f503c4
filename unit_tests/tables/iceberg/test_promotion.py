"""Promotion of float columns to double: no live file holds them as float afterwards."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.exceptions import ClientError
from pyiceberg.conversions import to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType

from destination_datalake.errors import Failure
from destination_datalake.files.jobs import Failed
from destination_datalake.files.plan import RewriteFailed, RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.schema.types import ColumnType, Field, Float32, Float64, Int64, List, Struct
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed, Reencode, TableConflict
from unit_tests.cloud import during
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(6)

FLOAT = Float32()
ID = Field("id", "id", Int64())
TENTH = 0.100000001490116119384765625
"""A tenth as a 32-bit float has it."""


def columns(type_: ColumnType = FLOAT) -> tuple[Field, ...]:
    return (ID, Field("price", "price", type_))


class Executors:
    """Rewrites files as the executors do, and remembers which."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def __call__(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        self.sources += [task.source for task in tasks]
        return publish_rewritten([*rewrite(tasks)], tasks[0].access)


def promote(lake: Lake, opened: IcebergTable, executors: Executors, id_: int) -> None:
    """Commit a row whose price no 32-bit float holds."""
    file = lake.write_rows(opened, {"id": id_, "price": 0.1}, columns=columns(Float64()))
    assert opened.commit([file], executors) == Committed()


def types(lake: Lake, branch: str = MAIN_BRANCH) -> set[pa.DataType]:
    """Return the types of the column in a branch's files."""
    table = lake.load()
    tasks = table.scan(snapshot_id=table.metadata.refs[branch].snapshot_id).plan_files()
    bodies = [table.io.new_input(task.file.file_path).open().read() for task in tasks]
    schemas = [pq.read_schema(io.BytesIO(body)) for body in bodies]
    return {schema.field("price").type for schema in schemas if "price" in schema.names}


def rows(lake: Lake, filter_: str = "true") -> list[tuple[int, float | None]]:
    table_rows = lake.load().scan(row_filter=filter_, selected_fields=("id", "price")).to_arrow().to_pylist()
    return sorted((row["id"], row["price"]) for row in table_rows)


def test_files_with_a_float_are_rewritten_in_the_commit_that_promotes_it_to_double(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    for number in (1, 2):
        lake.commit(opened, number, price=TENTH)
    before = len(lake.load().metadata.snapshots)
    commits = len(lake.load().metadata.metadata_log)

    executors = Executors()
    promote(lake, opened, executors, 3)

    table = lake.load()
    assert len(executors.sources) == 2
    assert table.schema().find_type("price") == DoubleType()
    assert types(lake) == {pa.float64()}
    assert rows(lake) == [(1, TENTH), (2, TENTH), (3, 0.1)]
    assert rows(lake, "price > 0.1") == [(1, TENTH), (2, TENTH)]
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots[before:]]
    assert [summary.operation.value for summary in summaries if summary is not None] == ["overwrite", "append"]
    assert len(table.metadata.metadata_log) == commits + 1
    price = table.schema().find_field("price").field_id
    bounds = [task.file.lower_bounds[price] for task in table.scan().plan_files()]
    assert sorted(bounds) == sorted(to_bytes(DoubleType(), price) for price in (TENTH, TENTH, 0.1))


def test_files_of_the_branch_of_a_pending_overwrite_are_rewritten_with_those_of_main(lake: Lake) -> None:
    """Branches share the table's schema."""
    lake.commit(lake.open(columns=columns()), 1, price=TENTH)
    overwriting = lake.open(2, overwrite=True, columns=columns())
    lake.commit(overwriting, 2, price=TENTH)

    promote(lake, overwriting, Executors(), 3)

    assert types(lake) == types(lake, "airbyte_generation_2") == {pa.float64()}
    assert rows(lake) == [(1, TENTH)]
    overwriting.publish(no_rewrite)
    assert rows(lake) == [(2, TENTH), (3, 0.1)]


def test_a_file_encoded_before_another_sync_promoted_its_column_is_encoded_again(lake: Lake) -> None:
    first, second = lake.open(columns=columns()), lake.open(columns=columns())
    late = lake.write_rows(first, {"id": 1, "price": TENTH})
    promote(lake, second, Executors(), 2)

    assert isinstance(first.commit([late], no_rewrite), Reencode)
    lake.commit(first, 1, price=TENTH)

    assert types(lake) == {pa.float64()}
    assert rows(lake) == [(1, TENTH), (2, 0.1)]


def test_a_batch_with_float_and_double_files_is_encoded_again(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    narrow = lake.write_rows(opened, {"id": 1, "price": TENTH})
    wide = lake.write_rows(opened, {"id": 2, "price": 0.1}, columns=columns(Float64()))

    assert isinstance(opened.commit([narrow, wide], no_rewrite), Reencode)

    assert opened.plan().columns == columns(Float64())
    assert not any(key in f"{narrow.uri} {wide.uri}" for key in lake.objects())


def test_a_stream_that_declares_double_promotes_the_column_with_its_first_batch(lake: Lake) -> None:
    """When the table is prepared there are no executors yet."""
    lake.commit(lake.open(columns=columns()), 1, price=TENTH)

    opened = lake.open(columns=columns(Float64()))
    assert lake.load().schema().find_type("price") == FloatType()
    assert opened.plan().columns == columns(Float64())
    assert opened.commit([lake.write_rows(opened, {"id": 2, "price": 0.1})], Executors()) == Committed()

    assert types(lake) == {pa.float64()}
    assert rows(lake) == [(1, TENTH), (2, 0.1)]


def test_fields_inside_structs_and_lists_keep_their_ids(lake: Lake) -> None:
    def nested(type_: ColumnType) -> tuple[Field, ...]:
        inside = Struct((Field("up", "up", type_), Field("down", "down", Float32())))
        return (ID, Field("moves", "moves", List(inside)))

    opened = lake.open(columns=nested(Float32()))
    lake.commit(opened, 1, moves=[{"up": TENTH, "down": TENTH}, None])
    wide = lake.write_rows(opened, {"id": 2, "moves": [{"up": 0.1, "down": TENTH}]}, columns=nested(Float64()))
    executors = Executors()
    assert opened.commit([wide], executors) == Committed()

    assert len(executors.sources) == 1
    table_rows = lake.load().scan(selected_fields=("id", "moves")).to_arrow().sort_by("id").to_pylist()
    assert [row["moves"] for row in table_rows] == [
        [{"up": TENTH, "down": TENTH}, None],
        [{"up": 0.1, "down": TENTH}],
    ]


def test_files_without_the_column_are_not_rewritten(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    [before] = [task.file.file_path for task in lake.load().scan().plan_files()]
    opened = lake.open(columns=columns())
    lake.commit(opened, 2, price=TENTH)

    promote(lake, opened, Executors(), 3)

    assert before in {task.file.file_path for task in lake.load().scan().plan_files()}
    assert rows(lake) == [(1, None), (2, TENTH), (3, 0.1)]


def test_files_without_field_ids_are_not_rewritten_and_a_warning_counts_them(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """Another engine has added them with a name mapping (Iceberg: column projection)."""
    lake.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "price", FloatType())))
    foreign_file = io.BytesIO()
    pq.write_table(pa.table({"id": [1], "price": pa.array([TENTH], pa.float32())}), foreign_file)
    lake.load().add_files([lake.put(foreign_file.getvalue())])

    promote(lake, lake.open(columns=columns()), Executors(), 2)

    assert "1 files that other writers created without field IDs still store the column as float" in caplog.text
    assert rows(lake) == [(1, TENTH), (2, 0.1)]


def test_a_retried_commit_rewrites_only_files_that_another_writer_has_added(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    lake.commit(opened, 1, price=TENTH)

    executors = Executors()
    lake.at_the_next_update(lambda: lake.commit(lake.open(columns=columns()), 2, price=TENTH))
    promote(lake, opened, executors, 3)

    assert len(executors.sources) == len(set(executors.sources)) == 2
    assert types(lake) == {pa.float64()}
    assert rows(lake) == [(1, TENTH), (2, TENTH), (3, 0.1)]


def test_rewritten_files_that_another_writer_has_compacted_meanwhile_are_deleted(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    lake.commit(opened, 1, price=TENTH)

    lake.at_the_next_update(lake.compact_and_expire)
    promote(lake, opened, Executors(), 2)

    live = {task.file.file_path for task in lake.load().scan().plan_files()}
    assert rows(lake) == [(1, TENTH), (2, 0.1)]
    assert types(lake) == {pa.float64()}
    # Older snapshots need two: the first file, and the one that it was compacted to.
    assert len(lake.uris(".parquet") - live) == 2


def test_rewritten_files_are_deleted_when_another_writer_promotes_the_column_first(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    opened, other_table = lake.open(columns=columns()), lake.open(columns=columns())
    lake.commit(opened, 1, price=TENTH)

    lake.at_the_next_update(lambda: promote(lake, other_table, Executors(), 2))
    with caplog.at_level("INFO"):
        promote(lake, opened, Executors(), 3)

    live = {task.file.file_path for task in lake.load().scan().plan_files()}
    assert rows(lake) == [(1, TENTH), (2, 0.1), (3, 0.1)]
    assert len(lake.uris(".parquet") - live) == 1  # older snapshots need the first file
    assert caplog.text.count("promoted column") == 1


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "airbyte_generation_2"])
def test_a_promotion_is_refused_where_equality_deletes_apply(lake: Lake, branch: str) -> None:
    """They apply to older files only: deleted rows would come back."""
    lake.commit(lake.open(columns=columns()), 1, 2, price=TENTH)
    opened = lake.open(2, overwrite=True, columns=columns())
    lake.commit(opened, 3, 4, price=TENTH)
    lake.delete_by_equality(branch)
    before = lake.objects()

    with pytest.raises(
        TableConflict,
        match=f"column price must become double, .* equality deletes apply to these files on branch {branch}",
    ):
        promote(lake, opened, Executors(), 5)

    assert lake.load().schema().find_type("price") == FloatType()
    assert lake.objects() == before


@pytest.mark.parametrize("branch", [MAIN_BRANCH, "airbyte_generation_2"])
def test_rows_that_position_deletes_remove_stay_deleted(lake: Lake, branch: str) -> None:
    """They name data files by path, which a promotion changes. The new manifest entry reveals no deleted value."""
    first = lake.open(columns=columns())
    lake.commit(first, 1, 2, price=TENTH)
    opened = lake.open(2, overwrite=True, columns=columns())
    lake.commit(opened, 3, 4, price=TENTH)
    lake.delete_first_row(branch)

    promote(lake, opened, Executors(), 5)

    kept = {MAIN_BRANCH: [1, 2], "airbyte_generation_2": [3, 4, 5]}
    deleted = to_bytes(LongType(), kept[branch].pop(0))
    assert {name: lake.ids(name) for name in kept} == kept
    assert all(not task.delete_files for task in lake.load().scan().plan_files())
    snapshot_id = lake.load().metadata.refs[branch].snapshot_id
    entries = [task.file for task in lake.load().scan(snapshot_id=snapshot_id).plan_files()]
    assert all(deleted not in (entry.lower_bounds or {}).values() for entry in entries)
    assert [row["id"] for row in lake.load().scan("price < 0.5").to_arrow().to_pylist()] == kept[MAIN_BRANCH]


def test_a_file_of_which_all_rows_are_deleted_goes_when_its_column_becomes_double(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    lake.commit(opened, 1, price=TENTH)
    lake.delete_first_row()
    before = lake.uris()

    promote(lake, opened, Executors(), 2)

    assert lake.ids() == [2]
    [live] = [task.file.file_path for task in lake.load().scan().plan_files()]
    assert lake.uris(".parquet") - before == {live}


def test_a_failed_rewrite_changes_nothing_and_leaves_no_file(lake: Lake) -> None:
    opened = lake.open(columns=columns())
    for number in (1, 2):
        lake.commit(opened, number, price=TENTH)
    before = lake.load().metadata, lake.objects()

    def fail(tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        failed = Failed(Failure("an object cannot be read", "", "config_error"))
        return publish_rewritten([*rewrite(tasks[:1]), failed], tasks[0].access)

    with pytest.raises(RewriteFailed):
        opened.commit([lake.write_rows(opened, {"id": 3, "price": 0.1}, columns=columns(Float64()))], fail)

    assert (lake.load().metadata, lake.objects()) == before
    assert lake.access.client("s3").list_multipart_uploads(Bucket=lake.bucket).get("Uploads", []) == []


def test_files_of_former_partitions_are_rewritten(lake: Lake) -> None:
    fields = (
        NestedField(1, "id", LongType()),
        NestedField(2, "price", FloatType()),
        NestedField(3, "region", StringType()),
    )
    by_region = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "region"))
    table = lake.create(Schema(*fields), partition_spec=by_region)
    foreign_rows = pa.table({"id": [1, 2], "price": pa.array([TENTH, None], pa.float32()), "region": ["eu", None]})
    table.append(foreign_rows)
    with lake.load().update_spec() as update:
        update.remove_field("region")

    promote(lake, lake.open(columns=columns()), Executors(), 3)

    assert types(lake) == {pa.float64()}
    assert rows(lake) == [(1, TENTH), (2, None), (3, 0.1)]
    assert [row["id"] for row in lake.load().scan(row_filter="region = 'eu'").to_arrow().to_pylist()] == [1]


def test_failing_to_delete_unused_files_does_not_fail_the_commit(lake: Lake) -> None:
    """A role may lack the permission to delete objects."""
    opened = lake.open(columns=columns())
    lake.commit(opened, 1, price=TENTH)
    narrow = lake.write_rows(opened, {"id": 2, "price": TENTH})
    wide = lake.write_rows(opened, {"id": 3, "price": 0.1}, columns=columns(Float64()))
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteObject")

    def deny(**_: object) -> None:
        raise denied

    lake.at_the_next_update(lake.compact_and_expire)
    with during(lake.access, "before-call.s3.DeleteObject", deny):
        assert isinstance(opened.commit([narrow, wide], Executors()), Reencode)

    assert lake.load().schema().find_type("price") == DoubleType()
    assert rows(lake) == [(1, TENTH)]
