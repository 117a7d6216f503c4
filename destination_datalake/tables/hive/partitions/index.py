"""The registered partitions of a table, kept up to date with its content.

Two syncs may do so at the same time, and one may be killed between any two calls. Glue changes partitions
unconditionally, so each looks at the table again afterwards, and begins again if the content has changed or if another
has brought the partitions up to date meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from destination_datalake.aws.retries import retry_until_done
from destination_datalake.protocol.catalog import StreamId
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
from destination_datalake.tables.hive.partitions.registration import RegisteredPartitions
from destination_datalake.tables.hive.partitions.scheme import PartitionScheme, has_registered_partitions
from destination_datalake.tables.hive.partitions.state import Behind, IndexState, mark_behind
from destination_datalake.tables.table import TableBusy, table_conflict

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class PartitionIndex:
    """Registers the partitions of one table for a sync of `stream`. Does nothing for a table that registers none.

    Not thread-safe.
    """

    glue_table: GlueTable
    folders: Folders
    stream: StreamId
    scheme: PartitionScheme | None
    _known: set[Values] = field(default_factory=set)
    _known_of: object = None

    def register(self, table_input: TableInput, partition_folders: Iterable[str]) -> None:
        """Register partitions of the published content by their folders in it, unless they are.

        Must be called before files become visible in them. Brings all partitions up to date first, if they are not.
        Raises TableConflict if somebody has registered one of them at another location.
        """
        table_input = self.bring_up_to_date(table_input)
        if self.scheme is None or not has_registered_partitions(table_input):
            return
        self._forget_if_changed(table_input)
        content = table_location(table_input)
        desired = self._locations(content, partition_folders)
        unknown = {values: location for values, location in desired.items() if values not in self._known}
        if unknown:
            self._bring(unknown, table_input, ContentFolders(content))
            self._known |= unknown.keys()

    def is_current(self, table_input: TableInput) -> bool:
        """Whether nothing has changed in the table since `register` that would make partitions change."""
        return not has_registered_partitions(table_input) or (
            IndexState.of(table_input).behind is None and self._known_of == _state_of(table_input)
        )

    def bring_up_to_date(self, table_input: TableInput) -> TableInput:
        """Bring the registered partitions up to date if the table says that they are behind; return the table.

        Raises TableBusy if other writers change the table during every attempt.
        """
        behind = IndexState.of(table_input).behind
        if behind is None or not has_registered_partitions(table_input):
            return table_input
        now = table_input

        def attempt() -> bool:
            nonlocal now
            current = IndexState.of(now).behind
            if current is None:  # Another sync has done it, perhaps before this one changed a partition again.
                now = self._update(mark_behind_again)
                return False
            self._follow(now, current)
            now = self._update(partial(_conclude, before=now))
            return IndexState.of(now).behind is None

        def mark_behind_again(changed: TableInput) -> None:
            if IndexState.of(changed).behind is None:
                mark_behind(changed, replaced=behind.replaced)

        if not retry_until_done(attempt):
            raise TableBusy(
                f"The partitions of table {self.glue_table.name} could not be brought up to date, because other "
                "writers changed the table during each attempt. Run the sync again when no other sync writes to it."
            )
        return now

    def leave_former_folders(self) -> None:
        """Let no partition refer to a folder that the content has left: such folders are about to be deleted."""
        table_input = self.glue_table.read()
        if has_registered_partitions(table_input):
            self._follow(table_input, IndexState.of(table_input).behind or Behind(""))

    def _follow(self, table_input: TableInput, behind: Behind) -> None:
        registered = RegisteredPartitions(self.glue_table.name, self.glue_table.access)
        folders = ContentFolders(table_location(table_input), behind.left)
        if behind.replaced:
            elsewhere = [
                values_of(each)
                for each in registered.all(with_columns=False)
                if folders.inside(location_of(each)) is None
            ]
            # All of them before the first of the new content: readers never see rows of both.
            registered.delete(elsewhere)
        present = {values_of(each): each for each in registered.all(with_columns=True)}
        desired = following(present.values(), folders)
        if behind.replaced:
            names = self.folders.files(folders.folder)
            desired |= self._locations(folders.folder, {name.rpartition("/")[0] for name in names})
        changes = difference(desired, present, table_input, folders)
        registered.update(changes.updates)
        registered.create(changes.creations)
        if changes.updates or changes.creations:
            _logger.info(
                "Table %s: %d partitions registered, %d changed.",
                self.glue_table.name,
                len(changes.creations),
                len(changes.updates),
            )

    def _bring(self, desired: Mapping[Values, str], table_input: TableInput, folders: ContentFolders) -> None:
        """Create or change partitions until they are as desired."""
        registered = RegisteredPartitions(self.glue_table.name, self.glue_table.access)
        remaining = dict(desired)

        def attempt() -> bool:
            changes = difference(remaining, registered.get(remaining.keys()), table_input, folders)
            for entry in changes.elsewhere:
                raise self._registered_elsewhere(values_of(entry), location_of(entry))
            # Another sync may create or drop one at the same time: then it is read again.
            raced = [*registered.update(changes.updates), *registered.create(changes.creations)]
            for values in remaining.keys() - set(raced):
                del remaining[values]
            return not remaining

        if not retry_until_done(attempt):
            raise TableBusy(
                f"Partitions of table {self.glue_table.name} could not be registered, because another writer created "
                "and dropped them during each attempt. Run the sync again when no other writer changes them."
            )

    def _locations(self, content: str, partition_folders: Iterable[str]) -> dict[Values, str]:
        """Return the locations of partitions by their values; folders that are not of a partition are left out."""
        if self.scheme is None:
            return {}
        found = {folder: self.scheme.values(folder) for folder in partition_folders}
        return {values: f"{content}/{folder}" for folder, values in found.items() if values is not None}

    def _registered_elsewhere(self, values: Collection[str], location: str) -> Exception:
        return table_conflict(
            self.stream,
            self.glue_table.name,
            f"its partition {'/'.join(values)} is registered at {location}, which is not in the table's location. Drop "
            "that partition from the catalog, after moving its files, or set another table_prefix",
        )

    def _forget_if_changed(self, table_input: TableInput) -> None:
        state = _state_of(table_input)
        if self._known_of != state:
            self._known, self._known_of = set(), state

    def _update(self, change: object) -> TableInput:
        kept: list[TableInput] = []

        def keep(table_input: TableInput) -> None:
            change(table_input)  # type: ignore[operator]
            kept.append(table_input)

        self.glue_table.update(keep)
        return kept[-1]


def _conclude(table_input: TableInput, before: TableInput) -> None:
    """Say that the partitions are up to date, if the table is as it was before they were changed."""
    state = IndexState.of(table_input)
    if state.behind is not None and _state_of(table_input) == _state_of(before):
        IndexState(state.epoch + 1).save(table_input)


def _state_of(table_input: TableInput) -> object:
    """Return what registered partitions depend on."""
    return table_location(table_input), tuple(column_type_names(table_input).items()), IndexState.of(table_input)
