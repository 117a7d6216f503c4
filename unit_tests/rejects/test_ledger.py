"""The rejects of one sync: counted over its batches, limited per stream, registered and withdrawn."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.ledger import RejectLedger
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.location import RejectFile, RejectLocation
from unit_tests.cloud import BUCKET, Cloud

ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")
ROOT, RUN, DAY = f"s3://{BUCKET}/_errors", "run", "2026-11-21"
LOCATION = RejectLocation(ROOT, RUN, DAY, "shop", "orders")
FILES = [RejectFile(LOCATION.partition("R"), LOCATION.uri("R", unit)) for unit in ("a", "b")]


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
        "Stream orders: 4 of 20 records have rejects, which is more than rejects.max_count 3 allows: id WRONG 4 times. "
        f"The batch was not committed; its rejects are kept under {ROOT}/. "
        "Correct the source or the stream's schema, or raise the limit."
    )


def test_files_are_registered_in_the_catalog(ledger: RejectLedger, catalog: MemoryCatalog) -> None:
    ledger.register(FILES)

    assert catalog.registered == FILES


def test_a_catalog_that_cannot_be_updated_is_only_a_warning(
    ledger: RejectLedger, catalog: MemoryCatalog, caplog: pytest.LogCaptureFixture
) -> None:
    catalog.failure = OSError("no network")

    ledger.register(FILES)

    [warning] = caplog.records
    assert (warning.levelno, warning.getMessage()) == (
        logging.WARNING,
        f"Rejects were written under {ROOT}/ but their table in the Glue Data Catalog could not be updated.",
    )
    assert warning.exc_info is not None
    assert warning.exc_info[1] is catalog.failure


def test_withdrawn_files_are_deleted_and_others_kept(ledger: RejectLedger, cloud: Cloud) -> None:
    for file in FILES:
        cloud.access.client("s3").put_object(Bucket=BUCKET, Key=file.uri.removeprefix(f"s3://{BUCKET}/"), Body=b"")

    ledger.withdraw(FILES[:1])
    ledger.withdraw(FILES[:1])

    assert [*cloud.objects()] == [FILES[1].uri.removeprefix(f"s3://{BUCKET}/")]
