"""Branches and fencing tokens of overwrites, and the generations of a table's rows."""

from __future__ import annotations

import pytest

from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced
from destination_datalake.tables.table import TableConflict
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(4)

LOWEST = "airbyte.lowest-generation-id"


def test_an_overwrite_holds_the_fencing_token_until_it_is_published(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    assert TOKEN_PROPERTY not in lake.properties()

    new = lake.open(2, overwrite=True)
    assert TOKEN_PROPERTY in lake.properties()
    lake.commit(new, 2)
    assert lake.ids() == [1]
    new.publish(no_rewrite)

    assert lake.ids() == [2]
    assert lake.branches() == []
    assert TOKEN_PROPERTY not in lake.properties()
    parameters = lake.access.client("glue").get_table(DatabaseName=lake.name.database, Name="orders")["Table"]
    assert TOKEN_PROPERTY not in parameters["Parameters"]
    new.publish(no_rewrite)
    lake.commit(new, 3)
    assert lake.ids() == [2, 3]


@pytest.mark.parametrize("committed", [True, False], ids=["with rows", "without rows"])
def test_an_append_removes_branch_and_token_of_a_pending_overwrite(lake: Lake, *, committed: bool) -> None:
    """The fenced sync can neither create its branch again nor replace newer rows."""
    lake.commit(lake.open(), 1)
    old = lake.open(2, overwrite=True)
    if committed:
        lake.commit(old, 2)
    late = lake.write(old, 3)

    new = lake.open(3)
    lake.commit(new, 4)
    for step in (lambda: old.commit([late], no_rewrite), lambda: old.publish(no_rewrite)):
        with pytest.raises(Fenced):
            step()

    assert lake.ids() == ([1, 2, 4] if committed else [1, 4])
    assert lake.branches() == []
    assert TOKEN_PROPERTY not in lake.properties()
    assert not any(key in late.uri for key in lake.objects())


def test_publishing_a_branch_that_another_engine_dropped_is_fenced(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    refresh = lake.open(2, overwrite=True)
    lake.commit(refresh, 2)
    with lake.load().manage_snapshots() as snapshots:
        snapshots.remove_branch("airbyte_generation_2")

    with pytest.raises(Fenced):
        refresh.publish(no_rewrite)

    assert lake.ids() == [1]


def test_the_branch_of_a_pending_overwrite_with_delete_files_is_not_adopted(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.commit(lake.open(2, overwrite=True), 2, 3)
    lake.delete_first_row("airbyte_generation_2")

    with pytest.raises(TableConflict, match=r"its branch airbyte_generation_2 .* contains delete files"):
        lake.open(3)
    assert lake.ids() == [1]

    resumed = lake.open(2, overwrite=True)
    lake.commit(resumed, 4)
    resumed.publish(no_rewrite)
    assert lake.ids() == [3, 4]


@pytest.mark.parametrize("overwrite", [False, True], ids=["append", "overwrite"])
def test_branches_and_tags_of_others_with_names_like_ours_stay_and_are_not_adopted(
    lake: Lake, *, overwrite: bool
) -> None:
    lake.commit(lake.open(), 1)
    with lake.load().manage_snapshots() as snapshots:
        head = lake.load().metadata.snapshots[-1].snapshot_id
        snapshots.create_branch(head, "airbyte_generation_backup").create_tag(head, "airbyte_generation_4")

    new = lake.open(2, overwrite=overwrite)
    lake.commit(new, 2)
    new.publish(no_rewrite)

    assert lake.ids() == ([2] if overwrite else [1, 2])
    assert {"airbyte_generation_backup", "airbyte_generation_4"} <= lake.load().metadata.refs.keys()


def test_no_engine_expires_the_branch_of_a_pending_overwrite(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.set_properties({"history.expire.max-ref-age-ms": "1"})

    lake.commit(lake.open(2, overwrite=True), 2)

    assert lake.load().metadata.refs["airbyte_generation_2"].max_ref_age_ms == 2**63 - 1


# --- Generations


@pytest.mark.parametrize("sent", [True, False], ids=["with rows", "without rows"])
def test_a_published_generation_is_known_after_compaction_and_snapshot_expiry(lake: Lake, *, sent: bool) -> None:
    first = lake.open(5, overwrite=True)
    lake.commit(first, 1)
    first.publish(no_rewrite)
    lake.compact_and_expire()

    resumed = lake.open(5, overwrite=True)
    if sent:
        lake.commit(resumed, 2)
    resumed.publish(no_rewrite)

    assert lake.ids() == ([1, 2] if sent else [1])


def test_the_property_has_the_lowest_generation_of_all_rows(lake: Lake) -> None:
    generations = []
    for generation, overwrite in [(4, False), (5, False), (6, True), (7, False), (None, True), (8, False)]:
        opened = lake.open(generation, overwrite=overwrite)
        lake.commit(opened, generation or 0)
        opened.publish(no_rewrite)
        generations.append(lake.properties().get(LOWEST))

    assert generations == ["4", "4", "6", "6", None, None]


@pytest.mark.parametrize("name", [LOWEST, "airbyte.fence"])
@pytest.mark.parametrize("value", ["x", "9" * 5_000], ids=["text", "a number of 5,000 digits"])
def test_a_table_with_an_invalid_property_is_refused(lake: Lake, name: str, value: str) -> None:
    lake.commit(lake.open(), 1)
    lake.set_properties({name: value})

    with pytest.raises(TableConflict, match=f"Cannot read property {name} of the table at s3://.* remove the property"):
        lake.open(2, overwrite=True)

    assert lake.ids() == [1]


def test_a_fencing_token_whose_number_is_invalid_is_held_by_no_sync(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    lake.set_properties({TOKEN_PROPERTY: f"{'9' * 5_000}:another"})

    new = lake.open(2, overwrite=True)
    lake.commit(new, 2)
    new.publish(no_rewrite)

    assert lake.ids() == [2]
