"""Reading reports of syncs, day by day from the newest, with a few days in memory.

A day with many syncs has many objects. The first reader after the end of the day combines them in one object, whose
name begins with `_`. It only saves time and may be deleted. Runs that are not in it are read individually.
"""

from __future__ import annotations

import gzip
import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.objects import MAX_FILE_BYTES, OversizedFile, get, get_or_none, put, unzipped
from destination_datalake.files.suppression import REPORT as ERASURE_REPORT
from destination_datalake.files.suppression import RequestRecord, requests
from destination_datalake.reports.report import ReportLine, decode, encode
from destination_datalake.reports.writing import REPORT, STARTED

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_logger = logging.getLogger(__name__)

_COMBINED = "_day.jsonl.gz"
_FEW = 4
"""The number of objects of a day up to which they are not combined."""

_THREADS = 16
_CONCURRENT_DAYS = 4
_LATE = timedelta(days=8)
"""The maximum delay of a report after its day. For earlier days, only the combined object is read."""

_LONGEST = timedelta(hours=24)
"""The age from which an unfinished sync counts as died."""

Status = Literal["finished", "partial", "failed", "terminated", "died", "unfinished"]
"""`died`: the sync ended without a report. `unfinished`: the sync may still be running."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sync according to its report, or to the object written at its start if there is no report."""

    sync: ReportLine
    streams: tuple[ReportLine, ...] = ()
    status: Status = "unfinished"

    @property
    def has_report(self) -> bool:
        """Whether the sync ended with a report. Otherwise, the lines of its streams have no figures."""
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


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request of `delete-rows`, according to its ledger and the report of its last complete attempt.

    `found` is the number of objects with such rows after the erasure. Without a report, no attempt was complete.
    """

    request: RequestRecord
    rows: int = 0
    found: int | None = None
    has_report: bool = False
    complete: bool = False

    @property
    def status(self) -> str:
        """The status in one or two words."""
        if not self.has_report:
            return "not ended"
        return "erased" if self.complete else "history kept" if self.request.finished is not None else "rows left"


def erasures(s3: S3Client, folder: str, limit: int) -> list[Erasure]:
    """Return the last `limit` requests of the ledger in this folder (an S3 URI without a trailing slash), newest first.

    Raises S3's errors, and ValueError for an invalid ledger.
    """
    with ThreadPoolExecutor(_THREADS, "erasures") as pool:
        return [*pool.map(lambda request: _erasure(s3, folder, request), [*requests(folder, s3)][: -limit - 1 : -1])]


def _erasure(s3: S3Client, folder: str, request: RequestRecord) -> Erasure:
    content = get_or_none(s3, f"{folder}/{request.id}/{ERASURE_REPORT}")
    if content is None:
        return Erasure(request)
    report = msgspec.json.decode(content, type=_Erased)
    rows = sum(place.rows_removed for place in report.places)
    return Erasure(request, rows, report.found_afterwards, has_report=True, complete=report.complete)


class Reports:
    """The reports under `root`, an S3 URI without a trailing slash. `now` is the current time."""

    def __init__(self, s3: S3Client, root: str, now: datetime | None = None) -> None:
        self._s3 = s3
        self._address = S3Address.parse(root)
        self._now = now or datetime.now(UTC)

    def each(self, days: int) -> Iterator[Run]:
        """Yield the runs of the last `days` days including today, newest first. Raises S3's errors."""
        first = (self._now - timedelta(days=days - 1)).date().isoformat()
        later: set[str] = set()
        days_read = [day for day in reversed(self._days()) if day >= first]
        with ThreadPoolExecutor(_CONCURRENT_DAYS, "days") as pool:
            # The newest day is read first, alone: it often suffices for the last few syncs.
            for start in range(1 - _CONCURRENT_DAYS, len(days_read), _CONCURRENT_DAYS):
                for runs in pool.map(self._of_day, days_read[max(0, start) : start + _CONCURRENT_DAYS]):
                    for run in sorted(runs, key=lambda run: run.sync.start_time, reverse=True):
                        yield self._with_status(run, later)
                        later.add(run.sync.connection_id)

    def newest_day(self) -> str | None:
        """Return the last day with reports, in ISO 8601; None without reports. Raises S3's errors."""
        return max(self._days(), default=None)

    def _with_status(self, run: Run, later: set[str]) -> Run:
        """Return the run with its status. `later` are the connections with a later run."""
        status = run.sync.status
        if status != "started":
            return Run(run.sync, run.streams, status)
        is_dead = run.sync.connection_id in later or self._now - run.sync.started > _LONGEST
        return Run(run.sync, run.streams, "died" if is_dead else "unfinished")

    def _days(self) -> list[str]:
        """Return the days with reports, in order."""
        prefix = f"{self._address.key}/day="
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._address.bucket, Prefix=prefix, Delimiter="/"
        )
        names = [entry["Prefix"][len(prefix) : -1] for page in pages for entry in page.get("CommonPrefixes", [])]
        return sorted(name for name in names if _is_day(name))

    def _of_day(self, day: str) -> list[Run]:
        lines = dict(_by_run(self._combined(day))) if self._is_over(day, _LONGEST) else {}
        if not lines or not self._is_over(day, _LATE):
            all_keys = self._keys(day)
            # A run may have ended after the objects of the day were combined.
            keys = {run: key for run, key in all_keys.items() if run not in lines or _has_ended(run, key, lines)}
            with ThreadPoolExecutor(_THREADS, "reports") as pool:
                for content in pool.map(self._content, keys.values()):
                    lines |= _by_run(decode(content))
            if len(keys) > _FEW and self._is_over(day, _LONGEST):
                self._combine(day, itertools.chain.from_iterable(lines.values()))
        runs = []
        for run_lines in lines.values():
            sync = next((line for line in run_lines if line.type == "source"), None)
            if sync is not None:
                runs.append(Run(sync, tuple(line for line in run_lines if line.type == "event")))
        return runs

    def _keys(self, day: str) -> dict[str, str]:
        """Return the key of each run's report on a day, or of the object written at its start, by run ID."""
        keys: dict[str, str] = {}
        prefix = f"{self._address.key}/day={day}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._address.bucket, Prefix=prefix)
        for page in pages:
            for entry in page.get("Contents", []):
                folder, _, name = entry["Key"][len(prefix) :].rpartition("/")
                run = folder.removeprefix("run_id=")
                if name == REPORT or (name == STARTED and run not in keys):
                    keys[run] = entry["Key"]
        return keys

    def _content(self, key: str) -> bytes:
        return get(self._s3, str(S3Address(self._address.bucket, key)))

    def _combined(self, day: str) -> Iterator[ReportLine]:
        """Yield the lines of a day's combined object, if it exists."""
        try:
            key = f"{self._address.key}/day={day}/{_COMBINED}"
            content = get_or_none(self._s3, str(S3Address(self._address.bucket, key)))
            yield from () if content is None else decode(unzipped(content, key, MAX_FILE_BYTES))
        except (OSError, EOFError, OversizedFile):  # A foreign or truncated object.
            return

    def _is_over(self, day: str, longest: timedelta) -> bool:
        """Return whether every sync that started on a day has ended by now, given the longest duration."""
        return day < (self._now - longest).date().isoformat()

    def _combine(self, day: str, lines: Iterable[ReportLine]) -> None:
        """Write the lines of a day as one object. A failure is only logged."""
        uri = str(S3Address(self._address.bucket, f"{self._address.key}/day={day}/{_COMBINED}"))
        try:
            put(self._s3, uri, gzip.compress(encode(lines), 1))
        except Exception as error:
            _logger.debug("%s was not written: %s", uri, type(error).__name__)


def _has_ended(run: str, key: str, lines: Mapping[str, Sequence[ReportLine]]) -> bool:
    """Return whether a run has a report whose lines are not in `lines`."""
    return key.endswith(REPORT) and all(line.status == "started" for line in lines[run])


def _is_day(text: str) -> bool:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat() == text
    except ValueError:
        return False


def _by_run(lines: Iterable[ReportLine]) -> Mapping[str, list[ReportLine]]:
    grouped: dict[str, list[ReportLine]] = {}
    for line in lines:
        grouped.setdefault(line.run_id, []).append(line)
    return grouped


def by_table(runs: Iterable[Run]) -> dict[str, list[tuple[Run, ReportLine]]]:
    """Return the runs of each table in their order, each with the table's line."""
    tables: dict[str, list[tuple[Run, ReportLine]]] = {}
    for run in runs:
        for line in run.streams:
            tables.setdefault(line.table, []).append((run, line))
    return dict(sorted(tables.items()))
