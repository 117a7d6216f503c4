"""Jobs of Spark Connect: tasks, results and functions on their way, and where Spark's shuffle sends a key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.spark.connect import jobs, mapping, values
from destination_datalake.spark.connect.jobs import shuffle_keys
from destination_datalake.spark.connect.values import consume_partitions


def range_of(*partitions: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """The batches of a partition of Spark's `range`."""
    for numbers in partitions:
        yield pa.record_batch([pa.array(list(numbers), pa.int64())], names=["id"])


def repeated(tasks: Iterable[tuple[str, int]]) -> Iterator[str]:
    for text, times in tasks:
        yield from [text] * times


def collected(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(list(batches))


@given(st.lists(st.tuples(st.text(), st.integers(0, 3)), min_size=1, max_size=5))
def test_results_come_back_by_the_number_of_their_task(tasks: list[tuple[str, int]]) -> None:
    packed = jobs.packed(tasks)

    table = collected(mapping.run_tasks(partial(values.answers, repeated), packed, range_of(range(len(tasks)))))

    assert jobs.results_of(table, str) == {number: [text] * times for number, (text, times) in enumerate(tasks)}


@pytest.mark.parametrize("size", [0, 1, mapping._ROW_BYTES - 100, mapping._ROW_BYTES, 3 * mapping._ROW_BYTES + 1])
def test_a_result_of_any_size_travels_in_rows_of_at_most_a_mebibyte(size: int) -> None:
    table = collected(mapping.result_rows(7, values.encode([bytes(size)])))

    assert max(len(data.as_py()) for data in table.column("data")) <= mapping._ROW_BYTES
    assert jobs.results_of(table, bytes) == {7: [bytes(size)]}


def test_rows_in_any_order_are_put_together() -> None:
    table = collected(mapping.result_rows(0, values.encode([bytes(range(256)) * 10_000])))

    turned = table.take(list(range(table.num_rows))[::-1])

    assert jobs.results_of(turned, bytes) == jobs.results_of(table, bytes)


def test_a_result_that_lacks_a_row_is_refused() -> None:
    table = collected(mapping.result_rows(0, values.encode([bytes(2 * mapping._ROW_BYTES)])))

    with pytest.raises(values.InvalidResults, match="2 instead of 3 parts"):
        jobs.results_of(table.slice(0, 2), bytes)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=30), st.integers(1, 60))
def test_tasks_are_split_into_jobs_only_where_a_request_would_be_too_large(tasks: list[bytes], limit: int) -> None:
    split = list(jobs.jobs_of(tasks, limit))

    assert [task for job in split for task in job] == tasks
    assert all(sum(map(len, job)) <= limit or len(job) == 1 for job in split)
    assert all(sum(map(len, job)) + len(next_job[0]) > limit for job, next_job in pairwise(split))


def test_a_task_is_unpickled_only_when_the_work_asks_for_it() -> None:
    class Unknown:
        def __reduce__(self) -> Any:
            return (exec, ("raise AssertionError('unpickled')",))

    def refuse(_: Iterable[Any]) -> Iterable[Any]:
        raise RuntimeError("this Python has no connector")

    with pytest.raises(RuntimeError, match="no connector"):
        list(mapping.run_tasks(refuse, jobs.packed([Unknown()]), range_of([0])))


@given(st.lists(st.tuples(st.integers(0, 4), st.binary(max_size=5)), max_size=20))
def test_each_partition_of_a_shuffle_is_consumed_once_with_all_its_payloads(
    payloads: list[tuple[int, bytes]],
) -> None:
    def produce(tasks: Iterable[Any]) -> Iterable[tuple[int, bytes]]:
        return [payload for task in tasks for payload in task]

    def consume(partitions: Iterable[tuple[int, Iterator[bytes]]]) -> Iterable[tuple[int, bytes]]:
        return consume_partitions(lambda number, payloads: [(number, sorted(payloads))], partitions)

    keys = [10, 11, 12, 13, 14]
    shuffled = [
        row
        for batch in mapping.produce_rows(produce, jobs.packed([payloads]), keys, range_of([0]))
        for row in batch.to_pylist()
    ]
    assert all(row["key"] == keys[row["number"]] for row in shuffled)
    fields: list[pa.Field[Any]] = [
        pa.field("key", pa.int32()),
        pa.field("number", pa.int32()),
        pa.field("data", pa.binary()),
    ]
    batches = pa.Table.from_pylist(sorted(shuffled, key=lambda row: row["number"]), pa.schema(fields)).to_batches(
        max_chunksize=3
    )

    results = [result for batch in mapping.consume_rows(consume, iter(batches)) for result in batch.to_pylist()]

    expected = {number: sorted(data for n, data in payloads if n == number) for number, _ in payloads}
    results_by_job = [values.decode(row["data"], tuple) for row in results]
    assert results_by_job == [[(n, expected[n])] for n in sorted(expected)]


def test_a_partition_of_a_probe_has_one_row_if_it_has_any_input() -> None:
    assert [batch.num_rows for batch in mapping.warm_up(lambda _: (), range_of(range(5), range(3)))] == [1]
    assert list(mapping.warm_up(lambda _: (), range_of([]))) == []


@pytest.mark.parametrize("partitions", [1, 2, 7, 200])
def test_there_is_one_key_for_each_partition(partitions: int) -> None:
    assert len(set(shuffle_keys(partitions))) == partitions


def test_keys_are_the_first_numbers_that_spark_hashes_to_their_partitions() -> None:
    # SELECT pmod(hash(int(id)), 4) FROM range(13), Spark 4.3
    partitions_of_numbers = [3, 3, 2, 3, 2, 2, 1, 3, 3, 1, 2, 3, 0]

    assert shuffle_keys(4) == [partitions_of_numbers.index(partition) for partition in range(4)]
