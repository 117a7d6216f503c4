"""Notices by Amazon SNS: of syncs that fail, at some numbers of failures in a row, and of the first good one after.

How many failures there were is read from the reports of the connection. A notice has names and messages, no record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from destination_datalake.errors import counted, printable
from destination_datalake.reports.reading import Reports, Run

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.reports.report import ReportLine

_DAYS = 90
_FAILED = ("failed", "partial")
_MOST_STREAMS = 20
_MOST_CHARACTERS = 100
"""Of a subject (SNS API: Publish)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is published. `kind` is failed or recovered; `failures` are those in a row."""

    kind: str
    failures: int
    subject: str
    text: str


def notice_of(lines: Sequence[ReportLine], earlier: Iterable[Run], after: Sequence[int]) -> Notice | None:
    """Return the notice that a report is worth; None if it is none.

    `earlier` are the runs of the connection before it, the newest first. They are read as far as it takes.
    """
    sync, *streams = lines
    if sync.status not in (*_FAILED, "finished"):
        return None
    before = 0
    for run in (each for each in earlier if each.sync.run_id != sync.run_id):
        before += run.failed
        if run.status == "finished" or before > max(after, default=0):
            break
    place = printable(f"{sync.database} in {sync.s3_bucket}")
    if sync.status == "finished":
        if not after or before < min(after):
            return None
        subject = f"Sync to {place} recovered after {counted(before, 'failure')}"
        return Notice("recovered", before, subject, _text(subject, sync, streams))
    if before + 1 not in after:
        return None
    subject = f"Sync to {place} {sync.status}: {counted(before + 1, 'failure')} in a row"
    return Notice("failed", before + 1, subject, _text(subject, sync, streams))


def notify(config: Config, access: AwsAccess, root: str, lines: Sequence[ReportLine]) -> None:
    """Publish the notice that a report is worth, if any. `root` is the S3 URI of all reports.

    Raises what AWS's clients raise.
    """
    topic = config.notify.sns_topic_arn
    if topic is None:
        return
    reports = Reports(access.client("s3"), root).each(_DAYS)
    earlier = (run for run in reports if run.sync.connection_id == lines[0].connection_id)
    found = notice_of(lines, earlier, config.notify.after)
    if found is None:
        return
    of_fifo = {}
    if topic.endswith(".fifo"):
        of_fifo = {"MessageGroupId": lines[0].connection_id, "MessageDeduplicationId": lines[0].run_id}
    subject = found.subject.encode("ascii", "replace").decode().replace("\n", " ")[:_MOST_CHARACTERS]
    client = replace(access, region=topic.split(":")[3], attempts=2, connect_timeout_seconds=3).client("sns")
    client.publish(
        TopicArn=topic,
        Subject=subject,
        Message=found.text,
        MessageAttributes={
            "kind": {"DataType": "String", "StringValue": found.kind},
            "failures": {"DataType": "Number", "StringValue": str(found.failures)},
            "connection_id": {"DataType": "String", "StringValue": lines[0].connection_id},
        },
        **of_fifo,
    )


def _text(subject: str, sync: ReportLine, streams: Sequence[ReportLine]) -> str:
    lines = [f"{subject}.", "", f"Run {sync.run_id} began at {sync.start_time} UTC: {sync.row_count:,} rows committed."]
    if sync.error:
        lines += ["", sync.error]
    failed = [line for line in streams if line.status == "failed"]
    for line in failed[:_MOST_STREAMS]:
        lines.append(f"- {line.stream}: {line.error or 'failed'}")
    if len(failed) > _MOST_STREAMS:
        lines.append(f"- and {len(failed) - _MOST_STREAMS} more streams")
    lines += ["", "`destination-datalake history` and `health` show more."]
    return printable("\n".join(lines))
