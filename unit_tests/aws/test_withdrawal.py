"""Withdrawal of what a failed commit wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from destination_datalake.aws.upload import PendingUpload, Upload
from destination_datalake.aws.withdrawal import undone_on_failure, withdraw_all
from unit_tests.cloud import BUCKET, Cloud


def pending(cloud: Cloud, key: str) -> PendingUpload:
    upload = Upload(cloud.access.client("s3"), BUCKET, key, deferred=True)
    upload.write(b"content")
    upload.close()
    assert upload.pending_upload is not None
    return upload.pending_upload


def test_all_uploads_are_aborted(cloud: Cloud) -> None:
    withdraw_all([pending(cloud, "a"), pending(cloud, "b")], cloud.access.client("s3"))

    assert cloud.unfinished_uploads() == []


@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_failure_is_raised_and_the_others_are_withdrawn(cloud: Cloud, position: int) -> None:
    written = [pending(cloud, key) for key in ("a", "b", "c")]
    s3 = cloud.access.client("s3")
    unreachable = replace(written[position], bucket="nobody-s-bucket")

    with pytest.raises(s3.exceptions.ClientError):
        withdraw_all([*written[:position], unreachable, *written[position + 1 :]], s3)

    assert cloud.unfinished_uploads() == [unreachable.key]


def test_a_failing_body_takes_every_step_and_failing_steps_become_notes() -> None:
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
    assert raised.value.__notes__ == ["What it wrote could not all be removed: PermissionError"]


def test_a_succeeding_body_takes_no_step() -> None:
    taken: list[str] = []

    with undone_on_failure(lambda: taken.append("undone")):
        taken.append("done")

    assert taken == ["done"]
