"""What is reported of a unit whose worker died."""

from __future__ import annotations

import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.spark.backend import JobFailed, worker_failure


@pytest.mark.parametrize(
    ("detail", "failure_type", "words"),
    [
        (
            "Python worker exited unexpectedly (crashed): Fatal Python error: Segmentation fault\n\n",
            "system_error",
            "crashed (Segmentation fault)",
        ),
        ("Python worker exited unexpectedly (crashed)", "transient_error", "ran out of memory"),
    ],
)
def test_worker_failure_names_the_stream_and_the_cause(detail: str, failure_type: str, words: str) -> None:
    answer = worker_failure(StreamId("shop", "orders"), JobFailed(detail))

    assert "shop.orders" in answer.failure.message
    assert words in answer.failure.message
    assert (answer.failure.type, answer.failure.detail) == (failure_type, detail)
