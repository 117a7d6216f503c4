"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON-lines files.

Such a table has no snapshots; its files are its content. So files stay unfinished multipart uploads until the commit
completes them, and a stream that replaces its table's content writes to a folder of its own, beside the table's,
which publishing makes the table's location.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from destination_datalake.aws.withdrawal import withdraw_all
from destination_datalake.datafiles import DataFile, FilePlan
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, Change, applied, evolve
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.aws_datalake import inherited_columns
from destination_datalake.tables.base import Rewrite, TableConflict, TableName
from destination_datalake.tables.creation import create_hive_table
from destination_datalake.tables.database import ensure_database
from destination_datalake.tables.entry import CatalogEntry, Entry
from destination_datalake.tables.fitting import Fitting
from destination_datalake.tables.folders import Folders
from destination_datalake.tables.glue_columns import change_columns, columns_of, set_types
from destination_datalake.tables.hive_layout import LAYOUTS, obstacle
from destination_datalake.tables.replacement import (
    Unpublished,
    forget,
    location_of,
    lowest_generation,
    move,
    note_lowest_generation,
)
from destination_datalake.tables.widening import write_anew

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config import SchemaConflicts
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.holding import Holding
    from destination_datalake.tables.site import Site


class HiveTable:
    """A stream's Hive table. `plan` lacks columns and folder."""

    def __init__(
        self,
        name: TableName,
        stream: Stream,
        columns: Sequence[Field],
        site: Site,
        plan: FilePlan,
        access: AwsAccess,
        holding: Holding,
        conflicts: SchemaConflicts,
        sync: str,
    ) -> None:
        self.name = name
        self._stream = stream
        self._columns = tuple(columns)
        self._fitting = Fitting(name, stream.id, conflicts)
        self._plan = replace(plan, hidden=True)
        self._access = access
        self._holding = holding
        self._sync = sync
        self._entry = CatalogEntry(name, access)
        self._promotes = LAYOUTS[plan.format].promotes
        self._site = site
        self._began_in = ""
        self._folders = Folders.of(site.folder, self._began_in, access)
        # What the files in the plan's folder hold: the table's, or those of a replacement that is not published.
        self._files_hold: dict[str, ColumnType | None] = {}
        self._to_publish: Unpublished | None = None
        self._to_take_in: Unpublished | None = None

    def prepare(self) -> None:
        """Create the table, or add and widen columns; settle what an unfinished replacement left."""
        glue = self._access.client("glue")
        ensure_database(glue, self.name.database)
        try:
            entry, created = self._entry.read(), False
        except glue.exceptions.EntityNotFoundException:
            entry, created = self._create(), True
        if problem := obstacle(entry, self._plan):
            raise TableConflict(
                f"Cannot write stream {self._stream.id} to table {self.name}: {problem}, or choose another "
                "lakeformation_database_name."
            )
        sources = {column["Name"]: column.get("Comment") or column["Name"] for column in columns_of(entry)}
        columns = self._holding.settle(self.name, entry["Parameters"], sources, self._columns)
        self._columns = inherited_columns(self.name, self._stream, columns, self._holding.naming, entry)
        self._began_in = location_of(entry)
        self._site.accept(self._stream.id, self.name, "Hive", self._began_in, created=created)
        self._folders = Folders.of(self._site.root(self._began_in), self._began_in, self._access)
        if self._stream.outdates(lowest_generation(entry)):
            self._prepare_to_replace(entry)
        else:
            self._prepare_to_append(entry)

    def plan(self) -> FilePlan:
        """The plan, with columns as wide as they have become."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> bool:
        """Make the files visible, all of them, or none when one fails; first make the columns as wide as they need."""
        try:
            self._take_in(rewrite)
            self._make_room(self._needed(files), rewrite)
            if self._promotes or all(self._belongs(file) for file in files):
                self._publish_files(files)
                return True
        except Exception:
            self._take_back(files)
            raise
        self.discard(files)
        return False

    def publish(self, rewrite: Rewrite) -> None:
        """Point the table at the new folder. The old one stays until the next time, for readers still in it."""
        self._take_in(rewrite)
        if self._to_publish is None:
            return
        location = self._to_publish.location

        def swap(entry: Entry) -> str:
            superseded = move(entry, location)
            set_types(entry, self._files_hold)
            forget(entry)
            if self._stream.generation is not None:
                note_lowest_generation(entry, self._stream.generation)
            return superseded

        superseded = self._entry.update(swap)
        self._to_publish = None
        self._folders.sweep(keep={location, superseded})

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads."""
        withdraw_all(files, self._access.client("s3"))

    # Making the table fit, and settling what was left.

    def _create(self) -> Entry:
        columns, parameters = (*METADATA_COLUMNS, *self._columns), self._holding.parameters()
        create_hive_table(self.name, columns, f"{self._folders.root}/data/", parameters, self._plan, self._access)
        return self._entry.read()

    def _prepare_to_append(self, entry: Entry) -> None:
        """Write to the table's own folder, and take in a replacement that was never published (see `replacement`).

        Where the table's files must be written anew for it, that waits for the executors.
        """
        left = Unpublished.noted(entry)
        location = location_of(entry)
        lowest = self._lowest_generation(entry, left)
        if left is not None and not left.types:
            self._fit(entry)  # A conflict is found before anything is copied.
            self._folders.copy(left.location, location)

        def settle(entry: Entry) -> None:
            self._fit(entry)
            if left is not None and not left.types:
                forget(entry)
            if lowest is not None:
                note_lowest_generation(entry, lowest)

        self._entry.update(settle)
        self._plan = replace(self._plan, folder=location)
        if left is not None and left.types:
            self._to_take_in = left
        elif left is not None:
            self._folders.delete(self._folders.files(left.location))

    def _prepare_to_replace(self, entry: Entry) -> None:
        """Write to a folder of its own: to one that an attempt at the same generation left, or to a new one."""
        generation = self._stream.generation
        left = Unpublished.noted(entry)
        attempt = self._stream.replacement_generation
        if left is None or attempt is None or left.generation != attempt:
            left = Unpublished(self._folders.new(generation), generation, {})
        into = left

        def settle(entry: Entry) -> None:
            self._fit(entry)
            into.note(entry)

        self._entry.update(settle)
        self._to_publish = into
        self._files_hold |= self._wider_types(into)
        columns = evolve(self._files_hold, self._plan.columns).columns
        self._plan = replace(self._plan, folder=into.location, columns=columns)

    def _fit(self, entry: Entry) -> None:
        """Add the columns that are missing. Wider ones wait for the first batch if the old files must be rewritten."""
        expected = {column.name: column.type for column in (*METADATA_COLUMNS, *self._columns)}
        words = {column["Name"]: column.get("Type", "") for column in columns_of(entry)}
        there = {name: parse_glue_type(text, expected.get(name)) for name, text in words.items()}
        fit = self._fitting.to(self._columns, there, words)
        now = [c for c in fit.changes if isinstance(c, AddColumn) or self._promotes]
        change_columns(entry, now)
        if fit.conflicts:
            entry["Description"] = fit.comment(entry.get("Description", ""))
        self._files_hold = applied(there, now)
        self._plan = replace(self._plan, columns=fit.columns)

    def _lowest_generation(self, entry: Entry, left: Unpublished | None) -> int | None:
        """What the table's rows will have as their lowest generation; None if others filled it, or nobody counts."""
        generations = [self._stream.generation, *([left.generation] if left is not None else [])]
        counted = [generation for generation in (lowest_generation(entry), *generations) if generation is not None]
        if lowest_generation(entry) is None and (None in generations or not self._folders.empty(location_of(entry))):
            return None
        return min(counted)

    def _wider_types(self, unpublished: Unpublished) -> dict[str, ColumnType]:
        """Return the types of columns that are wider in an unpublished replacement than in the table."""
        read = {name: parse_glue_type(text, self._files_hold.get(name)) for name, text in unpublished.types.items()}
        return {name: type_ for name, type_ in read.items() if type_ is not None}

    def _take_in(self, rewrite: Rewrite) -> None:
        """Take in a replacement that waits for it, once the table's columns are as wide as its files'."""
        left = self._to_take_in
        if left is None:
            return
        wider = [Field(name, name, type_) for name, type_ in self._wider_types(left).items()]
        if changes := evolve(self._files_hold, wider).changes:
            self._widen(changes, rewrite)
            self._plan = replace(self._plan, columns=evolve(self._files_hold, self._plan.columns).columns)
        self._folders.copy(left.location, self._plan.folder)
        self._entry.update(forget)
        self._folders.delete(self._folders.files(left.location))
        self._to_take_in = None

    # Widening.

    def _needed(self, files: Sequence[DataFile]) -> tuple[Field, ...]:
        """The plan's columns, as wide as the widest of the files has them."""
        columns = self._plan.columns
        for file in files:
            columns = evolve({column.name: column.type for column in columns}, file.columns).columns
        return columns

    def _make_room(self, needed: Sequence[Field], rewrite: Rewrite) -> None:
        """Make the table's columns as wide as needed, and the plan's with them."""
        changes = evolve(self._files_hold, needed).changes
        if changes and self._promotes:
            self._entry.update(lambda entry: change_columns(entry, changes))
            self._files_hold = applied(self._files_hold, changes)
        elif changes:
            self._widen(changes, rewrite)
        self._plan = replace(self._plan, columns=evolve(self._files_hold, needed).columns)

    def _widen(self, changes: Sequence[Change], rewrite: Rewrite) -> None:
        """Write all files anew with wider columns, beside the old ones, and let the table point at them.

        A replacement that is not published yet is rewritten instead of the table, which keeps its columns until then.
        """
        wider = applied(self._files_hold, changes)
        types = {name: type_ for name in {change.path[0] for change in changes} if (type_ := wider[name]) is not None}
        source, beside = self._plan.folder, self._folders.new(self._stream.generation)
        target = write_anew(self.name, self._folders, source, beside, types, rewrite)
        self._point_at(target, types)
        self._files_hold = wider
        self._plan = replace(self._plan, folder=target)
        left = {self._to_take_in.location} if self._to_take_in is not None else set()
        self._folders.sweep(keep={source, target, self._began_in, *left})

    def _point_at(self, target: str, types: Mapping[str, ColumnType]) -> None:
        """Let the catalog say that what this sync writes into is at `target`, with these types for some columns."""
        if self._to_publish is not None:
            wider = {**self._to_publish.types, **{name: glue_type(type_) for name, type_ in types.items()}}
            self._to_publish = replace(self._to_publish, location=target, types=wider)
            self._entry.update(self._to_publish.note)
            return

        def point(entry: Entry) -> None:
            move(entry, target)
            set_types(entry, types)

        self._entry.update(point)

    # Files.

    def _belongs(self, file: DataFile) -> bool:
        """Whether the file is in the table's folder, with the table's types; it is not if the table was rewritten."""
        return file.columns == self._plan.columns and file.uri.startswith(f"{self._plan.folder}/")

    def _publish_files(self, files: Sequence[DataFile]) -> None:
        s3 = self._access.client("s3")
        with ThreadPoolExecutor(8, "publish") as pool:
            list(pool.map(lambda file: file.hidden_object.publish(s3), files))

    def _take_back(self, files: Sequence[DataFile]) -> None:
        try:
            self.discard(files)
        finally:
            self._folders.delete(file.uri for file in files)
