"""Where rejects are written."""

from __future__ import annotations

from destination_datalake.aws.objects import PendingUpload
from destination_datalake.rejects.location import Partition, RejectFile, RejectLocation

LOCATION = RejectLocation("s3://lake/raw/_errors", "0a1b2c", "2026-11-21", "shop", "order_lines")


def test_a_uri_has_reason_stream_day_and_attempt() -> None:
    assert LOCATION.uri("DESTINATION_SERIALIZATION_ERROR", "run-000001-0000-0a1b2c3d") == (
        "s3://lake/raw/_errors/DESTINATION_SERIALIZATION_ERROR/shop.order_lines/dt=2026-11-21/"
        "run-000001-0000-0a1b2c3d.jsonl.gz"
    )


def test_a_partition_has_the_values_of_the_folders_in_the_uri() -> None:
    assert LOCATION.partition("R") == Partition("R", "shop.order_lines", "2026-11-21")


def test_a_file_is_directly_in_the_folder_of_its_partition() -> None:
    file = RejectFile(LOCATION.partition("R"), LOCATION.uri("R", "attempt"), PendingUpload("lake", "key", "id", ()))

    assert file.folder == "s3://lake/raw/_errors/R/shop.order_lines/dt=2026-11-21/"
