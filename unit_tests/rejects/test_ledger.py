"""The rejects of one sync: counted over its batches, limited per stream, registered and failed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from botocore.exceptions import ClientError

from destination_datalake.aws.objects import Upload
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.counts import RejectCounts
from destination_datalake.rejects.ledger import RejectLedger
from destination_datalake.rejects.limit import RejectLimit
from destination_datalake.rejects.location import RejectFile, RejectLocation
from unit_tests.cloud import BUCKET, Cloud

ORDERS, ITEMS = StreamId(None, "orders"), StreamId("shop", "items")
ROOT, RUN, DAY = f"s3://{BUCKET}/_errors", "run", "2026-11-21"
LOCATION = RejectLocation(ROOT, RUN, DAY, "shop", "orders")


def pending(cloud: Cloud, attempt: str) -> RejectFile:
    """Rejects as executors leave them."""
    upload = Upload(cloud.access.client("s3"), LOCATION.uri("R", attempt), deferred=True)
    upload.write(b"rejects of " + attempt.encode())
    upload.close()
    assert upload.pending_upload is not None
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
        "Stream orders: 4 of 20 records have rejects, which is more than rejects.max_count 3 allows: id WRONG 4 times. "
        f"The batch was not committed; its rejects are kept under {ROOT}/. "
        "Correct the source or the stream's schema, or raise the limit."
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
        f"Rejects were written under {ROOT}/ but their table in the Glue Data Catalog could not be updated.",
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
