"""A sync of one batch into a table of its own, of any kind and partitioning: all of it but Spark and stdin."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Literal

from pyiceberg.table import Table as PyIcebergTable

from destination_datalake.aws.objects import publish_all
from destination_datalake.config.options import Config
from destination_datalake.files.encode import encode
from destination_datalake.files.plan import Encoded, EncodeTask, EncodeUnit, FilePlan, RewriteTask, Rewritten
from destination_datalake.files.rewrite import publish_rewritten, rewrite
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.rejects.ledger import RejectLocation
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.names import SNAKE_CASE
from destination_datalake.schema.types import Field
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.hive.scheme import PartitionScheme
from destination_datalake.tables.hive.table import HiveTable
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.table import IcebergTable
from destination_datalake.tables.layout import TableLayout
from destination_datalake.tables.naming import TableLocation, TableOwner
from destination_datalake.tables.table import Committed, TableName
from unit_tests.cloud import BUCKET, Cloud, on_disk, ungoverned
from unit_tests.config.examples import options
from unit_tests.tables.jobs import in_process

Kind = Literal["ICEBERG", "HIVE, PARQUET", "HIVE, JSONL"]

_numbers = count()


@dataclass
class Landing:
    """A new table with these columns, partitioned by a transform of the field `p` if one is given."""

    cloud: Cloud
    kind: Kind
    columns: tuple[Field, ...]
    transform: str | None
    name: TableName = field(default_factory=lambda: TableName("db", f"t{next(_numbers)}"))

    def land(self, lines: Sequence[bytes], folder: Path) -> Sequence[Mapping[str, Any]]:
        """Encode and commit a batch; return its rejects, in their order."""
        table, access = self._opened(folder), self.cloud.access
        segment = folder / "segment"
        segment.write_bytes(b"".join(lines))
        location = RejectLocation(f"s3://{BUCKET}/_errors", "run", "2026-11-21", *self.name)
        for _ in range(5):
            unit = EncodeUnit(StreamId(None, "s"), "part", (on_disk(segment),), table.plan(), location)
            [result] = encode([EncodeTask((unit,), access)])
            assert isinstance(result, Encoded), result
            assert sum(file.rows for file in result.files) == result.counts.records == len(lines)
            if table.commit(result.files, self._rewrite) == Committed():
                break
        else:
            raise AssertionError("the batch is encoded again and again")
        publish_all([file.pending_upload for file in result.rejects], access.client("s3"))
        rejects = [
            json.loads(line)
            for key, content in self._objects("_errors/").items()
            for line in gzip.decompress(content).splitlines()
        ]
        assert sum(result.counts.reasons.values()) == len(rejects)
        # Each reason has its object; a record's rejects are numbered across them.
        return sorted(rejects, key=lambda reject: int(reject["subSequenceNumber"]))

    def files(self, folder: Path) -> Sequence[Path]:
        """Copy the data files that readers of the table find."""
        paths: list[Path] = []
        live = None if self.kind != "ICEBERG" else {task.file.file_path for task in self.iceberg().scan().plan_files()}
        for key, content in self._objects(f"{self.name.database}/{self.name.table}").items():
            uri = f"s3://{BUCKET}/{key}"
            if content and (uri in live if live is not None else "/metadata/" not in uri):
                paths.append(folder / f"{len(paths)}{Path(key).suffix}")
                paths[-1].write_bytes(content)
                if live is None:
                    self._require_found(uri.rpartition("/")[0])
        assert live is None or len(paths) == len(live)
        return paths

    def forget(self) -> None:
        """Empty the bucket, for the next table."""
        for key in self.cloud.objects():
            self.cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=key)

    def iceberg(self) -> PyIcebergTable:
        return TableOperations(self.name, ungoverned(self.cloud.access)).load()

    def _require_found(self, folder: str) -> None:
        """Engines find a file through its partition, whose values must be of the keys' types."""
        glue = self.cloud.access.client("glue")
        table: Any = glue.get_table(DatabaseName=self.name.database, Name=self.name.table)["Table"]
        locations = {table["StorageDescriptor"]["Location"].rstrip("/")}
        if table["PartitionKeys"]:
            pages = glue.get_paginator("get_partitions").paginate(
                DatabaseName=self.name.database, TableName=self.name.table
            )
            partitions = [partition for page in pages for partition in page["Partitions"]]
            locations = {partition["StorageDescriptor"]["Location"].rstrip("/") for partition in partitions}
            scheme = PartitionScheme.recorded(table, (*METADATA_COLUMNS, *self.columns))
            assert scheme is not None
            assert scheme.count_invalid(partition["Values"] for partition in partitions) == 0
        assert folder in locations

    def _opened(self, folder: Path) -> IcebergTable | HiveTable:
        table_type, _, format_type = self.kind.partition(", ")
        by = [] if self.transform is None else [{"source": "p", "transform": self.transform}]
        config = Config.parse(
            options(
                bucket_name=BUCKET,
                table_type=table_type,
                format={"format_type": format_type.title() if format_type == "PARQUET" else format_type or "Parquet"},
                streams=[{"stream": "s", "partition_by": by}],
            )
        )
        stream = Stream(StreamId(None, "s"), {}, False, None, None, None, ())
        location = TableLocation.for_stream(config, stream.id, self.name, SNAKE_CASE)
        codec = "UNCOMPRESSED" if format_type == "JSONL" else "ZSTD"
        plan = FilePlan(
            "jsonl" if format_type == "JSONL" else "parquet", codec, self.columns, {}, "", False, 1 << 27, 3, 4
        )
        layout, owner, access = (
            TableLayout(stream, config, location),
            TableOwner(stream.id, SNAKE_CASE),
            self.cloud.access,
        )
        context = TableContext(self.name.table, access, ungoverned(access), in_process(folder / "scratch"))
        table: IcebergTable | HiveTable
        if table_type == "ICEBERG":
            table = IcebergTable(self.name, layout, plan, owner, context)
        else:
            table = HiveTable(self.name, layout, plan, owner, context)
        table.prepare()
        return table

    def _rewrite(self, tasks: Sequence[RewriteTask]) -> Sequence[Rewritten]:
        return publish_rewritten([*rewrite(tasks)], self.cloud.access)

    def _objects(self, prefix: str) -> dict[str, bytes]:
        """The objects below a prefix."""
        s3 = self.cloud.access.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys}
