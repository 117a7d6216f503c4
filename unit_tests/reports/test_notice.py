"""Who is told of failures, and when: at some numbers in a row, and when they are over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.reports.health import Run
from destination_datalake.reports.notices import notice_of, notify
from destination_datalake.reports.report import ReportLine
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.config.examples import options
from unit_tests.reports.lines import BEGAN, a_line, a_stream
from unit_tests.reports.test_reading import ROOT, report

AFTER = [1, 5, 20]


def ended(status: str) -> list[ReportLine]:
    return [a_line("now", status=status, error="No access." if status == "failed" else None)]


def runs(*statuses: Any) -> Iterator[Run]:
    return (Run(a_line(f"run-{number}"), (), status) for number, status in enumerate(statuses))


@pytest.mark.parametrize(
    ("now", "earlier", "expected"),
    [
        ("finished", [], None),
        ("finished", ["finished", "failed"], None),
        ("finished", ["failed"], ("recovered", 1)),
        ("finished", ["terminated", "died", "failed", "finished"], ("recovered", 2)),
        ("failed", [], ("failed", 1)),
        ("partial", ["finished"], ("failed", 1)),
        ("failed", ["failed"], None),
        ("failed", ["failed"] * 3 + ["finished"], None),
        ("failed", ["failed"] * 4 + ["finished"], ("failed", 5)),
        ("failed", ["failed"] * 2 + ["unfinished"] + ["died"] * 2, ("failed", 5)),
        ("failed", ["failed"] * 19, ("failed", 20)),
        ("failed", (["failed"] + ["terminated"] * 3) * 19, ("failed", 20)),
        ("failed", ["failed"] * 200, None),
        ("terminated", ["failed"], None),
    ],
)
def test_a_notice_is_sent_at_its_number_of_failures(now: str, earlier: list[str], expected: Any) -> None:
    notice = notice_of(ended(now), runs(*earlier), AFTER)

    assert (None if notice is None else (notice.kind, notice.failures)) == expected


def test_the_report_of_this_sync_does_not_count_as_an_earlier_one() -> None:
    itself = Run(ended("failed")[0], (), "failed")

    notice = notice_of(ended("failed"), iter([itself]), AFTER)

    assert notice is not None
    assert notice.failures == 1


def test_a_notice_names_the_streams_that_failed() -> None:
    lines = [
        *ended("failed"),
        a_stream("orders", status="failed", error="Denied."),
        a_stream("evil\x1b[2J\u202e", status="failed"),
        a_stream("users"),
    ]

    notice = notice_of(lines, iter(()), AFTER)

    assert notice is not None
    assert "- orders: Denied.\n" in notice.text
    assert "users" not in notice.text
    assert not {"\x1b", "\u202e"} & set(notice.text)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_notice_reaches_its_subscribers(cloud: Cloud, fifo: bool) -> None:
    sns, name = cloud.access.client("sns"), "syncs.fifo" if fifo else "syncs"
    topic = sns.create_topic(Name=name, Attributes={"FifoTopic": "true"} if fifo else {})["TopicArn"]
    session: Any = cloud.access.session()
    sqs = session.client("sqs", "us-east-1")
    queue = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if fifo else {})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    config = Config.parse(options(bucket_name=BUCKET, notify={"sns_topic_arn": topic, "after": [2]}))
    for number in range(1, 3):
        report(cloud, f"run-{number}", BEGAN - timedelta(hours=number), status="failed" if number == 1 else "finished")
    report(cloud, "of another", BEGAN - timedelta(minutes=1), connection_id="another")

    notify(config, cloud.access, ROOT, [a_line("now", BEGAN, status="failed", error="No access.")])

    [message] = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10)["Messages"]
    body = json.loads(message["Body"])
    assert body["Subject"] == "Sync to landing in lake failed: 2 consecutive failures"
    assert "No access." in body["Message"]
    assert body["MessageAttributes"]["failures"]["Value"] == "2"


def test_without_a_topic_nothing_is_read(cloud: Cloud) -> None:
    with cloud.refusing("ListObjectsV2"):
        notify(Config.parse(options(bucket_name=BUCKET)), cloud.access, ROOT, ended("failed"))
