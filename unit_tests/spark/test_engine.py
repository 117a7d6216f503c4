"""What executors sign their requests with, and what becomes of tasks whose session has ended."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import NoCredentialsError
from moto import mock_aws

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity, Role, mask_secrets
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import Removal, RemoveTask, Versions, WinnersTask
from destination_datalake.files.dedup.winners import winners
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import (
    CompactTask,
    EncodeTask,
    EncodeUnit,
    FilePlan,
    NotEncoded,
    RewriteTask,
    SourceFile,
)
from destination_datalake.files.rewrite import compact, rewrite
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.types import Field, Int64
from destination_datalake.spark.connect.values import decode, result_type
from destination_datalake.spark.connect.values import encode as encoded
from destination_datalake.spark.engine import ExecutorAccess

pytestmark = pytest.mark.share(5)

ROLE = Role("arn:aws:iam::123456789012:role/airbyte", session_duration_seconds=900)
USER = AccessKeys("AKIAIOSFODNN7EXAMPLE", "not-a-secret-of-anybody")
ORDERS = StreamId(None, "orders")
REJECTS = RejectLocation("s3://lake/_errors", "run", "2026-11-21", "shop", "orders")
PLAN = FilePlan(
    format="parquet",
    codec="ZSTD",
    columns=(Field("id", "id", Int64()),),
    field_ids={},
    folder="s3://lake/shop/orders",
    deferred=False,
    target_bytes=1_000_000,
    generation=None,
    sync_id=None,
)


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An account with a bucket; the driver's environment has the keys of a user."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    with mock_aws():
        boto3.client("s3", "us-east-1").create_bucket(Bucket="lake")
        yield
    while _refusals:
        _refusals.pop()()


_refusals: list[Callable[[], object]] = []
"""How what S3 refuses in a test is permitted again: clients are shared by all tests of a process."""


def access(identity: Identity) -> AwsAccess:
    return AwsAccess("us-east-1", identity)


def segment(folder: Path, *ids: int) -> StagedSegment:
    path = folder / "-".join(map(str, ids))
    records = [{"stream": "orders", "data": {"id": id_}, "emitted_at": 0} for id_ in ids]
    path.write_text("".join(json.dumps({"type": "RECORD", "record": record}) + "\n" for record in records))
    return StagedSegment(LocalFile(str(path)), path.stat().st_size)


def task(identity: Identity, *segments: StagedSegment) -> EncodeTask:
    units = [EncodeUnit(ORDERS, f"batch-{n}", (staged,), PLAN, REJECTS) for n, staged in enumerate(segments)]
    return EncodeTask(tuple(units), access(identity))


def expire(lent: AwsAccess) -> None:
    """Let S3 refuse a session from now on, as it does once its time is over."""
    refuse(lent, "ExpiredToken", 400)


def refuse(lent: AwsAccess, code: str, status: int) -> None:
    error = {"Code": code, "Message": "No."}
    answer = AWSResponse("https://lake", status, HTTPHeaders(), None)

    def refused(**_: object) -> Any:
        return answer, {"Error": error, "ResponseMetadata": {"HTTPStatusCode": status}}

    events = lent.client("s3").meta.events
    events.register_first("before-call.s3", refused)
    _refusals.append(lambda: events.unregister("before-call.s3", refused))


@pytest.mark.parametrize("identity", [ROLE, USER, Environment()])
def test_with_role_executors_use_their_own_credentials(identity: Identity) -> None:
    assert ExecutorAccess("role", access(identity)).current() == access(Environment())


@pytest.mark.parametrize("identity", [ROLE, USER, Environment()])
def test_with_session_executors_have_short_lived_credentials_of_the_connector_s_identity(identity: Identity) -> None:
    lent = ExecutorAccess("session", access(identity)).current()

    assert isinstance(lent.identity, AccessKeys)
    assert lent.identity.session_token is not None
    assert lent.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert mask_secrets(lent.identity.session_token) == "****"
    assert lent.identity.session_token not in repr(lent)
    assert "not-a-secret-of-anybody" not in pickle.dumps(lent).decode("latin1")


def test_session_is_used_for_many_jobs() -> None:
    lender = ExecutorAccess("session", access(ROLE))

    assert lender.current() == lender.current()


def test_without_credentials_no_session_can_be_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(NoCredentialsError):
        ExecutorAccess("session", access(Environment())).current()


def test_tasks_are_given_the_access_of_executors(tmp_path: Path) -> None:
    lender = ExecutorAccess("session", access(ROLE))

    given = lender.apply([task(ROLE, segment(tmp_path, 1)), task(ROLE, segment(tmp_path, 2))])

    assert [encode_task.access for encode_task in given] == [lender.current()] * 2


MISSING = (SourceFile("s3://lake/missing", 1, 1), SourceFile("s3://lake/lost", 1, 1))
VERSIONS = Versions((), None, 1, 2)
JOBS: list[tuple[Callable[..., Iterator[Any]], Any]] = [
    (rewrite, RewriteTask("s3://lake/missing", "s3://lake/new", {}, access(ROLE))),
    (compact, CompactTask("new", MISSING, pa.schema([]), "s3://lake", "ZSTD", None, access(ROLE))),
    (
        remove,
        RemoveTask(
            "new", (Removal(MISSING[0]),), VERSIONS, pa.schema([]), "s3://lake", "ZSTD", "copy_on_write", access(ROLE)
        ),
    ),
    (winners, WinnersTask(MISSING, 0, pa.schema([]), VERSIONS, 1, None, access(ROLE))),
]


@pytest.mark.share(1)
@pytest.mark.parametrize(("job", "asked"), JOBS, ids=lambda value: getattr(value, "__name__", ""))
def test_a_task_that_outlives_its_session_can_be_tried_by_the_next_sync(
    job: Callable[..., Iterator[Any]], asked: Any
) -> None:
    lender = ExecutorAccess("session", access(ROLE))
    expire(lender.current())

    [failed] = decode(encoded([*job(lender.apply([asked]))]), result_type(job))

    assert failed.failure.type == "transient_error"
    assert ": the executors' session credentials expired before the job ended." in failed.failure.message
    assert failed.failure.detail.startswith("ExpiredToken")


def test_a_unit_that_outlives_its_session_can_be_tried_by_the_next_sync(tmp_path: Path) -> None:
    lender = ExecutorAccess("session", access(ROLE))
    expire(lender.current())

    [failed] = encode(lender.apply([task(ROLE, segment(tmp_path, 1))]))

    assert isinstance(failed, NotEncoded)
    assert failed.failure.type == "transient_error"
    assert failed.failure.message.startswith("Stream orders could not be written: the executors' session credentials")


def test_credentials_that_only_executors_can_renew_are_to_be_mended(tmp_path: Path) -> None:
    lender = ExecutorAccess("role", access(USER))
    expire(lender.current())

    [failed] = encode(lender.apply([task(USER, segment(tmp_path, 1))]))

    assert isinstance(failed, NotEncoded)
    assert failed.failure.type == "config_error"


@pytest.mark.parametrize(("kind", "told"), [("role", True), ("session", False)])
def test_what_executors_are_denied_is_a_matter_of_their_own_role_if_they_have_one(kind: Any, told: bool) -> None:
    lender = ExecutorAccess(kind, access(ROLE))
    refuse(lender.current(), "AccessDenied", 403)
    staged = StagedSegment(StagedObject("s3://lake/_staging/1", "etag"), 1)

    [result] = encode(lender.apply([task(ROLE, staged)]))

    assert isinstance(result, NotEncoded)
    assert f"for {'the executors' if told else 'the connector'}'" in result.failure.message
    assert ("set spark.executor_credentials to session" in result.failure.message) == told


def test_an_executor_keeps_the_clients_of_the_last_sessions() -> None:
    """Sixteen of them, as a catalog vends a session for each table."""
    lent = [access(AccessKeys(f"ASIA{n}", f"secret-{n}", f"token-{n}")) for n in range(18)]

    first = [loan.client("s3") for loan in lent]

    assert all(loan.client("s3") is client for loan, client in zip(lent[2:], first[2:], strict=True))
    assert lent[0].client("s3") is not first[0]


def test_another_session_uses_little_memory() -> None:
    lent = [access(AccessKeys(f"ASIAmemory{n}", f"secret-{n}", f"token-{n}")) for n in range(2)]
    lent[0].client("s3")

    tracemalloc.start()
    lent[1].client("s3")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 4e6
