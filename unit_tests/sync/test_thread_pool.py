"""A pool of threads: results, and closing."""

from __future__ import annotations

import threading

import pytest

from destination_datalake.sync.thread_pool import ThreadPool


def never() -> bool:
    return False


def test_a_future_has_the_result_or_the_exception_of_its_call() -> None:
    pool = ThreadPool(2, "test")

    assert [future.result() for future in [pool.submit(divmod, number, 2) for number in range(5)]] == [
        divmod(number, 2) for number in range(5)
    ]
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result()
    pool.close(never)


def test_closing_waits_for_running_calls_and_starts_no_queued_one() -> None:
    pool = ThreadPool(1, "test")
    begun, go_on, done = threading.Event(), threading.Event(), []

    def work() -> None:
        begun.set()
        go_on.wait()
        done.append("the first")

    pool.submit(work)
    pool.submit(done.append, "the second")
    begun.wait()
    threading.Timer(0.05, go_on.set).start()

    pool.close(never)

    assert done == ["the first"]


def test_closing_does_not_wait_for_calls_that_are_given_up() -> None:
    pool = ThreadPool(1, "test")
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait()

    pool.submit(work)
    begun.wait()

    pool.close(lambda: True)

    go_on.set()
