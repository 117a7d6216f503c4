"""A lease is written before anything else, renewed while the sync lives, and deleted at its end."""

from __future__ import annotations

import threading

import pytest
from botocore.exceptions import ClientError

from destination_datalake.buffer.staging import lease as module
from destination_datalake.buffer.staging.lease import LEASE_NAME, Lease, content_of
from unit_tests.buffer.staging.account import FOLDER, ROOT, SYNC
from unit_tests.cloud import Cloud, another_client, before

KEY = f"{FOLDER}/{LEASE_NAME}"


def test_a_lease_is_renewed_although_one_renewal_fails_and_deleted_at_the_end(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RENEWAL_SECONDS", 0.001)
    access, renewed = another_client(), threading.Event()

    def fail_once(time: int) -> None:
        if time == 2:
            raise ClientError({"Error": {"Code": "SlowDown", "Message": ""}}, "PutObject")
        if time == 5:
            renewed.set()

    before(access, "s3", "PutObject", fail_once)
    lease = Lease(f"{ROOT}/{SYNC}", SYNC, access)

    lease.begin()
    lease.begin()

    assert renewed.wait(60)
    assert cloud.objects() == {KEY: content_of(SYNC)}
    lease.end(delete=True, seconds=60)
    assert cloud.objects() == {}
    assert "could not be renewed" in caplog.text


def test_a_lease_that_is_left_to_expire_stays(cloud: Cloud) -> None:
    lease = Lease(f"{ROOT}/{SYNC}", SYNC, cloud.access)
    lease.begin()

    lease.end(delete=False, seconds=60)

    assert [*cloud.objects()] == [KEY]


def test_a_sync_that_stages_nothing_has_no_lease(cloud: Cloud) -> None:
    Lease(f"{ROOT}/{SYNC}", SYNC, cloud.access).end(delete=True, seconds=60)

    assert cloud.objects() == {}


def test_a_lease_that_cannot_be_written_is_tried_again_with_the_next_segment(cloud: Cloud) -> None:
    lease = Lease(f"{ROOT}/{SYNC}", SYNC, cloud.access)
    with cloud.refusing("PutObject"), pytest.raises(ClientError):
        lease.begin()

    lease.begin()

    assert [*cloud.objects()] == [KEY]
    lease.end(delete=True, seconds=60)
