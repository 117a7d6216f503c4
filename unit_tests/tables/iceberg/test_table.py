"""Iceberg tables in the catalog: who may write where, what a commit did, and what others do meanwhile."""

from __future__ import annotations

import pytest
from botocore.exceptions import ConnectionClosedError

from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced
from destination_datalake.tables.table import CommitStateUnknown, Committed
from unit_tests.lake import Lake, no_rewrite

LOWEST = "airbyte.lowest-generation-id"


# --- What a commit did


def test_a_commit_whose_answer_never_comes_is_found(lake: Lake) -> None:
    ours = lake.open()
    events = lake.access.client("glue").meta.events

    def lose(**_: object) -> None:
        raise ConnectionClosedError(endpoint_url="glue")

    events.register("after-call.glue.UpdateTable", lose)
    try:
        lake.commit(ours, 1)
    finally:
        events.unregister("after-call.glue.UpdateTable", lose)

    assert lake.ids() == [1]


def test_nothing_is_deleted_when_nobody_can_tell_whether_a_commit_was_made(lake: Lake) -> None:
    """The next metadata no longer name what they follow, and its snapshot is gone."""
    ours = lake.open()
    lake.commit(ours, 1)
    files = [lake.write(ours, 2)]
    before = set[str]()

    def forget() -> None:
        with lake.theirs().transaction() as transaction:
            transaction.set_properties({"write.metadata.previous-versions-max": "1"})
        lake.compact_and_expire()
        before.update(lake.objects())

    lake.at_the_next_update(forget, lost=True)
    with pytest.raises(CommitStateUnknown, match="cannot be determined whether the commit was made"):
        ours.commit(files, no_rewrite)

    assert before <= lake.objects()
    assert lake.ids() == [1, 2]


def test_preparing_a_table_commits_once_and_only_if_it_must(lake: Lake) -> None:
    locations = []
    for generation, replaces in [(1, False), (1, False), (2, True), (3, False), (3, False)]:
        lake.open(generation, replaces=replaces)
        locations.append(lake.theirs().metadata_location)

    # It is created; a replacement is begun, and taken in. Every other time: nothing.
    versions = [int(location.rpartition("/")[2].partition("-")[0]) for location in locations]
    assert versions == [0, 0, 1, 2, 2]


def test_a_batch_whose_records_were_all_rejected_makes_no_snapshot(lake: Lake) -> None:
    syncing = lake.open()
    lake.commit(syncing, 1)
    before = lake.theirs().metadata_location

    assert syncing.commit([], no_rewrite) == Committed()

    assert lake.theirs().metadata_location == before


# --- Who may write where


def test_a_commit_reads_the_table_s_entry_to_plan_on_it_and_to_change_it(lake: Lake) -> None:
    syncing, asked = lake.open(), list[object]()
    file = lake.write(syncing, 1)
    events, read = lake.access.client("glue").meta.events, "before-call.glue.GetTable"

    def notice(**call: object) -> None:
        asked.append(call)

    events.register(read, notice)
    try:
        syncing.commit([file], no_rewrite)
    finally:
        events.unregister(read, notice)

    assert len(asked) == 2


def test_a_replacement_holds_the_table_s_token_until_it_is_published(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    assert TOKEN_PROPERTY not in lake.properties()

    new = lake.open(2, replaces=True)
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
def test_a_sync_that_appends_takes_an_unfinished_replacement_over(lake: Lake, *, committed: bool) -> None:
    """The older one stops at its next step: it can neither begin its branch again nor wipe newer rows away."""
    lake.commit(lake.open(), 1)
    old = lake.open(2, replaces=True)
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
    assert not any(key in late.uri for key in lake.objects()), "what will not be committed leaves nothing"


def test_a_branch_that_somebody_dropped_is_not_published_as_nothing(lake: Lake) -> None:
    lake.commit(lake.open(), 1)
    ours = lake.open(2, replaces=True)
    lake.commit(ours, 2)
    with lake.theirs().manage_snapshots() as snapshots:
        snapshots.remove_branch("airbyte_generation_2")

    with pytest.raises(Fenced):
        ours.publish(no_rewrite)

    assert lake.ids() == [1]


# --- Generations


@pytest.mark.parametrize("sent", [True, False], ids=["with rows", "without rows"])
def test_a_published_generation_is_known_after_others_have_compacted_and_expired_it(lake: Lake, *, sent: bool) -> None:
    first = lake.open(5, replaces=True)
    lake.commit(first, 1)
    first.publish(no_rewrite)
    lake.compact_and_expire()

    again = lake.open(5, replaces=True)
    if sent:
        lake.commit(again, 2)
    again.publish(no_rewrite)

    assert lake.ids() == ([1, 2] if sent else [1])


def test_the_lowest_generation_of_all_rows_counts(lake: Lake) -> None:
    found = []
    for generation, replaces in [(4, False), (5, False), (6, True), (7, False), (None, True), (8, False)]:
        opened = lake.open(generation, replaces=replaces)
        lake.commit(opened, generation or 0)
        opened.publish(no_rewrite)
        found.append(lake.properties().get(LOWEST))

    assert found == ["4", "4", "6", "6", None, None]


def test_rows_of_others_have_no_generation_that_a_refresh_could_take_for_its_own(lake: Lake) -> None:
    lake.commit(lake.open(None, replaces=True), 0)
    with lake.theirs().transaction() as transaction:
        transaction.remove_properties(*lake.properties())
    lake.append(-1)
    lake.open(5)

    new = lake.open(5, replaces=True)
    new.publish(no_rewrite)

    assert lake.ids() == []


def test_rows_taken_in_count_with_the_generation_they_had(lake: Lake) -> None:
    lake.commit(lake.open(5, replaces=True), 1)

    lake.open(6)

    assert lake.ids() == [1]
    assert lake.properties()[LOWEST] == "5"
