"""What a process uses: its requests, counted when they are sent, and reported once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from botocore.exceptions import ClientError

from destination_datalake.aws.access import Usage, metered, take_usage
from unit_tests.cloud import BUCKET, Cloud


def test_every_request_counts_once_refused_ones_too(cloud: Cloud) -> None:
    take_usage()
    s3 = cloud.access.client("s3")

    s3.put_object(Bucket=BUCKET, Key="a", Body=b"")
    with contextlib.suppress(ClientError):
        s3.get_object(Bucket=BUCKET, Key="missing")
    cloud.access.client("glue").get_databases()

    assert take_usage().calls == {"s3.PutObject": 1, "s3.GetObject": 1, "glue.GetDatabases": 1}
    assert take_usage().calls == {}


def doubled(numbers: Iterable[int]) -> Iterator[int]:
    yield from (2 * number for number in numbers)


def test_work_yields_its_results_and_then_its_usage() -> None:
    *results, usage = metered(doubled, [1, 2])

    assert results == [2, 4]
    assert isinstance(usage, Usage)
    assert usage.cpu_seconds >= 0
    assert usage.peak_bytes > 1_000_000


def test_a_total_has_the_highest_peak() -> None:
    parts = [Usage({"s3.PutObject": 1}, 1.0, 5), Usage({"s3.PutObject": 2, "glue.GetTable": 1}, 0.5, 3)]

    assert Usage.total(parts) == Usage({"s3.PutObject": 3, "glue.GetTable": 1}, 1.5, 5)
    assert Usage.total([]) == Usage()
