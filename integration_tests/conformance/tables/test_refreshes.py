"""Generations: what the three ids of a configured stream ask for, and what readers see while it is done."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

pytestmark = pytest.mark.share(5)

COMPLETE = status("orders", "COMPLETE")
INCOMPLETE = status("orders", "INCOMPLETE")


def orders(generation: int | None = 0, minimum: int | None = 0, **more: Any) -> dict[str, object]:
    """Return the stream `orders` (id), appended to unless said otherwise."""
    return configured_stream("orders", object_schema(id=INTEGER), generation=generation, minimum=minimum, **more)


def without_ids(**more: Any) -> dict[str, object]:
    """Return the stream as platforms without refreshes have it: no ids."""
    return orders(None, None, sync_id=None, **more)


def order(id: int) -> bytes:
    return record("orders", {"id": id})


def test_an_overwrite_whose_ids_are_always_one_replaces_every_time_also_one_that_was_interrupted(
    warehouse: Warehouse,
) -> None:
    """PyAirbyte calls every sync 1, of generation 1, and means what the mode says."""
    overwriting = [orders(1, 1, sync_id=1, mode="overwrite")]
    warehouse.sync(overwriting, [order(1), COMPLETE])

    run = warehouse.attempt(overwriting, [order(2), state("orders", 1)])
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1]

    warehouse.sync(overwriting, [order(3), COMPLETE])
    assert warehouse.ids("orders") == [3]


@pytest.mark.parametrize("last", [[], [INCOMPLETE]], ids=["no status", "INCOMPLETE"])
def test_an_incomplete_stream_is_committed_and_acknowledged_but_not_truncated(
    warehouse: Warehouse, last: Sequence[bytes]
) -> None:
    """Appended rows are there, rows to be overwritten are still there, and the platform retries the sync."""
    kept = configured_stream("kept", object_schema(id=INTEGER), generation=4)
    warehouse.sync([orders(4), kept], [order(1), COMPLETE, status("kept", "COMPLETE")])

    run = warehouse.attempt(
        [orders(5, 5), kept], [order(2), state("orders", 2), record("kept", {"id": 3}), state("kept", 3), *last]
    )

    assert run.exit_code == 1
    assert {error["failure_type"] for error in run.errors} == {"transient_error"}
    assert {error["stream_descriptor"]["name"] for error in run.errors} == {"orders", "kept"}
    assert len(run.states) == 2
    assert warehouse.ids("orders") == [1]
    assert warehouse.ids("kept") == [3]


def test_one_stream_s_completeness_does_not_depend_on_another_s(warehouse: Warehouse) -> None:
    """Of two truncates the complete one is published."""
    incomplete = configured_stream("other", object_schema(id=INTEGER), generation=5, minimum=5)

    run = warehouse.attempt([orders(5, 5), incomplete], [order(1), record("other", {"id": 2}), COMPLETE])

    assert run.exit_code == 1
    assert [error["stream_descriptor"] for error in run.errors] == [{"name": "other"}]
    assert warehouse.ids("orders") == [1]
    assert warehouse.ids("other") == []


def test_without_ids_a_clean_end_of_input_completes_an_overwrite(warehouse: Warehouse) -> None:
    """Platforms without refreshes send no statuses."""
    warehouse.sync([without_ids()], [order(1)])

    warehouse.sync([without_ids(mode="overwrite")], [order(2), state("orders", 2)])

    row = warehouse.row("orders")
    assert (row["id"], row["_airbyte_generation_id"], row["_airbyte_meta"]["sync_id"]) == (2, None, None)


def test_without_ids_an_incomplete_overwrite_is_not_published(warehouse: Warehouse) -> None:
    """INCOMPLETE counts whenever it is said; the next overwrite starts from nothing, as its source does."""
    warehouse.sync([without_ids()], [order(1)])

    run = warehouse.attempt([without_ids(mode="overwrite")], [order(2), INCOMPLETE])
    assert run.exit_code == 1
    assert warehouse.ids("orders") == [1]

    warehouse.sync([without_ids(mode="overwrite")], [order(3)])
    assert warehouse.ids("orders") == [3]


def test_a_literal_overwrite_of_what_already_is_that_generation_replaces_nothing(warehouse: Warehouse) -> None:
    """Attempts at one job have one generation: what the first has published and acknowledged is not sent again."""
    incomplete = configured_stream("other", object_schema(id=INTEGER), generation=5, minimum=5, mode="overwrite")
    warehouse.attempt([orders(5, 5, mode="overwrite"), incomplete], [order(1), COMPLETE])

    warehouse.sync([orders(5, 5, mode="overwrite"), incomplete], [COMPLETE, status("other", "COMPLETE")])

    assert warehouse.ids("orders") == [1]


def test_a_hybrid_refresh_is_refused(warehouse: Warehouse) -> None:
    """0 < minimum < generation: nothing is written, and it is not the user's fault."""
    warehouse.sync([orders(4)], [order(1), COMPLETE])

    run = warehouse.attempt([orders(6, 5)], [order(2), state("orders", 2), COMPLETE])

    assert run.exit_code == 1
    assert [error["failure_type"] for error in run.errors] == ["system_error"]
    assert run.states == []
    assert warehouse.ids("orders") == [1]


@pytest.mark.slow
def test_overwrite_and_append_without_ids_alternate(warehouse: Warehouse) -> None:
    """Each sync does what its own mode says."""
    ids = []
    for number, mode in enumerate(["append", "overwrite", "append", "overwrite", "overwrite", "append"]):
        warehouse.sync([without_ids(mode=mode)], [order(number)])
        ids.append(warehouse.ids("orders"))

    assert ids == [[0], [1], [1, 2], [3], [4], [4, 5]]


class Reader:
    """A reader that polls a table; `seen` has what it saw, without repetitions."""

    def __init__(self, warehouse: Warehouse, table: str) -> None:
        self.seen: list[list[int]] = []
        self._warehouse = warehouse
        self._table = table
        self._looks = 0
        self._looked = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._thread.join()
        if self._error is not None:
            raise self._error

    def look(self) -> None:
        """Wait until the table was read once more, from the beginning."""
        with self._looked:
            begun = self._looks + 2
            self._looked.wait_for(lambda: self._looks >= begun or self._error is not None, 60)

    def _read(self) -> None:
        try:
            while not self._ended:
                ids = self._warehouse.ids(self._table)
                if self.seen[-1:] != [ids]:
                    self.seen.append(ids)
                with self._looked:
                    self._looks += 1
                    self._looked.notify_all()
        except BaseException as error:
            self._error = error
            with self._looked:
                self._looked.notify_all()


def test_readers_see_the_old_rows_or_the_new_ones(warehouse: Warehouse) -> None:
    """A reader polling throughout an overwrite in several commits never sees a mixture, and never nothing."""
    old, new = [1, 2, 3], [11, 12, 13]
    warehouse.sync([orders(4)], [*map(order, old), COMPLETE])

    with Reader(warehouse, "orders") as reader:
        reader.look()
        with warehouse.start([orders(5, 5)], flush_interval_seconds=1) as running:
            for count, id in enumerate(new, start=1):
                running.send([order(id), state("orders", id)])
                running.wait_for_states(count)
                reader.look()
            assert reader.seen == [old]
            running.send([COMPLETE])
            assert running.close().exit_code == 0
        reader.look()

    assert reader.seen == [old, new]
