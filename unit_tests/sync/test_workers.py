"""Threads that work off a queue."""

from __future__ import annotations

import threading

import pytest

from destination_datalake.sync.workers import Workers


def never() -> bool:
    return False


def test_work_is_done_and_what_it_raises_is_told() -> None:
    workers = Workers(2, "test")

    assert [future.result() for future in [workers.submit(divmod, number, 2) for number in range(5)]] == [
        divmod(number, 2) for number in range(5)
    ]
    with pytest.raises(ZeroDivisionError):
        workers.submit(divmod, 1, 0).result()
    workers.close(never)


def test_closing_waits_for_what_has_begun_and_begins_nothing_more() -> None:
    workers = Workers(1, "test")
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait()
        done.append("the first")

    workers.submit(work)
    workers.submit(done.append, "the second")
    begun.wait()
    threading.Timer(0.05, go_on.set).start()

    workers.close(never)

    assert done == ["the first"]


def test_closing_does_not_wait_for_what_has_been_given_up() -> None:
    workers = Workers(1, "test")
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    workers.submit(work)
    begun.wait()

    workers.close(lambda: True)

    go_on.set()
