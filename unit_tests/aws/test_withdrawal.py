"""What was written and will not be used is removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from destination_datalake.aws.upload import PendingUpload, Upload
from destination_datalake.aws.withdrawal import undone_on_failure, withdraw_all
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.cloud import cloud as an_account


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with an_account() as account:
        yield account


def hidden(cloud: Cloud, key: str) -> PendingUpload:
    upload = Upload(cloud.access.client("s3"), BUCKET, key, hidden=True)
    upload.write(b"content")
    upload.close()
    assert upload.pending_upload is not None
    return upload.pending_upload


def test_all_are_removed(cloud: Cloud) -> None:
    withdraw_all([hidden(cloud, "a"), hidden(cloud, "b")], cloud.access.client("s3"))

    assert cloud.unfinished_uploads() == []


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_that_cannot_be_removed_is_told_of_and_keeps_no_other_from_it(cloud: Cloud, position: int) -> None:
    written = [hidden(cloud, key) for key in ("a", "b", "c")]
    s3 = cloud.access.client("s3")
    unreachable = replace(written[position], bucket="nobody-s-bucket")

    with pytest.raises(s3.exceptions.ClientError):
        withdraw_all([*written[:position], unreachable, *written[position + 1 :]], s3)

    assert cloud.unfinished_uploads() == [unreachable.key]


def test_what_fails_is_undone_step_by_step_and_raised_whatever_steps_fail_too() -> None:
    taken: list[str] = []

    def impossible() -> None:
        taken.append("impossible")
        raise PermissionError("no")

    with (
        pytest.raises(ValueError, match="the reason") as raised,
        undone_on_failure(impossible, lambda: taken.append("last")),
    ):
        raise ValueError("the reason")

    assert taken == ["impossible", "last"]
    assert raised.value.__notes__ == ["What it left could not all be removed: PermissionError"]


def test_what_succeeds_stays() -> None:
    taken: list[str] = []

    with undone_on_failure(lambda: taken.append("undone")):
        taken.append("done")

    assert taken == ["done"]
