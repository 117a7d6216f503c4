"""Syncs of orders into a deployed lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema
from integration_tests.infra.lake import DeployedLake

_ORDERS = configured_stream("orders", object_schema(id=INTEGER, name=STRING))


def sync(platform: Platform, lake: DeployedLake, numbers: Sequence[object]) -> None:
    """Append orders with these numbers, by a sync that has to succeed."""
    run = attempt(platform, lake, numbers)
    assert run.exit_code == 0, run.report()


def attempt(platform: Platform, lake: DeployedLake, numbers: Sequence[object]) -> Run:
    """Run such a sync, however it ends."""
    return platform.write(lake.config(), configured_catalog(_ORDERS), _orders(numbers))


def ids(lake: DeployedLake) -> list[int]:
    """The numbers of the orders that a reader sees."""
    return sorted(int(row["id"]) for row in lake.rows(lake.database, "orders"))


def _orders(numbers: Sequence[object]) -> Iterator[bytes]:
    yield status("orders", "STARTED")
    for number in numbers:
        yield record("orders", {"id": number, "name": f"order {number}"})
    yield state("orders", str(numbers[-1]))
    yield status("orders", "COMPLETE")
