"""One round of a compaction: the bins that are rewritten and committed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.files.plan import Compacted, CompactTask, SourceFile
from destination_datalake.schema.types import Field
from destination_datalake.tables.iceberg.arrow_schema import arrow_schema
from destination_datalake.tables.iceberg.layout.partitions import is_written, source_paths
from destination_datalake.tables.iceberg.layout.sorting import sort_order
from destination_datalake.tables.iceberg.maintenance.candidates import Candidate, Manifests
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.iceberg.snapshots.deletes import as_sources
from destination_datalake.tables.iceberg.snapshots.entries import Entries, identity_sources

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.partitioning.spec import SortOrder

_CODECS = {"zstd": "ZSTD", "gzip": "GZIP", "snappy": "SNAPPY", "lz4": "LZ4", "brotli": "BROTLI"}
_DEFAULT_CODEC = "zstd"


@dataclass(frozen=True, slots=True)
class Compaction:
    """Live files and the manifests that list them, and the one file that has their rows now, None if they have none.

    `sequence` is its data sequence number, None in tables of format version 1: delete files with higher ones apply to
    it (Iceberg spec: Scan Planning).
    """

    old: tuple[IcebergFile, ...]
    manifests: frozenset[str]
    new: IcebergFile | None
    sequence: int | None


@dataclass(frozen=True, slots=True)
class Round:
    """Bins by name, as they were planned on `table`."""

    table: Table
    bins: Mapping[str, Sequence[Candidate]]

    def tasks(self, access: AwsAccess) -> Iterator[CompactTask]:
        """Yield the task of each bin.

        The new file lies where the first of the old ones does, if that is in the table's folder.
        """
        schema, order = arrow_schema(self.table.schema()), _sort_order(self.table.metadata)
        assert schema is not None
        codec = self.table.properties.get("write.parquet.compression-codec", _DEFAULT_CODEC).lower()
        data = f"{self.table.location().rstrip('/')}/data"
        for name, files in self.bins.items():
            folder = files[0].file.file_path.rpartition("/")[0]
            yield CompactTask(
                name,
                tuple(_source(each, self.table.metadata) for each in files),
                schema,
                folder if f"{folder}/".startswith(f"{data}/") else data,
                _CODECS.get(codec, "UNCOMPRESSED"),
                order,
                access,
            )

    def valid(
        self, done: Iterable[Compacted], table: Table, manifests: Manifests
    ) -> tuple[dict[str, Compaction], list[IcebergFile]]:
        """Return what can take the place of files in the table as it is now, by name, and deletes that go with them.

        The old files must all be live, with the same delete files, and the new file must have the other rows and fit
        the schema.
        """
        found = manifests.candidates(table, MAIN_BRANCH)
        live = {each.file.file_path: each for each in found.files}
        entries, order = Entries(table.metadata), _sort_order(self.table.metadata)
        known = order is not None and table.metadata.sort_order_by_id(order.order_id) is not None
        valid: dict[str, Compaction] = {}
        replaced: list[Candidate] = []
        for file in done:
            planned = [each for each in self.bins[file.name] if each.file.file_path in file.sources]
            old = [
                now
                for each in planned
                if (now := live.get(each.file.file_path)) is not None and now.has_same_deletes(each)
            ]
            if len(old) < len(file.sources) or file.rows + file.dead != sum(each.file.record_count for each in old):
                continue
            order_id = order.order_id if order is not None and known and file.is_sorted else None
            new = entries.of_compacted(file, old[0].file, order_id)
            if new is not None:
                valid[file.name] = Compaction(
                    tuple(each.file for each in old),
                    frozenset(each.manifest for each in old),
                    new if file.rows else None,
                    self._sequence(old),
                )
                replaced += old
        return valid, found.deletes.without(each.deletes for each in replaced)

    def _sequence(self, old: Sequence[Candidate]) -> int | None:
        """Return the data sequence number of the new file: deletes with higher ones apply to it.

        The position deletes of the old files are applied already, so it is that of the snapshot that was planned on.
        """
        planned_on = self.table.current_snapshot()
        if planned_on is not None and any(each.deletes for each in old):
            return planned_on.sequence_number
        return max((each.sequence for each in old if each.sequence is not None), default=None)


def _source(candidate: Candidate, metadata: TableMetadata) -> SourceFile:
    file = candidate.file
    identities, deletes = identity_sources(file, metadata), as_sources(candidate.deletes)
    return SourceFile(file.file_path, file.file_size_in_bytes, file.record_count, identities, deletes)


def _sort_order(metadata: TableMetadata) -> SortOrder | None:
    """Return the table's sort order, if all its columns are of types that this connector sorts by."""
    columns = [Field(name, name, type_) for name, type_ in column_types(metadata).items() if type_ is not None]
    paths = source_paths(metadata.schema())
    sources = (paths.get(field.source_id) for field in metadata.sort_order().fields)
    if not all(path is not None and is_written(path, columns) for path in sources):
        return None
    return sort_order(metadata, columns)
