"""Killed before any call that changes something, maintenance loses nothing, and the next run finishes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from unit_tests.cloud import BUCKET, Cloud
from unit_tests.maintenance.lake import Shop, run, worn

CHANGES = ("s3.PutObject", "s3.DeleteObject", "s3.DeleteObjects", "glue.UpdateTable")
PUBLISHED, PENDING = [0, 1, 2, 3, 4, 5], [6]


class Killed(BaseException):
    """The process is gone: nothing of ours is run any more, as no `except Exception` catches it."""


@contextmanager
def killed(shop: Shop, at: int) -> Iterator[list[str]]:
    """Raise Killed before the change of this number, from 1 on; lend the list of the changes that were begun."""
    made: list[str] = []

    def count(event_name: str, **_: object) -> None:
        made.append(event_name.removeprefix("before-call."))
        if len(made) == at:
            raise Killed

    clients: dict[str, Any] = {"s3": shop.access.client("s3"), "glue": shop.access.client("glue")}
    for change in CHANGES:
        clients[change.partition(".")[0]].meta.events.register(f"before-call.{change}", count)
    try:
        yield made
    finally:
        for change in CHANGES:
            clients[change.partition(".")[0]].meta.events.unregister(f"before-call.{change}", count)


def maintain(shop: Shop) -> list[str]:
    """Run every step, on another day; return what was done."""
    reports = run(shop.maintainer(timedelta(days=9)), shop.name())
    assert [report.failure for report in reports] == [None] * 3
    return [report.outcome for report in reports]


class Saved:
    """What an account holds, to begin again from."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop
        self._objects: Mapping[str, bytes] = shop.cloud.objects()
        self._table: Any = shop.access.client("glue").get_table(DatabaseName="shop", Name="orders")["Table"]

    def restore(self) -> None:
        s3, glue = self._shop.access.client("s3"), self._shop.access.client("glue")
        # Objects are never changed once they are written.
        keys = self._shop.objects()
        for key in keys - self._objects.keys():
            s3.delete_object(Bucket=BUCKET, Key=key)
        for key in self._objects.keys() - keys:
            s3.put_object(Bucket=BUCKET, Key=key, Body=self._objects[key])
        names = ("Name", "TableType", "Parameters", "StorageDescriptor")
        glue.update_table(DatabaseName="shop", TableInput={name: self._table[name] for name in names})  # type: ignore[arg-type]


@pytest.mark.slow
def test_killed_before_any_change_readers_find_the_same_and_the_next_run_finishes(cloud: Cloud) -> None:
    """Or after the change before it."""
    shop = Shop(cloud)
    worn(shop)
    for id_ in PENDING:
        shop.commit(shop.open(generation=3, overwrite=True), id_)
    saved, refs = Saved(shop), {"main": PUBLISHED, "airbyte_generation_3": PENDING, "airbyte-fence-2": PUBLISHED}
    with killed(shop, at=0) as whole:
        maintain(shop)
    assert {*whole} == {*CHANGES} - {"s3.DeleteObject"}
    data_files = sum("/data/" in key for key in shop.objects())
    assert maintain(shop) == ["nothing to compact", "no snapshots expired", "no orphan files"]

    for number, change in enumerate(whole, start=1):
        saved.restore()
        with pytest.raises(Killed), killed(shop, at=number):
            maintain(shop)
        assert shop.refs() == refs, f"killed before {change}, number {number}"
        maintain(shop)
        assert shop.refs() == refs
        assert sum("/data/" in key for key in shop.objects()) == data_files
