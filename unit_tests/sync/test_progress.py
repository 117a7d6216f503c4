"""The progress of a sync while it runs."""

from __future__ import annotations

import io
import os
import threading
from array import array
from dataclasses import replace

import pytest
from rich.console import Console

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.protocol.stdout import Stdout
from destination_datalake.rejects.ledger import RejectCounts
from destination_datalake.spark.backend import JobsProgress
from destination_datalake.sync.progress import (
    ActiveStages,
    Progress,
    Reporter,
    StreamProgress,
    news,
    progress_lines,
    progress_table,
)

ORDERS = StreamProgress(
    StreamId("shop", "orders"), rows_received=3000, bytes_received=3_000_000, committed=2000, sizes=array("q", [7, 9])
)
QUIET = StreamProgress(StreamId(None, "quiet"))
PROGRESS = Progress((ORDERS, QUIET), seconds=2.0, buffered_bytes=1_500_000, states_released=4, states_held=1)


BEGUN = Progress((), seconds=0.0, buffered_bytes=0, states_released=0, states_held=0)
SYNC_LINE = "Progress after 2 s: 1.5 MB/s received, 1.5 MB buffered, 4 states released, 1 held"
ORDERS_LINE = "Stream shop.orders: 3,000 records received, 2,000 committed"


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        pytest.param(PROGRESS, [f"{SYNC_LINE}.", f"{ORDERS_LINE}."], id="no line for a stream without records"),
        pytest.param(
            replace(PROGRESS, streams=(), stages=("reading", "encoding")),
            ["Progress after 2 s (reading, encoding): 0.0 MB/s received, 1.5 MB buffered, 4 states released, 1 held."],
            id="stages",
        ),
        pytest.param(
            replace(PROGRESS, encoding_bytes=900_000_000, tasks=JobsProgress(running=4, waiting=9, ended=0)),
            [f"{SYNC_LINE}; Spark encodes 900.0 MB, tasks: 4 running, 9 waiting.", f"{ORDERS_LINE}."],
            id="tasks and bytes that Spark has now",
        ),
        pytest.param(
            replace(PROGRESS, encoding_bytes=0, tasks=JobsProgress(running=2, waiting=0, ended=5)),
            [f"{SYNC_LINE}; Spark tasks: 2 running, 5 ended.", f"{ORDERS_LINE}."],
            id="tasks of a merge",
        ),
        pytest.param(
            replace(PROGRESS, streams=(replace(ORDERS, counts=RejectCounts(3000, refused=2)),)),
            [f"{SYNC_LINE}.", f"{ORDERS_LINE}, 2 records rejected (see _errors/)."],
            id="rejects",
        ),
        pytest.param(
            BEGUN,
            ["Progress after 0 s: 0.0 MB/s received, 0.0 MB buffered, 0 states released, 0 held."],
            id="no rate after zero seconds",
        ),
    ],
)
def test_progress_has_a_line_for_the_sync_and_one_for_each_stream(progress: Progress, lines: list[str]) -> None:
    assert list(progress_lines(progress)) == lines


def test_active_stages_are_in_the_order_of_the_data() -> None:
    stages = ActiveStages()
    with stages.active("encoding"), stages.active("reading"), stages.active("encoding"):
        active = stages.now()

    assert (active, stages.now()) == (("reading", "encoding"), ())


@pytest.mark.parametrize(
    ("progress", "lines"),
    [
        (replace(PROGRESS, seconds=7.0), []),
        (replace(PROGRESS, seconds=7.0, states_released=5), ["Progress after 7 s"]),
        (replace(PROGRESS, seconds=7.0, stages=("merging",)), ["Progress after 7 s (merging)"]),
        (replace(PROGRESS, seconds=7.0, tasks=JobsProgress(ended=1, running=1)), ["Progress after 7 s"]),
        (
            replace(PROGRESS, seconds=7.0, streams=(ORDERS, replace(QUIET, rows_received=1, bytes_received=9))),
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

    # Then it has logged the progress once
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        assert len(lines.readlines()) == len([*progress_lines(PROGRESS)])


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

    # Then leaving it does not wait for the answer
    os.close(write_end)
    with os.fdopen(read_end) as lines:
        assert lines.readlines() == []
    thawed.set()


def test_progress_of_many_streams_names_the_busiest_and_counts_the_others() -> None:
    streams = tuple(
        StreamProgress(StreamId(None, f"s{number}"), rows_received=1, bytes_received=number, committed=1)
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


@pytest.mark.parametrize("text", ["shop.orders", "3,000", "2,000", "1.5", "quiet", "1 held"])
def test_the_table_on_the_terminal_shows_the_progress(text: str) -> None:
    screen = io.StringIO()

    Console(file=screen, width=100).print(progress_table(PROGRESS))

    assert text in screen.getvalue()


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
