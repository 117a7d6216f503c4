"""The health of tables according to the reports of their syncs. Each finding has a remedy.

Usual values are medians of earlier syncs. They are not evaluated for tables with fewer than `_ENOUGH` earlier syncs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Literal

from destination_datalake.files.suppression import RECORD_SUPPRESSED
from destination_datalake.reports.reading import Run, by_table
from destination_datalake.reports.report import Rejected, ReportLine

Kind = Literal["failing", "stalled", "rows", "rejects", "small files", "snapshots", "pending rows", "slow"]

_ENOUGH = 5
_COMPARED = 30
"""The maximum number of earlier syncs in a comparison."""

_STALLED = 3
"""The multiple of the usual interval after which a table is stalled."""

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
    """A problem of a table: what was observed, and the remedy."""

    kind: Kind
    seen: str
    advice: str


@dataclass(frozen=True, slots=True)
class TableHealth:
    """The health of a table: the number of examined syncs, the last successful one, and the findings."""

    table: str
    syncs: int
    last_finished: datetime | None
    usual_seconds: float | None
    """The median interval between the starts of syncs."""
    rows: int | None
    failures_in_a_row: int
    findings: tuple[Finding, ...]


_History = Sequence[tuple[Run, ReportLine]]


def health(runs: Sequence[Run], now: datetime) -> list[TableHealth]:
    """Return the health of each table with a sync among the runs, which are ordered newest first."""
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
    """Return the number of consecutive failures up to now. Terminated and unfinished syncs are ignored."""
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
        yield Finding("failing", f"{seen}{last_one} without a report", "Check the limits of memory and disk.")
        return
    advice = {
        "insufficient_permissions": "Grant the missing permission, which `destination-datalake check` names.",
        "invalid_settings": "Correct the configuration according to the message.",
    }.get(last.error_code or "", "Run the sync again. If the error persists, report it.")
    yield Finding("failing", f"{seen}: {last.error}", advice)


def _stalled(last: datetime, usual: float | None, now: datetime) -> Iterator[Finding]:
    waited = (now - last).total_seconds()
    if usual is not None and waited > _STALLED * max(usual, 60):
        yield Finding(
            "stalled",
            f"no sync for {duration(waited)}; the usual interval is {duration(usual)}",
            "Check the connection's schedule, and whether it is paused.",
        )


def _total_loss(finished: _History) -> list[Finding]:
    """Return a finding if the last successful sync rejected every record. Needs no earlier syncs."""
    lost = finished[0][1].total_loss if finished else None
    advice = "Query the table airbyte_rejects, correct the source or its schema, and refresh the stream."
    return [] if lost is None else [Finding("rejects", f"no row was written: {lost}", advice)]


def _unusual(finished: _History) -> Iterator[Finding]:
    lines = [line for _, line in finished]
    if len(lines) <= _ENOUGH:
        return
    last, before = lines[0], lines[1 : _COMPARED + 1]
    rows = median(line.row_count for line in before)
    if rows >= _MANY_ROWS and not rows / _UNUSUAL_ROWS <= last.row_count <= rows * _UNUSUAL_ROWS:
        advice = "Check the source: a filter, a cursor or a schedule may have changed."
        yield Finding("rows", f"{last.row_count:,} rows; the usual number is {rows:,.0f}", advice)
    ratio, usual = _rejects(last), median(map(_rejects, before))
    if ratio > max(_FEW_REJECTS, _UNUSUAL_REJECTS * usual):
        worst = max(
            (reject for reject in last.rejects if not _is_suppressed(reject)),
            key=lambda reject: reject.count,
            default=None,
        )
        column = f", most in {worst.column_name or 'whole records'}: {worst.reason}" if worst is not None else ""
        advice = "Query the table airbyte_rejects, and correct the source or its schema."
        yield Finding("rejects", f"{ratio:.1%} of records have rejects; the usual ratio is {usual:.1%}{column}", advice)
    seconds = sorted(run.sync.seconds or 0.0 for run, _ in finished[1 : _COMPARED + 1])
    p95, took = seconds[(len(seconds) - 1) * 95 // 100], finished[0][0].sync.seconds or 0.0
    if took > _SLOW * max(p95, 60):
        stages = sorted(finished[0][0].sync.stages, key=lambda stage: -stage.seconds)
        longest = f" (stage {stages[0].stage}: {duration(stages[0].seconds)})" if stages else ""
        advice = (
            "If the longest stage is reading, the source is slow. Otherwise add cores to Spark, or check for "
            "throttling by AWS."
        )
        seen = f"the last sync took {duration(took)}{longest}; 95 % of earlier ones took less than {duration(p95)}"
        yield Finding("slow", seen, advice)


def _rejects(line: ReportLine) -> float:
    """Return the number of rejects per record, without records suppressed by `delete-rows --suppress`."""
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
            f"{files:,} files of {size / files / 1e6:.1f} MB on average",
            "Run `destination-datalake maintain`, or set the option maintenance.",
        )
    if (line.table_snapshots or 0) > _MANY_SNAPSHOTS:
        yield Finding(
            "snapshots",
            f"{line.table_snapshots:,} snapshots",
            "Run `destination-datalake maintain`, or set the option maintenance.",
        )
    if line.table_rows_pending:
        yield Finding(
            "pending rows",
            f"{line.table_rows_pending:,} rows are not yet deduplicated",
            "The next sync merges them. If they stay, check its log for warnings.",
        )


def duration(seconds: float) -> str:
    """Return a duration with a unit: 40 s, 5 min, 2 h, 3 d."""
    delta = timedelta(seconds=seconds)
    for unit, length in (("d", timedelta(days=2)), ("h", timedelta(hours=2)), ("min", timedelta(minutes=2))):
        if delta >= length:
            return f"{delta / (length / 2):.0f} {unit}"
    return f"{seconds:.0f} s"
