"""The rejects of one sync: counted over its batches, limited per stream, registered and failed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.aws.objects import PendingUpload, Upload
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import (
    Partition,
    RejectCounts,
    RejectFile,
    RejectLedger,
    RejectLimit,
    RejectLocation,
    describe_reasons,
)
from unit_tests.cloud import BUCKET, Cloud

SOMEWHERE = RejectLocation("s3://lake/raw/_errors", "0a1b2c", "2026-11-21", "shop", "order_lines")


def test_a_uri_has_reason_stream_day_and_attempt() -> None:
    assert SOMEWHERE.uri("DESTINATION_SERIALIZATION_ERROR", "run-000001-0000-0a1b2c3d") == (
        "s3://lake/raw/_errors/DESTINATION_SERIALIZATION_ERROR/shop.order_lines/dt=2026-11-21/"
        "run-000001-0000-0a1b2c3d.jsonl.gz"
    )


def test_a_partition_has_the_values_of_the_folders_in_the_uri() -> None:
    assert SOMEWHERE.partition("R") == Partition("R", "shop.order_lines", "2026-11-21")


_numbers = st.integers(0, 100)
_reasons = st.dictionaries(st.tuples(st.none() | st.sampled_from("ab"), st.sampled_from("xy")), _numbers)
_counts = st.builds(RejectCounts, _numbers, _numbers, _numbers, _reasons)


@given(st.lists(_counts))
def test_the_total_is_the_sum_of_its_parts(parts: list[RejectCounts]) -> None:
    total = RejectCounts.total(parts)

    assert total.records == sum(part.records for part in parts)
    assert (total.refused, total.affected) == (sum(p.refused for p in parts), sum(p.affected for p in parts))
    assert sum(total.reasons.values()) == sum(sum(part.reasons.values()) for part in parts)
    assert total.values == sum(part.values for part in parts)


@given(_counts, _counts, _counts)
def test_the_order_of_additions_does_not_matter(a: RejectCounts, b: RejectCounts, c: RejectCounts) -> None:
    total = RejectCounts.total([a, b, c])

    assert total == RejectCounts.total([RejectCounts.total([c, a]), b])
    assert total == RejectCounts.total([total, RejectCounts()])


def test_whole_records_are_not_counted_as_values() -> None:
    assert RejectCounts(reasons={(None, "UNREADABLE"): 5, ("price", "WRONG"): 2}).values == 2


COUNTS = RejectCounts(100, 1, 10, {("price", "WRONG"): 8, ("born", "WRONG"): 8, (None, "UNREADABLE"): 1})


@pytest.mark.parametrize(
    ("limit", "exceeded"),
    [
        (RejectLimit(), False),
        (RejectLimit(max_ratio=0.1), False),
        (RejectLimit(max_ratio=0.099), True),
        (RejectLimit(max_ratio=0.0), True),
        (RejectLimit(max_count=10), False),
        (RejectLimit(max_count=9), True),
        (RejectLimit(max_count=0), True),
        (RejectLimit(max_ratio=0.5, max_count=9), True),
    ],
)
def test_a_limit_is_exceeded_by_more_affected_records_than_it_allows(limit: RejectLimit, exceeded: bool) -> None:
    assert (limit.exceeded(COUNTS) is not None) is exceeded


def test_the_message_names_the_limit_and_counts_reasons_per_column() -> None:
    assert RejectLimit(max_count=9).exceeded(COUNTS) == (
        "10 of 100 records contain rejects, which exceeds rejects.max_count 9: "
        "born WRONG 8 times; price WRONG 8 times; whole records UNREADABLE 1 time"
    )


def test_only_the_most_frequent_reasons_are_named() -> None:
    text = describe_reasons(RejectCounts(reasons={(f"c{number:02}", "WRONG"): 100 - number for number in range(15)}))

    assert text.startswith("c00 WRONG 100 times; c01 WRONG 99 times; ")
    assert text.endswith("c09 WRONG 91 times; and 5 more")


@given(st.integers(0, 999))
def test_the_ratio_is_compared_exactly(thousandths: int) -> None:
    limit = RejectLimit(max_ratio=thousandths / 1000)

    assert limit.exceeded(RejectCounts(1000, affected=thousandths)) is None
    assert limit.exceeded(RejectCounts(1000, affected=thousandths + 1)) is not None


def test_a_stream_without_records_exceeds_no_limit() -> None:
    assert RejectLimit(max_ratio=0.0, max_count=0).exceeded(RejectCounts()) is None


ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")
ROOT, RUN, DAY = f"s3://{BUCKET}/_errors", "run", "2026-11-21"
LOCATION = RejectLocation(ROOT, RUN, DAY, "shop", "orders")


def pending(cloud: Cloud, attempt: str) -> RejectFile:
    """Rejects as executors leave them."""
    upload = Upload(cloud.access.client("s3"), LOCATION.uri("R", attempt), deferred=True)
    upload.write(b"rejects of " + attempt.encode())
    upload.close()
    assert isinstance(upload.pending_upload, PendingUpload)
    return RejectFile(LOCATION.partition("R"), upload.uri, upload.pending_upload)


@pytest.fixture
def files(cloud: Cloud) -> list[RejectFile]:
    return [pending(cloud, attempt) for attempt in ("a", "b")]


class MemoryCatalog:
    """Keeps what is registered, or fails."""

    def __init__(self) -> None:
        self.registered: list[RejectFile] = []
        self.failure: Exception | None = None

    def register(self, files: Sequence[RejectFile]) -> None:
        if self.failure is not None:
            raise self.failure
        self.registered += files


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


@pytest.fixture
def ledger(cloud: Cloud, catalog: MemoryCatalog) -> RejectLedger:
    return RejectLedger(ROOT, RUN, DAY, RejectLimit(max_ratio=0.5, max_count=3), catalog, cloud.access)


def test_a_location_has_the_root_run_and_day_of_the_sync(ledger: RejectLedger) -> None:
    assert ledger.location("shop", "orders") == LOCATION


def test_a_limit_is_exceeded_by_all_batches_of_a_stream_together(ledger: RejectLedger) -> None:
    counts = RejectCounts(10, affected=2, reasons={("id", "WRONG"): 2})

    assert ledger.add(ORDERS, counts) is None
    assert ledger.add(ITEMS, counts) is None
    assert ledger.add(ORDERS, counts) == (
        "Stream orders: 4 of 20 records contain rejects, which exceeds rejects.max_count 3: id WRONG 4 times. "
        f"The connector did not commit the batch. The rejects of the batch are under {ROOT}/. "
        "Correct the source or the schema of the stream, or raise the limit."
    )


def test_rejects_that_are_published_are_visible_and_registered_in_the_catalog(
    ledger: RejectLedger, catalog: MemoryCatalog, cloud: Cloud, files: list[RejectFile]
) -> None:
    assert cloud.objects() == {}

    ledger.publish(files)

    assert [*cloud.objects().values()] == [b"rejects of a", b"rejects of b"]
    assert catalog.registered == files


def test_rejects_that_cannot_be_published_are_not_registered(
    ledger: RejectLedger, catalog: MemoryCatalog, cloud: Cloud, files: list[RejectFile]
) -> None:
    with cloud.refusing("CompleteMultipartUpload"), pytest.raises(ClientError):
        ledger.publish(files)

    assert catalog.registered == []


def test_a_batch_without_rejects_asks_nothing_of_aws_or_the_catalog(
    ledger: RejectLedger, catalog: MemoryCatalog
) -> None:
    catalog.failure = OSError("no network")

    ledger.publish([])


def test_a_catalog_that_cannot_be_updated_is_only_a_warning(
    ledger: RejectLedger, catalog: MemoryCatalog, files: list[RejectFile], caplog: pytest.LogCaptureFixture
) -> None:
    catalog.failure = OSError("no network")

    ledger.publish(files)

    [warning] = caplog.records
    assert (warning.levelno, warning.getMessage()) == (
        logging.WARNING,
        f"Cannot register rejects in table airbyte_rejects of the Glue Data Catalog. Read the objects under {ROOT}/ "
        "instead.",
    )
    assert warning.exc_info is not None
    assert warning.exc_info[1] is catalog.failure


@pytest.mark.parametrize("published", [False, True])
def test_rejects_of_a_failed_batch_are_deleted_and_others_kept(
    ledger: RejectLedger, cloud: Cloud, files: list[RejectFile], published: bool
) -> None:
    failed, kept = files
    ledger.publish(files if published else [kept])

    ledger.delete_uncommitted([failed])
    ledger.delete_uncommitted([failed])

    assert [*cloud.objects()] == [kept.uri.removeprefix(f"s3://{BUCKET}/")]
    assert cloud.unfinished_uploads() == []
