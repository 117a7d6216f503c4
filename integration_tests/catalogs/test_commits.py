"""What a catalog compares at a commit, and what it never accepts: this is what clients of any catalog can rely on."""

import uuid
from collections.abc import Iterator, Mapping, Sequence

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import LongType

from integration_tests.catalogs.conftest import ROWS, Client, Json
from integration_tests.harness.lake import Lake


@pytest.fixture
def client(any_catalog: str, lake: Lake) -> Client:
    return Client(any_catalog, lake)


def everything(metadata: TableMetadata) -> Iterator[TableRequirement]:
    """Yield all that a commit can require: that nothing assertable has changed."""
    yield AssertTableUUID(uuid=metadata.table_uuid)
    for name, ref in metadata.refs.items():
        yield AssertRefSnapshotId.model_validate({"ref": name, "snapshot-id": ref.snapshot_id})
    yield AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id})
    yield AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": metadata.last_column_id})
    yield AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id})
    yield AssertLastAssignedPartitionId.model_validate({"last-assigned-partition-id": metadata.last_partition_id})
    yield AssertDefaultSortOrderId.model_validate({"default-sort-order-id": metadata.default_sort_order_id})


def tag(name: str, snapshot_id: int | None) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "tag", "snapshot-id": snapshot_id})


def branch(name: str, snapshot_id: int | None) -> TableUpdate:
    return SetSnapshotRefUpdate.model_validate({"ref-name": name, "type": "branch", "snapshot-id": snapshot_id})


def commit(client: Client, planned: Table, *updates: TableUpdate, absent: Sequence[str] = ()) -> None:
    """Commit to the table if nothing assertable has changed since it was loaded, and these refs are not there."""
    absences = [AssertRefSnapshotId(ref=name) for name in absent]
    client.commit_table(planned, (*everything(planned.metadata), *absences), updates)


def test_a_table_is_written_and_read(client: Client) -> None:
    table = client.new_table()

    table.append(ROWS)
    with table.update_schema() as update:
        update.add_column("number", LongType())

    read = client.load_table(table.name())
    assert read.scan().to_arrow().to_pylist() == [{"id": 1, "text": "one", "number": None}] * 2
    assert client.list_tables(table.name()[0]) == [table.name()]
    assert client.table_exists(table.name())


def test_a_writer_that_was_overtaken_plans_again(client: Client) -> None:
    table = client.new_table()
    planned = client.load_table(table.name()).transaction()
    planned.append(ROWS)
    table.append(ROWS)

    with pytest.raises(CommitFailedException):
        planned.commit_transaction()

    assert client.load_table(table.name()).scan().to_arrow().num_rows == 2


def test_an_append_is_accepted_although_a_property_has_changed(client: Client) -> None:
    """A token in a property does not keep a fenced writer from committing."""
    table = client.new_table(token="1")
    planned = client.load_table(table.name()).transaction()
    planned.append(ROWS)
    table.transaction().set_properties(token="2").commit_transaction()

    planned.commit_transaction()

    assert client.load_table(table.name()).scan().to_arrow().num_rows == 2


def test_no_requirement_sees_a_property_that_has_changed(client: Client) -> None:
    table = client.new_table(token="1")
    planned = client.load_table(table.name())
    table.transaction().set_properties(token="2").commit_transaction()

    commit(client, planned, SetPropertiesUpdate(updates={"colour": "red"}))

    properties = client.load_table(table.name()).properties
    assert (properties["token"], properties["colour"]) == ("2", "red")


def test_a_property_is_set_as_often_as_the_commit_is_sent(client: Client) -> None:
    planned = client.new_table()

    for _ in range(2):
        commit(client, planned, SetPropertiesUpdate(updates={"colour": "red"}))

    assert client.load_table(planned.name()).properties["colour"] == "red"


def test_of_two_writers_that_move_a_tag_one_is_refused_and_so_is_whom_it_has_fenced(client: Client) -> None:
    table = client.new_table()
    head = table.metadata.current_snapshot_id
    commit(client, table, tag("fence-1", head), absent=["fence-1"])
    fenced, first, second = (client.load_table(table.name()) for _ in range(3))
    takeover = (tag("fence-2", head), RemoveSnapshotRefUpdate.model_validate({"ref-name": "fence-1"}))

    commit(client, first, *takeover, absent=["fence-2"])

    with pytest.raises(CommitFailedException):
        commit(client, second, *takeover, absent=["fence-2"])
    with pytest.raises(CommitFailedException):
        commit(client, fenced, SetPropertiesUpdate(updates={"colour": "red"}))
    assert client.load_table(table.name()).refs().keys() == {"main", "fence-2"}


def test_a_ref_of_a_table_without_snapshots_may_be_required_to_be_absent(client: Client, lake: Lake) -> None:
    """PyIceberg's own catalogs refuse it."""
    client.create_namespace(lake.name("shop"))
    table = client.create_table((lake.name("shop"), "empty"), ROWS.schema)

    answer = client.commit(table.name(), [{"type": "assert-ref-snapshot-id", "ref": "b", "snapshot-id": None}], [])

    assert answer == (200, "")


REQUIREMENTS: Mapping[str, Mapping[str, object]] = {
    "assert-create": {},
    "assert-table-uuid": {"uuid": str(uuid.uuid4())},
    "assert-ref-snapshot-id": {"ref": "main", "snapshot-id": None},
    "assert-last-assigned-field-id": {"last-assigned-field-id": 77},
    "assert-current-schema-id": {"current-schema-id": 77},
    "assert-last-assigned-partition-id": {"last-assigned-partition-id": 77},
    "assert-default-spec-id": {"default-spec-id": 77},
    "assert-default-sort-order-id": {"default-sort-order-id": 77},
}


@pytest.mark.share(3)
@pytest.mark.parametrize("kind", REQUIREMENTS)
def test_a_commit_whose_requirement_fails_is_refused(client: Client, kind: str) -> None:
    table = client.new_table()

    answer = client.commit(
        table.name(), [{"type": kind, **REQUIREMENTS[kind]}], [{"action": "set-properties", "updates": {"a": "b"}}]
    )

    assert answer == (409, "CommitFailedException")
    assert "a" not in client.load_table(table.name()).properties


PART = {"field-id": 1000, "name": "x", "transform": "identity"}


@pytest.mark.share(3)
@pytest.mark.parametrize(
    "update",
    [
        {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 77},
        {"action": "set-current-schema", "schema-id": 77},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "remove-schemas", "schema-ids": [0]},
        {"action": "remove-partition-specs", "spec-ids": [0]},
        {"action": "upgrade-format-version", "format-version": 1},
        {"action": "upgrade-format-version", "format-version": 77},
        {"action": "add-spec", "spec": {"spec-id": 1, "fields": [{"source-id": 77, **PART}]}},
        {"action": "set-snapshot-ref", "ref-name": "t", "type": "tag", "snapshot-id": 77, "min-snapshots-to-keep": 1},
    ],
    ids=str,
)
def test_an_update_that_no_table_can_have_is_refused(client: Client, update: dict[str, object]) -> None:
    table = client.new_table()

    status, _ = client.commit(table.name(), [], [{"action": "set-properties", "updates": {"a": "b"}}, update])

    assert status == 400
    assert client.load_table(table.name()).metadata == table.metadata


def test_a_snapshot_that_is_not_younger_than_all_others_is_planned_again(client: Client) -> None:
    """It may be on another branch, so that all requirements hold; it is the catalog's own that does not."""
    table = client.new_table()
    client.commit_table(table, (), (branch("other", table.metadata.current_snapshot_id),))
    planned = client.load_table(table.name()).transaction()
    planned.append(ROWS, branch="other")
    table.refresh()
    table.append(ROWS)

    with pytest.raises(CommitFailedException, match="retry"):
        planned.commit_transaction()


def test_schemas_have_the_ids_that_the_server_gives_them(client: Client) -> None:
    table = client.new_table()
    schema = table.schema().model_dump()
    number = {"id": 3, "name": "n", "required": False, "type": "long"}
    wider = {**schema, "schema-id": 40, "fields": [*schema["fields"], number]}
    last = {"action": "set-current-schema", "schema-id": -1}

    added = client.commit(table.name(), [], [{"action": "add-schema", "schema": wider}, last])
    table.refresh()
    ids = table.metadata.current_schema_id, sorted(table.schemas())
    repeated = client.commit(table.name(), [], [{"action": "add-schema", "schema": {**schema, "schema-id": 41}}])
    table.refresh()

    assert (added, repeated) == ((200, ""), (200, ""))
    assert ids == (1, [0, 1])
    assert (table.metadata.current_schema_id, sorted(table.schemas())) == (1, [0, 1])


def test_what_is_not_there_is_removed_without_an_error(client: Client) -> None:
    table = client.new_table(colour="red")
    updates: Json = [
        {"action": "remove-properties", "removals": ["colour", "size"]},
        {"action": "remove-snapshots", "snapshot-ids": [77]},
        {"action": "remove-snapshot-ref", "ref-name": "nothing"},
    ]

    assert client.commit(table.name(), [], updates) == (200, "")

    assert "colour" not in client.load_table(table.name()).properties


def test_a_snapshot_goes_with_the_refs_to_it_and_its_children_keep_their_parent(client: Client) -> None:
    table = client.new_table()
    first = table.metadata.current_snapshot_id
    client.commit_table(table, (), (tag("old", first),))
    table.append(ROWS)

    answer = client.commit(table.name(), [], [{"action": "remove-snapshots", "snapshot-ids": [first]}])

    table.refresh()
    assert answer == (200, "")
    assert table.refs().keys() == {"main"}
    assert [snapshot.parent_snapshot_id for snapshot in table.snapshots()] == [first]


def test_a_table_is_created_once_and_where_its_namespace_is(client: Client) -> None:
    table = client.new_table()

    with pytest.raises(TableAlreadyExistsError):
        client.create_table(table.name(), ROWS.schema)
    with pytest.raises(NoSuchNamespaceError):
        client.create_table(("nowhere", "orders"), ROWS.schema)
    with pytest.raises(NoSuchTableError):
        client.load_table((table.name()[0], "other"))
    with pytest.raises(NamespaceNotEmptyError):
        client.drop_namespace(table.name()[0])


def test_a_table_that_is_staged_exists_from_its_commit_on(client: Client) -> None:
    name = (client.new_table().name()[0], "staged")
    first, second = (client.create_table_transaction(name, ROWS.schema) for _ in range(2))
    assert not client.table_exists(name)

    first.append(ROWS)
    first.commit_transaction()

    with pytest.raises(CommitFailedException):
        second.commit_transaction()
    assert client.load_table(name).scan().to_arrow().num_rows == 1


def test_a_table_that_is_dropped_is_gone(client: Client) -> None:
    table = client.new_table()

    client.drop_table(table.name())
    client.drop_namespace(table.name()[0])

    assert not client.table_exists(table.name())
    assert not client.namespace_exists(table.name()[0])
    assert client.commit(table.name(), [], [])[0] == 404


def test_a_namespace_has_properties(client: Client, lake: Lake) -> None:
    name = lake.name("shop")
    client.create_namespace(name, {"colour": "red", "size": "1"})

    summary = client.update_namespace_properties(name, {"size", "weight"}, {"owner": "us"})

    assert (summary.removed, summary.updated, summary.missing) == (["size"], ["owner"], ["weight"])
    assert client.load_namespace_properties(name).items() >= {"colour": "red", "owner": "us"}.items()
    assert (name,) in client.list_namespaces()


def test_the_server_deletes_metadata_files_that_the_table_s_log_has_forgotten(client: Client, lake: Lake) -> None:
    """By hand: PyIceberg deletes them too."""
    limits = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    table = client.new_table(**limits)

    for number in range(3):
        update = {"action": "set-properties", "updates": {"number": str(number)}}
        assert client.commit(table.name(), [], [update]) == (200, "")

    bucket, _, folder = table.location().removeprefix("s3://").partition("/")
    listed = lake.s3.list_objects_v2(Bucket=bucket, Prefix=f"{folder}/metadata/")["Contents"]
    assert len([item["Key"] for item in listed if item["Key"].endswith(".metadata.json")]) == 2
