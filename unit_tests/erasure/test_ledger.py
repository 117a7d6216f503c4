"""The ledger of one erasure request that two commands run at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from destination_datalake.config.options import Config
from destination_datalake.erasure.ids import IdsFile
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.files.suppression import RequestRecord, requests
from unit_tests.cloud import BUCKET, Cloud, another_client, during
from unit_tests.config.examples import options

TYPES = {"shop.orders": pa.int64()}


@pytest.fixture
def file(tmp_path: Path) -> IdsFile:
    path = tmp_path / "ids.txt"
    path.write_text("7\n")
    return IdsFile(path)


def opened(cloud: Cloud, file: IdsFile) -> Ledger:
    config = Config.parse(options(bucket_name=BUCKET, bucket_prefix="lake"))
    return Ledger.open("id", ("all",), file, config, cloud.access)


def stored(cloud: Cloud) -> RequestRecord:
    (record,) = requests(f"s3://{BUCKET}/lake/_deletions", cloud.access.client("s3"))
    return record


def test_of_two_commands_at_once_the_suppression_of_one_remains(cloud: Cloud, file: IdsFile) -> None:
    first = opened(cloud, file)
    first.begin(TYPES, file, suppress=False)
    second = opened(cloud, file)

    second.begin({"shop.others": pa.string()}, file, suppress=True)
    first.finish()

    assert stored(cloud).suppress
    assert {*stored(cloud).tables} == {"shop.orders", "shop.others"}
    assert stored(cloud).finished is not None
    assert first.record == stored(cloud)


def test_a_suppression_that_begins_while_the_request_is_written_remains(cloud: Cloud, file: IdsFile) -> None:
    first = opened(cloud, file)
    first.begin(TYPES, file, suppress=False)
    uri_path, waiting = f"/lake/_deletions/{first.record.id}/request.json", [True]

    def suppress_meanwhile(params: dict[str, Any], **_: object) -> None:
        if waiting and "If-Match" in params["headers"]:
            waiting.clear()
            suppressing = msgspec.structs.replace(stored(cloud), suppress=True)
            another_client().client("s3").put_object(
                Bucket=BUCKET, Key=uri_path.lstrip("/"), Body=msgspec.json.encode(suppressing)
            )

    with during(cloud.access, "before-call.s3.PutObject", suppress_meanwhile):
        first.finish()

    assert (waiting, stored(cloud).suppress, stored(cloud).finished is not None) == ([], True, True)


def test_a_request_that_begins_again_is_unfinished(cloud: Cloud, file: IdsFile) -> None:
    first = opened(cloud, file)
    first.begin(TYPES, file, suppress=False)
    second = opened(cloud, file)
    first.finish()

    second.begin(TYPES, file, suppress=False)

    assert stored(cloud).finished is None
