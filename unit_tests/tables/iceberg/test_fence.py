"""The fence: a tag that tells what no branch tells, where a catalog compares branches and tags alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.table.update.snapshot import ManageSnapshots
from pyiceberg.types import StringType

from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced
from destination_datalake.tables.iceberg.commit import FENCE_PROPERTY, TableOperations, requirements, set_property
from destination_datalake.tables.iceberg.snapshots.change import Change, change_branch
from unit_tests.requirements import RequirementsCatalog
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(8)


def operations(lake: Lake) -> TableOperations:
    """Another sync's, through a catalog that compares requirements alone."""
    return TableOperations(lake.name, RequirementsCatalog(lake.access))


# The tag of a fencing token, in every catalog


def test_whoever_holds_the_fencing_token_holds_a_tag_whose_number_is_never_used_again(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    assert lake.tags() == []

    for generation in (2, 3):
        overwriting = lake.open(generation, overwrite=True)
        assert lake.tags() == [f"airbyte-fence-{generation - 1}"]
        lake.commit(overwriting, generation)
        overwriting.publish(no_rewrite)
        assert lake.tags() == []


def test_the_token_is_taken_over_with_its_tag_in_one_commit(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    fenced = lake.open(2, overwrite=True)
    before = len(lake.load().metadata.metadata_log)

    lake.open(2, overwrite=True)

    assert lake.tags() == ["airbyte-fence-2"]
    assert len(lake.load().metadata.metadata_log) == before + 1
    with pytest.raises(Fenced):
        lake.commit(fenced, 2)


def test_a_token_of_an_earlier_version_which_has_no_tag_is_taken_over_in_one_commit(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.open(2, overwrite=True)
    with lake.load().transaction() as transaction:
        with ManageSnapshots(transaction) as snapshots:
            snapshots.remove_tag("airbyte-fence-1")
        transaction.remove_properties(FENCE_PROPERTY)
    before = len(lake.load().metadata.metadata_log)

    lake.open(2, overwrite=True)

    assert lake.tags() == ["airbyte-fence-1"]
    assert len(lake.load().metadata.metadata_log) == before + 1


def test_an_append_removes_the_tag_with_the_token_of_a_pending_overwrite(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.open(2, overwrite=True)

    lake.open(3)

    assert lake.tags() == []


def test_no_engine_expires_the_tag_while_the_token_is_held(lake: Lake) -> None:
    lake.commit(lake.open(), 1)

    lake.open(2, overwrite=True)

    assert lake.load().metadata.refs["airbyte-fence-1"].max_ref_age_ms == 2**63 - 1


def test_what_others_have_named_alike_stays_and_the_next_number_is_used(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    with lake.load().manage_snapshots() as snapshots:
        head = lake.load().metadata.snapshots[-1].snapshot_id
        snapshots.create_branch(head, "airbyte-fence-7").create_tag(head, "airbyte-fence-mine")

    overwriting = lake.open(2, overwrite=True)
    assert lake.tags() == ["airbyte-fence-8", "airbyte-fence-mine"]
    overwriting.publish(no_rewrite)

    assert lake.tags() == ["airbyte-fence-mine"]
    assert lake.branches() == ["airbyte-fence-7"]


# What a commit requires


def test_a_commit_requires_all_branches_and_tags_and_that_what_it_adds_is_not_there(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    table = lake.load()
    head = table.metadata.snapshots[-1].snapshot_id
    table.manage_snapshots().create_branch(head, "theirs").create_tag(head, "audit").commit()
    new = SetSnapshotRefUpdate.model_validate({"ref-name": "new", "type": "branch", "snapshot-id": head})

    required = requirements(table.metadata, (new,))

    refs = {
        requirement.ref: requirement.snapshot_id
        for requirement in required
        if isinstance(requirement, AssertRefSnapshotId)
    }
    assert refs == {"main": head, "theirs": head, "audit": head, "new": None, "airbyte-fence-1": None}
    assert {requirement.type for requirement in required} == {
        "assert-table-uuid",
        "assert-current-schema-id",
        "assert-last-assigned-field-id",
        "assert-default-spec-id",
        "assert-last-assigned-partition-id",
        "assert-default-sort-order-id",
        "assert-ref-snapshot-id",
    }


# Commits through a catalog that compares these alone


def _property(_: Table, transaction: Transaction) -> None:
    number = transaction.table_metadata.properties.get("changes", "0")
    transaction.set_properties({"changes": str(int(number) + 1)})


def _column(table: Table, transaction: Transaction) -> None:
    with transaction.update_schema() as schema:
        schema.add_column(f"column_{len(table.schema().fields)}", StringType())


def _rows(table: Table, transaction: Transaction) -> None:
    change_branch(Change([]), "main", table, transaction)


def _token(table: Table, transaction: Transaction) -> None:
    set_property(TOKEN_PROPERTY, f"{len(table.metadata.metadata_log)}:sync", transaction)


def _release(_: Table, transaction: Transaction) -> None:
    set_property(TOKEN_PROPERTY, None, transaction)


CHANGES: Mapping[str, Callable[[Table, Transaction], None]] = {
    "a property": _property,
    "a column": _column,
    "rows": _rows,
    "the token is taken": _token,
    "the token is released": _release,
}


@pytest.mark.parametrize("meanwhile", CHANGES)
@pytest.mark.parametrize("planned", CHANGES)
def test_of_two_commits_that_were_planned_on_the_same_state_the_later_is_planned_again(
    lake: Lake, planned: str, meanwhile: str
) -> None:
    # Given a table whose token is held
    lake.commit(lake.open(), 1)
    operations(lake).commit(_token)
    planned_on: list[str] = []

    # When another sync commits while one plans
    def build(table: Table, transaction: Transaction) -> None:
        planned_on.append(table.metadata_location)
        if len(planned_on) == 1:
            operations(lake).commit(CHANGES[meanwhile])
        CHANGES[planned](table, transaction)

    operations(lake).commit(build)

    # Then that one plans again, on what the other has left
    assert len(planned_on) == len({*planned_on}) == 2


def test_a_change_that_no_branch_tells_leaves_one_tag_that_keeps_no_snapshot(lake: Lake) -> None:
    lake.commit(lake.open(), 1)

    operations(lake).commit(_property)
    operations(lake).commit(_property)

    assert lake.tags() == ["airbyte-fence-2"]
    assert lake.load().metadata.refs["airbyte-fence-2"].max_ref_age_ms == 1
    operations(lake).commit(_rows)
    assert lake.tags() == []


def test_a_change_of_others_leaves_the_token_to_its_holder(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    overwriting = lake.open(2, overwrite=True)

    operations(lake).commit(_property)

    assert lake.tags() == ["airbyte-fence-2"]
    assert lake.load().metadata.refs["airbyte-fence-2"].max_ref_age_ms == 2**63 - 1
    lake.commit(overwriting, 2)
    overwriting.publish(no_rewrite)
    assert (lake.ids(), lake.tags()) == ([2], [])


def test_a_table_without_snapshots_gets_an_empty_one_with_such_a_change(lake: Lake) -> None:
    lake.open()
    assert lake.load().current_snapshot() is None

    operations(lake).commit(_property)

    assert lake.ids() == []
    assert lake.load().current_snapshot() is not None


def test_a_commit_that_changes_nothing_adds_no_tag(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    operations(lake).commit(_property)
    before = lake.load().metadata_location

    operations(lake).commit(_release)

    assert lake.load().metadata_location == before
