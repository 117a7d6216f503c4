"""The registered partitions of a table, kept up to date with its content.

Two syncs may do so at the same time, and one may be killed between any two calls. Glue changes partitions
unconditionally, so each looks at the table again afterwards, and begins again if the content has changed or if another
has brought the partitions up to date meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import uuid4

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.retries import retry_until_done
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import describe_type
from destination_datalake.schema.types import Field
from destination_datalake.tables.glue.glue_table import GlueTable, TableInput
from destination_datalake.tables.glue.storage_descriptor import column_type_names, table_location
from destination_datalake.tables.hive.folders import Folders
from destination_datalake.tables.hive.partitions.entries import (
    ContentFolders,
    Values,
    difference,
    following,
    location_of,
    values_of,
)
from destination_datalake.tables.hive.partitions.registration import RegisteredPartitions, in_batches
from destination_datalake.tables.hive.partitions.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.hive.partitions.state import Behind, IndexState, mark_behind
from destination_datalake.tables.table import TableBusy, table_conflict

_logger = logging.getLogger(__name__)

_AT_ONCE = 1000
"""Partitions, each with all columns of the table, that are in memory at the same time."""


@dataclass(slots=True)
class PartitionIndex:
    """Registers the partitions of one table for a sync of `stream`. Does nothing for a table that registers none.

    Not thread-safe.
    """

    glue_table: GlueTable
    access: AwsAccess
    folders: Folders
    stream: StreamId
    scheme: PartitionScheme | None
    _known: set[Values] = field(default_factory=set)
    _known_of: object = None

    def register(self, table_input: TableInput, partition_folders: Iterable[str]) -> bool:
        """Register partitions of the published content by their folders in it, unless they are known to be.

        Must be called before files become visible in them. Brings all partitions up to date first, if they are not.
        Returns whether nothing had to be done: all were known, and the table was not changed since then. Raises
        TableConflict if somebody has registered one of them at another location.
        """
        table_input = self.bring_up_to_date(table_input)
        if not has_registered_partitions(table_input):
            return True
        if self._known_of != (state := _state_of(table_input)):
            self._known, self._known_of = set(), state
        content = table_location(table_input)
        desired = self._locations(content, partition_folders)
        unknown = {values: location for values, location in desired.items() if values not in self._known}
        if not unknown:
            return True
        for batch in in_batches(unknown.items(), _AT_ONCE):
            self._bring(dict(batch), table_input, ContentFolders(content))
        self._known |= unknown.keys()
        return False

    def project(self, table_input: TableInput, partition_folders: Iterable[str]) -> None:
        """Let Athena look for more partitions of the published content, if the table has a projection."""
        if self.scheme is not None:
            values = self._locations("", partition_folders).keys()
            self.scheme.project(table_input, values, anew=False)

    def project_anew(self, table_input: TableInput) -> None:
        """Let Athena look for the partitions of the published content and no others, if the table has a projection."""
        if self.scheme is not None and self.scheme.catalog != "register":
            content = table_location(table_input)
            self.scheme.project(table_input, self._present(content).keys(), anew=True)

    def bring_up_to_date(self, table_input: TableInput) -> TableInput:
        """Bring the registered partitions up to date if the table says that they are behind; return the table.

        Raises TableBusy if other writers change the table during every attempt.
        """
        behind = IndexState.of(table_input).behind
        if behind is None or not has_registered_partitions(table_input):
            return table_input
        now, reason = table_input, behind

        def attempt() -> bool:
            nonlocal now, reason
            self._follow(now, reason)
            now, concluded = self._conclude(now)
            if not concluded and IndexState.of(now).behind is None:
                # Another sync has brought them up to date, perhaps before this one changed the last of them.
                now = self._mark_behind(replaced=reason.replaced)
            reason = IndexState.of(now).behind or reason
            return concluded

        if not retry_until_done(attempt):
            raise TableBusy(
                f"The partitions of table {self.glue_table.name} could not be brought up to date, because other "
                "writers changed the table during each attempt. Run the sync again when no other sync writes to it."
            )
        return now

    def warn_of_retyped(self, table_input: TableInput, named: Sequence[Field], written: Sequence[Field]) -> None:
        """Log the keys that new rows have no value of, as their sources have other types by now, and what that hides.

        Partitions with such values, which earlier versions registered, make engines fail on the whole table.
        """
        keys = self.scheme.retyped(named, written) if self.scheme is not None else []
        if self.scheme is None or not keys:
            return
        _logger.warning(
            "Table %s: new rows are in the null partition of %s, because the stream has other types now. Their columns "
            "have all values. To partition them, set another table_prefix and refresh the stream.",
            self.glue_table.name,
            ", ".join(f"{key.name} ({describe_type(key.type)})" for key in keys),
        )
        if not has_registered_partitions(table_input):
            return
        if misfits := self.scheme.misfits(values_of(each) for each in self._registered.all(with_columns=False)):
            _logger.warning(
                "Table %s: %d of its partitions have a value that is none of its key's type, and Athena, Trino and "
                "Spark may fail on the whole table. Refresh the stream with an overwrite, which replaces all "
                "partitions, or move their files to the null partition, as docs/hive/partitions.md says.",
                self.glue_table.name,
                misfits,
            )

    def leave_former_folders(self) -> None:
        """Let no partition refer to a folder that the content has left: such folders are about to be deleted."""
        table_input = self.glue_table.read()
        if has_registered_partitions(table_input):
            self._follow(table_input, IndexState.of(table_input).behind or Behind(""))

    def locations(self) -> Iterator[str]:
        """Yield where the registered partitions are now, whoever put them there."""
        if has_registered_partitions(self.glue_table.read()):
            yield from map(location_of, self._registered.all(with_columns=False))

    @property
    def _registered(self) -> RegisteredPartitions:
        return RegisteredPartitions(self.glue_table.name, self.access)

    def _follow(self, table_input: TableInput, behind: Behind) -> None:
        folders = ContentFolders(table_location(table_input), behind.left)
        if behind.replaced:
            elsewhere = [
                values_of(each)
                for each in self._registered.all(with_columns=False)
                if folders.inside(location_of(each)) is None
            ]
            # All of them before the first of the new content: readers never see rows of both.
            self._registered.delete(elsewhere)
        missing, changed, created = self._present(folders.folder) if behind.replaced else {}, 0, 0
        for page in in_batches(self._registered.all(with_columns=True), _AT_ONCE):
            present = {values_of(each): each for each in page}
            for values in present:
                missing.pop(values, None)
            changes = difference(following(page, folders), present, table_input, folders)
            self._registered.update(changes.updates)
            changed += len(changes.updates)
        for batch in in_batches(missing.items(), _AT_ONCE):
            changes = difference(dict(batch), {}, table_input, folders)
            self._registered.create(changes.creations)
            created += len(changes.creations)
        if changed or created:
            _logger.info("Table %s: %d partitions registered, %d changed.", self.glue_table.name, created, changed)

    def _bring(self, desired: Mapping[Values, str], table_input: TableInput, folders: ContentFolders) -> None:
        """Create or change partitions until they are as desired."""
        remaining = dict(desired)

        def attempt() -> bool:
            changes = difference(remaining, self._registered.get(remaining.keys()), table_input, folders)
            for entry in changes.elsewhere:
                raise self._registered_elsewhere(values_of(entry), location_of(entry))
            # Another sync may create or drop one at the same time: then it is read again.
            raced = [*self._registered.update(changes.updates), *self._registered.create(changes.creations)]
            for values in remaining.keys() - set(raced):
                del remaining[values]
            return not remaining

        if not retry_until_done(attempt):
            raise TableBusy(
                f"Partitions of table {self.glue_table.name} could not be registered, because another writer created "
                "and dropped them during each attempt. Run the sync again when no other writer changes them."
            )

    def _present(self, content: str) -> dict[Values, str]:
        """Return the locations of the partitions that have files, by their values."""
        return self._locations(content, {name.rpartition("/")[0] for name in self.folders.files(content)})

    def _locations(self, content: str, partition_folders: Iterable[str]) -> dict[Values, str]:
        """Return the locations of partitions by their values; folders that are not of a partition are left out."""
        if self.scheme is None:
            return {}
        found = {folder: self.scheme.values(folder) for folder in sorted(partition_folders)}
        return {values: f"{content}/{folder}" for folder, values in found.items() if values is not None}

    def _registered_elsewhere(self, values: Values, location: str) -> Exception:
        if self.scheme is not None and self.scheme.is_by_date:
            problem = f"its partition {'/'.join(values)} is registered at {location}, which is not in its location"
        else:
            # Values of other columns are contents of records, which no message has.
            problem = "a partition that rows were sent for is registered at a location that is not in the table's"
        remedy = "Drop that partition from the catalog, after moving its files, or set another table_prefix"
        return table_conflict(self.stream, self.glue_table.name, f"{problem}. {remedy}")

    def _conclude(self, before: TableInput) -> tuple[TableInput, bool]:
        """Say that the partitions are up to date, if the table is as it was before they were changed.

        Returns the table, and whether that was so.
        """
        settled = uuid4().hex

        def conclude(table_input: TableInput) -> tuple[TableInput, bool]:
            if _state_of(table_input) == _state_of(before):
                IndexState(settled).save(table_input)
            # The answer to an earlier attempt may have been lost.
            return table_input, IndexState.of(table_input) == IndexState(settled)

        return self.glue_table.update(conclude)

    def _mark_behind(self, *, replaced: bool) -> TableInput:
        def mark(table_input: TableInput) -> TableInput:
            if IndexState.of(table_input).behind is None:
                mark_behind(table_input, replaced=replaced)
            return table_input

        return self.glue_table.update(mark)


def _state_of(table_input: TableInput) -> object:
    """Return what registered partitions depend on."""
    return table_location(table_input), tuple(column_type_names(table_input).items()), IndexState.of(table_input)
