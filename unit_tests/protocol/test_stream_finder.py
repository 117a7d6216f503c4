"""Which stream a message means."""

from __future__ import annotations

import re

import pytest

from destination_datalake.protocol.catalog import StreamFinder, StreamId, UnknownStream

ORDERS, ITEMS, SHOP_ITEMS = StreamId(None, "orders"), StreamId(None, "items"), StreamId("shop", "items")


@pytest.mark.parametrize(
    ("streams", "namespace", "name", "meant"),
    [
        ([ORDERS], None, "orders", ORDERS),
        ([ORDERS], "", "orders", ORDERS),
        ([SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
        ([SHOP_ITEMS], None, "items", SHOP_ITEMS),
        ([SHOP_ITEMS], "", "items", SHOP_ITEMS),
        ([ITEMS, SHOP_ITEMS], None, "items", ITEMS),
        ([ITEMS, SHOP_ITEMS], "shop", "items", SHOP_ITEMS),
    ],
)
def test_a_message_means_the_exact_stream_or_without_a_namespace_the_only_one_of_that_name(
    streams: list[StreamId], namespace: str | None, name: str, meant: StreamId
) -> None:
    assert StreamFinder(streams).find(namespace, name) == meant


@pytest.mark.parametrize(
    ("streams", "namespace", "name", "why"),
    [
        ([ORDERS], "shop", "orders", "which the configured catalog does not have"),
        ([ORDERS], None, "nothing", "which the configured catalog does not have"),
        ([], None, "orders", "which the configured catalog does not have"),
        ([SHOP_ITEMS, StreamId("store", "items")], "", "items", "2 streams of that name (shop.items, store.items)"),
    ],
)
def test_a_message_that_means_none_of_the_streams_or_any_of_several_is_told_apart(
    streams: list[StreamId], namespace: str | None, name: str, why: str
) -> None:
    with pytest.raises(UnknownStream, match=re.escape(why)):
        StreamFinder(streams).find(namespace, name)
