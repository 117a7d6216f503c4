"""What a Hive table says of its files: by its location, its registered partitions, and its columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_datalake.aws.objects import S3Address
from destination_datalake.files.plan import UNKNOWN, ExpectedFileStats, SourceFile
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.tables.glue.glue_table import (
    GlueTable,
    TableInput,
    column_types,
    known_columns,
    table_location,
)
from destination_datalake.tables.hive.content import PendingOverwrite, folders_in_use, last_commit
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions import RegisteredPartitions, StalePartitions
from destination_datalake.tables.hive.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.partitioning.paths import PartitionKey
    from destination_datalake.tables.table import TableName

_OTHERS = "others"


class VerifiedHive(VerifiedTable):
    """One table. `reported` is needed beforehand: by the names of the runs, their files are known."""

    def __init__(
        self,
        name: TableName,
        access: AwsAccess,
        reported: Sequence[Reported],
        problems: list[Finding],
        notes: list[str],
    ) -> None:
        self.problems = problems
        self.notes = notes
        self._name = name
        self._access = access
        self._folders = Folders("", access)
        self._input = GlueTable(name, access).read()
        columns = (*METADATA_COLUMNS, *known_columns(self._input))
        self._scheme = PartitionScheme.recorded(self._input, columns)
        self._last = reported[0] if reported else None
        self._runs = frozenset(each.run for each in reported)
        self._newest_of_others = datetime.min.replace(tzinfo=UTC)
        """When the newest file was written that is of no run with a report, as those of `replay --replace` are."""

    def has_changed(self) -> bool:
        """Whether there was a commit."""
        return _version(GlueTable(self._name, self._access).read()) != _version(self._input)

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected statistics of each file that readers see, and for those of a pending overwrite."""
        library = str(self._input["StorageDescriptor"].get("SerdeInfo", {}).get("SerializationLibrary", ""))
        kind = "jsonl" if "json" in library.lower() else "parquet"
        content = table_location(self._input)
        pending = PendingOverwrite.load(self._input)
        with_files: set[str] = set()
        for folder in sorted(folders_in_use(self._input)):
            types = column_types(self._input)
            if pending is not None and folder == pending.location:
                types = {**types, **pending.types()}
            schema = pa.schema(
                [(name, pa.null() if type_ is None else arrow_type(type_)) for name, type_ in types.items()]
            )
            for path, listed in self._folders.visible(folder):
                uri = f"{folder}/{path}"
                if folder == content:
                    with_files.add(uri.rpartition("/")[0])
                name = uri.rpartition("/")[2]
                if self._folders.is_ours(folder) and not name.endswith(_ENDINGS[kind]):
                    self.problems.append(Finding(uri, "is no file of the table, and readers take it for one"))
                    continue
                run = name.partition("-")[0]
                group = run if run in self._runs else _OTHERS
                if group == _OTHERS:
                    self._newest_of_others = max(self._newest_of_others, listed["LastModified"])
                source = SourceFile(uri, listed["Size"], UNKNOWN)
                partition = self._partition_of(path.rpartition("/")[0])
                own_schema = schema if kind == "parquet" else None
                yield ExpectedFileStats(source, kind, own_schema, group=group, partition=partition, listed=True)
        if has_registered_partitions(self._input):
            self._compare_partitions(with_files)

    def _partition_of(self, folder: str) -> tuple[tuple[PartitionKey, str], ...]:
        """Return the keys and values of the partition with this folder, relative to the content's."""
        texts = self._scheme.folders.texts_of(folder) if self._scheme is not None else None
        return (
            () if self._scheme is None or texts is None else tuple(zip(self._scheme.folders.keys, texts, strict=True))
        )

    def _compare_partitions(self, with_files: set[str]) -> None:
        """Compare the partitions with the folders that have files. Partitions are read after files were listed."""
        if StalePartitions.of(self._input) is not None:
            self.notes.append(
                "Its partitions are behind its content, as a killed sync leaves them; the next sync completes them."
            )
            return
        registered: set[str] = set()
        for entry in RegisteredPartitions(self._name, self._access).all(with_columns=False):
            location = str(S3Address.parse(entry["StorageDescriptor"]["Location"])).removesuffix("/")
            registered.add(location)
            if location in with_files or any(each.startswith(f"{location}/") for each in with_files):
                continue
            if next(self._folders.visible(location), None) is not None:
                continue
            if self._last is not None and self._last.has_successor:
                self.notes.append(f"A partition has no objects at {location}; a killed or running sync can cause this.")
            else:
                self.problems.append(Finding(location, "is registered as a partition but has no objects"))
        for folder in sorted(with_files - registered):
            if not any(folder.startswith(f"{each}/") for each in registered):
                self.problems.append(
                    Finding(folder, "has files but is not registered as a partition, so readers do not see them")
                )

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the files of each sync with its report."""
        if not reported:
            self.notes.append("No sync has a report to compare with.")
        for each in reported if read is not None else ():
            self._compare_run(each, (read or {}).get(each.run, Total()), is_last=each is reported[0])

    def _compare_run(self, reported: Reported, found: Total, *, is_last: bool) -> None:
        run, missing = reported.run, reported.rows - found.rows
        has_others = self._newest_of_others > reported.finished
        if reported.rows_erased is None:
            self.notes.append(f"An erasure has begun since run {run} and has not ended: they are not compared.")
        elif is_last and reported.has_successor:
            self.notes.append("A sync has begun since the last report: they are not compared.")
        elif not found.files and is_last and has_others:
            self.notes.append(
                f"It has no files of run {run}, the last one with a report: its content was replaced since."
            )
        elif not found.files and not is_last and (reported.may_be_replaced or reported.has_successor or has_others):
            pass  # A refresh has replaced its files.
        elif (found.files, missing) != (reported.files, 0) and not self._is_explained(reported, found):
            by = ", and other writers have added files since" if has_others else ""
            what = f"{found.files} files with {found.rows} rows of run {run}, and {reported.files} with {reported.rows}"
            erased = f", of which {reported.rows_erased} were erased at most" if reported.rows_erased else ""
            self.problems.append(Finding(table_location(self._input), f"has {what} rows by its report{erased}{by}"))
        elif found.bytes != reported.bytes and not (reported.is_rewritten or reported.has_successor or missing):
            what = f"files of run {run} with {found.bytes} bytes, and {reported.bytes} by its report"
            self.problems.append(Finding(table_location(self._input), f"has {what}: a file was replaced"))

    def _is_explained(self, reported: Reported, found: Total) -> bool:
        """Return whether an erasure explains missing rows, or a killed sync that copied files explains extra ones."""
        missing = reported.rows - found.rows
        if reported.rows_erased and 0 < missing <= reported.rows_erased and found.files <= reported.files:
            return True
        return reported.has_successor and missing <= 0 and found.files >= reported.files


_ENDINGS: Mapping[str, tuple[str, ...]] = {"parquet": (".parquet",), "jsonl": (".jsonl", ".jsonl.gz")}


def _version(table_input: TableInput) -> tuple[object, ...]:
    stale = StalePartitions.of(table_input)
    return table_location(table_input), last_commit(table_input), stale.id if stale is not None else None
