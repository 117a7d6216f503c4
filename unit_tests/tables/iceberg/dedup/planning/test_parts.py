"""Into how many parts keys are divided, so that no task has an index that is too large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from destination_datalake.files.dedup.tasks import Winners
from destination_datalake.tables.context import Jobs
from destination_datalake.tables.iceberg.dedup import jobs, plan
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.jobs import InProcess

LIMIT = 128 * 1024


class Watched(InProcess):
    """Executors that note the sizes of indexes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def run(self, work: Callable[[Iterable[Any]], Iterable[Any]], tasks: Sequence[Any]) -> list[Any]:
        return self._noted(super().run(work, tasks))

    def exchange(
        self,
        produce: Callable[[Iterable[Any]], Iterable[tuple[int, bytes]]],
        tasks: Sequence[Any],
        consume: Callable[[int, Iterator[bytes]], Iterable[Any]],
        partitions: int,
    ) -> list[Any]:
        return self._noted(super().exchange(produce, tasks, consume, partitions))

    def _noted(self, results: list[Any]) -> list[Any]:
        self.sizes += [each.index.size for each in results if isinstance(each, Winners) and each.index is not None]
        return results


@pytest.mark.parametrize(
    ("text", "several"),
    [
        ("{:016x}", False),
        ("https://api.example.com/v2/tenants/acme-corporation/customers/00000000/orders/{:012}/lines?expand=all", True),
    ],
    ids=["short keys", "long keys that are much alike, of which files have few bytes"],
)
def test_an_index_is_not_too_large(orders: Orders, monkeypatch: pytest.MonkeyPatch, text: str, several: bool) -> None:
    monkeypatch.setattr(plan, "_INDEX_BYTES", LIMIT)
    monkeypatch.setattr(jobs, "_FEW_BYTES", 0)
    orders.sync([named(-1, "another", 1)], key=("name",))
    executors = Watched()
    orders.lake.jobs = Jobs(executors, orders.lake.jobs.scratch)

    orders.sync([named(number, text.format(number), 1) for number in range(1500)], key=("name",))

    assert (len(executors.sizes) > 1) == several
    assert max(executors.sizes) < 1.3 * LIMIT
    assert len(orders.names()) == 1501
