"""Syncs of orders into a deployed lake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema
from integration_tests.infra.lake import DeployedLake

_SCHEMA = object_schema(id=INTEGER, name=STRING)


def sync(platform: Platform, lake: DeployedLake, numbers: Sequence[object], *, namespace: str | None = None) -> None:
    """Append orders with these numbers, by a sync that has to succeed."""
    run = attempt(platform, lake, numbers, namespace=namespace)
    assert run.exit_code == 0, run.report()


def attempt(platform: Platform, lake: DeployedLake, numbers: Sequence[object], *, namespace: str | None = None) -> Run:
    """Run such a sync, however it ends. A namespace is written to a database of its own."""
    config = lake.config() if namespace is None else lake.config(database_strategy="namespace")
    catalog = configured_catalog(configured_stream("orders", _SCHEMA, namespace=namespace))
    return platform.write(config, catalog, _orders(numbers, namespace))


def ids(lake: DeployedLake) -> list[int]:
    """The numbers of the orders that a reader sees."""
    return sorted(int(row["id"]) for row in lake.rows(lake.database, "orders"))


def _orders(numbers: Sequence[object], namespace: str | None) -> Iterator[bytes]:
    yield status("orders", "STARTED", namespace=namespace)
    for number in numbers:
        yield record("orders", {"id": number, "name": f"order {number}"}, namespace=namespace)
    yield state("orders", str(numbers[-1]), namespace=namespace)
    yield status("orders", "COMPLETE", namespace=namespace)
