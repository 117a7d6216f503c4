"""Notices to Amazon SNS: about failed syncs, at some numbers of consecutive failures, and about recoveries.

The number of failures comes from the connection's reports. Notices contain names and messages, but no records.
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
_MAX_STREAMS = 20
_MAX_CHARACTERS = 100
"""The maximum length of a subject (SNS API: Publish)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to publish. `kind` is failed or recovered; `failures` is the number of consecutive failures."""

    kind: str
    failures: int
    subject: str
    text: str


def notice_of(lines: Sequence[ReportLine], earlier: Iterable[Run], after: Sequence[int]) -> Notice | None:
    """Return the notice for a report; None if none is due.

    `earlier` yields the earlier runs of the connection, newest first. It is read only as far as needed.
    """
    sync, *streams = lines
    if sync.status not in (*_FAILED, "finished"):
        return None
    before = 0
    for run in (run for run in earlier if run.sync.run_id != sync.run_id):
        before += run.failed
        if run.status == "finished" or before > max(after, default=0):
            break
    lake = printable(f"{sync.database} in {sync.s3_bucket}")
    if sync.status == "finished":
        if not after or before < min(after):
            return None
        subject = f"Sync to {lake} recovered after {counted(before, 'failure')}"
        return Notice("recovered", before, subject, _text(subject, sync, streams))
    if before + 1 not in after:
        return None
    subject = f"Sync to {lake} {sync.status}: {counted(before + 1, 'failure')} in a row"
    return Notice("failed", before + 1, subject, _text(subject, sync, streams))


def notify(config: Config, access: AwsAccess, root: str, lines: Sequence[ReportLine]) -> None:
    """Publish the notice for a report, if one is due. `root` is the S3 URI of all reports.

    Raises AWS errors.
    """
    topic = config.notify.sns_topic_arn
    if topic is None:
        return
    reports = Reports(access.client("s3"), root).each(_DAYS)
    earlier = (run for run in reports if run.sync.connection_id == lines[0].connection_id)
    notice = notice_of(lines, earlier, config.notify.after)
    if notice is None:
        return
    fifo_arguments = {}
    if topic.endswith(".fifo"):
        fifo_arguments = {"MessageGroupId": lines[0].connection_id, "MessageDeduplicationId": lines[0].run_id}
    subject = notice.subject.encode("ascii", "replace").decode().replace("\n", " ")[:_MAX_CHARACTERS]
    client = replace(access, region=topic.split(":")[3], attempts=2, connect_timeout_seconds=3).client("sns")
    client.publish(
        TopicArn=topic,
        Subject=subject,
        Message=notice.text,
        MessageAttributes={
            "kind": {"DataType": "String", "StringValue": notice.kind},
            "failures": {"DataType": "Number", "StringValue": str(notice.failures)},
            "connection_id": {"DataType": "String", "StringValue": lines[0].connection_id},
        },
        **fifo_arguments,
    )


def _text(subject: str, sync: ReportLine, streams: Sequence[ReportLine]) -> str:
    lines = [
        f"{subject}.",
        "",
        f"Run {sync.run_id} started at {sync.start_time} UTC and committed {sync.row_count:,} rows.",
    ]
    if sync.error:
        lines += ["", sync.error]
    failed = [line for line in streams if line.status == "failed"]
    for line in failed[:_MAX_STREAMS]:
        lines.append(f"- {line.stream}: {line.error or 'failed'}")
    if len(failed) > _MAX_STREAMS:
        lines.append(f"- and {len(failed) - _MAX_STREAMS} more streams")
    lines += ["", "Run `destination-datalake history` or `health` for details."]
    return printable("\n".join(lines))
