"""Rows become visible only in tables and columns that are governed, whatever other writers do meanwhile."""

from __future__ import annotations

import pytest

from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.governance.watch import EMAIL, GOVERNED, tags, untag, watched
from unit_tests.tables.behaviour.shop import Shop, side_by_side

TAGS = {"database": {"domain": "sales"}, "orders": {"layer": "raw"}, "email": {"pii": "yes"}}

_ICEBERG = [kind for kind in TABLE_KINDS if kind.name == "iceberg"]


@side_by_side
def test_a_table_that_another_writer_drops_and_creates_again_is_governed_again(shop: Shop) -> None:
    """The sync has committed nothing yet: else it would end, as its rows went with the table."""
    sync = shop.sync(schema=EMAIL, **GOVERNED)
    shop.drop()
    shop.sync(schema=EMAIL)
    assert "orders" not in tags(shop)

    with watched(shop) as seen:
        sync.commit({"id": 2, "email": "b@example.org"})

    assert seen[-1] == 1
    assert tags(shop) == TAGS


@pytest.mark.parametrize("kind", _ICEBERG, ids=["iceberg"])
def test_an_iceberg_column_that_another_writer_drops_and_adds_again_is_governed_again(
    shop: Shop, *, during_the_commit: bool
) -> None:
    """Only by its field id can it be told from the column that was governed."""
    sync = shop.sync(schema=EMAIL, **GOVERNED)
    sync.commit({"id": 1, "email": None})

    def drop_and_add() -> None:
        untag(shop, "email")
        other_engines.drop_column(shop, "email")
        shop.sync(schema=EMAIL)
        assert "email" not in tags(shop)

    if during_the_commit:
        shop.at_the_next_update(drop_and_add)
    else:
        drop_and_add()
    with watched(shop) as seen:
        sync.commit({"id": 2, "email": "b@example.org"})

    assert seen[-1] == 1
    assert tags(shop) == TAGS


@pytest.fixture(params=[False, True], ids=["before the commit", "during the commit"])
def during_the_commit(request: pytest.FixtureRequest) -> bool:
    """When the other writer changes the table."""
    param: bool = request.param
    return param
