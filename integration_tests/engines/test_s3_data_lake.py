"""Spark with Iceberg reads tables of S3 Data Lake that go on, and takes the statements that messages name."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from pyiceberg.types import LongType, StringType

from integration_tests.conformance.migration.s3_data_lake import S3DataLake
from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema


def sync(platform: Platform, lake: Lake, row: Json, *, key: str | None = None) -> Run:
    mode: Literal["append", "append_dedup"] = "append" if key is None else "append_dedup"
    keys = () if key is None else (key,)
    stream = configured_stream("orders", object_schema(id=INTEGER, name=STRING), mode=mode, primary_key=keys)
    lines = [record("orders", row), status("orders", "COMPLETE")]
    return platform.write(lake.config(), configured_catalog(stream), lines)


@pytest.mark.parametrize("staged", [False, True])
def test_a_table_is_deduplicated_after_the_statements_that_its_refusal_names(
    engine: Engine, lake: Lake, platform: Platform, *, staged: bool
) -> None:
    """Former rows of a key come back neither by them nor by the merge; some of them a failed sync has left."""
    old = S3DataLake(lake, "orders", ["id"])
    old.create({"id": LongType(), "name": StringType()})
    old.sync({"id": 1, "name": "a"}, {"id": 2, "name": "a"})
    old.sync({"id": 1, "name": "b"}, succeeds=not staged)

    def names() -> dict[int, str]:
        rows = engine.sql(f"SELECT id, name FROM glue.{lake.database}.orders").rows
        assert len(rows) == len({row["id"] for row in rows})
        return {row["id"]: row["name"] for row in rows}

    refused = sync(platform, lake, {"id": 3, "name": "c"}, key="id")
    appended = None if staged else sync(platform, lake, {"id": 3, "name": "c"})
    before = names()
    [error] = refused.errors
    statements = re.findall(r"CALL system\.[a-z_]+\((?:[^()]|\([^()]*\))*\)", error["message"])
    for statement in statements:
        engine.sql(statement.replace("system.", "glue.system."))
    after = names()
    deduplicated = sync(platform, lake, {"id": 2, "name": "d"}, key="id")

    assert refused.exit_code == 1
    assert appended is None or appended.exit_code == 0, appended.report()
    assert len(statements) == 1 + staged
    third = {} if staged else {3: "c"}
    assert before == {1: "a" if staged else "b", 2: "a"} | third
    assert after == {1: "b", 2: "a"} | third
    assert deduplicated.exit_code == 0, deduplicated.report()
    assert names() == {1: "b", 2: "d"} | third
