"""The upper limit: pyarrow parses the records and writes Parquet to the local disk, without Spark and commit.

`python -m benchmarks.references.limit MESSAGES CATALOG FOLDER` reads the message file in blocks. In one process, a
thread per core parses blocks with the stream's schema, and writes them to its own Parquet file. The number of blocks in
flight limits the memory. This program does not validate, convert, count records per state or commit, so its speed is
the maximum that the libraries can reach. Experiments determined the sizes of blocks and row groups, the compression
level, and plain encoding, which results in the same file size in half the time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

BLOCK_BYTES = 16 << 20
ROW_GROUP_BYTES = 64 << 20  # The number of bytes of messages per row group.


def main(messages: Path, catalog: Path, folder: Path) -> None:
    """Encode the records of the only stream in `catalog` as one Parquet file per core in `folder`."""
    schema = json.loads(catalog.read_bytes())["streams"][0]["stream"]["json_schema"]
    data = pa.struct([(name, _arrow_type(column)) for name, column in schema["properties"].items()])
    with messages.open("rb", buffering=0) as source:
        take = _locked(_blocks(source.readinto, BLOCK_BYTES))
        writers = [Thread(target=_encode, args=(take, data, folder / f"{core}.parquet")) for core in _cores()]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()


def _cores() -> range:
    return range(len(os.sched_getaffinity(0)))


def _arrow_type(column: Mapping[str, object]) -> pa.DataType:
    if column.get("format") == "date-time":
        return pa.timestamp("us", "UTC")
    types: dict[str, pa.DataType] = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
    }
    (kind,) = (name for name in column["type"] if name != "null")  # type: ignore[attr-defined]
    return types[kind]


def _blocks(readinto: Callable[[memoryview], int], size: int) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes. Each block consists of whole lines."""
    remainder = b""
    while True:
        buffer = bytearray(size)
        buffer[: len(remainder)] = remainder
        filled = readinto(memoryview(buffer)[len(remainder) :])
        end = len(remainder) + filled
        if not filled:
            break
        cut = buffer.rindex(b"\n", 0, end) + 1
        remainder = bytes(memoryview(buffer)[cut:end])
        yield memoryview(buffer)[:cut]  # type: ignore[misc]
    if remainder:
        yield remainder


def _locked(blocks: Iterator[bytes]) -> Callable[[], bytes | None]:
    lock = Lock()

    def take() -> bytes | None:
        with lock:
            return next(blocks, None)

    return take


def _encode(take: Callable[[], bytes | None], data: pa.StructType, path: Path) -> None:
    record = pa.struct([("data", data), ("emitted_at", pa.int64())])
    parse = pj.ParseOptions(explicit_schema=pa.schema([("record", record)]), unexpected_field_behavior="ignore")
    columns = pa.schema([pa.field("emitted_at", pa.int64()), *data])
    with pq.ParquetWriter(path, columns, compression="zstd", compression_level=1, use_dictionary=False) as writer:
        parsed: list[pa.Table] = []
        text = 0
        while (block := take()) is not None:
            read = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
            table = pj.read_json(pa.BufferReader(block), read, parse)  # type: ignore[arg-type]
            parsed.append(_rows(table, columns))
            text += len(block)
            if text >= ROW_GROUP_BYTES:
                writer.write_table(pa.concat_tables(parsed))
                parsed, text = [], 0
        if parsed:
            writer.write_table(pa.concat_tables(parsed))


def _rows(table: pa.Table, columns: pa.Schema) -> pa.Table:
    records: Any = table.column("record").combine_chunks()
    if records.null_count:  # The messages without a record are states and traces.
        records = records.drop_null()
    data = records.field("data")
    values = [records.field("emitted_at"), *(data.field(name) for name in columns.names[1:])]
    return pa.Table.from_arrays(values, schema=columns)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
