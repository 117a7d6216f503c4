"""Verifies a Hive table: compares its files with its partitions and with the reports of its syncs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from destination_datalake.aws.objects import S3Address
from destination_datalake.files.plan import UNKNOWN, ExpectedFileStats, ExpectedPartition, SourceFile
from destination_datalake.partitioning.spec import CalendarPart, Void
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import redirected_from
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
from destination_datalake.tables.verification import Finding, Reported, Total, VerifiedTable, run_of

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.tables.table import TableName

_UNREPORTED_GROUP = "others"
"""The name of the group of files that come from runs without a report."""


class VerifiedHive(VerifiedTable):
    """One Hive table, as it was when it was loaded.

    Each file's name begins with the name of the run that wrote the file. This class groups the files by run. All files
    of runs that are not in `reported` form one group.
    """

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
        self._redirected = frozenset(redirected_from(column.name.lower()) for column in columns)
        self._last = reported[0] if reported else None
        self._runs = frozenset(report.run for report in reported)
        self._newest_unreported = datetime.min.replace(tzinfo=UTC)
        """The time of the newest file whose run has no report. `replay --replace` is one writer of such files."""

    def has_changed(self) -> bool:
        """Return whether the table has changed since it was loaded: by a commit, a new location or stale partitions."""
        return _version(GlueTable(self._name, self._access).read()) != _version(self._input)

    def expected_files(self) -> Iterator[ExpectedFileStats]:
        """Yield the expected statistics of each visible file, and of each file of a pending overwrite.

        Add findings about files that do not belong to the table, and about partitions, to `problems` or `notes`.
        """
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
                if self._folders.is_created_by_connector(folder) and not name.endswith(_ENDINGS[kind]):
                    self.problems.append(Finding(uri, "is not a data file of the table, but engines read it as one"))
                    continue
                run = run_of(uri)
                group = run if run in self._runs else _UNREPORTED_GROUP
                if group == _UNREPORTED_GROUP:
                    self._newest_unreported = max(self._newest_unreported, listed["LastModified"])
                source = SourceFile(uri, listed["Size"], UNKNOWN)
                partition = self._partition_of(path.rpartition("/")[0])
                own_schema = schema if kind == "parquet" else None
                yield ExpectedFileStats(source, kind, own_schema, group=group, partition=partition, listed=True)
        if has_registered_partitions(self._input):
            self._compare_partitions(with_files)

    def _partition_of(self, folder: str) -> ExpectedPartition | None:
        """Return the partition in `folder`, which is relative to the content's folder.

        The verification includes a key only if the key's value can be derived from the column's present type. Keys that
        are parts of dates are also derived from columns to which a sync redirected values (see
        `PartitionScheme.partitioning`).
        """
        if self._scheme is None or (texts := self._scheme.folders.texts_of(folder)) is None:
            return None
        keys = self._scheme.folders.keys
        fields = tuple(key.field if key.takes(key.source) else replace(key.field, transform=Void()) for key in keys)
        nullable = frozenset(
            field.name
            for field in fields
            if isinstance(field.transform, CalendarPart) and field.source[0].lower() in self._redirected
        )
        return ExpectedPartition(fields, texts, self._scheme.folders, nullable)

    def _compare_partitions(self, with_files: set[str]) -> None:
        """Compare the registered partitions with the folders that contain files.

        The caller must list the files before calling this method, because this method reads the partitions.
        """
        if StalePartitions.load(self._input) is not None:
            self.notes.append(
                "The registered partitions are outdated, because a sync was killed. The next sync updates them."
            )
            return
        registered: set[str] = set()
        for entry in RegisteredPartitions(self._name, self._access).entries(with_columns=False):
            location = str(S3Address.parse(entry["StorageDescriptor"]["Location"])).removesuffix("/")
            registered.add(location)
            if location in with_files or any(folder.startswith(f"{location}/") for folder in with_files):
                continue
            # The partition may have received its first file since the listing.
            if next(self._folders.visible(location), None) is not None:
                continue
            if self._last is not None and self._last.has_successor:
                self.notes.append(
                    f"The registered partition at {location} contains no objects. A killed or running sync can cause "
                    "this difference."
                )
            else:
                self.problems.append(Finding(location, "is registered as a partition but contains no objects"))
        for folder in sorted(with_files - registered):
            if not any(folder.startswith(f"{location}/") for location in registered):
                self.problems.append(
                    Finding(
                        folder,
                        "contains files but is not registered as a partition, so engines do not read these files",
                    )
                )

    def conclude(self, read: Mapping[str, Total] | None, reported: Sequence[Reported]) -> None:
        """Compare the files that each sync wrote with the sync's report."""
        if not reported:
            self.notes.append("No report of a sync exists, so the comparison with reports was skipped.")
        if read is not None:
            for report in reported:
                self._compare_run(report, read.get(report.run, Total()), is_last=report is reported[0])

    def _compare_run(self, reported: Reported, total: Total, *, is_last: bool) -> None:
        run, missing = reported.run, reported.rows - total.rows
        has_unreported = self._newest_unreported > reported.finished
        if reported.rows_erased is None:
            self.notes.append(
                f"Skipped the comparison with the report of run {run}, because a later erasure has not finished."
            )
        elif is_last and reported.has_successor:
            self.notes.append("Skipped the comparison with the last report, because a later sync has begun.")
        elif not total.files and is_last and has_unreported:
            self.notes.append(
                f"The table contains no files of run {run}, the last run with a report, because the table's content "
                "was replaced later."
            )
        elif not total.files and not is_last and (reported.may_be_replaced or reported.has_successor or has_unreported):
            pass  # A refresh has replaced its files.
        elif (total.files, missing) != (reported.files, 0) and not self._is_explained(reported, total):
            erased = f". At most {reported.rows_erased} of these rows were erased later" if reported.rows_erased else ""
            unreported = ". Other writers have added files since" if has_unreported else ""
            problem = (
                f"contains {total.files} files with {total.rows} rows of run {run}, but the run's report records "
                f"{reported.files} files with {reported.rows} rows{erased}{unreported}"
            )
            self.problems.append(Finding(table_location(self._input), problem))
        elif total.bytes != reported.bytes and not (reported.is_rewritten or reported.has_successor or missing):
            sizes = f"{total.bytes} bytes, but the run's report records {reported.bytes} bytes"
            problem = f"contains files of run {run} with {sizes}, so a file was replaced"
            self.problems.append(Finding(table_location(self._input), problem))

    def _is_explained(self, reported: Reported, total: Total) -> bool:
        """Return whether a difference between a sync's report and its files has a known harmless cause.

        An erasure explains missing rows. A sync without a report explains additional rows: it may have copied files
        before it was killed.
        """
        missing = reported.rows - total.rows
        if reported.rows_erased and 0 < missing <= reported.rows_erased and total.files <= reported.files:
            return True
        return reported.has_successor and missing <= 0 and total.files >= reported.files


_ENDINGS: Mapping[str, tuple[str, ...]] = {"parquet": (".parquet",), "jsonl": (".jsonl", ".jsonl.gz")}


def _version(table_input: TableInput) -> tuple[object, ...]:
    stale = StalePartitions.load(table_input)
    return table_location(table_input), last_commit(table_input), stale.id if stale is not None else None
