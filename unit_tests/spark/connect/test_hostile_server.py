"""A server that means harm: what it sends is data, whatever it looks like."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.connect.proto import base_pb2, expressions_pb2, types_pb2

from destination_datalake.spark.backend import JobFailed
from destination_datalake.spark.connect.backend import ConnectBackend, Endpoint
from destination_datalake.spark.executors.python import ExecutorPython
from unit_tests.spark.connect.server import Partitions, Server
from unit_tests.spark.connect.test_backend import doubled


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return Path.touch, (self._trace,)


class Hostile(Server):
    """`data` is what its jobs answer instead of results; `extra` goes before them in each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.data: bytes | None = None
        self.extra: dict[str, Any] = {}

    def ExecutePlan(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        if self.extra:
            yield self._response(request, **self.extra)
        yield from super().ExecutePlan(request, context)

    def _run(self, relation: Any) -> Partitions:
        partitions = super()._run(relation)
        if self.data is None or relation.WhichOneof("rel_type") != "map_partitions":
            return partitions
        columns: list[pa.Array[Any]] = [pa.array([value], pa.int32()) for value in (0, 0, 1)]
        columns.append(pa.array([self.data], pa.binary()))
        return [[pa.record_batch(columns, names=["number", "part", "parts", "data"])]]


@pytest.fixture
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


@pytest.fixture
def backend(server: Hostile) -> Iterator[ConnectBackend]:
    backend = ConnectBackend(Endpoint(server.url), ExecutorPython(), {})
    backend.start()
    yield backend
    backend.stop(orderly=True)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_in_place_of_a_result_fails_the_job_and_is_not_run(
    server: Hostile, backend: ConnectBackend, tmp_path: Path, protocol: int
) -> None:
    server.data = pickle.dumps([Bomb(tmp_path / "trace")], protocol)

    with pytest.raises(JobFailed):
        backend.run(doubled, [1])

    assert list(tmp_path.iterdir()) == []


def test_a_pickle_among_metrics_is_not_looked_at(server: Hostile, backend: ConnectBackend, tmp_path: Path) -> None:
    metric = base_pb2.ExecutePlanResponse.ObservedMetrics(name="__python_accumulator__")
    metric.values.append(expressions_pb2.Expression.Literal(binary=pickle.dumps(Bomb(tmp_path / "trace"))))
    # PySpark's own list of what may be unpickled has this class, which opens the file that it is given.
    metric.values.append(expressions_pb2.Expression.Literal(binary=b"cpstats\nStats\n(V/missing\ntR."))
    server.extra = {"observed_metrics": [metric]}

    assert backend.run(doubled, [1, 2]) == [2, 4]
    assert list(tmp_path.iterdir()) == []


def test_a_class_that_a_schema_names_is_not_imported(
    server: Hostile, backend: ConnectBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "module_of_a_server.py").write_text(f"from pathlib import Path; Path({str(trace)!r}).touch()")
    monkeypatch.syspath_prepend(str(tmp_path))
    named = types_pb2.DataType.UDT(type="udt", python_class="module_of_a_server.Type", serialized_python_class="gASU")
    field = types_pb2.DataType.StructField(name="id", data_type=types_pb2.DataType(udt=named))
    server.extra = {"schema": types_pb2.DataType(struct=types_pb2.DataType.Struct(fields=[field]))}

    with pytest.raises(JobFailed):
        backend.run(doubled, [1])

    assert not trace.exists()
