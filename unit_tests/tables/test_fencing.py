"""Fencing tokens, and the generations of overwrites."""

import pytest

from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.tables.fencing import OVERWRITES_PROPERTY, TOKEN_PROPERTY, Fenced, FencingToken, Overwrites
from destination_datalake.tables.table import TableConflict, TableName

TABLE = TableName("shop", "orders")


def test_taking_a_token_over_fences_its_earlier_holder() -> None:
    properties: dict[str, str] = {}
    earlier = FencingToken.after(properties, "a")
    earlier.write_to(properties)
    earlier.require(properties, TABLE)
    later = FencingToken.after(properties, "b")
    later.write_to(properties)
    later.require(properties, TABLE)
    with pytest.raises(Fenced, match=r"shop\.orders"):
        earlier.require(properties, TABLE)


def test_taking_a_held_token_again_changes_nothing() -> None:
    properties: dict[str, str] = {}
    FencingToken.after(properties, "a").write_to(properties)
    once = dict(properties)
    FencingToken.after(properties, "a").write_to(properties)
    assert properties == once


def test_a_sync_that_takes_a_lost_token_back_does_not_revive_its_old_one() -> None:
    properties: dict[str, str] = {}
    first = FencingToken.after(properties, "a")
    first.write_to(properties)
    FencingToken.after(properties, "b").write_to(properties)
    FencingToken.after(properties, "a").write_to(properties)
    with pytest.raises(Fenced):
        first.require(properties, TABLE)


@pytest.mark.parametrize("text", ["", "x", "1", "1:", ":a", "-1:a"])
def test_an_invalid_property_counts_as_no_token(text: str) -> None:
    assert FencingToken.held({TOKEN_PROPERTY: text}) is None


def test_removing_a_token_fences_its_holder() -> None:
    with pytest.raises(Fenced):
        FencingToken(1, "a").require({}, TABLE)


# --- Generations


@pytest.mark.parametrize(
    ("mode", "generation", "minimum", "sync_id", "lowest", "outcome"),
    [
        ("append", 3, 0, 9, 2, "appends"),
        ("append", 3, 0, 9, 4, "appends"),
        ("append", None, None, None, None, "appends"),
        ("append", 3, 3, 9, 2, "overwrites"),
        ("append", 3, 3, 9, None, "overwrites"),
        ("append", 3, 3, 9, 3, "appends"),
        ("append", 3, 3, 9, 4, "has generation 3, but a sync of the later generation 4"),
        ("append", 1, 1, 1, 1, "appends"),
        ("append", 1, 1, 1, 4, "appends"),
        ("append_dedup", 3, 0, 9, 2, "appends"),
        ("append_dedup", 3, 3, 9, 2, "overwrites"),
        ("append_dedup", 3, 3, 9, 3, "appends"),
        ("append_dedup", 3, 3, 9, 4, "has generation 3, but a sync of the later generation 4"),
        ("append_dedup", 1, 1, 1, None, "overwrites"),
        ("append_dedup", 1, 1, 1, 0, "overwrites"),
        ("append_dedup", 1, 1, 1, 1, "appends"),
        ("append_dedup", 1, 1, 1, 4, "appends"),
        ("overwrite", 3, 3, 9, 2, "overwrites"),
        ("overwrite", 3, 3, 9, 3, "appends"),
        ("overwrite", 3, 3, 9, 4, "has generation 3, but a sync of the later generation 4"),
        ("overwrite", 1, 1, 1, 1, "overwrites"),
        ("overwrite", 1, 1, 2, 1, "appends"),
        ("overwrite", 3, 0, 9, 3, "overwrites"),
        ("overwrite", None, None, None, 3, "overwrites"),
    ],
)
def test_a_sync_overwrites_rows_of_lower_generations_and_appends_to_those_of_its_own(
    mode: str, generation: int | None, minimum: int | None, sync_id: int | None, lowest: int | None, outcome: str
) -> None:
    """Ids identify an overwrite unless they are absent or always 1.

    PyAirbyte sends 1 with every mode: with append_dedup its first sync fills the table, and later ones upsert.
    """
    assert outcome in outcome_of(Overwrites(), mode, generation, minimum, sync_id, lowest)


OLDER, GONE = "a sync of the later generation", "are no longer pending"


@pytest.mark.parametrize(
    ("minimum", "sync_id", "newest", "removed", "lowest", "pending", "outcome"),
    [
        pytest.param(5, 9, None, None, 4, True, "overwrites", id="begun by an earlier version"),
        pytest.param(5, 9, 4, None, 4, False, "overwrites", id="new"),
        pytest.param(5, 9, 5, None, 4, True, "overwrites", id="pending"),
        pytest.param(5, 9, 5, None, 5, False, "appends", id="published"),
        pytest.param(5, 9, 5, None, 4, False, GONE, id="adopted, or published with older rows since"),
        pytest.param(5, 9, 5, None, None, False, GONE, id="adopted into rows of others"),
        pytest.param(5, 9, 6, None, 4, False, OLDER, id="older than a pending one"),
        pytest.param(5, 9, 6, (5, 5), 4, False, GONE, id="removed by a pending one"),
        pytest.param(5, 9, 6, (3, 4), 4, False, OLDER, id="others were removed"),
        pytest.param(0, 9, 6, (5, 5), 4, False, GONE, id="append after rows that were removed"),
        pytest.param(0, 9, 6, (3, 4), 4, False, "appends", id="append after rows of others"),
        pytest.param(0, 9, 6, None, 4, False, "appends", id="append beside a later one"),
    ],
)
def test_an_overwrite_goes_on_only_where_its_acknowledged_rows_are(
    minimum: int,
    sync_id: int,
    newest: int | None,
    removed: tuple[int, int] | None,
    lowest: int | None,
    pending: bool,
    outcome: str,
) -> None:
    assert outcome in outcome_of(Overwrites(newest, removed), "append", 5, minimum, sync_id, lowest, pending=pending)


@pytest.mark.parametrize(
    ("overwrites", "outcome"),
    [(Overwrites(1), "appends"), (Overwrites(6), "appends"), (Overwrites(6, (1, 5)), GONE)],
    ids=["adopted", "older", "removed"],
)
def test_constant_ids_append_where_others_are_refused_unless_rows_would_be_missing(
    overwrites: Overwrites, outcome: str
) -> None:
    assert outcome in outcome_of(overwrites, "append", 1, 1, 1, 0)


def outcome_of(
    overwrites: Overwrites,
    mode: str,
    generation: int | None,
    minimum: int | None,
    sync_id: int | None,
    lowest: int | None,
    *,
    pending: bool = False,
) -> str:
    """Return what a sync does to the table, or why it is refused."""
    stream = Stream(StreamId("shop", "orders"), {}, mode == "overwrite", generation, minimum, sync_id)
    try:
        return "overwrites" if overwrites.overwritten_by(stream, TABLE, lowest, pending=pending) else "appends"
    except TableConflict as error:
        return str(error)


def test_removed_generations_are_remembered_until_an_overwrite_is_published() -> None:
    """In a bounded space: a source that cannot resume a refresh begins a new generation at every attempt."""
    overwrites = Overwrites()
    for generation in range(1, 1000):
        overwrites = overwrites.begun(generation, [generation - 1] if generation > 1 else [])

    assert overwrites == Overwrites(999, (1, 998))
    assert Overwrites.load({OVERWRITES_PROPERTY: str(overwrites)}) == overwrites
    assert overwrites.begun(None, [999]) == Overwrites(999, (1, 999))
    assert overwrites.published() == Overwrites(999)
    assert Overwrites.load({OVERWRITES_PROPERTY: str(overwrites.published())}) == Overwrites(999)


@pytest.mark.parametrize("text", ["", "0", "x", "{", "[]", '{"newest":"6"}', '{"removed":[1]}'])
def test_generations_that_are_invalid_count_as_none(text: str) -> None:
    assert Overwrites.load({OVERWRITES_PROPERTY: text}) == Overwrites()
