"""PyIceberg's Glue catalog: what a commit changes, checks and asks for."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.avro.codecs.deflate import DeflateCodec
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, FileFormat, PartitionFieldStats
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.snapshots import Operation, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemovePropertiesUpdate,
    RemoveSnapshotsUpdate,
    update_table_metadata,
)
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, ListType, LongType, NestedField
from pyiceberg.utils.truncate import truncate_upper_bound_text_string

from unit_tests.cloud import cloud

pytestmark = pytest.mark.slow

ID = ("shop", "orders")
SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture
def glue() -> Iterator[Any]:
    """A client of an emulated Glue with one database."""
    with cloud() as account:
        client = account.access.client("glue")
        client.create_database(DatabaseInput={"Name": "shop"})
        yield client


@pytest.fixture
def table(glue: Any, tmp_path: Path) -> Table:
    return GlueCatalog("glue", client=glue).create_table(ID, SCHEMA, f"file://{tmp_path}", properties={"ours": "1"})


def requests(glue: Any, operation: str) -> list[str]:
    """The requests of one operation from now on."""
    made: list[str] = []
    glue.meta.events.register(f"before-call.glue.{operation}", lambda **_: made.append(operation))
    return made


def entry(glue: Any) -> dict[str, Any]:
    glue_table: dict[str, Any] = glue.get_table(DatabaseName="shop", Name="orders")["Table"]
    return glue_table


def test_a_commit_drops_what_others_have_set_in_the_glue_table(glue: Any, table: Table) -> None:
    storage = entry(glue)["StorageDescriptor"]
    storage["Columns"][0]["Comment"] = "the order's number"
    storage["SerdeInfo"] = {"SerializationLibrary": "theirs"}
    described = {
        "Name": "orders",
        "Description": "theirs",
        "Owner": "them",
        "Parameters": entry(glue)["Parameters"],
        "StorageDescriptor": storage,
    }
    glue.update_table(DatabaseName="shop", TableInput=described)

    table.transaction().set_properties(ours="2").commit_transaction()

    assert "Description" not in entry(glue)
    assert "Owner" not in entry(glue)
    assert "Comment" not in entry(glue)["StorageDescriptor"]["Columns"][0]
    assert "SerdeInfo" not in entry(glue)["StorageDescriptor"]


def test_a_removed_property_stays_a_parameter_of_the_glue_table(glue: Any, table: Table) -> None:
    table.transaction().remove_properties("ours").commit_transaction()

    assert entry(glue)["Parameters"]["ours"] == "1"


def test_a_change_of_properties_is_committed_over_another_writer_s(glue: Any, table: Table) -> None:
    GlueCatalog("other", client=glue).load_table(ID).transaction().set_properties(owner="other").commit_transaction()

    table.transaction().set_properties(owner="this").commit_transaction()

    assert entry(glue)["Parameters"]["owner"] == "this"


def test_each_commit_requests_the_database(glue: Any, table: Table) -> None:
    made = requests(glue, "GetDatabase")

    table.transaction().set_properties(ours="2").commit_transaction()

    assert made == ["GetDatabase"]


def test_an_append_is_retried_on_whatever_schema_another_writer_has_made(glue: Any, table: Table) -> None:
    conflicts: list[int] = []

    def conflict_once(**_: Any) -> None:
        if not conflicts:
            conflicts.append(1)
            raise CommitFailedException("another writer")

    glue.meta.events.register("before-call.glue.UpdateTable", conflict_once)
    updates = requests(glue, "UpdateTable")

    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass

    assert (len(conflicts), len(updates)) == (1, 1)


def test_a_branch_cannot_be_created_in_a_table_without_snapshots(table: Table) -> None:
    update = table.transaction().update_snapshot(branch="new").fast_append()

    with pytest.raises(CommitFailedException, match="no snapshots"):
        update.commit()


def test_a_transaction_requires_the_first_of_its_branches_alone(table: Table) -> None:
    with table.transaction() as first, first.update_snapshot().fast_append():
        pass
    head = table.metadata.refs["main"].snapshot_id
    transaction = table.transaction()

    for name in ("a", "b"):
        with ManageSnapshots(transaction) as snapshots:
            snapshots.create_branch(head, name)

    required = [
        requirement for requirement in transaction._requirements if isinstance(requirement, AssertRefSnapshotId)
    ]
    assert [requirement.ref for requirement in required] == ["a"]


def test_a_branch_cannot_be_required_to_be_absent_from_a_table_without_any(table: Table) -> None:
    with pytest.raises(CommitFailedException, match="no snapshots"):
        AssertRefSnapshotId.model_validate({"ref": "a"}).validate(table.metadata)


def test_each_look_at_a_transaction_s_metadata_copies_all_snapshots(table: Table) -> None:
    with table.transaction() as first, first.update_snapshot().fast_append():
        pass
    transaction = table.transaction()

    looks = [transaction.table_metadata.snapshots[0] for _ in range(2)]

    assert looks[0] == looks[1] == table.metadata.snapshots[0]
    assert len({id(snapshot) for snapshot in (*looks, table.metadata.snapshots[0])}) == 3


def test_a_branch_that_moves_loses_its_retention(table: Table) -> None:
    def append() -> None:
        with table.transaction() as transaction, transaction.update_snapshot().fast_append():
            pass

    append()
    head = table.metadata.refs["main"].snapshot_id
    table.manage_snapshots().create_branch(head, "main", min_snapshots_to_keep=7).commit()
    assert table.metadata.refs["main"].min_snapshots_to_keep == 7

    append()

    assert table.metadata.refs["main"].min_snapshots_to_keep is None


def test_doubles_of_partitions_are_read_as_floats() -> None:
    assert new_decoder(struct.pack("<d", 0.1)).read_double() != 0.1


def test_an_upper_bound_may_become_half_of_a_surrogate_pair() -> None:
    assert truncate_upper_bound_text_string("\ud7ff" * 2, 1) == "\ud800"


def test_the_ids_of_equality_deletes_are_written_as_longs() -> None:
    [ids] = [field.field_type for field in DATA_FILE_TYPE[2].fields if field.name == "equality_ids"]

    assert isinstance(ids, ListType)
    assert ids.element_type == LongType()


def test_an_avro_file_that_is_cut_off_is_read_without_an_error(tmp_path: Path) -> None:
    schema, path = Schema(NestedField(1, "id", LongType(), required=True)), tmp_path / "list.avro"
    io = PyArrowFileIO()
    with AvroOutputFile[Record](io.new_output(str(path)), schema, "r", metadata={"avro.codec": "null"}) as file:
        for id_ in range(3):
            file.write_block([Record(id_)])
    path.write_bytes(path.read_bytes()[: -(1 + 1 + 1 + 16)])

    with AvroFile[Record](io.new_input(str(path))) as reader:
        assert [record[0] for record in reader] == [0, 1]


def test_a_snapshot_that_replaces_files_cannot_be_summed_up() -> None:
    with pytest.raises(ValueError, match="not implemented"):
        update_snapshot_summaries(Summary(Operation.REPLACE))


def test_updates_are_applied_otherwise_than_by_iceberg_s_own_server(table: Table) -> None:
    with pytest.raises(CommitFailedException):
        AssertRefSnapshotId(ref="new").validate(table.metadata)
    for _ in range(2):
        table.append(pa.table({"id": [1]}))
    first = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [table.snapshots()[0].snapshot_id]})

    (second,) = update_table_metadata(table.metadata, (first,)).snapshots

    assert second.parent_snapshot_id is None
    with pytest.raises(ValueError, match="does not exist"):
        update_table_metadata(update_table_metadata(table.metadata, (first,)), (first,))
    with pytest.raises(KeyError):
        update_table_metadata(table.metadata, (RemovePropertiesUpdate(removals=["theirs"]),))


def test_the_files_of_an_append_go_into_manifests_of_the_default_spec(table: Table) -> None:
    with table.update_spec() as update:
        update.add_identity("id")
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path="file:///of-the-first-spec.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
    )
    file.spec_id = 0

    with pytest.raises(IndexError), table.transaction().update_snapshot().fast_append() as append:
        append.append_data_file(file)


CALLED: list[object] = []


class Named:
    """What a property names."""

    def __init__(self, *arguments: object, **_: object) -> None:
        CALLED.append(arguments)


def test_a_table_s_property_names_a_class_that_is_called() -> None:
    CALLED.clear()
    load_location_provider("s3://lake/orders", {"write.py-location-provider.impl": f"{__name__}.Named"})

    assert len(CALLED) == 1


def test_a_server_s_configuration_names_a_class_that_is_called() -> None:
    CALLED.clear()
    catalog = RestCatalog.__new__(RestCatalog)
    catalog.properties = {"auth": {"type": "custom", "impl": f"{__name__}.Named"}}
    catalog._create_session()

    assert len(CALLED) == 1


def test_a_block_is_decompressed_to_any_size() -> None:
    assert len(DeflateCodec.decompress(zlib.compress(bytes(10_000_000))[2:-4])) == 10_000_000


@pytest.mark.parametrize("zeros", [(0.0, -0.0), (-0.0, 0.0)])
def test_bounds_of_partitions_are_the_zero_that_comes_first(zeros: tuple[float, float]) -> None:
    stats = PartitionFieldStats(DoubleType())
    for zero in zeros:
        stats.update(zero)

    first = struct.pack("<d", zeros[0])
    assert (stats.to_summary().lower_bound, stats.to_summary().upper_bound) == (first, first)
