"""What says whose an archived object is: metadata that S3 takes, whatever streams are called, and that is read back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from destination_datalake.archive.objects import ArchivedSync, ArchiveLocation, table_folder
from destination_datalake.files.plan import UnitLines

METADATA_BYTES = 2048
"""S3 user guide, user-defined metadata: the sum of the bytes of all keys and values in UTF-8."""

CATALOG = "ab" * 32
SYNC = ArchivedSync("0123456789ab", 1_700_000_000_000, "orders", CATALOG, "append")
LINES = UnitLines("dt=2026-11-25/unit.jsonl.gz", 10**9, 2**40, 10**12, "0190" * 8)
LOCATION = ArchiveLocation("s3://lake/_raw/shop.orders", "2026-11-25", SYNC)
NAMES = [
    "",
    " ",
    "orders",
    'an "order"',
    '"quoted"',
    " padded ",
    "two\nlines",
    "\x7f",
    "京都🚀",
    "5",
    "null",
    "n" * 300,
    "é" * 250,
]


def test_metadata_have_whose_the_lines_are_and_what_the_index_says_of_them() -> None:
    sync = ArchivedSync(
        "0123456789ab",
        7,
        "orders",
        CATALOG,
        "append_dedup",
        "shop",
        ("id", "line"),
        ("at",),
        3,
        3,
        42,
        found_empty=True,
    )

    assert replace(LOCATION, sync=sync).metadata(LINES) == {
        "sync": "0123456789ab",
        "started": "7",
        "stream": "orders",
        "catalog": CATALOG,
        "mode": "append_dedup",
        "namespace": "shop",
        "key": '["id", "line"]',
        "cursor": '["at"]',
        "generation": "3",
        "minimum-generation": "3",
        "sync-id": "42",
        "lines": "1000000000",
        "bytes": "1099511627776",
        "first-record": "1000000000000",
        "first-id": "0190" * 8,
    }


@pytest.mark.parametrize("namespace", [None, "", "shop"])
@pytest.mark.parametrize("stream", NAMES)
def test_a_sync_is_read_back_from_metadata(stream: str, namespace: str | None) -> None:
    sync = msgspec.structs.replace(SYNC, stream=stream, namespace=namespace, generation=0, sync_id=2**63 - 1)

    assert ArchivedSync.from_metadata(sync.metadata()) == sync


TEXTS = st.text(st.characters(codec="utf-8"), max_size=400)


@given(stream=TEXTS, namespace=st.none() | TEXTS, key=st.lists(TEXTS, max_size=40), cursor=st.lists(TEXTS, max_size=1))
@example(stream="🚀" * 300, namespace="🚀" * 300, key=["🚀" * 300] * 20, cursor=["🚀" * 300])
@example(stream="x" * 1900, namespace="y" * 1900, key=[], cursor=[])
def test_s3_takes_the_metadata_of_any_stream_and_no_text_in_them_is_cut(
    stream: str, namespace: str | None, key: list[str], cursor: list[str]
) -> None:
    ids: dict[str, Any] = {"generation": 2**63 - 1, "minimum_generation": 2**63 - 1, "sync_id": 2**63 - 1}
    sync = msgspec.structs.replace(
        SYNC, stream=stream, namespace=namespace, key=tuple(key), cursor=tuple(cursor), mode="append_dedup", **ids
    )

    metadata = replace(LOCATION, sync=sync).metadata(LINES)

    assert sum(len(name) + len(value) for name, value in metadata.items()) <= METADATA_BYTES
    assert all(value.isascii() and value.isprintable() and value == value.strip() for value in metadata.values())
    read = ArchivedSync.from_metadata(metadata)
    assert read.stream in (stream, "")
    assert read.namespace in (namespace, None)
    expected = msgspec.structs.replace(sync, stream=read.stream, namespace=read.namespace, key=(), cursor=())
    assert read == expected


def test_what_no_room_is_left_for_is_left_out_the_stream_last() -> None:
    sync = msgspec.structs.replace(SYNC, stream="s" * 700, namespace="n" * 700, key=("k" * 700,), cursor=("c",))

    metadata = sync.metadata()

    assert (metadata["stream"], metadata["namespace"], metadata.get("key")) == ("s" * 700, "n" * 700, None)
    assert "stream" not in msgspec.structs.replace(SYNC, stream="s" * 3000).metadata()


def test_places_are_those_that_the_documentation_of_the_archive_shows() -> None:
    assert table_folder("s3://lake/_raw", "shop", "orders") == LOCATION.folder
    assert LOCATION.index == f"{LOCATION.folder}/index/1700000000000-0123456789ab"
    assert LOCATION.name("0123456789ab-000001-0000-0a0b") == "dt=2026-11-25/0123456789ab-000001-0000-0a0b.jsonl.gz"


def test_entries_of_the_index_say_nothing_that_is_not_so() -> None:
    assert msgspec.json.decode(msgspec.json.encode(SYNC)) == {
        "sync": "0123456789ab",
        "started": 1_700_000_000_000,
        "stream": "orders",
        "catalog": CATALOG,
        "mode": "append",
    }
