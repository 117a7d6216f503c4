"""Reading reports of syncs: those of a day together, day by day from the newest, with memory for one day at a time.

A day of many syncs is many objects. The first reader of a day that is over puts them together into one object beside
them, whose name begins with `_`. It only saves time, and may be deleted. Runs that it lacks are read one by one.
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

_TOGETHER = "_day.jsonl.gz"
_FEW = 4
"""Objects of a day that are not worth putting together."""

_THREADS = 16
_DAYS_AT_ONCE = 4
_LATE = timedelta(days=8)
"""How long after a day its reports may come. Of earlier days only the reports that are put together are read."""

_LONGEST = timedelta(hours=24)
"""A sync that began longer ago, and has not ended, is taken for dead."""

Status = Literal["finished", "partial", "failed", "terminated", "died", "unfinished"]
"""`died`: there is no report, and there would be. `unfinished`: it may be running."""


@dataclass(frozen=True, slots=True)
class Run:
    """A sync, by its report; or, if it has none, by what it said when it began."""

    sync: ReportLine
    streams: tuple[ReportLine, ...] = ()
    status: Status = "unfinished"

    @property
    def has_report(self) -> bool:
        """Whether it has ended with a report. Without one, the lines of its streams have no figures."""
        return self.sync.status != "started"

    @property
    def failed(self) -> bool:
        """Whether the sync, or some stream of it, has failed. One that may be running, or was told to end, has not."""
        return self.status in ("partial", "failed", "died")


class _Place(msgspec.Struct, frozen=True):
    rows_removed: int


class _Erased(msgspec.Struct, frozen=True):
    complete: bool
    found_afterwards: int | None
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class Erasure:
    """A request of `delete-rows`, by its ledger and the report of its last attempt that came to the end.

    `found` is how many objects had such rows at the end; without a report, no attempt has got so far.
    """

    request: RequestRecord
    rows: int = 0
    found: int | None = None
    has_report: bool = False
    complete: bool = False

    @property
    def status(self) -> str:
        """What there is to say of it, in a word or two."""
        if not self.has_report:
            return "not ended"
        return "erased" if self.complete else "history kept" if self.request.finished is not None else "rows left"


def erasures(s3: S3Client, folder: str, most: int) -> list[Erasure]:
    """Return the last requests of the ledger in this folder (an S3 URI without a slash at its end), the newest first.

    Raises what S3's client raises, and ValueError for what is no ledger.
    """
    with ThreadPoolExecutor(_THREADS, "erasures") as pool:
        return [*pool.map(lambda request: _erasure(s3, folder, request), [*requests(folder, s3)][: -most - 1 : -1])]


def _erasure(s3: S3Client, folder: str, request: RequestRecord) -> Erasure:
    content = get_or_none(s3, f"{folder}/{request.id}/{ERASURE_REPORT}")
    if content is None:
        return Erasure(request)
    report = msgspec.json.decode(content, type=_Erased)
    rows = sum(place.rows_removed for place in report.places)
    return Erasure(request, rows, report.found_afterwards, has_report=True, complete=report.complete)


class Reports:
    """The reports under `root`, an S3 URI without a slash at the end. `now` is the time that the reader is at."""

    def __init__(self, s3: S3Client, root: str, now: datetime | None = None) -> None:
        self._s3 = s3
        self._address = S3Address.parse(root)
        self._now = now or datetime.now(UTC)

    def each(self, days: int) -> Iterator[Run]:
        """Yield the runs of so many days, today's included, the newest first. Raises what S3's client raises."""
        first = (self._now - timedelta(days=days - 1)).date().isoformat()
        later: set[str] = set()
        days_read = [day for day in reversed(self._days()) if day >= first]
        with ThreadPoolExecutor(_DAYS_AT_ONCE, "days") as pool:
            # The newest day alone: the last few syncs are mostly of it.
            for start in range(1 - _DAYS_AT_ONCE, len(days_read), _DAYS_AT_ONCE):
                for runs in pool.map(self._of_day, days_read[max(0, start) : start + _DAYS_AT_ONCE]):
                    for run in sorted(runs, key=lambda each: each.sync.start_time, reverse=True):
                        yield self._judged(run, later)
                        later.add(run.sync.connection_id)

    def newest_day(self) -> str | None:
        """Return the last day that has reports, as ISO 8601; None if there are none. Raises what S3's client raises."""
        return max(self._days(), default=None)

    def _judged(self, run: Run, later: set[str]) -> Run:
        """Return the run with its status. `later` are the connections that have had another one since."""
        status = run.sync.status
        if status != "started":
            return Run(run.sync, run.streams, status)
        is_dead = run.sync.connection_id in later or self._now - run.sync.started > _LONGEST
        return Run(run.sync, run.streams, "died" if is_dead else "unfinished")

    def _days(self) -> list[str]:
        """Return the days that have reports, in order."""
        prefix = f"{self._address.key}/day="
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._address.bucket, Prefix=prefix, Delimiter="/"
        )
        found = [each["Prefix"][len(prefix) : -1] for page in pages for each in page.get("CommonPrefixes", [])]
        return sorted(day for day in found if _is_day(day))

    def _of_day(self, day: str) -> list[Run]:
        lines = dict(_by_run(self._together(day))) if self._is_over(day, _LONGEST) else {}
        if not lines or not self._is_over(day, _LATE):
            found = self._keys(day)
            # A run that had not ended when the day was put together may have, by now.
            keys = {run: key for run, key in found.items() if run not in lines or _has_ended(run, key, lines)}
            with ThreadPoolExecutor(_THREADS, "reports") as pool:
                for content in pool.map(self._content, keys.values()):
                    lines |= _by_run(decode(content))
            if len(keys) > _FEW and self._is_over(day, _LONGEST):
                self._put_together(day, itertools.chain.from_iterable(lines.values()))
        runs = []
        for of_run in lines.values():
            sync = next((line for line in of_run if line.type == "source"), None)
            if sync is not None:
                runs.append(Run(sync, tuple(line for line in of_run if line.type == "event")))
        return runs

    def _keys(self, day: str) -> dict[str, str]:
        """Return for each run of a day the key of its report or, if it has none, of what it said when it began."""
        found: dict[str, str] = {}
        prefix = f"{self._address.key}/day={day}/"
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._address.bucket, Prefix=prefix)
        for page in pages:
            for each in page.get("Contents", []):
                folder, _, name = each["Key"][len(prefix) :].rpartition("/")
                run = folder.removeprefix("run_id=")
                if name == REPORT or (name == STARTED and run not in found):
                    found[run] = each["Key"]
        return found

    def _content(self, key: str) -> bytes:
        return get(self._s3, str(S3Address(self._address.bucket, key)))

    def _together(self, day: str) -> Iterator[ReportLine]:
        """Yield the lines of a day that was put together; none of one that was not."""
        try:
            key = f"{self._address.key}/day={day}/{_TOGETHER}"
            content = get_or_none(self._s3, str(S3Address(self._address.bucket, key)))
            yield from () if content is None else decode(unzipped(content, key, MAX_FILE_BYTES))
        except (OSError, EOFError, OversizedFile):  # Somebody's object, or half of one.
            return

    def _is_over(self, day: str, longest: timedelta) -> bool:
        """Whether every sync that began on a day has ended by now, if none takes longer."""
        return day < (self._now - longest).date().isoformat()

    def _put_together(self, day: str, lines: Iterable[ReportLine]) -> None:
        """Write the lines of a day as one object; do without if that is not permitted."""
        uri = str(S3Address(self._address.bucket, f"{self._address.key}/day={day}/{_TOGETHER}"))
        try:
            put(self._s3, uri, gzip.compress(encode(lines), 1))
        except Exception as error:
            _logger.debug("%s was not written: %s", uri, type(error).__name__)


def _has_ended(run: str, key: str, lines: Mapping[str, Sequence[ReportLine]]) -> bool:
    """Whether a run has a report whose lines are not among these."""
    return key.endswith(REPORT) and all(line.status == "started" for line in lines[run])


def _is_day(text: str) -> bool:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat() == text
    except ValueError:
        return False


def _by_run(lines: Iterable[ReportLine]) -> Mapping[str, list[ReportLine]]:
    found: dict[str, list[ReportLine]] = {}
    for line in lines:
        found.setdefault(line.run_id, []).append(line)
    return found


def by_table(runs: Iterable[Run]) -> dict[str, list[tuple[Run, ReportLine]]]:
    """Return for each table its runs, in the order of the runs, with its line in each."""
    tables: dict[str, list[tuple[Run, ReportLine]]] = {}
    for run in runs:
        for line in run.streams:
            tables.setdefault(line.table, []).append((run, line))
    return dict(sorted(tables.items()))
