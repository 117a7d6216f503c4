"""The order of rows in files: the options', another engine's, and what manifests say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.table.sorting import SortField as IcebergSortField
from pyiceberg.table.sorting import SortOrder as IcebergSortOrder
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType

from destination_datalake.partitioning.spec import Bucket, SortField, SortOrder
from destination_datalake.schema.types import Field, Int64, String
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.table import Committed
from unit_tests.tables.iceberg.lake import Lake, no_rewrite

pytestmark = pytest.mark.share(4)

COLUMNS = (Field("id", "id", Int64()), Field("land", "land", String()))
BY_LAND = [{"source": "land", "direction": "descending", "nulls": "last"}, {"source": "id"}]
FOREIGN_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "theirs", StringType()),
    NestedField(3, "tags", ListType(4, StringType(), element_required=False)),
)


def opened(lake: Lake, **more: Any) -> IcebergTable:
    return lake.open(**{"columns": COLUMNS, **more})


def orders_of_files(lake: Lake) -> list[int | None]:
    return [task.file.sort_order_id for task in lake.load().scan().plan_files()]


def order(lake: Lake) -> list[str]:
    table = lake.load()
    return [
        f"{table.schema().find_column_name(field.source_id)} {field.direction} {field.null_order}"
        for field in table.sort_order().fields
    ]


def test_a_new_table_has_the_order_of_the_options(lake: Lake) -> None:
    syncing = opened(lake, sort_by=BY_LAND)

    lake.commit_rows(syncing, {"id": 1})

    assert order(lake) == ["land DESC NULLS LAST", "id ASC NULLS FIRST"]
    fields = (SortField(("land",), ascending=False, nulls_first=False), SortField(("id",)))
    assert syncing.plan().sort_order == SortOrder(fields, 1)
    assert orders_of_files(lake) == [1]


def test_only_files_in_the_order_are_said_to_be_in_it(lake: Lake) -> None:
    syncing = opened(lake, sort_by=BY_LAND)
    file = replace(lake.write(syncing, 1), is_sorted=False)

    assert syncing.commit([file], no_rewrite) == Committed()

    assert orders_of_files(lake) == [None]


def test_the_order_follows_the_options_and_not_the_other_way_round(lake: Lake) -> None:
    later: list[dict[str, Any]] = [{"sort_by": [{"source": "id"}]}, {}, {"sort_by": []}, {"sort_by": BY_LAND}]
    sort_orders = []
    for options in ({"sort_by": BY_LAND}, *later):
        opened(lake, **options)
        sort_orders.append((lake.load().metadata.default_sort_order_id, len(order(lake))))

    assert sort_orders == [(1, 2), (2, 1), (2, 1), (0, 0), (1, 2)]


def test_an_order_that_another_engine_has_set_is_kept_until_the_options_change(lake: Lake) -> None:
    opened(lake, sort_by=BY_LAND)
    with lake.load().update_sort_order() as update:
        update.asc("id", IdentityTransform(), NullOrder.NULLS_LAST)

    lake.commit_rows(opened(lake, sort_by=BY_LAND), {"id": 1})
    kept = order(lake)
    opened(lake, sort_by=[{"source": "land"}])

    assert kept == ["id ASC NULLS LAST"]
    assert orders_of_files(lake) == [2]
    assert order(lake) == ["land ASC NULLS FIRST"]


def test_a_file_stays_in_the_order_that_it_was_planned_in(lake: Lake) -> None:
    syncing = opened(lake, sort_by=BY_LAND)
    file = lake.write(syncing, 1)
    opened(lake, sort_by=[{"source": "id"}])

    assert syncing.commit([file], no_rewrite) == Committed()

    assert orders_of_files(lake) == [1]
    assert lake.load().metadata.default_sort_order_id == 2


ASCENDING, FIRST = SortDirection.ASC, NullOrder.NULLS_FIRST


@pytest.mark.parametrize(
    ("fields", "planned"),
    [
        ([(1, BucketTransform(4))], [SortField(("id",), transform=Bucket(4))]),
        # The stream has no such column: it is null in each of its rows.
        ([(2, IdentityTransform()), (1, IdentityTransform())], [SortField(("id",))]),
        ([(2, IdentityTransform())], None),
        ([(1, VoidTransform())], None),
        ([(4, IdentityTransform())], None),
    ],
)
def test_another_engine_s_order_is_followed_where_it_can_be(
    lake: Lake, fields: list[tuple[int, Any]], planned: list[SortField] | None
) -> None:
    foreign_fields = [IcebergSortField(source, transform, ASCENDING, FIRST) for source, transform in fields]
    lake.create(FOREIGN_SCHEMA, sort_order=IcebergSortOrder(*foreign_fields))

    syncing = lake.open()
    lake.commit(syncing, 1)

    assert syncing.plan().sort_order == (None if planned is None else SortOrder(tuple(planned), 1))
    assert orders_of_files(lake) == [None if planned is None else 1]
