"""A Spark Connect server without Spark: it runs ranges, functions over Arrow batches and shuffles in its own threads.

It speaks the protocol of PySpark's own client (`pyspark.sql.connect.proto`), and fails when a test asks it to.
"""

from __future__ import annotations

import pickle
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import grpc
import mmh3
import pyarrow as pa
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc, types_pb2

Abort = Callable[[grpc.ServicerContext], None]
Partitions = list[list[pa.RecordBatch]]

_LONG = types_pb2.DataType(long=types_pb2.DataType.Long())


def fails(status: grpc.StatusCode, text: str) -> Abort:
    """What ends a call with an error."""
    return lambda context: context.abort(status, text)


class Server(base_pb2_grpc.SparkConnectServiceServicer):
    """A server from entering to leaving, at `url`. It has `cores`, and refuses calls without the `token`, if any.

    `credentials` are for TLS.

    `reports` (tasks, those that ended, those at work) are told of each execution, which then waits for `reported`.
    `executions` end the next executions, one each; None lets one pass. `calls` are the names of calls, `headers` what
    they had, `settings` the properties of all sessions, `sessions` those that have called, `released` those that ended.
    """

    def __init__(
        self,
        cores: int = 2,
        version: str = "4.3.0",
        token: str | None = None,
        *,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.cores, self.version, self.token = cores, version, token
        self._credentials = grpc.local_server_credentials() if token is not None else credentials
        self.executions: list[Abort | None] = []
        self.reports: list[tuple[int, int, int]] = []
        self.reported = threading.Event()
        self.static: set[str] = set()
        self.settings: dict[str, str] = {}
        self.calls: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.sessions: list[str] = []
        self.released: list[str] = []
        self.partitions: list[int] = []
        self.entered = threading.Event()

    def __enter__(self) -> Self:
        self._grpc = grpc.server(ThreadPoolExecutor(8))
        base_pb2_grpc.add_SparkConnectServiceServicer_to_server(self, self._grpc)  # type: ignore[no-untyped-call]
        if self._credentials is None:
            port = self._grpc.add_insecure_port("127.0.0.1:0")
        else:
            port = self._grpc.add_secure_port("127.0.0.1:0", self._credentials)
        self.url = f"sc://{'localhost' if self._credentials else '127.0.0.1'}:{port}"
        self._grpc.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Be gone, in the middle of whatever runs."""
        self._grpc.stop(None).wait()

    def AnalyzePlan(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._seen("AnalyzePlan", request, context)
        answer = base_pb2.AnalyzePlanResponse(session_id=request.session_id, server_side_session_id=request.session_id)
        if request.HasField("spark_version"):
            answer.spark_version.version = self.version
        else:
            answer.schema.schema.CopyFrom(_schema(request.schema.plan.root))
        return answer

    def Config(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._seen("Config", request, context)
        answer = base_pb2.ConfigResponse(session_id=request.session_id, server_side_session_id=request.session_id)
        operation = request.operation
        if operation.HasField("set"):
            for pair in operation.set.pairs:
                if pair.key in self.static:
                    context.abort(grpc.StatusCode.INTERNAL, f"[CANNOT_MODIFY_STATIC_CONFIG] {pair.key} is static.")
                self.settings[pair.key] = pair.value
        names = {*operation.get.keys, *(pair.key for pair in operation.get_with_default.pairs)}
        names |= set(operation.get_option.keys)
        for name in names:
            answer.pairs.append(base_pb2.KeyValue(key=name, value=self.settings.get(name)))
        return answer

    def ExecutePlan(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._seen("ExecutePlan", request, context)
        self.entered.set()
        if self.executions and (abort := self.executions.pop(0)) is not None:
            abort(context)
        for total, completed, running in self.reports:
            stage = base_pb2.ExecutePlanResponse.ExecutionProgress.StageInfo(
                num_tasks=total, num_completed_tasks=completed
            )
            told = base_pb2.ExecutePlanResponse.ExecutionProgress(stages=[stage], num_inflight_tasks=running)
            yield self._response(request, execution_progress=told)
        if self.reports:
            self.reported.wait(10)
        try:
            partitions = self._run(request.plan.root)
        except Exception as error:
            context.abort(grpc.StatusCode.INTERNAL, f"An exception was thrown from the Python worker: {error!r}")
        self.partitions.append(len(partitions))
        for batch in (batch for partition in partitions for batch in partition):
            data = base_pb2.ExecutePlanResponse.ArrowBatch(row_count=batch.num_rows, data=_stream(batch))
            yield self._response(request, arrow_batch=data)
        yield self._response(request, result_complete=base_pb2.ExecutePlanResponse.ResultComplete())

    def ReleaseExecute(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        return base_pb2.ReleaseExecuteResponse(session_id=request.session_id)

    def Interrupt(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._seen("Interrupt", request, context)
        return base_pb2.InterruptResponse(session_id=request.session_id)

    def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._seen("ReleaseSession", request, context)
        self.released.append(request.session_id)
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)

    def _seen(self, call: str, request: Any, context: Any) -> None:
        headers = {str(key): str(value) for key, value in context.invocation_metadata()}
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "Invalid token")
        self.calls.append(call)
        self.headers.append(headers)
        if request.session_id not in self.sessions:
            self.sessions.append(request.session_id)

    def _response(self, request: Any, **fields: Any) -> Any:
        return base_pb2.ExecutePlanResponse(
            session_id=request.session_id,
            server_side_session_id=request.session_id,
            operation_id=request.operation_id,
            response_id=str(uuid.uuid4()),
            **fields,
        )

    def _run(self, relation: Any) -> Partitions:
        match relation.WhichOneof("rel_type"):
            case "range":
                numbers = range(relation.range.start, relation.range.end, relation.range.step)
                count = relation.range.num_partitions or self.cores
                bounds = [len(numbers) * edge // count for edge in range(count + 1)]
                spans = [numbers[bounds[i] : bounds[i + 1]] for i in range(count)]
                return [[pa.record_batch([pa.array(list(span), pa.int64())], names=["id"])] for span in spans]
            case "map_partitions":
                function, _ = pickle.loads(relation.map_partitions.func.python_udf.command)
                return [list(function(iter(part))) for part in self._run(relation.map_partitions.input)]
            case "repartition_by_expression":
                return _shuffled(self._run(relation.repartition_by_expression.input), relation)
            case "sort":
                assert not relation.sort.is_global
                name = relation.sort.order[0].child.unresolved_attribute.unparsed_identifier
                tables = [pa.Table.from_batches(part) if part else None for part in self._run(relation.sort.input)]
                return [[] if table is None else table.sort_by(name).to_batches() for table in tables]
        raise NotImplementedError(str(relation.WhichOneof("rel_type")))


def _shuffled(partitions: Partitions, relation: Any) -> Partitions:
    """Rows by the hash of a column, as Spark's HashPartitioning has it."""
    wanted = relation.repartition_by_expression
    name = wanted.partition_exprs[0].unresolved_attribute.unparsed_identifier
    shuffled: Partitions = [[] for _ in range(wanted.num_partitions)]
    for batch in (batch for partition in partitions for batch in partition):
        for row in range(batch.num_rows):
            key = struct.pack("<i", batch.column(name)[row].as_py())
            shuffled[mmh3.hash(key, 42) % wanted.num_partitions].append(batch.slice(row, 1))
    return shuffled


def _schema(relation: Any) -> Any:
    match relation.WhichOneof("rel_type"):
        case "range":
            field = types_pb2.DataType.StructField(name="id", data_type=_LONG)
            return types_pb2.DataType(struct=types_pb2.DataType.Struct(fields=[field]))
        case "map_partitions":
            return relation.map_partitions.func.python_udf.output_type
        case other:
            return _schema(getattr(relation, str(other)).input)


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()
