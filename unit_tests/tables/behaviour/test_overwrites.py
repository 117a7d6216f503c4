"""Overwriting a table: what readers see when, and what becomes of an overwrite that was not published."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.table import Reencode, TableConflict
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.shop import WIDE, Shop, Sync, ids, one_at_a_time, side_by_side

pytestmark = pytest.mark.share(7)


@dataclass(frozen=True)
class Step:
    """A sync that commits these ids, if any, and then publishes unless it is left pending."""

    generation: int | None
    numbers: Sequence[int]
    overwrite: bool = True
    publishes: bool = True
    sync_id: int | None = None

    def play(self, shop: Shop) -> Sync:
        sync = shop.sync(self.generation, overwrite=self.overwrite, sync_id=self.sync_id)
        if self.numbers:
            sync.commit(*ids(*self.numbers))
        if self.publishes:
            sync.publish()
        return sync


def appended(generation: int, *numbers: int) -> Step:
    return Step(generation, numbers, overwrite=False)


def overwritten(generation: int | None, *numbers: int) -> Step:
    return Step(generation, numbers)


def left_pending(generation: int | None, *numbers: int) -> Step:
    return Step(generation, numbers, publishes=False)


def published(shop: Shop, generation: int | None, number: int) -> None:
    overwritten(generation, number).play(shop)


OLD = appended(1, 1)
SCENARIOS: Mapping[str, tuple[Sequence[Step], list[int]]] = {
    "rows of a later generation are appended": ([OLD, appended(2, 2)], [1, 2]),
    "an overwrite without records creates the table empty": ([overwritten(5)], []),
    "an overwrite without records empties the table": ([OLD, overwritten(2)], []),
    "each overwrite replaces the one before": ([overwritten(1, 1), overwritten(2, 2), overwritten(3, 3)], [3]),
    "a published generation is not replaced by itself": ([overwritten(2, 1), overwritten(2, 2)], [1, 2]),
    "later syncs of the generation continue a pending overwrite": (
        [OLD, left_pending(2, 2), left_pending(2, 3), overwritten(2, 4)], [2, 3, 4],
    ),
    "an overwrite of another generation drops a pending one": ([OLD, left_pending(2, 2), overwritten(3, 3)], [3]),
    "an overwrite without generations drops a pending one": ([OLD, left_pending(None, 2), overwritten(None, 3)], [3]),
    "an append without records adopts a pending overwrite, once": (
        [OLD, left_pending(2, 2), appended(3), appended(3)], [1, 2],
    ),
    "an append with records adopts a pending overwrite": ([OLD, left_pending(2, 2), appended(3, 3)], [1, 2, 3]),
    "adopted rows keep their generation": ([left_pending(2, 1), appended(3), overwritten(2)], [1]),
    "a pending overwrite that needed wider columns is continued": (
        [OLD, left_pending(2, 2, WIDE), overwritten(2, 3)], [2, 3, WIDE],
    ),
    "a pending overwrite that needed wider columns is adopted": (
        [OLD, left_pending(2, WIDE), appended(3, 3)], [1, 3, WIDE],
    ),
    "a pending overwrite that needed wider columns is adopted without records": (
        [OLD, left_pending(2, WIDE), appended(3)], [1, WIDE],
    ),
    "a pending overwrite that needed wider columns is dropped": ([OLD, left_pending(2, WIDE), overwritten(3, 3)], [3]),
    "an append goes on once its rows were overwritten": (
        [OLD, left_pending(5, 2), overwritten(6, 4), appended(5, 3)], [3, 4],
    ),
    "an append of a connection made anew, of generation 0, is accepted": ([overwritten(6, 1), appended(0, 2)], [1, 2]),
    "PyAirbyte's ids, which are always 1, append": ([overwritten(6, 1), Step(1, [2], sync_id=1)], [1, 2]),
}  # fmt: skip
"""Syncs one after another, and the ids that readers find once the last has ended."""


@pytest.mark.share(9)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_generations_decide_what_readers_find(shop: Shop, scenario: str) -> None:
    """No file has its column narrower than the catalog says where engines would fail on it."""
    steps, expected_ids = SCENARIOS[scenario]

    for step in steps:
        before = shop.ids() if step is not steps[0] else []
        step.play(shop)
        assert step.publishes or shop.ids() == before
        assert (shop.fencing_token() is None) is step.publishes
        if not shop.kind.promotes_in_place:
            assert shop.stored_types("id") <= {{"int": pa.int32(), "bigint": pa.int64()}[shop.types()["id"]]}

    assert shop.ids() == expected_ids
    assert shop.types()["id"] == "bigint" or WIDE not in expected_ids


@pytest.mark.parametrize("generation", [2, None], ids=["refresh", "overwrite"])
def test_readers_see_the_old_rows_until_the_new_ones_are_published(shop: Shop, generation: int | None) -> None:
    shop.sync().commit(*ids(1))

    sync = shop.sync(generation, overwrite=True)
    sync.commit(*ids(2))
    sync.commit(*ids(3))
    assert shop.ids() == [1]
    sync.publish()

    assert shop.ids() == [2, 3]


def test_rows_of_other_writers_are_of_no_generation_that_a_refresh_could_go_on_with(shop: Shop) -> None:
    other_engines.create(shop)
    other_engines.append(shop, id=1, theirs="replaced")
    shop.sync(5)

    sync = shop.sync(5, overwrite=True)
    sync.publish()

    assert shop.ids() == []


@side_by_side
def test_rows_appended_while_an_overwrite_is_under_way_are_replaced(shop: Shop) -> None:
    appending = shop.sync()
    overwriting = shop.sync(2, overwrite=True)
    overwriting.commit(*ids(2))

    appending.commit(*ids(1))
    assert shop.ids() == [1]
    overwriting.publish()

    assert shop.ids() == [2]


@side_by_side
def test_rows_that_are_committed_after_a_publish_stay(shop: Shop) -> None:
    """Whenever they were encoded."""
    appending = shop.sync()
    files = appending.encode(*ids(1))
    published(shop, 2, 2)

    if isinstance(appending.table.commit(files, appending.executors.rewrite), Reencode):
        appending.commit(*ids(1))

    assert shop.ids() == [1, 2]


def test_an_overwrite_without_generations_leaves_none_that_a_refresh_could_take_for_its_own(shop: Shop) -> None:
    published(shop, 5, 1)
    published(shop, None, 2)

    with pytest.raises(TableConflict):
        published(shop, 5, 3)
    published(shop, 6, 4)

    assert shop.ids() == [4]


# --- Pending overwrites


def pending(shop: Shop, generation: int | None) -> Sync:
    """Return a sync that has committed and will not publish. The table has a row of before."""
    OLD.play(shop)
    return left_pending(generation, 2).play(shop)


# --- Fencing


@pytest.mark.share(2)
@pytest.mark.parametrize(
    ("generation", "successor", "kept"),
    [(2, (2, True), [2, 4]), (2, (3, True), [4]), (None, (None, True), [4]), (2, (3, False), [1, 2, 4])],
    ids=["same generation", "later generation", "overwrite", "append"],
)
def test_an_overwrite_that_was_taken_over_is_fenced_and_leaves_its_rows_to_the_other(
    shop: Shop, generation: int | None, successor: tuple[int | None, bool], kept: list[int]
) -> None:
    fenced = pending(shop, generation)
    late = fenced.encode(*ids(3))
    sync = shop.sync(successor[0], overwrite=successor[1])

    for step in (lambda: fenced.table.commit(late, fenced.executors.rewrite), fenced.publish):
        with pytest.raises(Fenced, match="another sync has taken over the table") as raised:
            step()
        assert isinstance(raised.value, TableConflict)
        assert str(raised.value).startswith(f"Table {shop.name}: ")
    sync.commit(*ids(4))
    sync.publish()

    assert shop.ids() == kept
    assert not any(key in late[0].uri for key in shop.objects())


@side_by_side
def test_a_sync_that_appends_is_not_fenced_by_an_overwrite(shop: Shop) -> None:
    appending = shop.sync()
    shop.sync(2, overwrite=True).commit(*ids(2))

    appending.commit(*ids(1))
    appending.publish()

    assert shop.ids() == [1]


@one_at_a_time
def test_an_overwrite_fences_a_sync_that_appends(shop: Shop) -> None:
    """Also once it is published; readers see what was acknowledged until then."""
    appending = shop.sync()
    appending.commit(*ids(1))
    overwriting = shop.sync(2, overwrite=True)
    overwriting.commit(*ids(2))

    with pytest.raises(Fenced):
        appending.commit(*ids(3))
    assert shop.ids() == [1]
    overwriting.publish()
    with pytest.raises(Fenced):
        appending.commit(*ids(3))

    assert shop.ids() == [2]


@pytest.mark.parametrize("later", [4, None])
def test_later_overwrite_fences_sync_that_continues_published_one(shop: Shop, later: int | None) -> None:
    published(shop, 3, 1)
    continuing = shop.sync(3, overwrite=True)
    continuing.commit(*ids(2))
    published(shop, later, 4)

    with pytest.raises(Fenced):
        continuing.commit(*ids(3))

    assert shop.ids() == [4]


# --- Generations that are older than the table, or whose rows are gone


def taken_over(shop: Shop, by: str) -> None:
    """Let another sync take over a pending overwrite of generation 5, and end without it or not at all."""
    match by:
        case "a later generation, pending":
            shop.sync(6, overwrite=True).commit(*ids(4))
        case "a later generation":
            published(shop, 6, 4)
        case "an overwrite without generations, pending":
            shop.sync(None, overwrite=True).commit(*ids(4))
        case "an overwrite without generations":
            published(shop, None, 4)
        case "an append":
            shop.sync(4).publish()
        case _:
            raise AssertionError(by)


TAKEN_OVER = (
    "a later generation, pending",
    "a later generation",
    "an overwrite without generations, pending",
    "an overwrite without generations",
    "an append",
)


@pytest.mark.share(2)
@pytest.mark.parametrize("by", TAKEN_OVER)
def test_an_overwrite_whose_acknowledged_rows_are_gone_is_refused_until_it_starts_over(shop: Shop, by: str) -> None:
    """The platform retries it from its last state, and does not send these rows again."""
    pending(shop, 5)
    taken_over(shop, by)
    before = shop.ids()

    for _ in range(2):
        with pytest.raises(TableConflict, match=r"Refresh the stream|only one connection"):
            shop.sync(5, overwrite=True)
    assert shop.ids() == before

    published(shop, 7, 9)
    assert shop.ids() == [9]


@pytest.mark.parametrize("by", ["a later generation, pending", "an overwrite without generations, pending"])
def test_an_append_does_not_go_on_after_rows_that_were_removed(shop: Shop, by: str) -> None:
    """A refresh that is given up continues as an append, from the same state."""
    pending(shop, 5)
    taken_over(shop, by)

    with pytest.raises(TableConflict, match=r"generation 5 .* Refresh the stream"):
        shop.sync(5)
    for other_generation in (4, 6):
        shop.sync(other_generation)


@pytest.mark.parametrize("table", ["published", "pending", "appended"])
def test_an_overwrite_of_an_older_generation_than_the_tables_is_refused(shop: Shop, table: str) -> None:
    sync = shop.sync(6, overwrite=table != "appended")
    sync.commit(*ids(1))
    if table == "published":
        sync.publish()
    before = shop.ids()

    with pytest.raises(TableConflict) as raised:
        shop.sync(5, overwrite=True)

    assert shop.ids() == before
    told = str(raised.value)
    assert told.startswith(f"Cannot write stream {shop.name.database}.orders to table {shop.name}: ")
    assert "generation 5" in told
    assert "generation 6" in told
    sync.publish()
    assert shop.ids() == [1]


def test_the_remedy_of_the_refusal_lets_a_connection_that_was_made_anew_overwrite_the_table(shop: Shop) -> None:
    published(shop, 6, 1)
    shop.sync(7, overwrite=True).commit(*ids(2))
    with pytest.raises(TableConflict, match="remove the table properties") as raised:
        shop.sync(1, overwrite=True)

    shop.remove_properties(*re.findall(r"airbyte\.[\w-]+", str(raised.value)))
    for generation in (1, 2):
        published(shop, generation, 3)

    assert shop.ids() == [3]


def test_a_published_overwrite_is_not_begun_again_after_an_append_of_an_older_generation(shop: Shop) -> None:
    """It would be without the rows that were acknowledged."""
    published(shop, 5, 1)
    shop.sync(2).commit(*ids(2))

    with pytest.raises(TableConflict, match="Refresh the stream"):
        shop.sync(5, overwrite=True)

    assert shop.ids() == [1, 2]
