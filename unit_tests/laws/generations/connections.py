"""Connections as the platform keeps them, two of which write to one table, and what a reader must find after that."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow.parquet as pq

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.options import Config
from destination_datalake.protocol.catalog import Stream, parse_catalog
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.table import TableBusy, TableConflict, TableName
from unit_tests.cloud import BUCKET, ungoverned
from unit_tests.config.examples import options
from unit_tests.laws.dedup.histories import Kill
from unit_tests.laws.dedup.judges import by_pyiceberg
from unit_tests.laws.dedup.kills import CHANGES, Killed, Watch, watched
from unit_tests.laws.syncs import TableSync
from unit_tests.requirements import RequirementsCatalog

TableType = Literal["ICEBERG", "REST", "HIVE"]
"""REST: Iceberg tables in a catalog that compares requirements alone."""


@dataclass(frozen=True)
class Mode:
    """A sync mode. Without generations, the platform starts an overwrite over at every attempt."""

    name: str
    dedup: bool = False
    overwrites: bool = False
    has_generations: bool = True


APPEND = Mode("append")
OVERWRITE = Mode("overwrite", overwrites=True, has_generations=False)
REFRESH = Mode("refresh", overwrites=True)
DEDUP = Mode("dedup", dedup=True)
DEDUP_REFRESH = Mode("dedup refresh", dedup=True, overwrites=True)
MODES: dict[TableType, Sequence[Mode]] = {
    "ICEBERG": (APPEND, OVERWRITE, REFRESH, DEDUP, DEDUP_REFRESH),
    "REST": (APPEND, OVERWRITE, REFRESH, DEDUP, DEDUP_REFRESH),
    "HIVE": (APPEND, OVERWRITE, REFRESH),
}


@cache
def _config(table_type: TableType) -> Config:
    return Config.parse(
        options(bucket_name=BUCKET, bucket_prefix="lake", table_type="HIVE" if table_type == "HIVE" else "ICEBERG"),
    )


@dataclass
class Stage:
    """One table, and all ids that were sent to it. `now` counts what happens."""

    table_type: TableType
    stream: str
    folder: Path
    at_once: bool = False
    """Whether its connections' syncs overlap in any order."""
    _clock: count[int] = field(default_factory=lambda: count(1))
    _ids: count[int] = field(default_factory=count)
    _syncs: count[int] = field(default_factory=lambda: count(100))
    connections: list[Connection] = field(default_factory=list)

    def now(self) -> int:
        return next(self._clock)

    def next_id(self) -> int:
        return next(self._ids)

    def sync(self, stream: Stream, access: AwsAccess) -> TableSync:
        catalog_of = RequirementsCatalog if self.table_type == "REST" else ungoverned
        return TableSync(next(self._syncs), _config(self.table_type), stream, access, self.folder, catalog_of)

    def ids(self, table: TableName, reader: AwsAccess) -> set[int]:
        """Return what a reader finds. Fails if an id is there twice."""
        ids = self._iceberg_ids(table, reader) if self.table_type != "HIVE" else self._hive_ids(table, reader)
        twice = [id_ for id_, times in Counter(ids).items() if times > 1]
        assert not twice, f"{twice} are there twice"
        return {*ids}

    def _iceberg_ids(self, table: TableName, reader: AwsAccess) -> list[int]:
        return [row["id"] for row in by_pyiceberg(TableOperations(table, ungoverned(reader)).load())]

    def _hive_ids(self, table: TableName, reader: AwsAccess) -> list[int]:
        entry: Any = reader.client("glue").get_table(DatabaseName=table.database, Name=table.table)["Table"]
        folder = S3Address.parse(entry["StorageDescriptor"]["Location"].rstrip("/") + "/")
        s3 = reader.client("s3")
        keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET, Prefix=folder.key).get("Contents", [])]
        bodies = [s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in keys]
        ids: list[Any] = []
        for body in bodies:
            ids += pq.read_table(io.BytesIO(body)).column("id").to_pylist()
        return ids


@dataclass
class Connection:
    """A connection of one mode. `acknowledged` has the ids of its generation, with when each batch was begun."""

    stage: Stage
    mode: Mode
    generation: int
    access: AwsAccess
    acknowledged: dict[int, int] = field(default_factory=dict)
    began: int = 0
    ended: int = 0
    """When an attempt has ended with exit code 0; 0 if the last one has not."""
    began_to_end: int = 0
    """When it has begun to end: its rows were the table's between then and `ended`."""
    published: list[tuple[int, int | None]] = field(default_factory=list)
    """When it has published an overwrite, or perhaps has, and of which generation."""
    refused: str = ""
    """The last attempt's message, if it was refused or fenced."""

    def __post_init__(self) -> None:
        self.stage.connections.append(self)

    @property
    def stream(self) -> Stream:
        """The stream as the catalog of the connection has it."""
        ids: dict[str, object] = {}
        if self.mode.has_generations:
            minimum = self.generation if self.mode.overwrites else 0
            ids = {"generation_id": self.generation, "minimum_generation_id": minimum, "sync_id": 7}
        configured = {
            "stream": {"name": self.stage.stream, "json_schema": {"properties": {"id": {"type": "integer"}}}},
            "destination_sync_mode": "append_dedup"
            if self.mode.dedup
            else "append"
            if self.mode.has_generations
            else "overwrite",
            "primary_key": [["id"]],
            **ids,
        }
        [stream] = parse_catalog({"streams": [configured]})
        return stream

    def attempt(
        self,
        batches: int = 2,
        kill: int | None = None,
        act: tuple[int, Callable[[], object]] | None = None,
        *,
        ends: bool = True,
    ) -> Watch:
        """Run a sync from the last state: it is killed at its `kill`-th change of AWS, or something else happens there.

        Without `ends` it dies after its batches.
        """
        if not self.mode.has_generations:
            self.acknowledged, self.began = {}, 0
        self.began = self.began or self.stage.now()
        self.ended, self.refused = 0, ""
        sync = self.stage.sync(self.stream, self.access)
        with watched(self.access, Kill(kill, "before") if kill else None, act, CHANGES) as watch:
            try:
                sync.begin()
                for _ in range(batches):
                    begun, ids = self.stage.now(), [self.stage.next_id() for _ in range(2)]
                    sync.land([self._line(id_) for id_ in ids])
                    self.acknowledged |= dict.fromkeys(ids, begun)
                if ends:
                    self._end(sync)
            except Killed:
                pass
            except (TableConflict, TableBusy) as error:
                self.refused = str(error)
        self.table = sync.name
        return watch

    def start_over(self, generation: int) -> None:
        """Let the user refresh the stream."""
        self.mode, self.generation = DEDUP_REFRESH if self.mode.dedup else REFRESH, generation
        self.acknowledged, self.began = {}, 0

    def _end(self, sync: TableSync) -> None:
        generation = self.generation if self.mode.has_generations else None
        self.began_to_end = self.stage.now()
        try:
            sync.end()
        except Killed:
            if self.mode.overwrites:
                self.published.append((self.stage.now(), generation))
            raise
        self.ended = self.stage.now()
        if self.mode.overwrites:
            self.published.append((self.ended, generation))

    def _line(self, id_: int) -> bytes:
        record = {"stream": self.stage.stream, "data": {"id": id_}, "emitted_at": 1_700_000_000_000}
        return json.dumps({"type": "RECORD", "record": record}).encode() + b"\n"

    # Judgement

    def missing(self, ids: set[int]) -> list[int]:
        """Return acknowledged ids that must be in the table and are not; none if the last attempt has failed."""
        if not self.ended:
            return []
        return [id_ for id_, begun in self.acknowledged.items() if id_ not in ids and not self._is_replaced(begun)]

    def _is_replaced(self, begun: int) -> bool:
        """Whether another connection has published an overwrite, in whose place no row of this one can be.

        An overwrite speaks for all its rows when it succeeds; an overwrite of the same generation keeps them.
        """
        ended = self.began_to_end if self.stage.at_once else self.ended
        since = ended if self.mode.overwrites else begun
        own = self.generation if self.mode.overwrites and self.mode.has_generations else None
        return any(
            when > since and (own is None or generation != own)
            for connection in self.stage.connections
            if connection is not self
            for when, generation in connection.published
        )
