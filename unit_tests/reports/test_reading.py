"""Reports are read day by day; syncs without a report have died, if they cannot be running any more."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from destination_datalake.aws.objects import put
from destination_datalake.reports import health
from destination_datalake.reports.health import Reports, by_table
from destination_datalake.reports.report import ReportLine, encode
from unit_tests.cloud import BUCKET, Cloud, during
from unit_tests.reports.lines import BEGAN, a_line, a_stream

ROOT = f"s3://{BUCKET}/lake/_reports"
NOW = BEGAN + timedelta(days=3)


def write(cloud: Cloud, name: str, *lines: ReportLine) -> None:
    folder = f"{ROOT}/day={lines[0].started.date().isoformat()}/run_id={lines[0].run_id}"
    put(cloud.access.client("s3"), f"{folder}/{name}", encode(lines))


def report(cloud: Cloud, run: str, began: datetime = BEGAN, **members: Any) -> None:
    write(cloud, "_started.json", a_line(run, began, status="started"))
    write(cloud, "report.jsonl", a_line(run, began, **members), a_stream("orders", run, began))


def reports(cloud: Cloud, now: datetime = NOW) -> Reports:
    return Reports(cloud.access.client("s3"), ROOT, now)


def read_statuses(cloud: Cloud, days: int = 30, now: datetime = NOW) -> list[tuple[str, str]]:
    return [(run.sync.run_id, run.status) for run in reports(cloud, now).runs(days)]


def test_the_newest_sync_is_first_across_days_and_within_one(cloud: Cloud) -> None:
    for run, hours in (("b", 1), ("a", 5), ("c", 30), ("d", -100)):
        report(cloud, run, BEGAN + timedelta(hours=hours))

    assert [run for run, _ in read_statuses(cloud)] == ["c", "a", "b", "d"]
    assert [run for run, _ in read_statuses(cloud, days=4)] == ["c", "a", "b"]


def test_a_bucket_without_reports_has_none(cloud: Cloud) -> None:
    assert read_statuses(cloud) == []


@pytest.mark.parametrize(
    ("hours_ago", "followed", "status"), [(1, False, "unfinished"), (1, True, "died"), (25, False, "died")]
)
def test_a_sync_without_an_end_has_died_if_it_cannot_be_running(
    cloud: Cloud, hours_ago: int, followed: bool, status: str
) -> None:
    began = NOW - timedelta(hours=hours_ago)
    write(cloud, "_started.json", a_line("lost", began, status="started"))
    if followed:
        report(cloud, "next", began + timedelta(minutes=1))

    assert ("lost", status) in read_statuses(cloud)


def test_what_others_have_put_there_is_left_alone(cloud: Cloud) -> None:
    report(cloud, "run")
    s3 = cloud.access.client("s3")
    day = f"{ROOT}/day={BEGAN.date().isoformat()}"
    for key in (
        f"{ROOT}/day=yesterday/run_id=x/report.jsonl",
        f"{ROOT}/readme",
        f"{day}/notes",
        f"{day}/_day.jsonl.gz",
    ):
        put(s3, key, b"theirs")
    put(s3, f"{day}/run_id=other/report.jsonl", b"no report")

    assert read_statuses(cloud) == [("run", "finished")]


def test_a_day_of_many_syncs_is_read_one_by_one_once(cloud: Cloud) -> None:
    for number in range(5):
        report(cloud, f"run-{number:02}", BEGAN + timedelta(minutes=number))
    first = [*reports(cloud).runs(30)]
    report(cloud, "late", BEGAN + timedelta(hours=2))
    asked: list[str] = []

    with during(cloud.access, "before-call.s3.GetObject", lambda params, **_: asked.append(params["url_path"])):
        second = [*reports(cloud).runs(30)]

    assert second[1:] == first
    assert [path.rpartition("/")[2] for path in sorted(asked)] == ["_day.jsonl.gz", "report.jsonl"]


def test_a_day_that_unpacks_beyond_the_limit_is_read_one_by_one(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    report(cloud, "run")
    combined = encode([a_line("combined"), a_stream("orders", "combined")])
    put(cloud.access.client("s3"), f"{ROOT}/day={BEGAN.date().isoformat()}/_day.jsonl.gz", gzip.compress(combined))
    monkeypatch.setattr(health, "MAX_FILE_BYTES", len(combined))
    assert sorted(read_statuses(cloud)) == [("combined", "finished"), ("run", "finished")]

    monkeypatch.setattr(health, "MAX_FILE_BYTES", len(combined) - 1)

    assert read_statuses(cloud) == [("run", "finished")]


def test_lines_of_a_later_version_survive_when_an_older_one_combines_a_day(cloud: Cloud) -> None:
    s3, day = cloud.access.client("s3"), f"{ROOT}/day={BEGAN.date().isoformat()}"
    texts = [
        encode([a_line(f"run-{number}")]).replace(b'"status":"finished"', status + b',"later":1')
        for number, status in enumerate([b'"status":"finished"', b'"status":"cancelled"'] * 3)
    ]
    for number, text in enumerate(texts):
        put(s3, f"{day}/run_id=run-{number}/report.jsonl", text)

    assert sorted(read_statuses(cloud)) == [(f"run-{number}", "finished") for number in (0, 2, 4)]

    combined = gzip.decompress(cloud.objects()[f"{day}/_day.jsonl.gz".removeprefix(f"s3://{BUCKET}/")])
    assert sorted(combined.splitlines(keepends=True)) == texts


def test_reports_of_a_higher_version_are_one_warning(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(3):
        began = BEGAN + timedelta(days=number)
        write(cloud, "report.jsonl", a_line(f"later-{number}", began, version=2), a_stream("orders", "x", began))
    report(cloud, "run")

    assert read_statuses(cloud) == [("run", "finished")]

    [warning] = [record.getMessage() for record in caplog.records]
    assert warning == (
        f"Skipped reports under {ROOT}/ that a later version of the connector has written. Use that version to read "
        "them."
    )


def test_an_object_beyond_the_limit_is_no_report(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    report(cloud, "run")
    day = f"{ROOT}/day={BEGAN.date().isoformat()}"
    for name in ("run_id=huge/report.jsonl", "_day.jsonl.gz"):
        put(cloud.access.client("s3"), f"{day}/{name}", encode([a_line("huge", error="x" * 5000)]))
    monkeypatch.setattr(health, "MAX_FILE_BYTES", 5000)

    assert read_statuses(cloud) == [("run", "finished")]
    assert f"{day}/run_id=huge/report.jsonl exceeds 5,000 bytes" in caplog.text


def test_of_a_day_that_is_not_over_nothing_is_put_together(cloud: Cloud) -> None:
    for number in range(5):
        report(cloud, f"run-{number:02}", BEGAN + timedelta(minutes=number))

    read_statuses(cloud, now=BEGAN + timedelta(hours=12))

    assert not [key for key in cloud.objects() if key.endswith("_day.jsonl.gz")]


def test_who_may_only_read_reads_the_same(cloud: Cloud) -> None:
    for number in range(5):
        report(cloud, f"run-{number:02}", BEGAN + timedelta(minutes=number))

    with cloud.refusing("PutObject"):
        assert len(read_statuses(cloud)) == 5


def test_a_run_that_died_is_one_of_its_tables(cloud: Cloud) -> None:
    report(cloud, "good")
    began = BEGAN + timedelta(hours=1)
    lines = (a_line("lost", began, status="started"), a_stream("orders", "lost", began, status="started"))
    write(cloud, "_started.json", *lines)

    [(table, history)] = by_table(reports(cloud).runs(30)).items()

    assert table == "landing.orders"
    assert [(run.sync.run_id, run.status, line.status) for run, line in history] == [
        ("lost", "died", "started"),
        ("good", "finished", "finished"),
    ]


def test_the_time_of_a_sync_is_utc() -> None:
    assert a_line().started == datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
