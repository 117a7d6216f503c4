"""The objects of a report, and their table: whatever keeps them from being written, the sync goes on."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.reports import report
from destination_datalake.reports.report import ReportWriter, within
from unit_tests.cloud import BUCKET, Cloud, before, during, ungoverned
from unit_tests.config.examples import options
from unit_tests.reports.lines import a_line, a_stream

DAY = "2026-11-02"
FOLDER = f"lake/_reports/day={DAY}/run_id=run-1"
CONFIG = Config.parse(options(bucket_name=BUCKET, bucket_prefix="lake", lakeformation_database_name="landing"))


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a machine that is busy with other tests be no reason that a report is missing."""
    monkeypatch.setattr(report, "SECONDS", 60.0)


def a_writer(cloud: Cloud, run: str = "run-1") -> ReportWriter:
    return ReportWriter(CONFIG, cloud.access, ungoverned(cloud.access), DAY, run)


def partitions(cloud: Cloud) -> list[list[str]]:
    response = cloud.access.client("glue").get_partitions(DatabaseName="landing", TableName="airbyte_sync_reports")
    return [partition["Values"] for partition in response["Partitions"]]


def test_a_sync_has_an_object_when_it_begins_and_another_when_it_ends(cloud: Cloud) -> None:
    writer = a_writer(cloud)

    writer.start([a_line(status="started")])
    writer.wait()
    assert [*cloud.objects()] == [f"{FOLDER}/_started.json"]
    writer.finish([a_line(), a_stream("orders")])

    lines = cloud.objects()[f"{FOLDER}/report.jsonl"].splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["source", "event"]
    table = cloud.access.client("glue").get_table(DatabaseName="landing", Name="airbyte_sync_reports")["Table"]
    assert table["StorageDescriptor"]["Location"] == f"s3://{BUCKET}/lake/_reports/"
    assert partitions(cloud) == [[DAY]]


def test_a_report_is_written_once(cloud: Cloud) -> None:
    writer = a_writer(cloud)

    writer.finish([a_line()])
    writer.finish([a_line(status="failed")])

    assert json.loads(cloud.objects()[f"{FOLDER}/report.jsonl"])["status"] == "finished"


def test_later_syncs_of_a_day_ask_glue_once(cloud: Cloud) -> None:
    a_writer(cloud).finish([a_line()])
    asked: list[str] = []

    with during(cloud.access, "before-call.glue", lambda model, **_: asked.append(model.name)):
        a_writer(cloud, "run-2").finish([a_line("run-2")])

    assert asked == ["GetPartition"]
    assert partitions(cloud) == [[DAY]]


def test_two_syncs_that_are_the_first_of_a_day_both_succeed(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    before(
        cloud.access,
        "glue",
        "BatchCreatePartition",
        lambda time: a_writer(cloud, "run-2").finish([a_line("run-2")]) if time == 1 else None,
    )

    a_writer(cloud).finish([a_line()])

    assert (partitions(cloud), caplog.messages) == ([[DAY]], [])


def test_a_bucket_that_refuses_reports_is_one_warning(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    writer = a_writer(cloud)

    with cloud.refusing("PutObject"):
        writer.start([a_line(status="started")])
        writer.wait()
        writer.finish([a_line()])

    [message] = caplog.messages
    assert "AccessDenied" in message
    assert "The problem does not affect the sync" in message


def test_somebody_s_table_of_that_name_stays_as_it_is(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    glue = cloud.access.client("glue")
    glue.create_database(DatabaseInput={"Name": "landing"})
    foreign_table: Any = {"Name": "airbyte_sync_reports", "PartitionKeys": [{"Name": "dt", "Type": "string"}]}
    glue.create_table(DatabaseName="landing", TableInput=foreign_table)

    a_writer(cloud).finish([a_line()])

    assert f"{FOLDER}/report.jsonl" in cloud.objects()
    assert partitions(cloud) == []
    assert "the partition keys of the table differ" in caplog.text


def test_an_s3_that_does_not_answer_is_not_waited_for(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(report, "SECONDS", 0.1)
    answer = threading.Event()

    with during(cloud.access, "before-call.s3.PutObject", lambda **_: answer.wait()):
        writer = a_writer(cloud)
        writer.start([a_line(status="started")])
        writer.wait()
        writer.finish([a_line()])
        answer.set()

    assert "was not written within" in caplog.text


def test_what_is_told_to_others_may_fail_or_take_too_long(caplog: pytest.LogCaptureFixture) -> None:
    answer, done = threading.Event(), threading.Event()

    def fail() -> None:
        raise ConnectionError("refused")

    def hang() -> None:
        answer.wait()

    within(0.2, {"lineage": fail, "notice": hang, "other": done.set})
    answer.set()

    assert done.is_set()
    assert sorted(caplog.messages) == [
        "The connector did not send the lineage of this sync (ConnectionError: refused). The problem does not affect "
        "the sync.",
        "The connector did not send the notice of this sync (the time limit of 0 s was exceeded). The problem does not "
        "affect the sync.",
    ]
