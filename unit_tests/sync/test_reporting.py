"""The last lines of a sync's log."""

from __future__ import annotations

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.reports.report import Rejected
from destination_datalake.sync.progress import Progress, StreamProgress
from destination_datalake.sync.reporting import summary
from unit_tests.reports.lines import a_line, a_stream

STREAMS = tuple(StreamProgress(StreamId(None, name)) for name in ("orders", "users"))
PROGRESS = Progress(STREAMS, seconds=1.0, buffered_bytes=0, states_released=0, states_held=0)


def test_a_stream_of_which_every_record_was_rejected_ends_with_warnings() -> None:
    lost = a_stream("orders", rows_received=7, rows_rejected=7, rejects=(Rejected("emitted_at", "R", 7),))
    good = a_stream("users", rows_received=7, row_count=6, rows_rejected=1, rejects=(Rejected("emitted_at", "R", 1),))

    orders, users, sync = summary([a_line(streams=2, states_released=0), lost, good], PROGRESS)

    assert (orders[0], users[0], sync[0]) == ("WARN", "INFO", "WARN")
    assert orders[1].endswith("No row was written: all 7 records were rejected; the main reason is R.")
    assert sync[1].endswith("All records of these streams were rejected: orders.")
