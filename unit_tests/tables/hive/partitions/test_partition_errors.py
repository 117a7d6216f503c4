"""Errors of single partitions in the answers of batches: retried, expected, or raised; never overlooked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from destination_datalake.schema.types import Field, String
from destination_datalake.tables.table import TableConflict
from unit_tests.cloud import BUCKET, Cloud, another_client
from unit_tests.tables.hive.partitions.events import (
    AT,
    FEB,
    ID,
    JAN,
    NOTE,
    Sync,
    ids,
    partitions,
    register,
    rows,
    sync,
)

pytestmark = pytest.mark.share(3)


def failing(operation: str, code: str, *, times: int) -> Any:
    """Access with which the first calls of an operation answer that each partition has failed with this code."""
    access, remaining = another_client(), [times]

    def answer(params: Any, **_: object) -> Any:
        if remaining[0] == 0:
            return None
        remaining[0] -= 1
        body = str(params["body"])
        failed = [day for day in (JAN, FEB) if day in body]
        member = "PartitionValueList" if operation == "BatchUpdatePartition" else "PartitionValues"
        detail = {"ErrorCode": code, "ErrorMessage": f"not {failed[0]}"}
        parsed = {"Errors": [{member: [day], "ErrorDetail": detail} for day in failed]}
        return SimpleNamespace(status_code=200), parsed

    access.client("glue").meta.events.register(f"before-call.glue.{operation}", answer)
    return access


def changes_all(cloud: Cloud, access: Any, generation: int = 1) -> None:
    """A sync that creates and changes partitions, and one of the next generation that deletes some."""
    appending = sync(cloud, columns=(ID, AT, NOTE), generation=generation, access=access)
    appending.commit((3, JAN), (4, FEB), note=7)
    replacing = sync(cloud, columns=(ID, AT, NOTE), generation=generation + 1, overwrite=True, access=access)
    replacing.commit((11, JAN))
    replacing.publish()


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("BatchCreatePartition", "ThrottlingException"),
        ("BatchUpdatePartition", "InternalServiceException"),
        ("BatchDeletePartition", "OperationTimeoutException"),
    ],
)
def test_a_partition_that_failed_for_a_moment_is_sent_again(cloud: Cloud, operation: str, code: str) -> None:
    sync(cloud, generation=1).commit((1, JAN))

    changes_all(cloud, failing(operation, code, times=1))

    assert ids(cloud) == [11]


@pytest.mark.parametrize("operation", ["BatchCreatePartition", "BatchUpdatePartition", "BatchDeletePartition"])
def test_a_partition_that_fails_otherwise_fails_the_commit_and_no_message_has_its_values(
    cloud: Cloud, operation: str
) -> None:
    sync(cloud, generation=1).commit((1, JAN))

    with pytest.raises(ClientError) as failed:
        changes_all(cloud, failing(operation, "ResourceNumberLimitExceededException", times=1))

    assert failed.value.operation_name == operation
    assert failed.value.response["Error"]["Code"] == "ResourceNumberLimitExceededException"
    assert JAN not in str(failed.value)
    changes_all(cloud, cloud.access, generation=2)
    assert ids(cloud) == [11]


def test_keys_that_glue_did_not_process_are_asked_for_again(cloud: Cloud) -> None:
    sync(cloud).commit((1, JAN), (2, FEB))
    access, asked = another_client(), list[int]()

    def answer(**_: object) -> Any:
        asked.append(1)
        if len(asked) > 1:
            return None
        january = partitions(cloud)[(JAN,)]
        return SimpleNamespace(status_code=200), {"Partitions": [january], "UnprocessedKeys": [{"Values": [FEB]}]}

    access.client("glue").meta.events.register("before-call.glue.BatchGetPartition", answer)
    sync(cloud, access=access).commit((3, JAN), (4, FEB))

    assert len(asked) == 2
    assert ids(cloud) == [1, 2, 3, 4]


def test_a_conflict_about_a_partition_by_a_column_s_values_does_not_quote_them(cloud: Cloud) -> None:
    country = Field("country", "country", String())
    by_country: Any = {"streams": [{"stream": "Events", "namespace": "shop", "partition_by": [{"source": "country"}]}]}
    syncing: Sync = sync(cloud, columns=(ID, country), **by_country)
    register(cloud, ["Atlantis"], f"s3://{BUCKET}/theirs/country=Atlantis/")

    with pytest.raises(TableConflict) as refused:
        syncing.commit((1, None), country="Atlantis")

    assert "a partition for rows of the stream is registered at a location outside" in str(refused.value)
    assert "Atlantis" not in str(refused.value)
    syncing.commit((2, None), country="a/b=c %é")
    assert [(id, values) for id, values, _ in rows(cloud)] == [(2, ("a/b=c %é",))]
