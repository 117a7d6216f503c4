"""Attempts at one unit, interleaved at random: one is committed, and no other ever shows or touches what it wrote.

Spark may give an attempt up and begin another, while the first still runs on a machine that cannot be reached; with
speculation two run at once. Each S3 call of each attempt waits for its turn; at any of them the attempt may be killed,
fail, or have its answer lost. The driver commits the first result that reaches it, at any time.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from destination_datalake.archive.lines import ArchiveSink
from destination_datalake.archive.objects import ArchivedSync, ArchiveLocation
from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address, publish_all
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import Encoded, EncodeTask, EncodeUnit, FilePlan, RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.files.segments import StagedObject, StagedSegment
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.types import Field, Int32, Int64
from unit_tests.cloud import BUCKET, another_client
from unit_tests.examples import examples
from unit_tests.files.test_rewrite import file_of

pytestmark = pytest.mark.share(2)

ORDERS = StreamId("shop", "orders")
RECORDS = 6
ARCHIVE = ArchiveLocation(
    f"s3://{BUCKET}/_raw/shop.orders", "2026-11-21", ArchivedSync("run", 1, "orders", "", "append")
)
KEY = "_staging/sync/00000001.jsonl"


class Killed(BaseException):
    """The attempt's process is gone."""


class Attempt:
    """One try at some work, on a thread of its own that makes an S3 call whenever it is told to."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._turn, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._fate = ""
        self.result: Any = None
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._stopped.acquire()

    def go_on(self, fate: str = "") -> None:
        """Make the next call, which has this fate, and return before the one after it."""
        self._fate = fate
        self._turn.release()
        self._stopped.acquire()

    def before_call(self) -> None:
        """Wait for the turn; die or fail if that is the fate."""
        self._stopped.release()
        self._turn.acquire()
        if self._fate == "killed":
            raise Killed
        if self._fate == "fails":
            raise ClientError({"Error": {"Code": "SlowDown", "Message": ""}}, "any")

    def after_call(self) -> None:
        """Lose the answer if that is the fate."""
        if self._fate == "answer lost":
            raise ClientError({"Error": {"Code": "InternalError", "Message": ""}}, "any")

    def _run(self, work: Callable[[], Any]) -> None:
        _attempts[threading.get_ident()] = self
        try:
            self.result = work()
        except Killed:
            pass
        finally:
            del _attempts[threading.get_ident()]
            self.has_ended = True
            self._stopped.release()


_attempts: dict[int, Attempt] = {}


@pytest.fixture(scope="module")
def executors() -> AwsAccess:
    """Access for executors, whose calls wait for their turn. The driver's do not."""
    access = another_client()

    def before(**_: object) -> None:
        if (attempt := _attempts.get(threading.get_ident())) is not None:
            attempt.before_call()

    def after(**_: object) -> None:
        if (attempt := _attempts.get(threading.get_ident())) is not None:
            attempt.after_call()

    with mock_aws():
        events = access.client("s3").meta.events
    events.register("before-call.s3", before)
    events.register("after-call.s3", after)
    return access


def contents(s3: Any, prefix: str) -> dict[str, bytes]:
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]
    return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}


def run_all(random: Random, work: Callable[[], Any], commit: Callable[[Any], bool]) -> None:
    """Run two or three attempts, interleaved. `commit` is called once, with a result, and says whether it took it."""
    attempts = [Attempt(work)]
    reached: list[Any] = []
    is_committed = False
    while any(not attempt.has_ended for attempt in attempts) or reached:
        running = [attempt for attempt in attempts if not attempt.has_ended]
        if reached and not is_committed and (not running or random.random() < 0.2):
            is_committed = commit(reached.pop(0))
        elif len(attempts) < 3 and random.random() < 0.15:
            attempts.append(Attempt(work))
        elif running:
            attempt = random.choice(running)
            attempt.go_on(random.choices(["", "killed", "fails", "answer lost"], [12, 1, 1, 1])[0])
            if attempt.has_ended and attempt.result is not None:
                reached.append(attempt.result)
        else:
            break


LINES = b"".join(
    b'{"type":"RECORD","record":{"stream":"orders","data":{"id":%s},"emitted_at":1}}\n' % value
    for value in [b"1", b'"wrong"', b"3", b'"wrong, too"', b"5", b"6"]
)


@pytest.mark.share(1)
@pytest.mark.parametrize("deferred", [True, False], ids=["hive", "iceberg"])
@settings(max_examples=examples(150), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_files_and_rejects_of_exactly_one_attempt_are_committed_and_stay(
    executors: AwsAccess, deferred: bool, seed: int
) -> None:
    with mock_aws():
        s3: Any = executors.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        segment = StagedSegment(
            StagedObject(f"s3://{BUCKET}/{KEY}", s3.put_object(Bucket=BUCKET, Key=KEY, Body=LINES)["ETag"]), len(LINES)
        )
        plan = FilePlan(
            "jsonl", "UNCOMPRESSED", (Field("id", "id", Int32()),), {}, f"s3://{BUCKET}/shop", deferred, 1, 1, 1
        )
        rejects = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", "shop", "orders")
        unit = EncodeUnit(ORDERS, "batch-0000", (segment,), plan, rejects, sinks=(ArchiveSink(ARCHIVE),))
        task = EncodeTask((unit,), executors)
        committed: dict[str, bytes] = {}

        def commit(result: Any) -> bool:
            """As the driver does: rejects and lines, then the table; then the segments are not needed any more."""
            if not isinstance(result, Encoded):
                return False
            [archived] = result.line_files
            publish_all([*(file.pending_upload for file in result.rejects), archived.pending_upload], s3)
            publish_all([file.pending_upload for file in result.files if file.pending_upload is not None], s3)
            uris = [*(file.uri for file in result.files), *(file.uri for file in result.rejects), archived.uri]
            everything = contents(s3, "")
            committed.update({key: everything[key] for key in (S3Address.parse(uri).key for uri in uris)})
            s3.delete_object(Bucket=BUCKET, Key=KEY)
            return True

        run_all(Random(seed), lambda: next(iter(encode([task]))), commit)

        for key, content in committed.items():
            assert contents(s3, key) == {key: content}, "what is committed stays as it is"
        visible = contents(s3, "_errors/")
        assert visible.keys() == {key for key in committed if key.startswith("_errors/")}
        archived = contents(s3, "_raw/")
        assert archived.keys() == {key for key in committed if key.startswith("_raw/")}
        assert [gzip.decompress(content) for content in archived.values()] == [LINES] * bool(committed)
        if deferred:
            assert contents(s3, "shop/").keys() == {key for key in committed if key.startswith("shop/")}
        if committed:
            rows = b"".join(content for key, content in committed.items() if key.startswith("shop/")).splitlines()
            assert Counter(json.loads(row)["id"] for row in rows) == Counter([1, 3, 5, 6, None, None])
            lines = [json.loads(line) for content in visible.values() for line in gzip.decompress(content).splitlines()]
            ids = {json.loads(row)["_airbyte_raw_id"] for row in rows}
            assert sorted(line["column_value"] for line in lines) == ['"wrong"', '"wrong, too"']
            assert {line["row_id"] for line in lines} <= ids, "rejects are those of the rows that were committed"


@settings(max_examples=examples(100), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_rewritten_file_is_never_replaced_nor_deleted_by_a_lost_attempt(executors: AwsAccess, seed: int) -> None:
    with mock_aws():
        s3: Any = executors.client("s3")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="old", Body=file_of(pa.table({"n": pa.array([1, 2], pa.int32())})))
        task = RewriteTask(f"s3://{BUCKET}/old", f"s3://{BUCKET}/new", {"n": Int64()}, executors)
        written: list[bytes] = []

        def commit(result: Any) -> bool:
            if not isinstance(result, Rewritten):
                return False
            publish_rewritten([result], executors)
            written.append(contents(s3, "new")["new"])
            return True

        run_all(Random(seed), lambda: next(iter(rewrite([task]))), commit)

        assert [*contents(s3, "new").values()] == written
