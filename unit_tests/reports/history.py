"""A history of syncs as a lake has it after some weeks: streams that grow, days that went wrong, and hostile names."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

from destination_datalake.files.suppression import ErasedColumn, RequestRecord
from destination_datalake.reports.health import Erasure, Run
from destination_datalake.reports.report import Named, Rejected, Stage
from unit_tests.reports.lines import BEGAN, a_line, a_stream

STREAMS = ("orders", "customers", "order_items", "web_events", "invoices")
HOSTILE = "<script>alert(1)</script>\"'&\u202e\x00{{7*7}}"
SHARES = {"reading": 0.5, "encoding": 0.3, "committing": 0.1, "merging": 0.08, "publishing": 0.02}


def history(syncs: int, hours: float = 6, streams: tuple[str, ...] = STREAMS, seed: int = 1) -> list[Run]:
    """So many syncs, the newest first."""
    random = Random(seed)
    return [_run(number, BEGAN - timedelta(hours=hours * number), streams, random) for number in range(syncs)]


def an_erasure(number: int, tables: tuple[str, ...] = ("shop.orders",), **members: Any) -> Erasure:
    """A request of `delete-rows`, done unless members say something else."""
    began = (BEGAN - timedelta(days=number)).isoformat(timespec="seconds")
    request = RequestRecord(
        id=f"20261101T000000Z-{number:08x}",
        column="user_id",
        target=("all",),
        ids=3,
        salt="",
        check="",
        started=began,
        finished=began,
        tables={table: ErasedColumn("user_id", "int64") for table in tables},
        suppress=number % 2 == 1,
    )
    return Erasure(request, **{"rows": 120, "remaining": 0, "has_report": True, "complete": True, **members})


def erasures(*tables: str) -> list[Erasure]:
    """Requests in each state, the newest first."""
    return [
        an_erasure(1, tables, rows=0, remaining=None, has_report=False, complete=False),
        an_erasure(2, tables, remaining=4, complete=False),
        an_erasure(3, tables),
    ]


def _run(number: int, began: Any, streams: tuple[str, ...], random: Random) -> Run:
    status: Any = "finished"
    if random.random() < 0.06:
        status = random.choice(("failed", "partial", "died", "terminated"))
    error = {"error": "Cannot write to table shop.orders: s3:PutObject was denied.", "error_code": "internal"}
    run, lines = f"run-{number:04}", []
    for place, name in enumerate(streams):
        rows = int(10 ** (5 - place * 0.6) * random.uniform(0.7, 1.3))
        bad = status in ("failed", "partial") and place == 0
        rejects = (Rejected("price", "DESTINATION_SERIALIZATION_ERROR", rows // 900),) if place < 2 else ()
        new = (Named("loyalty_tier", "string"),) if number % 40 == 7 and place == 1 else ()
        members: dict[str, Any] = {
            "stream_namespace": "shop",
            "database": "shop",
            "status": "failed" if bad else "finished",
            "sync_mode": "append_dedup" if place % 2 else "append",
            "rows_received": rows,
            "row_count": 0 if bad else rows,
            "rows_skipped": rows if bad else 0,
            "values_rejected": sum(reject.count for reject in rejects),
            "rejects": rejects,
            "new_columns": new,
            "promoted_columns": (Named("id", "long"),) if number % 50 == 20 and place == 0 else (),
            "bytes_written": rows * 55,
            "files": 1 + rows // 40000,
            "file_bytes_min": rows * 5,
            "file_bytes_p50": rows * 20,
            "file_bytes_p90": rows * 30,
            "file_bytes_max": rows * 40,
            **(error if bad else {}),
        }
        lines.append(a_stream(name, run, began, **members))
    seconds = random.uniform(40, 90) + sum(line.rows_received for line in lines) / 9000
    sync = a_line(
        run,
        began,
        seconds,
        status="started" if status == "died" else status,
        stages=tuple(Stage(name, seconds * share, seconds * share / 4) for name, share in SHARES.items()),
        **{
            name: sum(getattr(line, name) for line in lines)
            for name in ("rows_received", "row_count", "values_rejected", "bytes_written", "files")
        },
        **(error if status in ("failed", "partial") else {}),
    )
    return Run(sync, () if status == "died" else tuple(lines), status)
