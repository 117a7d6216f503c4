"""Read the reports of syncs, and determine the health of tables from these reports."""

from __future__ import annotations

import gzip
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from destination_datalake.aws.objects import MAX_FILE_BYTES, OversizedFile, S3Address, get, get_or_none, put, unzipped
from destination_datalake.files.suppression import RECORD_SUPPRESSED, RequestRecord, requests
from destination_datalake.files.suppression import REPORT as ERASURE_REPORT
from destination_datalake.reports.report import REPORT, STARTED, VERSION, Rejected, ReportLine, decode

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


# --- Reading ----------------------------------------------------------------------------------------------------------
# Read the reports of syncs day by day, newest day first. Only the reports of a few days are in memory at a time.
#
# Each sync writes its own object. After the end of a day, the first reader combines the day's objects into one, whose
# name begins with `_`. The combined object only saves time, and may be deleted. If it lacks a report, a reader reads
# this report from the sync's own object.

_logger = logging.getLogger(__name__)

_COMBINED = "_day.jsonl.gz"
_FEW = 4
"""A reader combines a day's objects only if it has read more than this number of them."""

_THREADS = 16
_CONCURRENT_DAYS = 4
_LATE = timedelta(days=8)
"""The time after a day during which reports of the day's syncs may still arrive. Later, readers read only the day's
combined object, if it exists."""

_LONGEST = timedelta(hours=24)
"""The time after its start at which a sync without a report counts as dead."""

Status = Literal["finished", "partial", "failed", "terminated", "died", "unfinished"]
"""The status of a sync. `died`: the sync ended without a report. `unfinished`: the sync has not written a report yet,
and may still be running."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sync, as read from its report.

    If the report does not exist, as read from the object that each sync writes at its start.

    `sync` is the report line about the sync, and `streams` contains the report lines about the sync's streams.
    """

    sync: ReportLine
    streams: tuple[ReportLine, ...] = ()
    status: Status = "unfinished"

    @property
    def has_report(self) -> bool:
        """Whether the sync wrote a report at its end. Otherwise, the lines about its streams contain no figures."""
        return self.sync.status != "started"

    @property
    def failed(self) -> bool:
        """Whether the sync or one of its streams failed. False for unfinished and terminated syncs."""
        return self.status in ("partial", "failed", "died")


class _Place(msgspec.Struct, frozen=True):
    rows_removed: int


class _Erased(msgspec.Struct, frozen=True):
    complete: bool
    found_afterwards: int | None
    places: tuple[_Place, ...]


_ERASED = msgspec.json.Decoder(_Erased)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request of the command `delete-rows`, and the results in the report of the last attempt that ended.

    `rows` is the number of removed rows. `remaining` is the number of objects that still contained rows to erase
    according to the second search. `complete` states whether the erasure is complete. If no attempt has ended yet,
    `has_report` is false, and the results have their default values.
    """

    request: RequestRecord
    rows: int = 0
    remaining: int | None = None
    has_report: bool = False
    complete: bool = False

    @property
    def status(self) -> str:
        """The status of the request: "not ended", "erased", "history kept" or "rows left"."""
        if not self.has_report:
            return "not ended"
        return "erased" if self.complete else "history kept" if self.request.finished is not None else "rows left"


def erasures(s3: S3Client, folder: str, limit: int) -> list[Erasure]:
    """Return the last `limit` requests in the ledger of `delete-rows`, newest first.

    `folder` is the S3 URI of the ledger, without a trailing slash. Raises S3's errors, ConfigError if a request in the
    ledger is invalid, and ValueError if a report is.
    """
    with ThreadPoolExecutor(_THREADS, "erasures") as pool:
        return [*pool.map(lambda request: _erasure(s3, folder, request), [*requests(folder, s3)][: -limit - 1 : -1])]


def _erasure(s3: S3Client, folder: str, request: RequestRecord) -> Erasure:
    content = get_or_none(s3, f"{folder}/{request.id}/{ERASURE_REPORT}")
    if content is None:
        return Erasure(request)
    report = _ERASED.decode(content)
    rows = sum(place.rows_removed for place in report.places)
    return Erasure(request, rows, report.found_afterwards, has_report=True, complete=report.complete)


class Reports:
    """Reads the reports of syncs.

    `root` is the S3 URI of the folder that contains the reports, without a trailing slash. `now` is the time that
    counts as now, by default the current time.
    """

    def __init__(self, s3: S3Client, root: str, now: datetime | None = None) -> None:
        self._s3 = s3
        self._address = S3Address.parse(root)
        self._now = now or datetime.now(UTC)
        self._skips_later_version = False

    def runs(self, days: int) -> Iterator[Run]:
        """Yield the syncs of the last `days` days, including today, newest first. Raises S3's errors.

        Skips report lines that a later version of the connector has written with a higher schema version, and logs one
        warning about them.
        """
        first = (self._now - timedelta(days=days - 1)).date().isoformat()
        later: set[str] = set()
        has_warned = False
        days_read = [day for day in reversed(self._days()) if day >= first]
        with ThreadPoolExecutor(_CONCURRENT_DAYS, "days") as pool:
            # Read the newest day alone, because callers often need no other syncs.
            # The first range begins below 0, so it contains only the newest day.
            for start in range(1 - _CONCURRENT_DAYS, len(days_read), _CONCURRENT_DAYS):
                for runs in pool.map(self._of_day, days_read[max(0, start) : start + _CONCURRENT_DAYS]):
                    if self._skips_later_version and not has_warned:
                        has_warned = True
                        _logger.warning(
                            "Skipped reports under %s/ that a later version of the connector has written. Use that "
                            "version to read them.",
                            self._address,
                        )
                    for run in sorted(runs, key=lambda run: run.sync.start_time, reverse=True):
                        yield self._with_status(run, later)
                        later.add(run.sync.connection_id)

    def newest_day(self) -> str | None:
        """Return the last day with reports, as YYYY-MM-DD, or None if there are no reports. Raises S3's errors."""
        return max(self._days(), default=None)

    def _with_status(self, run: Run, later: set[str]) -> Run:
        """Return a copy of the run with its status. `later` contains the IDs of connections with a later run.

        A run without a report has died if its connection has a later run, or if it started more than 24 hours ago.
        """
        status = run.sync.status
        if status != "started":
            return Run(run.sync, run.streams, status)
        is_dead = run.sync.connection_id in later or self._now - run.sync.started > _LONGEST
        return Run(run.sync, run.streams, "died" if is_dead else "unfinished")

    def _days(self) -> list[str]:
        """Return the days with reports as YYYY-MM-DD, in ascending order."""
        prefix = f"{self._address.key}/day="
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._address.bucket, Prefix=prefix, Delimiter="/"
        )
        names = [entry["Prefix"][len(prefix) : -1] for page in pages for entry in page.get("CommonPrefixes", [])]
        return sorted(name for name in names if _is_day(name))

    def _of_day(self, day: str) -> list[Run]:
        lines = _by_run(self._combined(day)) if self._is_over(day, _LONGEST) else {}
        if not lines or not self._is_over(day, _LATE):
            all_keys = self._keys(day)
            # Some runs may have ended after a reader combined the day's objects.
            keys = {run: key for run, key in all_keys.items() if run not in lines or _has_ended(run, key, lines)}
            with ThreadPoolExecutor(_THREADS, "reports") as pool:
                for content in pool.map(self._content, keys.values()):
                    lines |= _by_run(content)
            if len(keys) > _FEW and self._is_over(day, _LONGEST):
                self._combine(day, itertools.chain.from_iterable(lines.values()))
        runs = []
        for stored_lines in lines.values():
            self._skips_later_version |= any(line.members.version > VERSION for line in stored_lines)
            run_lines = [*decode(b"\n".join(line.text for line in stored_lines))]
            sync = next((line for line in run_lines if line.type == "source"), None)
            if sync is not None:
                runs.append(Run(sync, tuple(line for line in run_lines if line.type == "event")))
        return runs

    def _keys(self, day: str) -> dict[str, str]:
        """Return the key of the report of each run on a day, by the run's ID.

        For a run without a report, returns the key of the object that the run wrote at its start.
        """
        keys: dict[str, str] = {}
        prefix = f"{self._address.key}/day={day}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._address.bucket, Prefix=prefix)
        for page in pages:
            for entry in page.get("Contents", []):
                folder, _, name = entry["Key"][len(prefix) :].rpartition("/")
                run = folder.removeprefix("run_id=")
                # The report replaces the object from the sync's start, in whichever order S3 lists them.
                if name == REPORT or (name == STARTED and run not in keys):
                    keys[run] = entry["Key"]
        return keys

    def _content(self, key: str) -> bytes:
        """Return the content of an object, or nothing if another program has written an object that is too large."""
        try:
            return get(self._s3, str(S3Address(self._address.bucket, key)), limit=MAX_FILE_BYTES)
        except OversizedFile as error:
            _logger.warning("Skipped a report: %s", error)
            return b""

    def _combined(self, day: str) -> bytes:
        """Return the report lines in a day's combined object, or nothing if the object is missing or damaged."""
        try:
            key = f"{self._address.key}/day={day}/{_COMBINED}"
            content = get_or_none(self._s3, str(S3Address(self._address.bucket, key)), MAX_FILE_BYTES)
            return b"" if content is None else unzipped(content, key, MAX_FILE_BYTES)
        except (OSError, EOFError, OversizedFile):  # The object is truncated, or another program wrote it.
            return b""

    def _is_over(self, day: str, longest: timedelta) -> bool:
        """Return whether all syncs that started on `day` have ended, assuming that none takes longer than `longest`."""
        return day < (self._now - longest).date().isoformat()

    def _combine(self, day: str, lines: Iterable[_StoredLine]) -> None:
        """Write the report lines of a day to the day's combined object. Log a failure, and do not raise it."""
        uri = str(S3Address(self._address.bucket, f"{self._address.key}/day={day}/{_COMBINED}"))
        try:
            put(self._s3, uri, gzip.compress(b"".join(line.text + b"\n" for line in lines), 1))
        except Exception as error:
            _logger.debug("%s was not written: %s", uri, type(error).__name__)


def _has_ended(run: str, key: str, lines: Mapping[str, Sequence[_StoredLine]]) -> bool:
    """Return whether `key` names the report of a run for which `lines` contains only the lines from the run's start."""
    return key.endswith(REPORT) and all(line.members.status == "started" for line in lines[run])


def _is_day(text: str) -> bool:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat() == text
    except ValueError:
        return False


class _Members(msgspec.Struct, frozen=True, gc=False):
    """The members of a report line that a reader needs to combine the reports of a day."""

    run_id: str
    status: str
    version: int = 1


_MEMBERS = msgspec.json.Decoder(_Members)


class _StoredLine(NamedTuple):
    """A report line as bytes. Readers combine these bytes, because a later version may understand more of them."""

    members: _Members
    text: bytes


def _by_run(content: bytes) -> dict[str, list[_StoredLine]]:
    """Return the report lines by the ID of their run. Skip lines without such an ID, which are not report lines."""
    grouped: dict[str, list[_StoredLine]] = {}
    for text in content.splitlines():
        try:
            members = _MEMBERS.decode(text)
        except (msgspec.DecodeError, RecursionError):
            continue
        grouped.setdefault(members.run_id, []).append(_StoredLine(members, text))
    return grouped


def by_table(runs: Iterable[Run]) -> dict[str, list[tuple[Run, ReportLine]]]:
    """Return the runs of each table, by the table's name. Each run comes with its report line about the table.

    The runs of a table are in the order of `runs`. The tables are in alphabetical order.
    """
    tables: dict[str, list[tuple[Run, ReportLine]]] = {}
    for run in runs:
        for line in run.streams:
            tables.setdefault(line.table, []).append((run, line))
    return dict(sorted(tables.items()))


# --- Health -----------------------------------------------------------------------------------------------------------
# Determine the health of tables from the reports of their syncs. Each finding includes a remedy.
#
# This section compares the last sync with the usual values: the medians of earlier syncs or, for durations, the 95th
# percentile. It skips the comparison for tables with fewer than `_ENOUGH` earlier syncs.


Kind = Literal["failing", "stalled", "rows", "rejects", "small files", "snapshots", "pending rows", "slow"]

_ENOUGH = 5
_COMPARED = 30
"""The maximum number of earlier syncs that determine the usual values."""

_STALLED = 3
"""A table is stalled if the time since the start of its last sync exceeds this multiple of the usual interval."""

_SLOW = 2
_UNUSUAL_ROWS = 5
_MANY_ROWS = 100
_UNUSUAL_REJECTS = 3
_FEW_REJECTS = 0.01
_SMALL_BYTES = 16 * 1024 * 1024
_MANY_FILES = 100
_MANY_SNAPSHOTS = 1000


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with a table. `seen` is a clause that states the observation, and `advice` is the remedy."""

    kind: Kind
    seen: str
    advice: str


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The health of a table, determined from the reports of its last `syncs` syncs.

    `last_finished` is the start of the last successful sync, and `rows` is the number of rows that this sync wrote.
    Both are None if no sync was successful. `findings` contains the problems with the table.
    """

    table: str
    syncs: int
    last_finished: datetime | None
    usual_seconds: float | None
    """The median interval in seconds between the starts of consecutive syncs, or None if there are too few syncs."""
    rows: int | None
    failures_in_a_row: int
    findings: tuple[Finding, ...]


_History = Sequence[tuple[Run, ReportLine]]


def health(runs: Sequence[Run], now: datetime) -> list[TableHealth]:
    """Return the health of each table that occurs in `runs`. The runs must be in order from newest to oldest."""
    return [_of_table(table, history, now) for table, history in by_table(runs).items()]


def _of_table(table: str, history: _History, now: datetime) -> TableHealth:
    finished = [(run, line) for run, line in history if line.status == "finished"]
    starts = [run.sync.started for run, _ in history]
    intervals = [(later - earlier).total_seconds() for later, earlier in pairwise(starts)]
    usual = median(intervals[:_COMPARED]) if len(intervals) >= _ENOUGH else None
    failures = failures_in_a_row(history)
    findings = (
        *_failing(history, failures),
        *_stalled(starts[0], usual, now),
        *(_total_loss(finished) or _unusual(finished)),
        *_state(finished[0][1] if finished else None),
    )
    last = finished[0] if finished else None
    return TableHealth(
        table,
        len(history),
        last[0].sync.started if last else None,
        usual,
        last[1].row_count if last else None,
        failures,
        findings,
    )


def failures_in_a_row(history: _History) -> int:
    """Return the number of failed syncs since the last successful sync of a table.

    `history` begins with the newest sync. Terminated and unfinished syncs do not count.
    """
    count = 0
    for run, line in history:
        if run.status == "died" or line.status == "failed":
            count += 1
        elif line.status == "finished":
            break
    return count


def _failing(history: _History, failures: int) -> Iterator[Finding]:
    if not failures:
        return
    seen = "the last sync failed" if failures == 1 else f"the last {failures:,} syncs failed"
    run, last = next((run, line) for run, line in history if run.status == "died" or line.status == "failed")
    if run.status == "died":
        last_one = ", the last one" if failures > 1 else ""
        yield Finding(
            "failing", f"{seen}{last_one} without a final report", "Check the memory and disk limits of the connector."
        )
        return
    advice = {
        "insufficient_permissions": "Grant the missing permission, which `destination-datalake check` names.",
        "invalid_settings": "Correct the configuration as the message describes.",
    }.get(last.error_code or "", "Run the sync again. If the error persists, report the error.")
    yield Finding("failing", f"{seen}: {last.error}", advice)


def _stalled(last: datetime, usual: float | None, now: datetime) -> Iterator[Finding]:
    waited = (now - last).total_seconds()
    if usual is not None and waited > _STALLED * max(usual, 60):
        yield Finding(
            "stalled",
            f"no sync ran for {duration(waited)}; the usual interval is {duration(usual)}",
            "Check the schedule of the connection, and whether the connection is paused.",
        )


def _total_loss(finished: _History) -> list[Finding]:
    """Return a finding if the last successful sync rejected every record. Does not compare with earlier syncs."""
    lost = finished[0][1].total_loss if finished else None
    advice = "Query the table airbyte_rejects, correct the source or its schema, and refresh the stream."
    return [] if lost is None else [Finding("rejects", f"the last sync wrote no rows: {lost}", advice)]


def _unusual(finished: _History) -> Iterator[Finding]:
    lines = [line for _, line in finished]
    if len(lines) <= _ENOUGH:
        return
    last, before = lines[0], lines[1 : _COMPARED + 1]
    rows = median(line.row_count for line in before)
    if rows >= _MANY_ROWS and not rows / _UNUSUAL_ROWS <= last.row_count <= rows * _UNUSUAL_ROWS:
        advice = "Check whether a filter, a cursor or a schedule of the source has changed."
        yield Finding("rows", f"the last sync wrote {last.row_count:,} rows; the usual number is {rows:,.0f}", advice)
    ratio, usual = _rejects(last), median(map(_rejects, before))
    if ratio > max(_FEW_REJECTS, _UNUSUAL_REJECTS * usual):
        worst = max(
            (reject for reject in last.rejects if not _is_suppressed(reject)),
            key=lambda reject: reject.count,
            default=None,
        )
        column = f", mostly in {worst.column_name or 'whole records'}: {worst.reason}" if worst is not None else ""
        advice = "Query the table airbyte_rejects, and correct the source or its schema."
        yield Finding(
            "rejects", f"{ratio:.1%} of records contain rejects; the usual ratio is {usual:.1%}{column}", advice
        )
    seconds = sorted(run.sync.seconds or 0.0 for run, _ in finished[1 : _COMPARED + 1])
    p95, took = seconds[(len(seconds) - 1) * 95 // 100], finished[0][0].sync.seconds or 0.0
    if took > _SLOW * max(p95, 60):
        stages = sorted(finished[0][0].sync.stages, key=lambda stage: -stage.seconds)
        longest = f" (stage {stages[0].stage}: {duration(stages[0].seconds)})" if stages else ""
        advice = (
            "If the longest stage is reading, check the source. If a different stage is longest, add cores to Spark, "
            "or check whether AWS throttles requests."
        )
        seen = f"the last sync took {duration(took)}{longest}; 95 % of earlier syncs took less than {duration(p95)}"
        yield Finding("slow", seen, advice)


def _rejects(line: ReportLine) -> float:
    """Return the number of rejects per received record, without records that `delete-rows --suppress` suppressed."""
    suppressed = sum(reject.count for reject in line.rejects if _is_suppressed(reject))
    return (line.rows_rejected + line.values_rejected - suppressed) / max(1, line.rows_received)


def _is_suppressed(rejected: Rejected) -> bool:
    return rejected.reason == RECORD_SUPPRESSED


def _state(line: ReportLine | None) -> Iterator[Finding]:
    if line is None:
        return
    files, size = line.table_files or 0, line.table_bytes or 0
    if files > _MANY_FILES and size / files < _SMALL_BYTES:
        yield Finding(
            "small files",
            f"the table consists of {files:,} files of {size / files / 1e6:.1f} MB on average",
            "Run `destination-datalake maintain`, or set the option maintenance.",
        )
    if (line.table_snapshots or 0) > _MANY_SNAPSHOTS:
        yield Finding(
            "snapshots",
            f"the table contains {line.table_snapshots:,} snapshots",
            "Run `destination-datalake maintain`, or set the option maintenance.",
        )
    if line.table_rows_pending:
        yield Finding(
            "pending rows",
            f"{line.table_rows_pending:,} rows are not yet deduplicated",
            "The next sync merges these rows. If they remain after that sync, check its log for warnings.",
        )


def duration(seconds: float) -> str:
    """Return a duration with its unit, such as 40 s, 5 min, 2 h or 3 d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
