"""What is unhealthy about a table, by its syncs: as rules, each with what is just right and what is too much."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from destination_datalake.files.suppression import RECORD_SUPPRESSED
from destination_datalake.reports.health import Run, duration, health
from destination_datalake.reports.report import Rejected
from unit_tests.reports.lines import BEGAN, a_line, a_stream

LAST = BEGAN + timedelta(days=10)
USUAL: dict[str, Any] = {"row_count": 1000, "rows_received": 1000}


def a_run(days_ago: float, sync: dict[str, Any] | None = None, **members: Any) -> Run:
    began = LAST - timedelta(days=days_ago)
    line = a_stream("orders", f"run-{days_ago}", began, **{**USUAL, **members})
    status = members.get("status", "finished")
    return Run(a_line(f"run-{days_ago}", began, **{"status": status, **(sync or {})}), (line,), status)


def died(days_ago: float) -> Run:
    run, began = f"run-{days_ago}", LAST - timedelta(days=days_ago)
    return Run(a_line(run, began, status="started"), (a_stream("orders", run, began, status="started"),), "died")


USUALLY = [a_run(days) for days in range(1, 9)]


def kinds(*runs: Run, hours: float = 1) -> list[str]:
    [table] = health([*runs, *USUALLY], LAST + timedelta(hours=hours))
    return [finding.kind for finding in table.findings]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (a_run(0), []),
        (a_run(0, row_count=200), []),
        (a_run(0, row_count=199), ["rows"]),
        (a_run(0, row_count=5000), []),
        (a_run(0, row_count=5001), ["rows"]),
        (a_run(0, row_count=0), ["rows"]),
        (a_run(0, values_rejected=10), []),
        (a_run(0, values_rejected=11), ["rejects"]),
        (a_run(0, rows_rejected=500, rejects=(Rejected(None, "R", 500),)), ["rejects"]),
        (a_run(0, rows_rejected=500, rejects=(Rejected(None, RECORD_SUPPRESSED, 500),)), []),
        (a_run(0, row_count=0, rows_rejected=1000, rejects=(Rejected("at", "R", 1000),)), ["rejects"]),
        (a_run(0, {"seconds": 120.0}), []),
        (a_run(0, {"seconds": 121.0}), ["slow"]),
        (a_run(0, table_files=101, table_bytes=101 * 16 * 2**20), []),
        (a_run(0, table_files=101, table_bytes=101 * 16 * 2**20 - 1), ["small files"]),
        (a_run(0, table_files=100, table_bytes=1), []),
        (a_run(0, table_snapshots=1001), ["snapshots"]),
        (a_run(0, table_rows_pending=1), ["pending rows"]),
        (a_run(0, status="failed", error="Denied.", error_code="insufficient_permissions"), ["failing"]),
        (a_run(0, status="terminated"), []),
        (died(0), ["failing"]),
    ],
)
def test_a_table_is_unhealthy_by_its_last_sync(last: Run, expected: list[str]) -> None:
    assert kinds(last) == expected


@pytest.mark.parametrize(("hours", "expected"), [(72, []), (72.1, ["stalled"])])
def test_a_table_without_a_sync_for_three_of_its_intervals_is_stalled(hours: float, expected: list[str]) -> None:
    assert kinds(a_run(0), hours=hours) == expected


def test_nothing_is_unusual_about_a_table_of_few_syncs() -> None:
    [table] = health([a_run(0, row_count=1, values_rejected=1000), a_run(1)], LAST + timedelta(days=300))

    assert (table.findings, table.usual_seconds) == ((), None)


def test_a_first_sync_whose_every_record_was_rejected_is_unhealthy() -> None:
    rejected: dict[str, Any] = {"row_count": 0, "rows_rejected": 1000}

    [lost] = health([a_run(0, **rejected, rejects=(Rejected("at", "R", 1000),))], LAST)
    [suppressed] = health([a_run(0, **rejected, rejects=(Rejected(None, RECORD_SUPPRESSED, 1000),))], LAST)

    [finding] = lost.findings
    assert finding.seen == "the last sync wrote no rows: all 1,000 records were rejected; the main reason is R"
    assert suppressed.findings == ()


def test_the_last_failure_is_told_and_not_an_older_one() -> None:
    [table] = health([died(0), a_run(0.1, status="failed", error="an older one"), *USUALLY], LAST)

    assert table.findings[0].seen == "the last 2 syncs failed, the last one without a final report"


def test_failures_in_a_row_end_with_a_good_sync() -> None:
    failed = [a_run(0.1, status="failed", error="no"), died(0.2), a_run(0.3, status="terminated"), died(0.4)]

    [table] = health([*failed, *USUALLY], LAST)

    assert table.failures_in_a_row == 3
    assert table.findings[0].seen == "the last 3 syncs failed: no"
    assert table.last_finished == LAST - timedelta(days=1)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7100, "118 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text
