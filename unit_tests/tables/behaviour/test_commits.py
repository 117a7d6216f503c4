"""Commits of a sync that is alone with its table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from botocore.exceptions import ClientError

from destination_datalake.tables.table import Committed
from unit_tests.cloud import during
from unit_tests.tables.behaviour.shop import Record, Shop, Sync, ids

SCHEMA = {
    "id": {"type": "integer"},
    "price": {"type": "number"},
    "name": {"type": "string"},
    "paid": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
}


def test_a_new_table_is_empty_and_has_the_columns_of_the_stream(shop: Shop) -> None:
    shop.sync(schema=SCHEMA)

    assert shop.types() == {
        "id": "int",
        "price": "float",
        "name": "string",
        "paid": "boolean",
        "tags": "array<string>",
    }
    assert shop.rows() == []


def test_preparing_a_table_again_changes_no_row(shop: Shop) -> None:
    shop.sync().commit(*ids(1))

    shop.sync()

    assert shop.ids() == [1]


def test_readers_find_every_value_as_it_was_sent(shop: Shop, *, overwrite: bool) -> None:
    sent: list[Record] = [
        {"id": 1, "price": 0.5, "name": "one", "paid": True, "tags": ["a", "b"]},
        {"id": 2, "price": None, "name": "", "paid": False, "tags": []},
    ]
    sync = shop.sync(overwrite=overwrite, schema=SCHEMA)

    sync.commit(*sent)
    sync.publish()

    assert shop.rows() == sent


def test_appended_rows_are_visible_once_they_are_committed(shop: Shop) -> None:
    sync = shop.sync()
    files = sync.encode(*ids(1))
    assert shop.ids() == []

    assert sync.table.commit(files, sync.executors.rewrite) == Committed()
    assert shop.ids() == [1]
    assert shop.unfinished_uploads() == set()

    sync.publish()
    assert shop.ids() == [1]


def test_batches_of_a_sync_add_up(shop: Shop, *, overwrite: bool) -> None:
    sync = shop.sync(overwrite=overwrite)

    sync.commit(*ids(1, 2))
    sync.commit(*ids(3))
    sync.publish()

    assert shop.ids() == [1, 2, 3]


def test_a_batch_without_files_is_committed_and_adds_nothing(shop: Shop, *, overwrite: bool) -> None:
    """Every record of it was rejected."""
    sync = shop.sync(overwrite=overwrite)
    sync.commit(*ids(1))

    assert sync.table.commit([], sync.executors.rewrite) == Committed()
    sync.publish()

    assert shop.ids() == [1]


def test_publishing_twice_is_harmless(shop: Shop, *, overwrite: bool) -> None:
    sync = shop.sync(overwrite=overwrite)
    sync.commit(*ids(1))

    sync.publish()
    sync.publish()

    assert shop.ids() == [1]


def test_discarding_files_leaves_no_object_of_them(shop: Shop) -> None:
    sync = shop.sync()
    sync.commit(*ids(1))
    before = shop.objects()
    files = [*sync.encode(*ids(2)), *sync.encode(*ids(3))]
    assert len(shop.objects() - before) == 2

    sync.table.discard(files)

    assert shop.objects() == before


def test_a_commit_that_aws_refuses_shows_nothing_and_hinders_no_later_sync(shop: Shop) -> None:
    sync = shop.sync()
    sync.commit(*ids(1))
    files = sync.encode(*ids(2))

    def refuse() -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "UpdateTable")

    with shop.before_each_update(refuse), pytest.raises(ClientError):
        sync.table.commit(files, sync.executors.rewrite)

    assert shop.ids() == [1]
    shop.sync().commit(*ids(3))
    assert shop.ids() == [1, 3]


def test_files_of_a_commit_become_visible_as_the_table_type_promises(shop: Shop) -> None:
    """In one step, or one after the other; never a part of a file."""
    sync = shop.sync()
    files = [*sync.encode(*ids(1, 2)), *sync.encode(*ids(3, 4))]

    seen = observe(shop, sync, lambda: sync.table.commit(files, sync.executors.rewrite))

    one_file = {(1, 2), (3, 4)}
    assert set(seen) <= {(), *one_file, (1, 2, 3, 4)}
    assert set(seen).isdisjoint(one_file) == shop.promises.commits_atomically
    assert shop.ids() == [1, 2, 3, 4]


def test_an_overwrite_becomes_visible_in_one_step(shop: Shop) -> None:
    shop.sync().commit(*ids(1))
    sync = shop.sync(2, overwrite=True)
    sync.commit(*ids(2, 3))
    sync.commit(*ids(4, 5))

    seen = observe(shop, sync, sync.publish)

    assert set(seen) <= {(1,), (2, 3, 4, 5)}
    assert shop.ids() == [2, 3, 4, 5]


def observe(shop: Shop, sync: Sync, act: Callable[[], object]) -> list[tuple[int, ...]]:
    """Return what readers find before each change that `act` makes in S3 or Glue, one change at a time."""
    seen: list[tuple[int, ...]] = []
    one_at_a_time = threading.Lock()
    changes = {"s3": ("CompleteMultipartUpload", "PutObject", "DeleteObject"), "glue": ("UpdateTable",)}

    def look(**_: object) -> None:
        one_at_a_time.acquire()
        seen.append(tuple(shop.ids()))

    def done(**_: object) -> None:
        one_at_a_time.release()

    hooks = [
        (f"{moment}.{service}.{change}", hook)
        for service, names in changes.items()
        for change in names
        for moment, hook in (("before-call", look), ("after-call", done))
    ]
    with ExitStack() as stack:
        for event, hook in hooks:
            stack.enter_context(during(sync.access, event, hook))
        act()
    return seen
