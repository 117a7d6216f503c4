"""The archive as `replay` finds it: syncs, the batches that the index has, and lines of which it says nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from destination_datalake.archive.plan import History, StepKind, StoredLines, build_plan, read_history
from destination_datalake.tables.table import TablePosition
from integration_tests.harness.messages import configured_stream
from unit_tests.archive.archive import FOLDER, KEY, LINES, NOW, Archiving
from unit_tests.cloud import BUCKET, Cloud, another_client, during

OTHER_ID = "02" * 16


def history(cloud: Cloud) -> History:
    return read_history(FOLDER, cloud.access)


def missing(archive: History) -> list[str]:
    syncs = (*archive.syncs, *archive.lost)
    return sorted(name for sync in syncs for batch in sync.batches.values() for name in batch.missing)


def names(lines: Sequence[StoredLines]) -> list[str]:
    return [stored.archived.name.rpartition("/")[2] for stored in lines]


def delete(cloud: Cloud, *parts: str) -> None:
    """Delete the archive's objects whose keys have one of these parts, as a lifecycle rule would."""
    for key in cloud.objects():
        if key.startswith(f"{KEY}/") and any(part in key for part in parts):
            cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=key)


def test_without_an_archive_there_is_no_history(cloud: Cloud) -> None:
    assert history(cloud) == History([], [], [], [], [])


def test_syncs_are_in_the_order_of_their_start_each_with_its_batches_and_catalog(cloud: Cloud) -> None:
    later = configured_stream("orders", {"type": "object"}, generation=5, minimum=5, sync_id=7)
    second = Archiving(cloud, "0a", lambda: NOW + 2000.0, later).begin()
    first = Archiving(cloud, "ff", lambda: NOW).begin(found_empty=True)
    second.committed(1, "0000-aa")
    first.committed(1, "0000-aa", "0001-aa")
    first.committed(3, "0000-aa")

    archive = history(cloud)

    assert [stored.entry.sync for stored in archive.syncs] == ["ff", "0a"]
    assert [stored.entry.found_empty for stored in archive.syncs] == [True, False]
    assert [stored.configured for stored in archive.syncs] == [configured_stream("orders", {}), later]
    assert [stored.published for stored in archive.syncs] == [None, None]
    assert {number: names(batch.lines) for number, batch in archive.syncs[0].batches.items()} == {
        1: ["ff-000001-0000-aa.jsonl.gz", "ff-000001-0001-aa.jsonl.gz"],
        3: ["ff-000003-0000-aa.jsonl.gz"],
    }
    assert archive.syncs[0].begun < archive.syncs[1].begun < archive.syncs[1].batches[1].sequence_number
    assert [stored.unindexed for stored in archive.syncs] == [{}, {}]
    assert missing(archive) == []


def test_lines_are_found_with_what_s3_says_of_them(cloud: Cloud) -> None:
    (file,) = Archiving(cloud, "0a").begin().committed(1, "0000-aa")

    [batch] = history(cloud).syncs[0].batches.values()
    (lines,) = batch.lines

    head = cloud.access.client("s3").head_object(Bucket=BUCKET, Key=file.uri.removeprefix(f"s3://{BUCKET}/"))
    assert lines.archived == file.content
    assert (lines.uri, lines.etag, lines.size) == (file.uri, head["ETag"], head["ContentLength"])


def test_lines_without_an_entry_are_read_from_their_metadata(cloud: Cloud) -> None:
    """As a sync leaves them that is killed between the publication and the entry: two attempts at one batch."""
    sync = Archiving(cloud, "0a").begin()
    sync.committed(1, "0000-aa")
    first = sync.published("000002-0000-aa", first_id="03" * 16)
    second = sync.published("000002-0000-bb", LINES * 2, OTHER_ID)

    (stored_sync,) = history(cloud).syncs

    assert [*stored_sync.batches] == [1]
    assert {number: [stored.archived for stored in lines] for number, lines in stored_sync.unindexed.items()} == {
        2: [replace(file.content, sha256="") for file in (first, second)]
    }


def test_what_is_not_published_is_not_there(cloud: Cloud) -> None:
    Archiving(cloud, "0a").begin().written("000001-0000-aa")

    assert (history(cloud).syncs[0].batches, history(cloud).syncs[0].unindexed) == ({}, {})


STREAMS: list[dict[str, Any]] = [
    configured_stream("orders", {}, namespace="shop", generation=3, minimum=3, sync_id=9),
    configured_stream('an "order" 京都 ', {}, generation=None, minimum=None, sync_id=None),
    configured_stream("🚀" * 300, {}, namespace="é" * 300),
]


@pytest.mark.parametrize("stream", STREAMS, ids=["plain", "odd", "too long for metadata"])
def test_a_sync_whose_index_is_gone_is_known_by_its_lines(cloud: Cloud, stream: dict[str, Any]) -> None:
    sync = Archiving(cloud, "0a", catalog=stream).begin(found_empty=True)
    sync.committed(1, "0000-aa")
    (before,) = history(cloud).syncs
    delete(cloud, "/index/")

    (stored_sync,) = history(cloud).syncs

    assert stored_sync.configured == before.configured == stream
    assert (stored_sync.entry.stream, stored_sync.entry.namespace) == sync.stream[::-1]
    assert (stored_sync.entry.started, stored_sync.entry.mode) == (before.entry.started, before.entry.mode)
    assert names(stored_sync.unindexed[1]) == ["0a-000001-0000-aa.jsonl.gz"]
    assert not stored_sync.entry.found_empty, "that the archive has the table from its beginning is not known any more"


def test_lines_that_the_index_has_and_s3_has_not_are_gone(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin()
    sync.committed(1, "0000-aa", "0001-aa")
    sync.committed(2, "0000-aa")
    delete(cloud, "0a-000001-0001", "0a-000002")

    archive = history(cloud)

    assert missing(archive) == [
        "dt=2025-11-24/0a-000001-0001-aa.jsonl.gz",
        "dt=2025-11-24/0a-000002-0000-aa.jsonl.gz",
    ]
    assert {number: names(batch.lines) for number, batch in archive.syncs[0].batches.items()} == {
        1: ["0a-000001-0000-aa.jsonl.gz"],
        2: [],
    }


def test_a_sync_whose_catalog_is_gone_is_gone_and_no_other(cloud: Cloud) -> None:
    """A rule that ends objects by their age ends a catalog before the lines of a sync that went on for a day."""
    Archiving(cloud, "0a").begin().committed(1, "0000-aa")
    later = configured_stream("orders", {"type": "object"})
    Archiving(cloud, "0b", lambda: NOW + DAY, later).begin().committed(1, "0000-aa")
    old = history(cloud).syncs[0].entry.catalog
    delete(cloud, f"/catalog/{old}")

    archive = history(cloud)

    assert [stored.entry.sync for stored in archive.syncs] == ["0b"]
    assert [stored.entry.sync for stored in archive.lost] == ["0a"]


DAY = 24 * 3600.0


def test_positions_order_what_clocks_and_uploads_do_not(cloud: Cloud) -> None:
    """The clock of the second sync is behind, and the objects of the first one are copied later."""
    first = Archiving(cloud, "0a", lambda: NOW).begin(position=TablePosition("t", 4))
    second = Archiving(cloud, "0b", lambda: NOW - 600).begin(position=TablePosition("t", 6))
    second.committed(1, "0000-aa", position=TablePosition("t", 7))
    first.committed(1, "0000-aa", position=TablePosition("t", 5))
    first.committed(2, "0000-aa", position=TablePosition("t", 8))

    first_stored, second_stored = history(cloud).syncs

    assert [first_stored.entry.sync, second_stored.entry.sync] == ["0a", "0b"]
    assert (
        first_stored.begun
        < first_stored.batches[1].sequence_number
        < second_stored.begun
        < second_stored.batches[1].sequence_number
        < first_stored.batches[2].sequence_number
    )


def test_entries_of_a_dropped_table_come_first_whatever_their_positions(cloud: Cloud) -> None:
    Archiving(cloud, "0a", lambda: NOW).begin(position=TablePosition("dropped", 40)).committed(
        1, "0000-aa", position=TablePosition("dropped", 41)
    )
    Archiving(cloud, "0b", lambda: NOW + 60).begin(position=TablePosition("present", 1))

    first_stored, second_stored = history(cloud).syncs

    assert (first_stored.entry.table, second_stored.entry.table) == ("dropped", "present")
    assert first_stored.batches[1].sequence_number < second_stored.begun


REFRESH = configured_stream("orders", {}, generation=2, minimum=2, sync_id=2)


def at(number: int, table: str = "t") -> TablePosition:
    return TablePosition(table, number)


def refreshed(cloud: Cloud) -> Archiving:
    """Archive a refresh of the table, to which all its rows belong."""
    refresh = Archiving(cloud, "0a", catalog=REFRESH).begin(position=at(48))
    refresh.committed(1, "0000-aa", position=at(49))
    refresh.committed(2, "0000-aa", position=at(50))
    refresh.end(position=at(51))
    return refresh


def planned(cloud: Cloud) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the batches that a replay writes, each with its sync, and the beginnings of the gaps."""
    plan = build_plan(history(cloud), None, {})
    batches = [(step.sync, step.batch) for step in plan.steps if step.kind is StepKind.BATCH]
    return batches, [" ".join(gap.split(" ")[:5]) for gap in plan.gaps]


ROWS_BEFORE = "The table contained rows before"


def test_batches_in_a_table_that_was_recreated_during_the_sync_follow_those_of_the_dropped_one(cloud: Cloud) -> None:
    refreshed(cloud)
    later = Archiving(cloud, "0b", lambda: NOW + 60).begin(position=at(52))
    later.committed(1, "0000-aa", position=at(2, "recreated"))
    later.end(position=at(2, "recreated"))

    assert planned(cloud) == ([("0a", 1), ("0a", 2), ("0b", 1)], [ROWS_BEFORE])


def test_batches_in_a_table_that_was_restored_follow_those_of_its_former_state(cloud: Cloud) -> None:
    refreshed(cloud)
    restored = Archiving(cloud, "0b", lambda: NOW + 7200).begin(position=at(12))
    restored.committed(1, "0000-aa", position=at(13))
    restored.end(position=at(13))

    assert planned(cloud) == ([("0a", 1), ("0a", 2), ("0b", 1)], [ROWS_BEFORE])


def test_end_of_a_sync_long_after_its_last_commit_is_no_restored_table(cloud: Cloud) -> None:
    times = iter([NOW] * 3 + [NOW + 7200] * 9)
    idle = Archiving(cloud, "0a", lambda: next(times)).begin(position=at(1), found_empty=True)
    idle.committed(1, "0000-aa", position=at(2))
    Archiving(cloud, "0b", lambda: NOW + 3600).begin(position=at(2)).committed(1, "0000-aa", position=at(3))
    idle.end(position=at(2))

    assert planned(cloud) == ([("0a", 1), ("0b", 1)], [])


def test_sync_without_its_first_entry_is_known_by_its_lines_and_its_other_entries(cloud: Cloud) -> None:
    """A refresh that ran past midnight loses its first entry and its first lines a day before the rest."""
    refreshed(cloud)
    delete(cloud, "begin.json", "0a-000001-0000")

    batches, gaps = planned(cloud)

    assert batches == [("0a", 1), ("0a", 2)]
    assert "Cannot replay dt=2025-11-24/0a-000001-0000-aa.jsonl.gz: a" in [" ".join(gap.split(" ")[:4]) for gap in gaps]


@pytest.mark.parametrize(
    ("deleted", "batches", "gaps"),
    [
        (["-0b/begin.json"], [("0b", 1)], []),
        (["0b-000001"], [("0b", 1)], ["Cannot replay dt=2025-11-24/0b-000001-0000-aa.jsonl.gz: a lifecycle"]),
        (["-0b/begin.json", "0b-000001"], [], ["Cannot replay sync 0b of"]),
    ],
)
def test_sync_after_a_refresh_is_replayed_or_a_gap_whatever_of_it_is_deleted(
    cloud: Cloud, deleted: Sequence[str], batches: Sequence[tuple[str, int]], gaps: Sequence[str]
) -> None:
    refreshed(cloud)
    later = Archiving(cloud, "0b", lambda: NOW + 60, configured_stream("orders", {"type": "object"}))
    later.begin(position=at(51)).committed(1, "0000-aa", position=at(52))
    delete(cloud, *deleted)

    assert planned(cloud) == ([("0a", 1), ("0a", 2), *batches], gaps)


def test_sync_after_a_refresh_whose_catalog_is_deleted_is_a_gap(cloud: Cloud) -> None:
    refreshed(cloud)
    later = Archiving(cloud, "0b", lambda: NOW + 60, configured_stream("orders", {"type": "object"}))
    later.begin(position=at(51)).committed(1, "0000-aa", position=at(52))
    delete(cloud, history(cloud).syncs[1].entry.catalog)

    assert planned(cloud) == ([("0a", 1), ("0a", 2)], ["Cannot replay sync 0b of"])


def test_batch_of_which_entry_and_lines_are_deleted_is_a_gap(cloud: Cloud) -> None:
    refreshed(cloud)
    delete(cloud, "000001")

    assert planned(cloud) == ([("0a", 2)], ["Sync 0a of 2025-11-24T16:00:00+00:00 committed"])


def test_object_with_an_odd_name_in_an_entry_is_missing(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin(found_empty=True)
    sync.committed(1, "0000-aa")
    key = f"{KEY}/index/1764000000000-0a/000001.json"
    entry = json.loads(cloud.objects()[key])
    entry["objects"][0]["name"] = "x"
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=json.dumps(entry).encode())

    assert planned(cloud)[1] == ["Cannot replay x: a lifecycle"]


def test_objects_that_are_deleted_after_they_were_listed_are_not_there(cloud: Cloud) -> None:
    sync = Archiving(cloud, "0a").begin(found_empty=True)
    sync.committed(1, "0000-aa")
    sync.published("000002-0000-aa", first_id=OTHER_ID)
    gone = [key for key in cloud.objects() if "0a-000002" in key or key.endswith("/000001.json")]
    other_client = another_client()

    def delete_them(**_: object) -> None:
        for key in gone:
            other_client.client("s3").delete_object(Bucket=BUCKET, Key=key)

    with during(cloud.access, "after-call.s3.ListObjectsV2", delete_them):
        (stored_sync,) = history(cloud).syncs

    assert len(gone) == 2
    assert names(stored_sync.unindexed.pop(1)) == ["0a-000001-0000-aa.jsonl.gz"]
    assert stored_sync.unindexed == {}
    assert stored_sync.batches == {}


@pytest.mark.parametrize(
    ("damaged", "content", "lost"),
    [
        ("index/1764000000000-0a/begin.json", b"{", []),
        ("index/1764000000000-0a/000001.json", b"{", []),
        ("index/1764000000000-0a/end.json", b"{", []),
        ("catalog/", b"{", ["0a"]),
        pytest.param(
            "catalog/",
            json.dumps(configured_stream("orders", {"properties": {"other": {}}})).encode(),
            ["0a"],
            id="edited catalog",
        ),
    ],
)
def test_damaged_object_is_named_and_stops_nothing_else(
    cloud: Cloud, damaged: str, content: bytes, lost: Sequence[str]
) -> None:
    for name, schema in (("0a", {}), ("0b", {"type": "object"})):
        sync = Archiving(cloud, name, catalog=configured_stream("orders", schema)).begin()
        sync.committed(1, "0000-aa")
        sync.end()
    catalog = (
        f"catalog/{next(stored.entry.catalog for stored in history(cloud).syncs if stored.entry.sync == '0a')}.json"
    )
    key = f"{KEY}/{catalog if damaged == 'catalog/' else damaged}"
    assert key in cloud.objects()
    cloud.access.client("s3").put_object(Bucket=BUCKET, Key=key, Body=content)

    archive = history(cloud)

    assert [text.partition(" ")[0] for text in archive.unreadable] == [key.removeprefix(f"{KEY}/")]
    assert [stored.name for stored in archive.lost] == lost
    assert sorted(stored.name for stored in archive.syncs) == [name for name in ("0a", "0b") if name not in lost]


def test_copies_and_objects_without_metadata_are_named_and_not_replayed(cloud: Cloud) -> None:
    (file,) = Archiving(cloud, "0a").begin().committed(1, "0000-aa")
    s3, folder = cloud.access.client("s3"), f"{KEY}/dt=2025-11-24"
    s3.copy_object(
        Bucket=BUCKET,
        Key=f"{folder}/0a-000001-0000-bb.jsonl.gz",
        CopySource={"Bucket": BUCKET, "Key": file.uri.removeprefix(f"s3://{BUCKET}/")},
    )
    s3.put_object(Bucket=BUCKET, Key=f"{folder}/0a-000002-0000-cc.jsonl.gz", Body=b"")

    archive = history(cloud)

    assert archive.foreign == [
        "dt=2025-11-24/0a-000001-0000-bb.jsonl.gz is a copy of another object",
        "dt=2025-11-24/0a-000002-0000-cc.jsonl.gz has no archive metadata",
    ]
    assert archive.syncs[0].unindexed == {}


def test_objects_of_others_under_the_folder_are_left_alone(cloud: Cloud) -> None:
    Archiving(cloud, "0a").begin()
    for name in ("notes.txt", "dt=2025-11-24/notes.jsonl.gz", "index/notes.json", "replay/orders__replay.json"):
        cloud.access.client("s3").put_object(Bucket=BUCKET, Key=f"{KEY}/{name}", Body=json.dumps({}).encode())
    cloud.access.client("s3").put_object(
        Bucket=BUCKET, Key=f"{KEY}2/dt=2025-11-24/0a-000001-0000-aa.jsonl.gz", Body=b""
    )

    (stored_sync,) = history(cloud).syncs

    assert (stored_sync.batches, stored_sync.unindexed) == ({}, {})
