"""The stream of the scenarios of deduplication: `items`, a row for each `id`, the latest by `version`."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from integration_tests.harness.messages import configured_stream, record, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INSTANT, INTEGER, STRING, Warehouse, object_schema

ONLY_ICEBERG = pytest.mark.parametrize("table_kind", TABLE_KINDS[:1], ids=lambda kind: kind.name, indirect=True)
"""From the files of other kinds of table no rows are removed."""

COMPLETE = status("items", "COMPLETE")


def items(
    generation: int = 0,
    minimum: int = 0,
    *,
    mode: Literal["append", "overwrite", "append_dedup"] = "append_dedup",
    key: Sequence[str] = ("id",),
    sync_id: int = 1,
) -> dict[str, object]:
    """Return the stream, deduplicated unless said otherwise."""
    return configured_stream(
        "items",
        object_schema(id=INTEGER, version=INTEGER, name=STRING, _ab_cdc_deleted_at=INSTANT),
        mode=mode,
        primary_key=key,
        cursor="version",
        generation=generation,
        minimum=minimum,
        sync_id=sync_id,
    )


def item(id: object, version: int | None, name: str | None = None, *, at: int = 1_700_000_000_000) -> bytes:
    """Return a record, extracted at this millisecond."""
    return record("items", {"id": id, "version": version, "name": name}, emitted_at=at)


def deleted(id: object, version: int | None, *, at: int = 1_700_000_000_000) -> bytes:
    """Return a deletion, which has the key and the cursor alone."""
    data = {"id": id, "version": version, "_ab_cdc_deleted_at": "2026-01-01T00:00:00Z"}
    return record("items", data, emitted_at=at)


def names(warehouse: Warehouse) -> dict[Any, Any]:
    """Return the names in the table by id; each id is there once."""
    rows = warehouse.whole_rows("items")
    name_by_id = {row["id"]: row["name"] for row in rows}
    assert len(name_by_id) == len(rows)
    return name_by_id
