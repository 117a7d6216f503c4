"""The progress of a sync while it runs, and its summary."""

from __future__ import annotations

import io
import json
import os
import threading
from dataclasses import replace

import pytest
from rich.console import Console

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.spark.backend import JobsProgress
from destination_datalake.sync.progress import (
    ActiveStages,
    Progress,
    Reporter,
    StreamProgress,
    news,
    progress_lines,
    progress_table,
    summary,
)

ORDERS = StreamProgress(
    StreamId("shop", "orders"), received=3000, received_bytes=3_000_000, committed=2000, files=2, file_bytes=500_000
)
QUIET = StreamProgress(StreamId(None, "quiet"))
PROGRESS = Progress((ORDERS, QUIET), seconds=2.0, buffered_bytes=1_500_000, states_released=4, states_held=1)


def test_progress_has_a_line_for_the_sync_and_one_for_each_stream_with_records() -> None:
    assert list(progress_lines(PROGRESS)) == [
        "Progress after 2 s: 1.5 MB/s received, 1.5 MB buffered, 4 states released, 1 held.",
        "Stream shop.orders: 3000 records received, 2000 committed.",
    ]


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        (replace(PROGRESS, seconds=7.0), []),
        (replace(PROGRESS, seconds=7.0, states_released=5), ["Progress after 7 s"]),
        (replace(PROGRESS, seconds=7.0, stages=("merging",)), ["Progress after 7 s (merging)"]),
        (replace(PROGRESS, seconds=7.0, tasks=JobsProgress(ended=1, running=1)), ["Progress after 7 s"]),
        (
            replace(PROGRESS, seconds=7.0, streams=(ORDERS, replace(QUIET, received=1, received_bytes=9))),
            ["Progress after 7 s", "Stream quiet"],
        ),
    ],
    ids=["only the time", "a state", "a stage", "tasks", "a stream"],
)
def test_the_log_repeats_nothing(progress: Progress, lines: list[str]) -> None:
    assert [line.partition(":")[0] for line in news(progress, PROGRESS)] == lines
    assert list(news(progress, None)) == list(progress_lines(progress))


def test_the_reporter_says_nothing_between_news() -> None:
    # Given a reporter that has looked often at a sync in which nothing happens
    looked = threading.Semaphore(0)

    def tasks() -> JobsProgress:
        looked.release()
        return JobsProgress()

    read_end, write_end = os.pipe()
    with Reporter(Stdout(write_end), lambda: PROGRESS, tasks, every_seconds=0.001):
        for _ in range(20):
            looked.acquire()

    # Then it has logged the progress once, and the summary
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        assert len(lines.readlines()) == len([*progress_lines(PROGRESS), *summary(PROGRESS)])


def test_progress_names_the_active_stages() -> None:
    stages = ActiveStages()
    with stages.active("encoding"), stages.active("reading"), stages.active("encoding"):
        active = stages.now()

    assert (active, stages.now()) == (("reading", "encoding"), ())
    line = next(iter(progress_lines(replace(PROGRESS, stages=active))))
    assert line.startswith("Progress after 2 s (reading, encoding): ")


def test_progress_has_the_tasks_and_bytes_that_spark_has_now() -> None:
    busy = replace(PROGRESS, encoding_bytes=900_000_000, tasks=JobsProgress(running=4, waiting=9, ended=0))

    line = next(iter(progress_lines(busy)))

    assert line.endswith("1 held; Spark encodes 900.0 MB, tasks: 4 running, 9 waiting.")


def test_progress_has_the_tasks_of_a_merge() -> None:
    busy = replace(PROGRESS, encoding_bytes=0, tasks=JobsProgress(running=2, waiting=0, ended=5))

    line = next(iter(progress_lines(busy)))

    assert line.endswith("1 held; Spark's tasks: 2 running, 5 ended.")


def test_a_spark_that_does_not_answer_does_not_keep_a_sync_from_ending() -> None:
    # Given a reporter whose thread waits for a frozen Spark
    asked, thawed = threading.Event(), threading.Event()

    def tasks() -> JobsProgress:
        asked.set()
        thawed.wait()
        return JobsProgress()

    read_end, write_end = os.pipe()
    with Reporter(Stdout(write_end), lambda: PROGRESS, tasks, every_seconds=0.01):
        asked.wait()

    # Then leaving it has written the summary
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        assert "states released" in lines.readlines()[-1]
    thawed.set()


def test_progress_of_many_streams_names_the_busiest_and_counts_the_others() -> None:
    streams = tuple(
        StreamProgress(StreamId(None, f"s{number}"), received=1, received_bytes=number, committed=1)
        for number in range(1000)
    )
    many = replace(PROGRESS, streams=streams)

    _, *lines, last = progress_lines(many)

    assert [line.partition(":")[0] for line in lines] == [f"Stream s{number}" for number in range(990, 1000)]
    assert last == "990 other streams: 990 records received, 990 committed."
    screen = io.StringIO()
    Console(file=screen, width=100).print(progress_table(many))
    assert "and 990 other streams" in screen.getvalue()
    assert len(screen.getvalue().splitlines()) < 20


def test_the_summary_has_a_line_for_every_stream_even_without_records() -> None:
    assert list(summary(PROGRESS)) == [
        "Stream shop.orders: 3000 records received, 2000 committed in 2 files, 0.5 MB together.",
        "Stream quiet: 0 records received, 0 committed in 0 files, 0.0 MB together.",
        "2000 records committed in 2.0 s (1000 records/s), 4 states released.",
    ]


def test_progress_and_summary_count_rejects() -> None:
    rejecting = replace(PROGRESS, streams=(replace(ORDERS, rejected_records=2),))

    assert list(progress_lines(rejecting))[1] == (
        "Stream shop.orders: 3000 records received, 2000 committed, 2 records rejected (see _errors/)."
    )
    assert "2 records rejected (see _errors/)" in next(iter(summary(rejecting)))


def test_the_summary_counts_rejected_values_and_marks_failed_streams() -> None:
    rejecting = replace(ORDERS, rejected_records=1, rejected_values=7, failed=True)
    failed = replace(PROGRESS, streams=(rejecting,))

    assert next(iter(summary(failed))) == (
        "Stream shop.orders: 3000 records received, 2000 committed in 2 files, 0.5 MB together, "
        "1 records and 7 values rejected (see _errors/), FAILED."
    )


def test_progress_after_zero_seconds_has_no_rate() -> None:
    begun = Progress((), seconds=0.0, buffered_bytes=0, states_released=0, states_held=0)

    assert list(progress_lines(begun)) == [
        "Progress after 0 s: 0.0 MB/s received, 0.0 MB buffered, 0 states released, 0 held."
    ]
    assert list(summary(begun)) == ["0 records committed in 0.0 s (0 records/s), 0 states released."]


@pytest.mark.parametrize("text", ["shop.orders", "3,000", "2,000", "1.5", "quiet", "1 held"])
def test_the_table_on_the_terminal_shows_the_progress(text: str) -> None:
    screen = io.StringIO()

    Console(file=screen, width=100).print(progress_table(PROGRESS))

    assert text in screen.getvalue()


def test_the_reporter_logs_the_summary_at_the_end() -> None:
    read_end, write_end = os.pipe()

    with Reporter(Stdout(write_end), lambda: PROGRESS):
        pass
    os.close(write_end)

    with open(read_end, "rb") as reader:  # noqa: PTH123 (a descriptor, not a path)
        messages = [json.loads(line)["log"] for line in reader]
    assert messages == [{"level": "INFO", "message": line} for line in summary(PROGRESS)]


def test_a_stage_takes_as_long_as_any_thread_is_in_it() -> None:
    seconds_now = iter(range(100))
    stages = ActiveStages(lambda: float(next(seconds_now)))

    with stages.active("encoding"), stages.active("encoding"):
        pass
    with stages.active("encoding"):
        running = stages.spent()

    assert stages.now() == ()
    assert {name: seconds for name, (seconds, _) in running.items()} == {"encoding": 2.0}
    assert {name: seconds for name, (seconds, _) in stages.spent().items()} == {"encoding": 3.0}
