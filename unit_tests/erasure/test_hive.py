"""Hive tables without the rows of some ids: whatever folder they are in, whoever writes meanwhile, wherever it dies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.errors import ConfigError
from destination_datalake.files.plan import FileFormat
from destination_datalake.tables.fencing import Fenced
from destination_datalake.tables.hive.content import FolderState, list_folder
from unit_tests.cloud import BUCKET, Cloud, another_client, at_the_next
from unit_tests.erasure.places import erased, named, outcomes, request, second_search, traces
from unit_tests.tables.hive.orders import (
    NAME,
    ROOT,
    WIDE,
    create_foreign_table,
    create_foreign_table_with_files,
    descriptor,
    during_rewrite,
    glue_table,
    ids,
    parquet_of,
    put,
    sync,
    update_glue_table,
)
from unit_tests.tables.hive.partitions import events

pytestmark = pytest.mark.share(5)

PERSON = 424242
"""The id whose rows are erased: no other text of the tests has it."""

TABLE = "Hive table shop.orders"


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_rows_are_gone_and_all_others_are_there(cloud: Cloud, tmp_path: Path, format: FileFormat) -> None:
    first = sync(cloud, format=format)
    first.commit("a", 1, PERSON, 2)
    first.commit("b", 3, 4)
    first.commit("c", PERSON)
    first.publish()
    before = cloud.objects()

    done = erased(request(tmp_path, cloud.access, "id", PERSON, 77), NAME)

    assert outcomes(done) == {"a": "rewritten", "c": "removed"}
    assert [(object_.rows_found, object_.rows_removed) for object_ in done] == [(1, 1), (1, 1)]
    assert (ids(cloud), traces(cloud, PERSON)) == ([1, 2, 3, 4], [])
    (b,) = [key for key in before if key.endswith("/b")]
    assert cloud.objects()[b] == before[b]
    assert erased(request(tmp_path, cloud.access, "id", PERSON, 77), NAME) == []


def test_the_next_sync_goes_on(cloud: Cloud, tmp_path: Path) -> None:
    first = sync(cloud)
    first.commit("a", 1, PERSON)
    first.publish()
    erased(request(tmp_path, cloud.access, "id", PERSON), NAME)
    following = sync(cloud)
    following.commit("b", 2, WIDE)
    following.publish()
    assert ids(cloud) == [1, 2, WIDE]


def test_a_running_sync_that_appends_is_not_disturbed(cloud: Cloud, tmp_path: Path) -> None:
    running = sync(cloud)
    running.commit("a", 1, PERSON)
    erased(request(tmp_path, cloud.access, "id", PERSON), NAME)
    running.commit("b", 2)
    running.publish()
    assert ids(cloud) == [1, 2]


def test_files_that_a_sync_copied_meanwhile_are_found(cloud: Cloud, tmp_path: Path) -> None:
    """The sync has read the files before they were replaced, and is stopped before readers see what it made of them."""
    sync(cloud).commit("a", 1, PERSON)
    running = sync(cloud)
    place = named(request(tmp_path, cloud.access, "id", PERSON), TABLE, NAME)

    with pytest.raises(Fenced):
        running.commit("b", WIDE, rewrite=during_rewrite(lambda: [*place.erase()]))

    assert any("Fenced a sync that was copying files" in note for note in place.stats.notes)
    erased(request(tmp_path, cloud.access, "id", PERSON), NAME)
    assert (ids(cloud), traces(cloud, PERSON)) == ([1], [])
    following = sync(cloud)
    following.commit("b", WIDE)
    following.publish()
    assert ids(cloud) == [1, WIDE]


def test_a_pending_overwrite_is_searched_and_its_next_attempt_goes_on(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud, generation=1).commit("a", PERSON, 1)
    refresh = sync(cloud, generation=2, overwrite=True)
    refresh.commit("b", PERSON, 2)

    erased(request(tmp_path, cloud.access, "id", PERSON), NAME)

    assert (ids(cloud), traces(cloud, PERSON)) == ([1], [])
    with pytest.raises(Fenced):
        refresh.commit("c", 3)
    next_sync = sync(cloud, generation=2, overwrite=True)
    next_sync.commit("c", 3)
    next_sync.publish()
    assert ids(cloud) == [2, 3]


@pytest.mark.share(1)
@pytest.mark.parametrize("fails", [True, False])
def test_a_sync_is_fenced_that_may_have_read_a_file_before_a_rewrite_whose_response_was_lost(
    cloud: Cloud, tmp_path: Path, *, fails: bool
) -> None:
    sync(cloud, generation=1).commit("a", 1)
    refresh = sync(cloud, generation=2, overwrite=True)
    refresh.commit("b", PERSON, 2)

    def fail() -> None:
        if fails:
            raise LookupError

    access = another_client()
    at_the_next(access, "s3.PutObject", fail, response_lost=True)
    done = erased(request(tmp_path, access, "id", PERSON), NAME)

    assert outcomes(done) == {"b": "left" if fails else "rewritten"}
    assert traces(cloud, PERSON) == []
    with pytest.raises(Fenced):
        refresh.commit("c", 3)


def test_a_deleted_file_is_reported_once_although_the_response_was_lost(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud).commit("a", PERSON)

    access = another_client()
    at_the_next(access, "s3.DeleteObject", lambda: None, response_lost=True)
    done = erased(request(tmp_path, access, "id", PERSON), NAME)

    assert [(object_.outcome, object_.rows_removed) for object_ in done] == [("removed", 1)]
    assert traces(cloud, PERSON) == []


def test_former_contents_orphans_and_hidden_files_are_searched(cloud: Cloud, tmp_path: Path) -> None:
    old = sync(cloud, generation=1)
    old.commit("a", PERSON, 1)
    old.publish()
    refresh = sync(cloud, generation=2, overwrite=True)
    refresh.commit("b", 2)
    refresh.publish()
    put(cloud, "shop/orders/generation-7-0123456789ab/orphan", parquet_of(PERSON))
    put(cloud, "shop/orders/generation-7-0123456789ab/_hidden", parquet_of(PERSON, 9))
    put(cloud, "shop/others/file", parquet_of(PERSON))

    done = erased(request(tmp_path, cloud.access, "id", PERSON), NAME)

    assert outcomes(done) == {"a": "rewritten", "orphan": "removed", "_hidden": "rewritten"}
    assert traces(cloud, PERSON) == ["shop/others/file"]


def test_a_table_of_another_writer_is_searched_where_it_is(cloud: Cloud, tmp_path: Path) -> None:
    create_foreign_table_with_files(cloud)
    put(cloud, "elsewhere/more.parquet", parquet_of(PERSON, 5))
    put(cloud, "elsewhere/notes.csv", b"id\n7\n")
    asked = request(tmp_path, cloud.access, "ID", PERSON)

    done = erased(asked, NAME)

    assert outcomes(done)["more.parquet"] == "rewritten"
    csv = next(object_ for object_ in done if object_.uri.endswith("notes.csv"))
    assert (csv.outcome, csv.rows_removed) == ("left", 0)
    assert "neither Parquet nor JSON Lines" in csv.reason
    assert {object_.uri.rpartition("/")[2] for object_ in second_search(asked, NAME)} >= {"notes.csv"}
    assert 5 in ids_of(cloud, "elsewhere/more.parquet")


def ids_of(cloud: Cloud, key: str) -> list[int]:
    return [row["id"] for row in pq.read_table(cloud.arrow(key)).to_pylist()]


def test_a_column_that_the_table_does_not_have_is_noted(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud).commit("a", 1)
    place = named(request(tmp_path, cloud.access, "user.id", PERSON), TABLE, NAME)
    place.require()
    assert ([*place.find()], [*place.erase()]) == ([], [])
    assert place.stats.notes == [f"{TABLE}: column user.id does not exist, so nothing was searched."]


@pytest.mark.parametrize("column", ["_airbyte_meta", "lines"])
def test_columns_of_objects_and_lists_are_refused(cloud: Cloud, tmp_path: Path, column: str) -> None:
    sync(cloud).commit("a", 1)
    storage = glue_table(cloud)["StorageDescriptor"]
    storage["Columns"].append({"Name": "lines", "Type": "array<int>"})
    update_glue_table(cloud, StorageDescriptor=storage)
    place = named(request(tmp_path, cloud.access, column, PERSON), TABLE, NAME)
    if column == "lines":
        with pytest.raises(ConfigError, match="contains objects or lists"):
            place.require()


def test_a_partition_key_is_refused_as_a_column(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud).commit("a", 1)
    update_glue_table(cloud, PartitionKeys=[{"Name": "region", "Type": "string"}])
    with pytest.raises(ConfigError, match="is partitioned by this column"):
        named(request(tmp_path, cloud.access, "Region", PERSON), TABLE, NAME).require()


def test_an_id_that_the_column_cannot_hold_is_refused_before_anything_changes(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud).commit("a", 1)
    with pytest.raises(ConfigError, match="line 1"):
        named(request(tmp_path, cloud.access, "id", "anna"), TABLE, NAME).require()


# --- Partitions -----------------------------------------------------------------------------------------------------


def test_table_partitioned_by_the_column_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    streams = [{"stream": "Events", "partition_by": [{"source": "id", "name": "by_id"}]}]
    options: Any = {"partitioning": "NO PARTITIONING", "streams": streams}
    running = events.sync(cloud, **options)
    running.commit((1, None), (PERSON, None), (2, None), (3, None))
    running.publish()
    asked = request(tmp_path, cloud.access, "id", PERSON, **options)

    with pytest.raises(ConfigError, match="is partitioned by this column"):
        named(asked, "Hive table shop.events", events.NAME).require()


def test_partitions_that_a_dropped_table_has_left_are_hidden_in_what_people_read(cloud: Cloud, tmp_path: Path) -> None:
    """A part of an id is its partition, and nothing says any more what the partition is of."""
    columns = [{"name": "id", "type": "int", "origin": "id"}]
    saved = {"stream": "orders", "files": ROOT, "columns": columns}
    put(cloud, "_schema/shop/orders.json", json.dumps(saved).encode())
    put(cloud, "shop/orders/generation-1-0123456789ab/start=4242/a.parquet", parquet_of(1, PERSON))
    asked = request(tmp_path, cloud.access, "id", PERSON)

    [object_] = second_search(asked, NAME)

    assert asked.mask.uri(object_.uri) == f"{ROOT}/generation-1-0123456789ab/start=…/a.parquet"


@pytest.mark.parametrize("location", [ROOT, f"{ROOT}/generation-1-0123456789ab", f"s3://{BUCKET}/shop"])
def test_files_of_another_table_in_the_folder_of_a_dropped_table_stay(
    cloud: Cloud, tmp_path: Path, location: str
) -> None:
    columns = [{"name": "id", "type": "int", "origin": "id"}]
    saved = {"stream": "orders", "files": ROOT, "columns": columns}
    put(cloud, "_schema/shop/orders.json", json.dumps(saved).encode())
    put(cloud, "shop/orders/generation-1-0123456789ab/a.parquet", parquet_of(1, PERSON))
    create_foreign_table(cloud, Name="people", StorageDescriptor={**descriptor(), "Location": location})
    before = cloud.objects()
    asked = request(tmp_path, cloud.access, "id", PERSON)

    place = named(asked, TABLE, NAME)
    assert ([*place.find()], [*place.erase()]) == ([], [])

    assert cloud.objects() == before
    [note] = place.stats.notes
    assert note.startswith(f"{TABLE}: The table was dropped, and its folders {ROOT}")
    assert note.endswith("were skipped, because another table uses them.")


def test_partitions_of_other_columns_are_read_and_stay(cloud: Cloud, tmp_path: Path) -> None:
    running = events.sync(cloud)
    running.commit((1, events.JAN), (PERSON, events.FEB), (2, events.FEB))
    running.publish()
    elsewhere = f"s3://{BUCKET}/elsewhere/day"
    events.register(cloud, ["2024-05-05"], f"{elsewhere}/")
    put(cloud, "elsewhere/day/file", parquet_of(PERSON))

    asked = request(tmp_path, cloud.access, "id", PERSON)
    erased(asked, events.NAME)

    assert traces(cloud, PERSON) == []
    assert len(events.partitions(cloud)) == 3


def test_files_of_partitions_outside_the_table_and_the_prefix_are_left(cloud: Cloud, tmp_path: Path) -> None:
    running = events.sync(cloud)
    running.commit((1, events.JAN), (PERSON, events.FEB))
    running.publish()
    s3 = cloud.access.client("s3")
    s3.create_bucket(Bucket="others")
    for day, person in (("05", PERSON), ("06", 5)):
        events.register(cloud, [f"2024-05-{day}"], f"s3://others/{day}/")
        s3.put_object(Bucket="others", Key=f"{day}/file", Body=parquet_of(person))
    events.register(cloud, ["2024-05-07"], "s3://missing/day/")

    asked = request(tmp_path, cloud.access, "id", PERSON)
    done = erased(asked, events.NAME)

    assert traces(cloud, PERSON) == []
    remaining = {object_.uri: object_.reason for object_ in done if object_.outcome == "left"}
    assert remaining.keys() == {"s3://others/05/file", "s3://missing/day/"}
    assert all("outside the table's folder" in reason for reason in remaining.values())
    assert {object_.uri for object_ in second_search(asked, events.NAME)} == remaining.keys()


# --- Kills ----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """As if the machine's power had failed."""


@contextlib.contextmanager
def dying(access: AwsAccess, call: int, moment: str) -> Iterator[Callable[[], int]]:
    """Die before, or after, the so-many-th change of an object or table through these clients."""
    calls = 0
    events: list[tuple[Any, str, Any]] = []

    def count(**_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed

    names = {
        "s3": ("PutObject", "DeleteObject", "CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"),
        "glue": ("UpdateTable",),
    }
    for service, operations in names.items():
        for operation in operations:
            event = f"{'before' if moment == 'before' else 'after'}-call.{service}.{operation}"
            client: Any = access.client(service)  # type: ignore[call-overload]
            client.meta.events.register(event, count)
            events.append((client, event, count))
    try:
        yield lambda: calls
    finally:
        for client, event, handler in events:
            client.meta.events.unregister(event, handler)


@pytest.mark.share(1)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", range(1, 8))
def test_an_erasure_that_is_killed_is_finished_by_the_next_one(
    cloud: Cloud, tmp_path: Path, call: int, moment: str
) -> None:
    first = sync(cloud, generation=1)
    for name, rows in (("a", (1, PERSON)), ("b", (PERSON,)), ("c", (2, 3)), ("d", (4, PERSON))):
        first.commit(name, *rows)
    refresh = sync(cloud, generation=2, overwrite=True)
    refresh.commit("e", PERSON, 5)
    put(cloud, f"{ROOT.partition(f'{BUCKET}/')[2]}/generation-2-0123456789ab/copy", parquet_of(PERSON))

    access = another_client()
    with dying(access, call, moment) as calls, contextlib.suppress(Killed):
        erased(request(tmp_path, access, "id", PERSON), NAME)
    assert calls() >= min(call, 6)

    erased(request(tmp_path, cloud.access, "id", PERSON), NAME)

    assert (ids(cloud), traces(cloud, PERSON), cloud.unfinished_uploads()) == ([1, 2, 3, 4], [], [])
    next_sync = sync(cloud, generation=2, overwrite=True)
    next_sync.publish()
    assert ids(cloud) == [5]


def test_a_resumed_erasure_fences_a_sync_that_may_have_read_a_file_before_the_kill(
    cloud: Cloud, tmp_path: Path
) -> None:
    sync(cloud, generation=1).commit("a", 1)
    refresh = sync(cloud, generation=2, overwrite=True)
    refresh.commit("b", PERSON, 2)
    access = another_client()
    with dying(access, 1, "after"), contextlib.suppress(Killed):
        erased(request(tmp_path, access, "id", PERSON), NAME)
    assert traces(cloud, PERSON) == []

    erased(replace(request(tmp_path, cloud.access, "id", PERSON), is_resumed=True), NAME)

    with pytest.raises(Fenced):
        refresh.commit("c", 3)


def test_a_request_that_has_begun_is_resumed_until_it_is_finished(cloud: Cloud, tmp_path: Path) -> None:
    asked = request(tmp_path, cloud.access, "id", PERSON)

    def opened() -> Ledger:
        return Ledger.open("id", ("all",), asked.file, asked.config, cloud.access)

    first = opened()
    first.begin({}, asked.file, suppress=False)
    second = opened()
    second.finish()

    assert [ledger.is_resumed for ledger in (first, second, opened())] == [False, True, False]


def test_a_copy_that_is_made_of_a_dead_sync_is_listed_and_searched(cloud: Cloud, tmp_path: Path) -> None:
    dead = sync(cloud)
    dead.commit("a", 1, PERSON)
    folder = f"{ROOT}/generation-0-aaaaaaaaaaaa"
    put(cloud, f"{folder.partition(f'{BUCKET}/')[2]}/a", parquet_of(1, PERSON))
    table: Any = {"Parameters": dict(glue_table(cloud)["Parameters"])}
    list_folder(table, folder, FolderState.DEAD)
    update_glue_table(cloud, Parameters=table["Parameters"])

    done = erased(request(tmp_path, cloud.access, "id", PERSON), NAME)

    assert len(done) == 2
    assert traces(cloud, PERSON) == []


def test_a_folder_of_another_table_that_the_parameters_list_is_not_searched(cloud: Cloud, tmp_path: Path) -> None:
    sync(cloud).publish()
    key = "shop/customers/generation-0-aaaaaaaaaaaa/a"
    put(cloud, key, parquet_of(1, PERSON))
    table: Any = {"Parameters": dict(glue_table(cloud)["Parameters"])}
    list_folder(table, f"s3://{BUCKET}/{key.removesuffix('/a')}", FolderState.DEAD)
    update_glue_table(cloud, Parameters=table["Parameters"])

    assert erased(request(tmp_path, cloud.access, "id", PERSON), NAME) == []

    assert cloud.objects()[key] == parquet_of(1, PERSON)
