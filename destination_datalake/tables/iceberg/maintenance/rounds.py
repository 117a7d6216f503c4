"""One round of a compaction: the bins that are rewritten and committed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from destination_datalake.files.plan import Compacted, CompactTask, SourceFile
from destination_datalake.schema.types import Field
from destination_datalake.tables.iceberg.arrow_schema import arrow_schema
from destination_datalake.tables.iceberg.layout.partitions import is_written, source_paths
from destination_datalake.tables.iceberg.layout.sorting import sort_order
from destination_datalake.tables.iceberg.maintenance.candidates import Candidate, Manifests
from destination_datalake.tables.iceberg.schema import column_types
from destination_datalake.tables.iceberg.snapshots.entries import Entries, identity_sources
from destination_datalake.tables.iceberg.snapshots.replacing import Compaction

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.partitioning.spec import SortOrder

_CODECS = {"zstd": "ZSTD", "gzip": "GZIP", "snappy": "SNAPPY", "lz4": "LZ4", "brotli": "BROTLI"}
_DEFAULT_CODEC = "zstd"


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
    ) -> Iterator[tuple[Compacted, Compaction]]:
        """Yield the files that can take the place of others in the table as it is now.

        The others must all be live, without deleted rows, and the new file must have as many and fit the schema.
        """
        live = {each.file.file_path: each for each in manifests.candidates(table, MAIN_BRANCH).files}
        entries, order = Entries(table.metadata), _sort_order(self.table.metadata)
        known = order is not None and table.metadata.sort_order_by_id(order.order_id) is not None
        for file in done:
            old = [live[path] for path in file.sources if path in live]
            if len(old) < len(file.sources) or file.rows != sum(each.file.record_count for each in old):
                continue
            order_id = order.order_id if order is not None and known and file.is_sorted else None
            if (new := entries.of_compacted(file, old[0].file, order_id)) is not None:
                sequences = [each.sequence for each in old if each.sequence is not None]
                manifests_of_old = frozenset(each.manifest for each in old)
                yield (
                    file,
                    Compaction(tuple(each.file for each in old), manifests_of_old, new, max(sequences, default=None)),
                )


def _source(candidate: Candidate, metadata: TableMetadata) -> SourceFile:
    file = candidate.file
    return SourceFile(file.file_path, file.file_size_in_bytes, file.record_count, identity_sources(file, metadata))


def _sort_order(metadata: TableMetadata) -> SortOrder | None:
    """Return the table's sort order, if all its columns are of types that this connector sorts by."""
    columns = [Field(name, name, type_) for name, type_ in column_types(metadata).items() if type_ is not None]
    paths = source_paths(metadata.schema())
    sources = (paths.get(field.source_id) for field in metadata.sort_order().fields)
    if not all(path is not None and is_written(path, columns) for path in sources):
        return None
    return sort_order(metadata, columns)
