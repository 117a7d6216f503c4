"""The archive of a table in a bucket, as syncs write it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from destination_datalake.archive.ledger import ArchiveLedger
from destination_datalake.archive.lines import ArchiveSink, ArchiveWriter
from destination_datalake.archive.objects import ArchiveLocation, table_folder
from destination_datalake.files.plan import FilePlan, LineFile, UnitLines
from destination_datalake.protocol.catalog import StreamId, configured, parse_catalog
from destination_datalake.schema.types import Field
from destination_datalake.tables.table import TableName, TablePosition
from integration_tests.harness.messages import configured_catalog, configured_stream
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.sync.fakes.table import FakeTable

ROOT = f"s3://{BUCKET}/lake/_raw"
FOLDER = table_folder(ROOT, "shop", "orders")
KEY = "lake/_raw/shop.orders"
ORDERS = StreamId(None, "orders")
NOW = 1_764_000_000.0
"""2025-11-24T16:00:00Z."""

AT = TablePosition("a table", 1)

LINES = b'{"id":1}\n{"id":2}\n'


@dataclass
class ArchivedTable(FakeTable):
    """The table shop.orders, of which an earlier sync has archived records."""

    name: TableName = field(default_factory=lambda: TableName("shop", "orders"))
    at: TablePosition = AT
    columns: tuple[Field, ...] = ()

    def is_archived(self) -> bool:
        return True

    def position(self) -> TablePosition:
        return self.at

    def plan(self) -> FilePlan:
        return replace(super().plan(), columns=self.columns, metadata=(), folder="s3://lake/shop/orders")


class Archiving:
    """A sync of one stream that archives, at a time of the test's choice."""

    def __init__(
        self,
        cloud: Cloud,
        name: str,
        clock: Callable[[], float] = lambda: NOW,
        catalog: Mapping[str, Any] | None = None,
        *,
        keeps_lines: bool = True,
    ) -> None:
        self.cloud = cloud
        self.name = name
        entries = configured_catalog(catalog or configured_stream("orders", {}))
        self.streams = parse_catalog(entries)
        self.stream = self.streams[0].id
        self.ledger = ArchiveLedger(
            ROOT, name, configured(self.streams, entries), cloud.access, clock, keeps_lines=keeps_lines
        )

    def begin(self, *, found_empty: bool = False, position: TablePosition = AT) -> Archiving:
        self.ledger.begin(self.stream, ArchivedTable(at=position, rows=0 if found_empty else 1))
        return self

    def end(self, columns: Sequence[Field] = (), position: TablePosition = AT) -> None:
        self.ledger.end(self.stream, ArchivedTable(columns=tuple(columns), at=position))

    @property
    def location(self) -> ArchiveLocation:
        [sink] = self.ledger.sinks(self.stream)
        assert isinstance(sink, ArchiveSink)
        return sink.location

    def written(
        self, attempt: str, lines: bytes = LINES, first_id: str = "01" * 16, spool_folder: Path | None = None
    ) -> LineFile:
        """Write a unit's lines, and do not publish them."""
        location = self.location
        name = location.name(f"{self.name}-{attempt}")
        archived = UnitLines(name, lines.count(b"\n"), len(lines), 0, first_id)
        writer = ArchiveWriter(
            location, archived, self.cloud.access.client("s3"), None if spool_folder is None else str(spool_folder)
        )
        writer.write(lines)
        return writer.close()

    def published(self, attempt: str, lines: bytes = LINES, first_id: str = "01" * 16) -> LineFile:
        """Write a unit's lines and publish them, as before a commit."""
        file = self.written(attempt, lines, first_id)
        self.ledger.publish([file])
        return file

    def committed(self, batch: int, *attempts: str, position: TablePosition = AT, rows: int = 0) -> list[LineFile]:
        """Publish the units of a batch and record it, as around a commit."""
        files = []
        for attempt in attempts:
            unit = f"{self.name}-{batch:06d}-{attempt}"
            first_id = hashlib.sha256(unit.encode()).hexdigest()[:24] + "0" * 8
            files.append(self.published(f"{batch:06d}-{attempt}", first_id=first_id))
        self.ledger.add(self.stream, batch, files, position, rows)
        return files
