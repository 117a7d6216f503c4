"""Send notices about failed and recovered syncs to Amazon SNS, and events about syncs to OpenLineage."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from destination_datalake.errors import counted, printable
from destination_datalake.reports.health import Reports, Run

if TYPE_CHECKING:
    from openlineage.client.event_v2 import OutputDataset, RunEvent

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.reports.report import ReportLine


# --- Notices ----------------------------------------------------------------------------------------------------------
# Send notices about failed and recovered syncs to Amazon SNS. The option `notify.after` lists the numbers of
# consecutive failures after which the connector sends a notice. It counts the failures in the connection's reports.
#
# Notices contain names and messages, but no records.

_DAYS = 90
_FAILED = ("failed", "partial")
_MAX_STREAMS = 20
_MAX_CHARACTERS = 100
"""The maximum length of a notice's subject, in characters (SNS API: Publish)."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to publish to Amazon SNS.

    `kind` is "failed" or "recovered". `failures` is the number of consecutive failures of the connection's syncs: up to
    this failure, or before the recovery.
    """

    kind: str
    failures: int
    subject: str
    text: str


def notice_of(lines: Sequence[ReportLine], earlier: Iterable[Run], after: Sequence[int]) -> Notice | None:
    """Return the notice to send about a sync, or None if the sync requires no notice.

    `lines` is the report of the sync. `earlier` yields the earlier syncs of the connection, newest first. This function
    reads only as many of them as necessary. `after` lists the numbers of consecutive failures that require a notice.
    """
    sync, *streams = lines
    if sync.status not in (*_FAILED, "finished"):
        return None
    before = 0
    # The sync usually stores its own report before it sends the notice.
    for run in (run for run in earlier if run.sync.run_id != sync.run_id):
        before += run.failed
        # Beyond the highest number, further failures change nothing, so read no more reports.
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
    subject = f"Sync to {lake} {sync.status}: {counted(before + 1, 'consecutive failure')}"
    return Notice("failed", before + 1, subject, _text(subject, sync, streams))


def notify(config: Config, access: AwsAccess, root: str, lines: Sequence[ReportLine]) -> None:
    """Publish a notice to Amazon SNS if the sync's failure or recovery requires one. Raises AWS errors.

    Does nothing if the configuration contains no topic. `lines` is the report of the sync. `root` is the S3 URI of the
    folder that contains all reports.
    """
    topic = config.notify.sns_topic_arn
    if topic is None:
        return
    reports = Reports(access.client("s3"), root).runs(_DAYS)
    earlier = (run for run in reports if run.sync.connection_id == lines[0].connection_id)
    notice = notice_of(lines, earlier, config.notify.after)
    if notice is None:
        return
    fifo_arguments = {}
    if topic.endswith(".fifo"):
        # SNS drops a message whose ID it has received in the last five minutes, such as a retry after a lost answer.
        fifo_arguments = {"MessageGroupId": lines[0].connection_id, "MessageDeduplicationId": lines[0].run_id}
    subject = notice.subject.encode("ascii", "replace").decode().replace("\n", " ")[:_MAX_CHARACTERS]
    # The topic may be in another region than the bucket.
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
    lines += ["", "For details, run `destination-datalake history` or `destination-datalake health`."]
    return printable("\n".join(lines))


# --- Lineage ----------------------------------------------------------------------------------------------------------
# Send OpenLineage events about the start and the end of a sync. The streams are inputs, and the tables are outputs.
#
# Names follow OpenLineage's rules (https://openlineage.io/docs/spec/naming): Glue tables have the namespace
# `arn:aws:glue:{region}:{account}` and the name `table/{database}/{table}`. The functions import the library when they
# are called, because the import takes half a second. Syncs call them only if an endpoint is set.


PRODUCER = "https://github.com/destination-datalake"
_TIMEOUT = 5.0

Columns = Mapping[str, Mapping[str, str]]
"""Maps the name of each table to its columns, and the name of each column to its type."""


def emit(config: Config, account: str, lines: Sequence[ReportLine], columns: Columns) -> None:
    """Send the OpenLineage events about a sync, without retries. Raises the errors of OpenLineage's transport.

    Sends nothing if the configuration contains no endpoint. `lines` is the report of the sync. `account` is the ID of
    the Data Catalog.
    """
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport

    endpoint, key = config.lineage.endpoint, config.lineage.api_key
    if endpoint is None:
        return
    transport: Any
    if endpoint.startswith("/"):
        transport = FileTransport(FileConfig(log_file_path=endpoint, append=True))
    else:
        auth: dict[str, Any] = {}
        if key is not None:
            auth["auth"] = ApiKeyTokenProvider({"apiKey": key.get_secret_value()})
        transport = HttpTransport(HttpConfig(url=endpoint, timeout=_TIMEOUT, retry={"total": 0}, **auth))
    # OpenLineageClient would also read environment variables and configuration files, which can turn off or filter the
    # events.
    for event in events(config, account, lines, columns):
        transport.emit(event)


def events(config: Config, account: str, lines: Sequence[ReportLine], columns: Columns) -> list[RunEvent]:
    """Return two events about the sync with the report `lines`: START, followed by COMPLETE, FAIL or ABORT."""
    from openlineage.client.event_v2 import InputDataset, Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run

    sync, *streams = lines
    end = {"finished": RunState.COMPLETE, "terminated": RunState.ABORT}.get(sync.status, RunState.FAIL)
    engine = processing_engine_run.ProcessingEngineRunFacet(
        version=sync.versions.get("pyspark", "unknown"),
        name="spark",
        openlineageAdapterVersion=sync.versions.get("destination-datalake"),
        producer=PRODUCER,
    )
    facets: dict[str, Any] = {"processing_engine": engine}
    failed = dict(facets)
    if sync.error:
        failed["errorMessage"] = error_message_run.ErrorMessageRunFacet(sync.error, "PYTHON", producer=PRODUCER)
    kind = job_type_job.JobTypeJobFacet("BATCH", "AIRBYTE", "SYNC", producer=PRODUCER)
    job = Job(f"s3://{config.bucket_name}", f"{config.key() or 'lake'}.{sync.connection_id}", {"jobType": kind})
    # Derive the UUID from the run's ID, so that every process computes the same UUID.
    run = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}/{sync.run_id}"))
    inputs = [InputDataset("airbyte", line.stream) for line in streams]
    outputs = [_output(config, account, line, columns.get(line.table, {})) for line in streams]
    return [
        RunEvent(
            eventType=state,
            eventTime=time.isoformat().replace("+00:00", "Z"),
            run=Run(run, run_facets),
            job=job,
            inputs=inputs,
            outputs=outputs if state is not RunState.START else [],
            producer=PRODUCER,
        )
        for state, time, run_facets in ((RunState.START, sync.started, facets), (end, sync.finished, failed))
    ]


def _output(config: Config, account: str, line: ReportLine, columns: Mapping[str, str]) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import (
        dataset_version_dataset,
        lifecycle_state_change_dataset,
        output_statistics_output_dataset,
        schema_dataset,
    )

    fields = [schema_dataset.SchemaDatasetFacetFields(name, type_) for name, type_ in columns.items()]
    facets: dict[str, Any] = {"schema": schema_dataset.SchemaDatasetFacet(fields, producer=PRODUCER)}
    if line.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(line.snapshot_id), producer=PRODUCER)
    if line.sync_mode == "overwrite" and line.status == "finished":
        change = lifecycle_state_change_dataset.LifecycleStateChange.OVERWRITE
        facets["lifecycleStateChange"] = lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(
            change, producer=PRODUCER
        )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        line.row_count, line.bytes_written, line.files, producer=PRODUCER
    )
    return OutputDataset(
        f"arn:aws:glue:{config.glue_region or config.region}:{account}",
        f"table/{line.database}/{line.table_name}",
        facets=facets,
        outputFacets={"outputStatistics": statistics},
    )
