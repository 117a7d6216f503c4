"""Other writers between the steps of a sync: what was committed on either side is there, once."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from pyiceberg.exceptions import NoSuchTableError

from destination_datalake.tables.fencing import Fenced, Recreated
from destination_datalake.tables.iceberg import table as iceberg_table
from destination_datalake.tables.table import Committed, Reencode, TableBusy
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.shop import WIDE, Shop, Sync, ids, one_at_a_time, side_by_side

pytestmark = pytest.mark.share(8)


@side_by_side
def test_syncs_that_append_do_not_hinder_one_another(shop: Shop) -> None:
    first, second = shop.sync(), shop.sync()

    first.commit(*ids(1))
    second.commit(*ids(2))
    first.commit(*ids(3))
    second.publish()
    first.publish()

    assert shop.ids() == [1, 2, 3]


@side_by_side
def test_two_syncs_may_promote_the_same_column(shop: Shop) -> None:
    first, second = shop.sync(), shop.sync()
    first.commit(*ids(1))
    second.commit(*ids(2))

    first.commit(*ids(WIDE))
    second.commit(*ids(WIDE + 1))

    assert shop.ids() == [1, 2, WIDE, WIDE + 1]


@one_at_a_time
def test_the_newest_sync_continues_and_an_older_one_that_appends_stops(shop: Shop) -> None:
    """What the older one has acknowledged stays, and so does what it commits when it is retried."""
    older = shop.sync()
    older.commit(*ids(1))
    late = older.encode(*ids(2))
    newer = shop.sync()

    for _ in range(2):
        with pytest.raises(Fenced, match="another sync has taken over the table"):
            older.table.commit(late, older.executors.rewrite)
    newer.commit(*ids(3))
    older.publish()
    newer.publish()
    assert shop.ids() == [1, 3]
    assert shop.fencing_token() is None
    assert not any(key in late[0].uri for key in shop.objects())

    retried = shop.sync()
    retried.commit(*ids(2))
    retried.publish()
    assert shop.ids() == [1, 2, 3]


# --- Compare-and-set: the table changes between plan and commit

each_catalog_call = pytest.mark.parametrize("call", [1, 2, 3])
"""The requests to Glue of a commit that no other writer disturbs."""


@side_by_side
@each_catalog_call
def test_a_commit_is_retried_on_what_another_sync_has_committed(shop: Shop, call: int) -> None:
    sync, other_sync = shop.sync(), shop.sync()
    files = sync.encode(*ids(1))

    with shop.before_catalog_call(call, lambda: other_sync.commit(*ids(2))):
        assert sync.table.commit(files, sync.executors.rewrite) == Committed()

    assert shop.ids() == [1, 2]


def test_a_commit_keeps_what_another_engine_writes_into_the_table_meanwhile(shop: Shop, *, overwrite: bool) -> None:
    other_engines.create(shop)
    sync = shop.sync(2, overwrite=overwrite)

    def write() -> None:
        other_engines.append(shop, id=1, theirs="kept")
        other_engines.set_property(shop, "8")

    shop.at_the_next_update(write)
    sync.commit(*ids(2))
    kept = [{"id": 1, "theirs": "kept"}]
    assert shop.rows() == (kept if overwrite else [*kept, {"id": 2, "theirs": None}])
    sync.publish()

    assert {"id": 2, "theirs": None} in shop.rows()
    assert other_engines.property_of(shop) == "8"


def test_a_publish_keeps_the_properties_that_another_engine_sets_meanwhile(shop: Shop) -> None:
    other_engines.create(shop)
    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2))

    shop.at_the_next_update(lambda: other_engines.set_property(shop, "8"))
    sync.publish()

    assert shop.ids() == [2]
    assert other_engines.property_of(shop) == "8"


def test_what_others_change_in_the_catalog_during_a_sync_stays(shop: Shop, *, overwrite: bool) -> None:
    """Before every other update, of which one adds a column, one widens one, and one publishes."""
    shop.sync().commit(*ids(1))
    updates, changed = count(1), count(1)

    def change() -> None:
        if next(updates) % 2:
            other_engines.change_the_catalog(shop, next(changed))

    with shop.before_each_update(change):
        sync = shop.sync(2, overwrite=overwrite, schema={"id": {"type": "integer"}, "ours": {"type": "string"}})
        sync.commit({"id": WIDE, "ours": "a"})
        sync.publish()

    assert shop.ids() == ([WIDE] if overwrite else [1, WIDE])
    numbers, entry = range(1, next(changed)), shop.lake.glue_table(*shop.name)
    assert len(numbers) >= 2
    assert {f"theirs.{number}" for number in numbers} <= entry["Parameters"].keys()
    assert (entry["Description"], entry["Owner"]) == (f"theirs {numbers[-1]}", "them")
    comments = {column["Name"]: column.get("Comment") for column in entry["StorageDescriptor"]["Columns"]}
    assert comments["id"] == f"theirs {numbers[-1]}"
    foreign_columns = {f"theirs_{number}": "map<string,int>" for number in numbers if shop.kind.name != "iceberg"}
    assert shop.types() == {"id": "bigint", "ours": "string", **foreign_columns}


def test_what_a_sync_is_to_do_is_decided_again_on_what_another_sync_has_published(shop: Shop) -> None:
    """The generation is published meanwhile, so that there is nothing to overwrite any more."""
    shop.sync().commit(*ids(1))

    def publish() -> None:
        faster = shop.sync(2, overwrite=True)
        faster.commit(*ids(2))
        faster.publish()

    shop.at_the_next_update(publish)
    slower = shop.sync(2, overwrite=True)
    slower.commit(*ids(3))
    slower.publish()

    assert shop.ids() == [2, 3]


@pytest.mark.share(3)
@one_at_a_time
@each_catalog_call
@pytest.mark.parametrize("number", [2, WIDE], ids=["int", "bigint"])
def test_a_sync_that_is_taken_over_during_its_commit_is_fenced_and_its_batch_is_not_in_the_table(
    shop: Shop, call: int, number: int
) -> None:
    sync = shop.sync()
    sync.commit(*ids(1))
    files = [*sync.encode(*ids(8)), *sync.encode(*ids(9))]

    with shop.before_catalog_call(call, lambda: shop.sync().commit(*ids(number))), pytest.raises(Fenced):
        sync.table.commit(files, sync.executors.rewrite)

    assert shop.ids() == [1, number]


@side_by_side
@each_catalog_call
def test_a_batch_is_in_the_table_once_although_another_sync_promotes_its_column_meanwhile(
    shop: Shop, call: int
) -> None:
    sync, other_sync = shop.sync(), shop.sync()
    sync.commit(*ids(1))

    with shop.before_catalog_call(call, lambda: other_sync.commit(*ids(WIDE))):
        sync.commit(*ids(2, 3))

    assert shop.ids() == [1, 2, 3, WIDE]


def test_a_commit_whose_every_retry_conflicts_fails_and_shows_nothing(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = shop.sync()
    files = sync.encode(*ids(1))
    monkeypatch.setattr("time.sleep", lambda _: None)

    with (
        shop.before_each_update(lambda: other_engines.set_property(shop, uuid4().hex)),
        pytest.raises((TableBusy, ClientError)),
    ):
        sync.table.commit(files, sync.executors.rewrite)

    assert shop.ids() == []
    assert not any(key in files[0].uri for key in shop.objects())
    sync.commit(*ids(2))
    assert shop.ids() == [2]


@each_catalog_call
def test_an_overwrite_that_is_taken_over_during_its_commit_is_fenced(shop: Shop, call: int) -> None:
    sync = shop.sync(2, overwrite=True)
    files, taken = sync.encode(*ids(1)), list[Sync]()

    with (
        shop.before_catalog_call(call, lambda: taken.append(shop.sync(2, overwrite=True))),
        pytest.raises(Fenced),
    ):
        sync.table.commit(files, sync.executors.rewrite)

    taken[0].commit(*ids(2))
    taken[0].publish()
    assert shop.ids() == [2]


def test_preparing_a_table_keeps_a_column_that_another_sync_adds_meanwhile(shop: Shop) -> None:
    shop.sync()
    with_name = {"id": {"type": "integer"}, "name": {"type": "string"}}
    with_price = {"id": {"type": "integer"}, "price": {"type": "number"}}

    shop.at_the_next_update(lambda: shop.sync(schema=with_name))
    shop.sync(schema=with_price)

    assert shop.types() == {"id": "int", "name": "string", "price": "float"}


@pytest.mark.parametrize(
    ("successor", "overwrites", "visible"),
    [
        pytest.param(None, True, [1], id="an overwrite without generation"),
        pytest.param(3, True, [1], id="an overwrite of a later generation"),
        pytest.param(1, False, [1, 2, 3], id="an append"),
    ],
)
def test_overwrite_that_is_taken_over_during_its_publication_fails(
    shop: Shop, successor: int | None, overwrites: bool, visible: list[int]
) -> None:
    # Given an overwrite with acknowledged rows
    shop.sync(1).commit(*ids(1))
    sync = shop.sync(None if successor is None else 2, overwrite=True)
    sync.commit(*ids(2))

    # When another sync discards or adopts them just before their publication
    shop.at_the_next_update(lambda: shop.sync(successor, overwrite=overwrites).commit(*ids(3)))

    # Then the overwrite fails, and readers see what the other sync has left
    with pytest.raises(Fenced):
        sync.publish()
    assert shop.ids() == visible


# --- Responses that are lost


def test_a_commit_whose_response_is_lost_is_found_and_not_repeated(shop: Shop, *, overwrite: bool) -> None:
    shop.sync().commit(*ids(1))
    old = shop.lake.data_files(*shop.name)
    sync = shop.sync(2, overwrite=overwrite)

    shop.at_the_next_update(lambda: None, response_lost=True)
    sync.commit(*ids(2))
    sync.publish()

    assert shop.ids() == ([2] if overwrite else [1, 2])
    assert old.keys() <= shop.objects(), "readers of what was replaced can read on"


@one_at_a_time
def test_a_commit_whose_response_is_lost_is_not_in_the_table_if_another_sync_has_taken_it_over(shop: Shop) -> None:
    """Whether it is another's token that hides an own commit cannot be told, so it is not acknowledged."""
    sync = shop.sync()
    sync.commit(*ids(1))

    shop.at_the_next_update(lambda: shop.sync().commit(*ids(2)), response_lost=True)
    with pytest.raises(Fenced):
        sync.commit(*ids(3))

    assert shop.ids() == [1, 2]


@side_by_side
@pytest.mark.parametrize("later_commits", [1, 3])
def test_a_commit_whose_response_is_lost_is_found_behind_later_commits_of_others(
    shop: Shop, later_commits: int
) -> None:
    sync = shop.sync()

    def follow() -> None:
        for number in range(later_commits):
            shop.sync().commit(*ids(10 + number))

    shop.at_the_next_update(follow, response_lost=True)
    sync.commit(*ids(1))

    assert shop.ids() == [1, *(10 + number for number in range(later_commits))]


def test_a_publish_whose_response_is_lost_is_found_behind_later_commits_of_others(shop: Shop) -> None:
    """One of them makes the column wider, for which files may move to another folder."""
    shop.sync().commit(*ids(1))
    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2))

    def follow() -> None:
        for number in (3, 4, WIDE):
            shop.sync(2).commit(*ids(number))

    shop.at_the_next_update(follow, response_lost=True)
    sync.publish()
    sync.publish()

    assert shop.ids() == [2, 3, 4, WIDE]


def test_preparing_a_table_survives_a_lost_response(shop: Shop) -> None:
    shop.sync().commit(*ids(1))

    shop.at_the_next_update(lambda: None, response_lost=True)
    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2))
    sync.publish()

    assert shop.ids() == [2]


# --- Tables that are dropped or made again


def test_a_commit_to_a_table_that_was_dropped_raises_and_creates_none(shop: Shop) -> None:
    sync = shop.sync()
    files = sync.encode(*ids(1))
    shop.drop()

    with pytest.raises((NoSuchTableError, ClientError)):
        sync.table.commit(files, sync.executors.rewrite)

    assert (shop.name.database, shop.name.table) not in shop.lake.tables()


def test_a_table_that_is_made_again_shows_nothing_of_the_one_that_was_dropped(shop: Shop) -> None:
    shop.sync().commit(*ids(1))
    shop.drop()

    sync = shop.sync()
    assert shop.ids() == []
    sync.commit(*ids(2))

    assert shop.ids() == [2]


@side_by_side
def test_a_batch_planned_for_a_dropped_table_is_committed_to_the_one_made_since(shop: Shop) -> None:
    late = shop.sync()
    files = late.encode(*ids(1))
    shop.drop()
    shop.sync().commit(*ids(2))

    if isinstance(late.table.commit(files, late.executors.rewrite), Reencode):
        assert shop.ids() == [2]
        late.commit(*ids(1))

    assert shop.ids() == [1, 2]


@one_at_a_time
def test_a_sync_that_appends_is_fenced_where_its_table_was_made_again(shop: Shop) -> None:
    sync = shop.sync()
    shop.drop()
    shop.sync().commit(*ids(2))

    with pytest.raises(Recreated, match="dropped and created again"):
        sync.commit(*ids(1))

    assert shop.ids() == [2]


@pytest.mark.parametrize("overwrite", [False, True])
def test_sync_that_has_committed_stops_where_its_table_was_made_again(shop: Shop, *, overwrite: bool) -> None:
    sync = shop.sync(2, overwrite=overwrite)
    sync.commit(*ids(1))
    make_again(shop)

    with pytest.raises(Recreated, match="Refresh the stream"):
        sync.commit(*ids(8))
    if overwrite:
        with pytest.raises(Recreated):
            sync.publish()

    assert shop.ids() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("has_committed", [True, False])
def test_append_whose_table_was_made_again_after_its_last_commit_fails_at_its_end(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, has_committed: bool
) -> None:
    monkeypatch.setattr(iceberg_table, "_FRESH_SECONDS", 0.0)
    sync = shop.sync()
    if has_committed:
        sync.commit(*ids(1))
    make_again(shop)

    with pytest.raises(Recreated, match="Refresh the stream") if has_committed else nullcontext():
        sync.publish()

    assert shop.ids() == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("response_lost", [False, True])
@pytest.mark.parametrize("overwrite", [False, True])
def test_sync_that_has_committed_nothing_starts_over_where_its_table_was_made_again(
    shop: Shop, *, overwrite: bool, response_lost: bool
) -> None:
    sync = shop.sync(2, overwrite=overwrite)
    files = sync.encode(*ids(1))
    shop.at_the_next_update(lambda: make_again(shop), response_lost=response_lost)

    assert isinstance(sync.table.commit(files, sync.executors.rewrite), Reencode)
    sync.commit(*ids(1))
    sync.publish()

    assert shop.ids() == ([1] if overwrite else [1, 2, 3, 4, 5, 6, 7])


def make_again(shop: Shop) -> None:
    """Drop the table, and create it with rows, as a sync does that ends.

    It has other versions: where a Glue table is at the same number again, no writer can tell it from the one before.
    """
    shop.drop()
    newer = shop.sync()
    for number in range(2, 8):
        newer.commit(*ids(number))
    newer.publish()
