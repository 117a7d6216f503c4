"""Rows become visible only in tables and columns that are governed, whatever adds the column."""

from __future__ import annotations

from typing import Any

import pytest

from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.cloud import during
from unit_tests.tables.behaviour import other_engines
from unit_tests.tables.behaviour.governance.watch import EMAIL, GOVERNED, granted, tags, untag, watched
from unit_tests.tables.behaviour.shop import Shop, ids

pytestmark = pytest.mark.share(2)

_ICEBERG = [kind for kind in TABLE_KINDS if kind.name == "iceberg"]

TAGS = {"database": {"domain": "sales"}, "orders": {"layer": "raw"}, "email": {"pii": "yes"}}


def test_a_new_table_is_governed_before_its_first_row(shop: Shop) -> None:
    with watched(shop) as seen:
        sync = shop.sync(schema=EMAIL, **GOVERNED)
        assert tags(shop) == TAGS
        assert granted(shop) == {"DESCRIBE"}
        sync.commit({"id": 1, "email": "a@example.org"})
        sync.publish()

    assert seen[-1] == 1


def test_a_new_column_is_governed_before_rows_in_it_are_visible(shop: Shop, *, overwrite: bool) -> None:
    shop.sync(**GOVERNED).commit(*ids(1))

    with watched(shop) as seen:
        sync = shop.sync(2, overwrite=overwrite, schema=EMAIL, **GOVERNED)
        sync.commit({"id": 2, "email": "a@example.org"})
        sync.publish()

    assert seen[-1] == 1
    assert tags(shop) == TAGS


@pytest.mark.parametrize("kind", _ICEBERG, ids=["iceberg"])
def test_a_new_column_that_the_table_is_partitioned_by_is_governed_before_rows_in_it_are_visible(shop: Shop) -> None:
    """The partition spec changes with the schema, without rows."""
    shop.sync(**GOVERNED).commit(*ids(1))
    by_email = {"stream": "orders", "namespace": shop.name.database, "partition_by": [{"source": "email"}]}

    with watched(shop) as seen:
        sync = shop.sync(2, schema=EMAIL, streams=[by_email], **GOVERNED)
        sync.commit({"id": 2, "email": "a@example.org"})

    assert seen[-1] == 1
    assert tags(shop) == TAGS
    table = shop.lake.iceberg_table(*shop.name)
    assert [field.name for field in table.spec().fields] == ["email"]
    assert sorted(len(task.file.partition) for task in table.scan().plan_files()) == [0, 1]


def test_rows_of_an_unfinished_overwrite_are_adopted_into_a_governed_column(shop: Shop) -> None:
    """The overwrite has added the column when the options did not ask for governance yet."""
    shop.sync(1, **GOVERNED).commit(*ids(1))
    shop.sync(2, overwrite=True, schema=EMAIL).commit({"id": 2, "email": "a@example.org"})
    assert "email" not in tags(shop)

    with watched(shop) as seen:
        sync = shop.sync(None, schema=EMAIL, **GOVERNED)
        sync.publish()

    assert seen[-1] == 1


def test_a_column_that_another_writer_drops_is_governed_again_when_it_comes_back(shop: Shop) -> None:
    """It comes back in a commit that promotes another column, too, for which files may have to be rewritten."""
    sync = shop.sync(schema={**EMAIL, "value": {"type": "number"}}, **GOVERNED)
    sync.commit({"id": 1, "value": 0.5})
    untag(shop, "email")
    other_engines.drop_column(shop, "email")

    with watched(shop) as seen:
        sync.commit({"id": 2, "value": 0.1, "email": "a@example.org"})

    assert seen[-1] == 1
    assert tags(shop) == TAGS
    assert sync.executors.rewritten == (1 if shop.promises.promotions["double"].rewrites_files else 0)
    assert [row["value"] for row in shop.rows()] == [0.5, 0.1]


def test_what_a_column_cannot_hold_is_tagged_like_the_column(shop: Shop) -> None:
    shop.sync(schema={"id": {"type": "integer"}, "email": {"type": "integer"}}, **GOVERNED).commit(
        {"id": 1, "email": 1}
    )

    with watched(shop, "email__string") as seen:
        shop.sync(schema=EMAIL, **GOVERNED).commit({"id": 2, "email": "a@example.org"})

    assert seen[-1] == 1


def test_a_sync_whose_column_cannot_be_tagged_commits_nothing(shop: Shop) -> None:
    shop.sync(**GOVERNED).commit(*ids(1))

    def refuse(params: Any, **_: object) -> None:
        if b"email" in params["body"]:
            raise _Refused

    with during(shop.access, "before-call.lakeformation.AddLFTagsToResource", refuse), pytest.raises(_Refused):
        shop.sync(schema=EMAIL, **GOVERNED)

    assert shop.rows() == [{"id": 1, "email": None}]
    with watched(shop):
        shop.sync(schema=EMAIL, **GOVERNED).commit({"id": 2, "email": "a@example.org"})
    assert tags(shop) == TAGS


class _Refused(Exception):
    """The process was killed, or AWS refused."""
