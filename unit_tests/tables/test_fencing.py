"""Fencing tokens."""

import pytest

from destination_datalake.tables.fencing import TOKEN_PROPERTY, Fenced, FencingToken
from destination_datalake.tables.table import TableName

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
