"""The fencing token: who comes later takes a table over, and who was before notices."""

import pytest

from destination_datalake.tables.fencing import PROPERTY, Fenced, FencingToken
from destination_datalake.tables.table import TableName

TABLE = TableName("shop", "orders")


def test_a_later_sync_takes_the_token_over_and_the_earlier_one_is_fenced() -> None:
    properties: dict[str, str] = {}
    earlier = FencingToken.after(properties, "a")
    earlier.put(properties)
    earlier.require(properties, TABLE)
    later = FencingToken.after(properties, "b")
    later.put(properties)
    later.require(properties, TABLE)
    with pytest.raises(Fenced, match=r"shop\.orders"):
        earlier.require(properties, TABLE)


def test_taking_the_token_twice_changes_nothing() -> None:
    properties: dict[str, str] = {}
    FencingToken.after(properties, "a").put(properties)
    once = dict(properties)
    FencingToken.after(properties, "a").put(properties)
    assert properties == once


def test_a_token_taken_back_is_not_the_one_that_was_lost() -> None:
    properties: dict[str, str] = {}
    first = FencingToken.after(properties, "a")
    first.put(properties)
    FencingToken.after(properties, "b").put(properties)
    FencingToken.after(properties, "a").put(properties)
    with pytest.raises(Fenced):
        first.require(properties, TABLE)


@pytest.mark.parametrize("said", ["", "x", "1", "1:", ":a", "-1:a"])
def test_a_property_that_is_no_token_is_none(said: str) -> None:
    assert FencingToken.held({PROPERTY: said}) is None


def test_a_holder_is_fenced_where_the_token_is_gone() -> None:
    with pytest.raises(Fenced):
        FencingToken(1, "a").require({}, TABLE)
