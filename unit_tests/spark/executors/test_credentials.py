"""What executors sign their requests with, and what becomes of tasks whose session has ended."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.exceptions import NoCredentialsError
from moto import mock_aws

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity
from destination_datalake.aws.secrets import known_secrets
from destination_datalake.aws.session.assumed_role import Role
from destination_datalake.aws.session.lending import SessionKeys
from destination_datalake.files.compact import compact
from destination_datalake.files.dedup.remove import remove
from destination_datalake.files.dedup.tasks import Removed, RemoveTask, Versions, Winners, WinnersTask
from destination_datalake.files.dedup.winners import consume_versions, produce_versions
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import CompactTask, FilePlan, NotCompacted, NotRewritten, RewriteTask, SourceFile
from destination_datalake.files.rewrite import rewrite
from destination_datalake.files.segments import LocalFile, StagedObject, StagedSegment
from destination_datalake.files.tasks import Encoded, EncodeTask, EncodeUnit, NotEncoded, UnitResult
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.location import RejectLocation
from destination_datalake.schema.types import Field, Int64
from destination_datalake.spark.connect.values import decode, result_type
from destination_datalake.spark.connect.values import encode as encoded
from destination_datalake.spark.executors.credentials import ExecutorAccess
from unit_tests.tables.jobs import InProcess

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
    units = [EncodeUnit(ORDERS, f"batch-{n}", (each,), PLAN, REJECTS) for n, each in enumerate(segments)]
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


class Job:
    """A job as Spark runs it: results travel as data. It notes what each task was to sign with."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work
        self.given: list[list[Identity]] = []

    def __call__(self, tasks: Sequence[Any]) -> list[Any]:
        self.given.append([each.access.identity for each in tasks])
        return [result for each in tasks for result in decode(encoded([*self._work([each])]), result_type(self._work))]


@pytest.mark.parametrize("identity", [ROLE, USER, Environment()])
def test_with_role_executors_use_what_their_own_environment_has(identity: Identity) -> None:
    assert ExecutorAccess("role", access(identity)).current() == access(Environment())


def test_with_keys_executors_have_the_keys_of_the_user() -> None:
    assert ExecutorAccess("keys", access(USER)).current() == access(USER)


@pytest.mark.parametrize("identity", [ROLE, USER, Environment()])
def test_with_session_executors_have_short_lived_credentials_of_the_connector_s_identity(identity: Identity) -> None:
    lent = ExecutorAccess("session", access(identity)).current()

    assert isinstance(lent.identity, SessionKeys)
    assert lent.client("sts").get_caller_identity()["Account"] == "123456789012"
    assert lent.identity.session_token in known_secrets()
    assert lent.identity.session_token not in repr(lent)
    assert "not-a-secret-of-anybody" not in pickle.dumps(lent).decode("latin1")


def test_a_session_is_lent_to_many_jobs() -> None:
    lender = ExecutorAccess("session", access(ROLE))

    assert lender.current() == lender.current()


def test_without_credentials_no_session_can_be_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(NoCredentialsError):
        ExecutorAccess("session", access(Environment())).current()


def test_units_whose_session_has_ended_are_encoded_again_with_another(tmp_path: Path) -> None:
    # Given a session that ends before the job's tasks, although AWS had announced a later end
    lender, job = ExecutorAccess("session", access(ROLE)), Job(encode)
    expire(lender.current())

    # When they run
    tasks = [task(ROLE, segment(tmp_path, 1), segment(tmp_path, 2, 3)), task(ROLE, segment(tmp_path, 4, 5, 6))]
    results: list[UnitResult] = lender.run(job, tasks)

    # Then a second job encodes all of their units with another session, and nothing else does
    assert [file.rows for result in results if isinstance(result, Encoded) for file in result.files] == [1, 2, 3]
    first, second = job.given
    assert (len(first), len(second)) == (2, 3)
    assert set(first).isdisjoint(second)


def test_only_units_that_failed_are_encoded_again(tmp_path: Path) -> None:
    lender = ExecutorAccess("session", access(ROLE))
    lent = lender.current()

    def ending_after_the_first(tasks: Any) -> Iterator[UnitResult]:
        yield from encode(tasks)
        expire(lent)

    job = Job(ending_after_the_first)
    results: list[UnitResult] = lender.run(
        job, [task(ROLE, segment(tmp_path, 1)), task(ROLE, segment(tmp_path, 2, 3)), task(ROLE, segment(tmp_path, 4))]
    )

    assert [file.rows for result in results if isinstance(result, Encoded) for file in result.files] == [1, 2, 1]
    assert [len(given) for given in job.given] == [3, 2]
    objects = boto3.client("s3", "us-east-1").list_objects_v2(Bucket="lake")["KeyCount"]
    assert objects == 3, "a unit that was refused has left nothing"


REMOVAL = RemoveTask(
    "new",
    SourceFile("s3://lake/missing", 1, 1),
    None,
    (),
    Versions((), None, 1, 2),
    pa.schema([]),
    "s3://lake",
    "ZSTD",
    "copy_on_write",
    access(ROLE),
)
SOURCES = (SourceFile("s3://lake/missing", 1, 1), SourceFile("s3://lake/lost", 1, 1))


@pytest.mark.parametrize(
    ("work", "task"),
    [
        (rewrite, RewriteTask("s3://lake/missing", "s3://lake/new", {}, access(ROLE))),
        (compact, CompactTask("new", SOURCES, pa.schema([]), "s3://lake", "ZSTD", None, access(ROLE))),
        (remove, REMOVAL),
    ],
)
def test_files_are_rewritten_and_compacted_again_with_another_session(work: Any, task: Any) -> None:
    lender, job = ExecutorAccess("session", access(ROLE)), Job(work)
    expire(lender.current())

    [result] = lender.run(job, [task])

    assert isinstance(result, NotRewritten | NotCompacted | Removed)
    assert result.failure is not None
    assert result.failure.detail.startswith("NoSuchKey")
    assert len(job.given) == 2


def test_a_job_with_a_shuffle_is_done_again_as_a_whole() -> None:
    # Given a session that ends while the second of two tasks reads its files
    lender = ExecutorAccess("session", access(ROLE))
    lent = lender.current()
    given: list[Identity] = []
    id_, raw, at = (pa.field(name, pa.string(), metadata={"PARQUET:field_id": str(n)}) for n, name in enumerate("abc"))
    body = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"a": "x", "b": "1"}], pa.schema([id_, raw, at])), body)
    boto3.client("s3", "us-east-1").put_object(Bucket="lake", Key="file", Body=body.getvalue())
    source = SourceFile("s3://lake/file", len(body.getvalue()), 1)
    asked = [
        WinnersTask((source,), number, pa.schema([id_, raw, at]), Versions((0,), None, 2, 1), 1, None, access(ROLE))
        for number in range(2)
    ]

    def produce(tasks: Any) -> Iterator[tuple[int, bytes]]:
        given.append(tasks[0].access.identity)
        yield from produce_versions(tasks)
        expire(lent)

    def job(tasks: Sequence[WinnersTask]) -> list[Winners]:
        return InProcess().exchange(produce, tasks, consume_versions, 1)

    # When it runs
    [winners] = lender.run_as_a_whole(job, asked)

    # Then all of its tasks run again with another session
    assert winners.failure is None
    assert (winners.keys, [*winners.losers]) == (1, [0])
    assert [identity == lent.identity for identity in given] == [True, True, False, False]


def test_a_unit_that_every_session_is_too_short_for_can_be_tried_by_the_next_sync(tmp_path: Path) -> None:
    lender = ExecutorAccess("session", access(ROLE))

    def always_too_late(tasks: Sequence[EncodeTask]) -> Iterator[UnitResult]:
        expire(tasks[0].access)
        yield from encode(tasks)

    job = Job(always_too_late)
    [result] = lender.run(job, [task(ROLE, segment(tmp_path, 1))])

    assert isinstance(result, NotEncoded)
    assert result.failure.type == "transient_error"
    assert result.failure.message.startswith("Stream orders could not be written: the session that executors were lent")
    assert len(job.given) == 3


@pytest.mark.parametrize("kind", ["role", "keys"])
def test_credentials_that_only_executors_can_renew_are_not_tried_again(kind: Any, tmp_path: Path) -> None:
    lender, job = ExecutorAccess(kind, access(USER)), Job(encode)
    expire(lender.current())

    [result] = lender.run(job, [task(USER, segment(tmp_path, 1))])

    assert isinstance(result, NotEncoded)
    assert result.failure.type == "config_error"
    assert len(job.given) == 1


@pytest.mark.parametrize(("kind", "told"), [("role", True), ("session", False)])
def test_what_executors_are_denied_is_a_matter_of_their_own_role_if_they_have_one(kind: Any, told: bool) -> None:
    lender = ExecutorAccess(kind, access(ROLE))
    refuse(lender.current(), "AccessDenied", 403)
    staged = StagedSegment(StagedObject("s3://lake/_staging/1", "etag"), 1)

    [result] = lender.run(Job(encode), [task(ROLE, staged)])

    assert isinstance(result, NotEncoded)
    assert f"to {'the executors' if told else 'the connector'}'" in result.failure.message
    assert ("set spark.executor_credentials to session" in result.failure.message) == told


def test_an_executor_keeps_the_clients_of_the_last_two_sessions() -> None:
    lent = [access(SessionKeys(f"ASIA{n}", f"secret-{n}", f"token-{n}")) for n in range(4)]

    first = [each.client("s3") for each in lent]

    assert [each.client("s3") is client for each, client in zip(lent[2:], first[2:], strict=True)] == [True, True]
    assert lent[0].client("s3") is not first[0]
