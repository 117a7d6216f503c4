"""Files by partition: which rows come into which, whatever the memory."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.files.plan import DataFile, FileFormat, FilePlan
from destination_datalake.files.unit_files import PartitionedFileWriter
from destination_datalake.partitioning.spec import PartitionField, PartitionValue, SortField, SortOrder
from destination_datalake.records.decoded import Decoded
from destination_datalake.schema.types import Int32, Int64
from unit_tests.cloud import Cloud
from unit_tests.cloud import cloud as an_account
from unit_tests.examples import examples
from unit_tests.files.shop import CITY, FIRST_ID, FOLDER, NUMBER, YEAR, Folders, Order, Stored, block, key, plan, rows

ALL_MEMORY, NO_MEMORY = 1 << 27, 1


@pytest.fixture(scope="module")
def account() -> Iterator[Cloud]:
    with an_account() as lent:
        yield lent


def write(cloud: Cloud, plan: FilePlan, *blocks: Decoded, memory: int = ALL_MEMORY) -> tuple[list[str], list[DataFile]]:
    """The ids that the writer returned, and its files."""
    writer = PartitionedFileWriter("part", plan, cloud.access.client("s3"), FIRST_ID, memory)
    ids = [id_.as_py() for decoded in blocks for id_ in writer.write(decoded)]
    return ids, writer.close()


def value(order: Order, field: PartitionField) -> PartitionValue:
    """The partition value, by the rule as one would say it."""
    if field is CITY:
        return order.city
    if field is NUMBER:
        return None if order.number is None else order.number // 10 * 10
    return None if order.day is None else order.day // 365  # Days of the test are the first of their year.


orders = st.builds(
    Order,
    city=st.sampled_from(["Rome", "Oslo", "", None]),
    number=st.sampled_from([-11, -1, 0, 9, 10, 2**31, None]),
    day=st.sampled_from([-365, 0, 365, 730, None]),
)


@settings(max_examples=examples(200))
@given(
    blocks=st.lists(st.lists(orders, max_size=6), max_size=6),
    fields=st.lists(st.sampled_from([CITY, NUMBER, YEAR]), min_size=1, max_size=3, unique=True),
    memory=st.sampled_from([NO_MEMORY, 500, 1500, ALL_MEMORY]),
    max_open=st.sampled_from([1, 2, 500]),
    target_bytes=st.sampled_from([1, 1 << 27]),
    format=st.sampled_from(["parquet", "jsonl"]),
)
def test_every_row_is_in_a_file_of_its_partition_in_the_order_of_arrival(
    account: Cloud,
    blocks: list[list[Order]],
    fields: list[PartitionField],
    memory: int,
    max_open: int,
    target_bytes: int,
    format: FileFormat,
) -> None:
    shape = plan(*fields, format=format, max_open=max_open, target_bytes=target_bytes)
    ids, files = write(account, shape, *(block(*orders) for orders in blocks), memory=memory)

    expected: dict[tuple[PartitionValue, ...], list[tuple[str, Order]]] = defaultdict(list)
    for id_, order in zip(ids, itertools.chain(*blocks), strict=True):
        expected[tuple(value(order, field) for field in fields)].append((id_, order))
    rows_by_partition: dict[tuple[PartitionValue, ...], list[Stored]] = defaultdict(list)
    for file in sorted(files, key=lambda file: file.uri.rpartition("-")[2]):
        stored = rows(account, file)
        assert len(stored) == file.rows > 0
        assert key(file).startswith(f"shop/orders/{Folders().folder(file.partition)}/part-")
        rows_by_partition[file.partition] += stored
    assert rows_by_partition == expected


order_of_days = SortOrder((SortField(("day",), nulls_first=False), SortField(("number",), ascending=False)))


def rank(order: Order) -> tuple[bool, int, bool, int]:
    return (order.day is None, order.day or 0, order.number is not None, -(order.number or 0))


@settings(max_examples=examples(100))
@given(
    blocks=st.lists(st.lists(orders, max_size=6), max_size=6),
    fields=st.sampled_from([(), (CITY,)]),
    memory=st.sampled_from([NO_MEMORY, 500, 1500, ALL_MEMORY]),
    format=st.sampled_from(["parquet", "jsonl"]),
)
def test_file_marked_as_sorted_is_sorted_and_stable(
    account: Cloud, blocks: list[list[Order]], fields: tuple[PartitionField, ...], memory: int, format: FileFormat
) -> None:
    shape = plan(*fields, format=format, sort_order=order_of_days)
    ids, files = write(account, shape, *(block(*orders) for orders in blocks), memory=memory)

    arrival = {id_: position for position, id_ in enumerate(ids)}
    stored = {file.uri: rows(account, file) for file in files}
    assert sorted(row.id for file_rows in stored.values() for row in file_rows) == sorted(ids)
    for file in files:
        if file.is_sorted:
            ranks = [(rank(row.order), arrival[row.id]) for row in stored[file.uri]]
            assert ranks == sorted(ranks)
    assert memory != ALL_MEMORY or all(file.is_sorted for file in files)


def test_rows_of_a_partition_on_disk_are_sorted_together_if_memory_holds_them(account: Cloud) -> None:
    cities = [f"city {number}" for number in range(8)]
    blocks = [block(*(Order(city, number) for city in cities)) for number in (5, 3, 4, 1, 2)]
    shape = plan(CITY, sort_order=SortOrder((SortField(("number",)),)))

    # Given memory for two of the blocks
    _, files = write(account, shape, *blocks, memory=2500)

    assert {file.partition for file in files} == {(city,) for city in cities}
    for file in files:
        assert file.is_sorted
        assert [row.order.number for row in rows(account, file)] == [1, 2, 3, 4, 5]


def test_file_of_several_sorted_runs_does_not_say_that_it_is_sorted(account: Cloud) -> None:
    blocks = [block(Order("Rome", number + 1), Order("Rome", number)) for number in (5, 3, 4)]

    # Given memory for none of the blocks
    _, [file] = write(account, plan(sort_order=SortOrder((SortField(("number",)),))), *blocks, memory=NO_MEMORY)

    assert not file.is_sorted
    assert [row.order.number for row in rows(account, file)] == [5, 6, 3, 4, 4, 5]


def test_file_without_an_order_does_not_say_that_it_is_sorted(account: Cloud) -> None:
    _, [file] = write(account, plan(CITY), block(Order("Rome", 1), Order("Rome", 2)))

    assert not file.is_sorted


@pytest.mark.parametrize("memory", [NO_MEMORY, ALL_MEMORY])
def test_wider_column_widens_the_rows_that_wait_and_all_files_after_them(account: Cloud, memory: int) -> None:
    cities = [Order(city, 1) for city in ("Rome", "Oslo", "Bern")]
    blocks = [block(*cities), block(*cities), block(Order("Rome", 2**31)), block(*cities)]

    ids, files = write(account, plan(CITY, max_open=2), *blocks, memory=memory)

    assert sorted(row.id for file in files for row in rows(account, file)) == sorted(ids)
    for file in files:
        stored = pq.read_schema(pa.BufferReader(file.footer)).field("number").type
        assert file.columns[1].type == (Int64() if stored == pa.int64() else Int32())
        numbers = [row.order.number for row in rows(account, file)]
        assert 2**31 not in numbers or stored == pa.int64()
    # Then no block makes a file for each partition
    assert len(files) <= (5 if memory == NO_MEMORY else 3)


@pytest.mark.slow
def test_many_partitions_make_a_file_each(account: Cloud) -> None:
    many = [Order(f"city {number}", number) for number in range(400)]

    ids, files = write(account, plan(CITY, max_open=1), *[block(*many)] * 3, memory=NO_MEMORY)

    assert len(files) == 400
    assert {file.rows for file in files} == {3}
    assert len(ids) == sum(file.rows for file in files)


def test_file_of_a_partition_rolls_at_its_target_size(account: Cloud) -> None:
    blocks = [block(*[Order("Rome", 1)] * 20) for _ in range(3)]

    # A compressor would keep so few bytes to itself.
    shape = replace(plan(CITY, target_bytes=1, format="jsonl"), codec="UNCOMPRESSED")
    _, files = write(account, shape, *blocks, memory=NO_MEMORY)

    assert [file.rows for file in files] == [20, 20, 20]


def test_unit_without_rows_has_no_files(account: Cloud) -> None:
    assert write(account, plan(CITY)) == ([], [])
    assert write(account, plan(CITY), block(), block()) == ([], [])


def test_rows_without_a_value_share_the_null_partition(account: Cloud) -> None:
    _, [file] = write(account, plan(CITY, NUMBER, YEAR), block(Order(), Order()), block(Order()))

    assert (file.partition, file.rows) == ((None, None, None), 3)
    assert {"city", "number", "day"} <= file.with_nulls


def test_empty_folder_of_a_partition_is_the_plan_s(account: Cloud) -> None:
    class InOne:
        def folder(self, values: object) -> str:  # noqa: ARG002
            return ""

    shape = plan(CITY)
    assert shape.partitioning is not None
    shape = replace(shape, partitioning=replace(shape.partitioning, path=InOne()))

    _, files = write(account, shape, block(Order("Rome"), Order("Oslo")))

    assert {file.uri.rpartition("/")[0] for file in files} == {FOLDER}
    assert len({file.uri for file in files}) == 2
