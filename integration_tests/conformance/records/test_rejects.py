"""What cannot be kept as it was: where it is found, when states pass it, and when there is too much of it."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.faulty_aws import FaultyAws, denied_glue, denied_under
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import EMITTED_AT, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.output import record_count
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(2)

SCHEMA = object_schema(
    id=INTEGER,
    name=STRING,
    born={"type": "string", "format": "date"},
    seen={"type": "string", "format": "date-time"},
    address=object_schema(zip=INTEGER),
    points={"type": "array", "items": INTEGER},
)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")

WRONG = "DESTINATION_SERIALIZATION_ERROR"
TOO_LARGE = "DESTINATION_FIELD_SIZE_LIMITATION"
NO_SUCH_TIME = "DESTINATION_RECORD_TIME_OUT_OF_RANGE"


@pytest.fixture
def iceberg(lake: Lake, platform: Platform) -> Warehouse:
    """A warehouse of one kind, for what all kinds share."""
    return Warehouse(lake, platform, TABLE_KINDS[0])


def line(data: str, emitted_at: str = str(EMITTED_AT)) -> bytes:
    """Return a RECORD of `orders` with this JSON text as its data."""
    return f'{{"type":"RECORD","record":{{"stream":"orders","data":{data},"emitted_at":{emitted_at}}}}}'.encode()


GOOD = [line('{"id":1,"name":"a"}'), line('{"id":2147483648}')]
"""The second makes a column wider, which has a Hive table of Parquet encode the batch again."""
BAD: Mapping[bytes, list[tuple[str | None, str | None, str, str | None, str]]] = {
    line('{"id":"two","name":"b"}'): [("id", "NULLED", WRONG, '"two"', "string to bigint")],
    line('{"id":3,"born":"0000-00-00","seen":"2024-01-01T00:00:00.1234567Z"}'): [
        ("born", "NULLED", WRONG, '"0000-00-00"', "string to date"),
        ("seen", "TRUNCATED", TOO_LARGE, '"2024-01-01T00:00:00.1234567Z"', "truncated to fit timestamp"),
    ],
    line('{"id":4,"address":{"zip":"none"},"points":[1,true]}'): [
        ("address.zip", "NULLED", WRONG, '"none"', "string to bigint"),
        ("points.1", "NULLED", WRONG, "true", "boolean to bigint"),
    ],
    line('{"id":99999999999999999999}'): [("id", "NULLED", TOO_LARGE, "99999999999999999999", "range of bigint")],
    line('{"id":6,"name":"\\udc00"}'): [("name", "NULLED", WRONG, '"\\udc00"', "string to string")],
    line('{"id":7}', "1e30"): [(None, None, NO_SUCH_TIME, None, "emitted_at is out of range")],
}


def by_line(rejects: Sequence[Mapping[str, Any]]) -> dict[bytes, list[Mapping[str, Any]]]:
    """Return the rejects of each line that was received: the first of a record's has it."""
    lines = {
        (reject["run_id"], reject["sequencenumber"]): base64.b64decode(reject["rawdata"])
        for reject in rejects
        if reject["rawdata"]
    }
    grouped: dict[bytes, list[Mapping[str, Any]]] = {}
    for reject in sorted(rejects, key=lambda reject: int(reject["subsequencenumber"])):
        grouped.setdefault(lines[reject["run_id"], reject["sequencenumber"]], []).append(reject)
    return grouped


def test_whatever_cannot_be_kept_is_found_among_the_rejects(warehouse: Warehouse) -> None:
    """Each value, each record that could not become a row, once; received = written + rejected."""
    run = warehouse.sync([ORDERS], [*GOOD, *BAD, state("orders", 1), record("orders", {"id": 9}), COMPLETE])

    rejects = warehouse.lake.rejects()
    assert {sent: [reject_facts(reject) for reject in own] for sent, own in by_line(rejects).items()} == {
        sent: [(*facts[:4],) for facts in expected] for sent, expected in BAD.items()
    }
    assert len(rejects) == sum(map(len, BAD.values()))
    sentences = [facts[4] for expected in BAD.values() for facts in expected]
    assert all(any(part in reject["errormessage"] for reject in rejects) for part in sentences)
    # The rows are there, but for the one that could not be; a reject names its row, and its row says the same.
    rows = {row["_airbyte_raw_id"]: row["_airbyte_meta"]["changes"] for row in warehouse.whole_rows("orders")}
    assert len(rows) == len(GOOD) + len(BAD)
    for row_id, changes in rows.items():
        own = [reject for reject in rejects if reject["row_id"] == row_id]
        assert [(reject["column_name"], reject["change"], reject["reason"]) for reject in own] == [
            (change["field"], change["change"], change["reason"]) for change in changes
        ]
    (refused,) = [reject for reject in rejects if reject["row_id"] is None]
    assert json.loads(base64.b64decode(refused["rawdata"]))["record"]["data"] == {"id": 7}
    # The state speaks for all records before it, and says how many of them are no rows.
    (released,) = run.states
    assert record_count(released) == len(GOOD) + len(BAD) - 1
    assert released.body["destinationStats"]["rejectedRecordCount"] == 1.0
    (summary,) = [log for log in run.logs if "Stream " in log and "9 records received" in log]
    assert ", 8 committed in " in summary
    assert ", 1 record and 7 values rejected (see _errors/)" in summary
    # An object for each reason, where the issue of partitions is settled by their names.
    database = warehouse.lake.database
    assert {(reject["reason"], reject["stream"]) for reject in rejects} == {
        (reason, f"{database}.orders") for reason in (WRONG, TOO_LARGE, NO_SUCH_TIME)
    }
    objects = warehouse.lake.objects(f"{PREFIX}/_errors/")
    assert sorted(key.rsplit("/", 1)[0] for key in objects) == sorted(
        f"{PREFIX}/_errors/{reason}/{database}.orders/dt={rejects[0]['dt']}"
        for reason in (WRONG, TOO_LARGE, NO_SUCH_TIME)
    )


def reject_facts(reject: Mapping[str, Any]) -> tuple[str | None, str | None, str, str | None]:
    return reject["column_name"], reject["change"], reject["reason"], reject["column_value"]


def test_a_record_with_many_wrong_values_is_among_the_rejects_once(iceberg: Warehouse) -> None:
    """As an embedding is that was declared as integers; its row says of every one what became of it."""
    wrong = [i + 0.5 for i in range(1536)]

    iceberg.sync([ORDERS], [record("orders", {"id": 1, "points": wrong}), COMPLETE])

    rejects = sorted(iceberg.lake.rejects(), key=lambda reject: int(reject["subsequencenumber"]))
    assert [reject["column_name"] for reject in rejects] == [f"points.{i}" for i in range(100)]
    assert [reject["rawdata"] is None for reject in rejects] == [False, *[True] * 99]
    assert int(rejects[0]["values_not_listed"]) == 1436
    assert len(iceberg.row("orders")["_airbyte_meta"]["changes"]) == 1536


def test_rejects_of_many_syncs_and_streams_are_one_table(iceberg: Warehouse) -> None:
    """Made with the first of them; nothing is made where nothing is rejected."""
    shop = iceberg.lake.name("shop")
    users = configured_stream("users", object_schema(id=INTEGER), namespace=shop)
    done = [COMPLETE, status("users", "COMPLETE", namespace=shop)]

    iceberg.sync([ORDERS, users], [*GOOD, *done])
    assert not iceberg.exists("airbyte_rejects")

    for number in range(2):
        of_user = record("users", {"id": f"u{number}"}, namespace=shop)
        iceberg.sync([ORDERS, users], [line(f'{{"id":"o{number}"}}'), of_user, *done])

    rejects = iceberg.lake.rejects()
    assert sorted((reject["stream"], reject["column_value"]) for reject in rejects) == [
        (f"{iceberg.lake.database}.orders", '"o0"'),
        (f"{iceberg.lake.database}.orders", '"o1"'),
        (f"{shop}.users", '"u0"'),
        (f"{shop}.users", '"u1"'),
    ]
    assert {(reject["stream_namespace"], reject["stream_name"]) for reject in rejects} == {
        (None, "orders"),
        (shop, "users"),
    }


@pytest.mark.parametrize(
    ("limit", "limit_text"),
    [({"max_count": 1}, "rejects.max_count 1"), ({"max_ratio": 0.5}, "rejects.max_ratio 0.5")],
    ids=["count", "ratio"],
)
def test_too_many_rejects_stop_the_stream_and_no_other(
    warehouse: Warehouse, limit: Mapping[str, object], limit_text: str
) -> None:
    """Nothing of the batch is committed, no state passes it; its rejects stay, and reasons are counted per column."""
    users = configured_stream("users", object_schema(id=INTEGER))
    bad = [line('{"id":"x","born":"secret"}'), line('{"id":"y"}'), line('{"id":1}')]
    user_lines = [record("users", {"id": "z"}), *(record("users", {"id": id}) for id in range(3)), state("users", 3)]

    run = warehouse.attempt(
        [ORDERS, users], [*user_lines, *bad, state("orders", 3), status("users", "COMPLETE"), COMPLETE], rejects=limit
    )

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert limit_text in error["message"]
    assert f"2 of 3 records contain rejects, which exceeds {limit_text}" in error["message"]
    assert f"id {WRONG} 2 times; born {WRONG} 1 time." in error["message"]
    assert "secret" not in run.report()
    assert [released.body["stream"]["stream_descriptor"]["name"] for released in run.states] == ["users"]
    assert warehouse.whole_rows("orders") == []
    assert len(warehouse.whole_rows("users")) == 4
    assert sorted(reject["column_value"] for reject in warehouse.lake.rejects()) == ['"secret"', '"x"', '"y"', '"z"']
    assert warehouse.lake.unfinished_uploads() == []


def test_no_state_passes_a_reject_that_is_not_durable(warehouse: Warehouse) -> None:
    """Where rejects may not be written, the stream fails and nothing of it is committed or left behind."""
    with FaultyAws(warehouse.lake.endpoint_url, denied_under("_errors")) as aws:
        lines = [*BAD, state("orders", 1), COMPLETE]
        run = warehouse.attempt([ORDERS], lines, endpoint_url=aws.endpoint_url)

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "Cannot write rejects to s3://" in error["message"]
    assert run.states == []
    assert warehouse.whole_rows("orders") == []
    assert warehouse.lake.unfinished_uploads() == []


@pytest.mark.parametrize("operation", ["BatchCreatePartition"])
def test_rejects_that_the_catalog_cannot_show_are_only_a_warning(iceberg: Warehouse, operation: str) -> None:
    """They are safe in S3, and so is everything else."""
    with FaultyAws(iceberg.lake.endpoint_url, denied_glue(operation)) as aws:
        run = iceberg.sync([ORDERS], [*BAD, state("orders", 1), COMPLETE], endpoint_url=aws.endpoint_url)

    assert aws.refused > 0
    assert len(run.states) == 1
    assert any(log.startswith("WARN") and "_errors/" in log for log in run.logs)
    assert len(iceberg.lake.objects(f"{PREFIX}/_errors/")) == 3


def test_a_sync_that_is_killed_between_reject_and_commit_has_them_again_in_the_next(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path
) -> None:
    """Rejects are there at least once; rows and states as ever."""
    point = KillPoint("after", "destination_datalake.sync.landing:Landing._publish_rejects_and_lines")
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))
    lines = [*BAD, state("orders", 1), COMPLETE]

    with dying.start([ORDERS]) as running:
        running.send(lines)
        killed = running.perish()

    assert (killed.exit_code, killed.states) == (-9, [])
    assert warehouse.whole_rows("orders") == []
    warehouse.sync([ORDERS], lines)
    assert len(warehouse.whole_rows("orders")) == len(BAD) - 1
    assert by_line(warehouse.lake.rejects()).keys() == BAD.keys()
    assert len({reject["run_id"] for reject in warehouse.lake.rejects()}) == 2
