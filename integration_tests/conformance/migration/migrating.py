"""What the tests of coming from AWS Datalake share: the options to set, and a sync of one stream."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS

OPTIONS: dict[str, Any] = {"table_type": "HIVE", "naming": {"style": "aws_datalake"}, "numeric_types": "bigint/double"}
"""What docs/operating/migrating.md says to set."""


_Test = TypeVar("_Test", bound=Callable[..., None])


def on(kind: str) -> Callable[[_Test], _Test]:
    """Say which kind of table a test is about."""
    kinds = [table_kind for table_kind in TABLE_KINDS if table_kind.name == kind]

    def mark(test: _Test) -> _Test:
        parametrized = pytest.mark.parametrize("table_kind", kinds, ids=[kind])(test)
        marked: _Test = pytest.mark.usefixtures("table_kind")(parametrized)
        return marked

    return mark


def sync(
    platform: Platform,
    config: Json,
    schema: Json,
    *rows: Json,
    stream: str = "orders",
    generation: int = 0,
    cursor: str | None = None,
) -> Run:
    """Sync rows of one stream; a generation replaces what was there."""
    configured = configured_stream(stream, schema, generation=generation, minimum=generation)
    if cursor is not None:
        configured["cursor_field"] = [cursor]
    lines = [*(record(stream, row) for row in rows), status(stream, "COMPLETE")]
    return platform.write(config, configured_catalog(configured), lines)
