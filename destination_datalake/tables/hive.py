"""Hive tables in the Glue Data Catalog: folders of Parquet or JSON-lines files.

Such a table has no snapshots; its files are its content. So files stay unfinished multipart uploads until the commit
completes them, and a stream that replaces its table's content writes to a folder of its own, beside the table's,
which publishing makes the table's location.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from destination_datalake.aws.address import S3Address
from destination_datalake.datafiles import DataFile, FilePlan, RewriteTask
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.evolution import AddColumn, Change, applied, evolve
from destination_datalake.schema.glue import glue_type, parse_glue_type
from destination_datalake.schema.types import ColumnType, Field
from destination_datalake.tables.base import Rewrite, TableConflict, TableName
from destination_datalake.tables.creation import create_hive_table, glue_column
from destination_datalake.tables.database import ensure_database
from destination_datalake.tables.fitting import fitting

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.protocol.catalog import Stream
    from destination_datalake.tables.holding import Holding

_LOWEST_GENERATION = "airbyte.lowest-generation-id"
_UNPUBLISHED = "airbyte.unpublished-location"
_UNPUBLISHED_GENERATION = "airbyte.unpublished-generation-id"
_UNPUBLISHED_TYPES = "airbyte.unpublished-types"
_UNPUBLISHED_MARKS = (_UNPUBLISHED, _UNPUBLISHED_GENERATION, _UNPUBLISHED_TYPES)
_SUPERSEDED = "airbyte.superseded-location"

_logger = logging.getLogger(__name__)

_JSON_SERDE = "org.openx.data.jsonserde.JsonSerDe"

# What GetTable answers and UpdateTable takes (Glue API: TableInput); the rest of the answer is Glue's own.
_TABLE_INPUT = (
    "Name",
    "Description",
    "Owner",
    "LastAccessTime",
    "LastAnalyzedTime",
    "Retention",
    "StorageDescriptor",
    "PartitionKeys",
    "ViewOriginalText",
    "ViewExpandedText",
    "TableType",
    "Parameters",
    "TargetTable",
)


@dataclass(frozen=True, slots=True)
class _Layout:
    """What the format means for a table: which SerDe reads it, and whether its old files can stay under a wider column.

    JSON text has no widths. Of Parquet, not every engine reads a 32-bit column where the catalog promises 64 bits.
    """

    serde: str
    promotes: bool


_LAYOUTS: Mapping[str, _Layout] = {
    "parquet": _Layout("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe", promotes=False),
    "jsonl": _Layout(_JSON_SERDE, promotes=True),
}


class HiveTable:
    """A stream's Hive table. `root` is the S3 URI under which its locations are; `plan` lacks columns and folder."""

    def __init__(
        self,
        name: TableName,
        stream: Stream,
        columns: Sequence[Field],
        root: str,
        plan: FilePlan,
        access: AwsAccess,
        holding: Holding,
    ) -> None:
        self.name = name
        self._stream = stream
        self._columns = tuple(columns)
        self._root = root.rstrip("/")
        self._plan = replace(plan, hidden=True)
        self._access = access
        self._holding = holding
        self._layout = _LAYOUTS[plan.format]
        self._unpublished: str | None = None
        self._generations = self._root
        self._location = self._root
        self._files_hold: dict[str, ColumnType | None] = {}
        self._to_adopt: tuple[str, Mapping[str, ColumnType]] | None = None

    def prepare(self) -> None:
        """Create the table, or add and widen columns; settle what an unfinished replacement left."""
        glue = self._access.client("glue")
        ensure_database(glue, self.name.database)
        try:
            table = glue.get_table(DatabaseName=self.name.database, Name=self.name.table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            table = self._create()
        self._refuse_foreign(table)
        there = {
            column["Name"]: column.get("Comment") or column["Name"] for column in table["StorageDescriptor"]["Columns"]
        }
        self._columns = self._holding.settle(self.name, table.get("Parameters", {}), there, self._columns)
        self._fit(table)
        self._settle(table)

    def plan(self) -> FilePlan:
        """The plan, with columns as wide as they have become."""
        return self._plan

    def commit(self, files: Sequence[DataFile], rewrite: Rewrite) -> bool:
        """Make the files visible, all of them, or none when one fails; first make the columns as wide as they need."""
        try:
            self._take_in_wider(rewrite)
            self._make_room(self._needed(files), rewrite)
            if self._layout.promotes or all(self._belongs(file) for file in files):
                self._publish_files(files)
                return True
        except Exception:
            self._take_back(files)
            raise
        self.discard(files)
        return False

    def _make_room(self, needed: Sequence[Field], rewrite: Rewrite) -> None:
        """Make the table's columns as wide as needed, and the plan's with them."""
        changes = evolve(self._files_hold, needed).changes
        if changes and self._layout.promotes:
            self._update(lambda entry: _change_columns(entry, changes))
            self._files_hold = applied(self._files_hold, changes)
        elif changes:
            self._widen(changes, rewrite)
        self._plan = replace(self._plan, columns=evolve(self._files_hold, needed).columns)

    def _take_in_wider(self, rewrite: Rewrite) -> None:
        """Adopt a replacement whose columns had become wider, once the table's are."""
        if self._to_adopt is None:
            return
        left, types = self._to_adopt
        wider = [Field(name, name, type_) for name, type_ in types.items()]
        if changes := evolve(self._files_hold, wider).changes:
            self._widen(changes, rewrite)
            self._plan = replace(self._plan, columns=evolve(self._files_hold, self._plan.columns).columns)
        self._adopt(left, self._plan.folder)
        self._to_adopt = None

    def _belongs(self, file: DataFile) -> bool:
        """Whether the file is in the table's folder, with the table's types; it is not if the table was rewritten."""
        return file.columns == self._plan.columns and file.uri.startswith(f"{self._plan.folder}/")

    def publish(self) -> None:
        """Point the table at the new folder. The old one stays until the next time, for readers still in it."""
        location = self._unpublished
        if location is None:
            return
        superseded = ""

        def swap(entry: dict[str, Any]) -> None:
            nonlocal superseded
            parameters = entry["Parameters"]
            superseded = parameters[_SUPERSEDED] = entry["StorageDescriptor"]["Location"].rstrip("/")
            entry["StorageDescriptor"]["Location"] = f"{location}/"
            _set_types(entry, self._files_hold)
            for key in _UNPUBLISHED_MARKS:
                parameters.pop(key, None)
            if self._stream.generation is not None:
                parameters[_LOWEST_GENERATION] = str(self._stream.generation)

        self._update(swap)
        self._unpublished = None
        self._sweep(keep={location, superseded})

    def discard(self, files: Sequence[DataFile]) -> None:
        """Abort the uploads."""
        for file in files:
            file.withdraw(self._access.client("s3"))

    def _create(self) -> TableTypeDef:
        columns = (*METADATA_COLUMNS, *self._columns)
        parameters = self._holding.parameters()
        create_hive_table(self.name, columns, f"{self._root}/data/", parameters, self._plan, self._access)
        return self._access.client("glue").get_table(DatabaseName=self.name.database, Name=self.name.table)["Table"]

    def _refuse_foreign(self, table: TableTypeDef) -> None:
        parameters = table.get("Parameters", {})
        serde = table.get("StorageDescriptor", {}).get("SerdeInfo", {}).get("SerializationLibrary", "")
        if parameters.get("table_type", "").upper() == "ICEBERG":
            problem = "it is an Iceberg table and table_type is HIVE. Set table_type to ICEBERG"
        elif serde.rpartition(".")[2] != self._layout.serde.rpartition(".")[2]:
            problem = (
                f"its files are read by {serde or 'no SerDe'}, not as {self._plan.format}. Set format_type as it was"
            )
        elif table.get("PartitionKeys"):
            problem = "it is partitioned, which this version does not write. Choose a table without partition keys"
        else:
            return
        raise TableConflict(
            f"Cannot write stream {self._stream.id} to table {self.name}: {problem}, or choose another "
            "lakeformation_database_name."
        )

    def _fit(self, table: TableTypeDef) -> None:
        """Add the columns that are missing. Wider ones wait for the first batch if the old files must be rewritten."""
        expected = {column.name: column.type for column in (*METADATA_COLUMNS, *self._columns)}
        there: dict[str, ColumnType | None] = {
            column["Name"]: parse_glue_type(column.get("Type", ""), expected.get(column["Name"]))
            for column in table["StorageDescriptor"]["Columns"]
        }
        evolution = fitting(self.name, self._stream.id, there, self._columns)
        now = [c for c in evolution.changes if isinstance(c, AddColumn) or self._layout.promotes]
        if now:
            self._update(lambda entry: _change_columns(entry, now))
        self._files_hold = applied(there, now)
        self._plan = replace(self._plan, columns=evolution.columns)

    def _needed(self, files: Sequence[DataFile]) -> tuple[Field, ...]:
        """The plan's columns, as wide as the widest of the files has them."""
        columns = self._plan.columns
        for file in files:
            columns = evolve({column.name: column.type for column in columns}, file.columns).columns
        return columns

    def _widen(self, changes: Sequence[Change], rewrite: Rewrite) -> None:
        """Write all files anew with wider columns, beside the old ones, and let the table point at them.

        A replacement that is not published yet is rewritten instead of the table, which keeps its columns until then.
        """
        started = time.monotonic()
        wider = applied(self._files_hold, changes)
        types = {name: type_ for name in {change.path[0] for change in changes} if (type_ := wider[name]) is not None}
        source = self._plan.folder
        files = list(self._objects(f"{source}/"))
        target = self._new_folder() if files else source
        tasks = [RewriteTask(uri, f"{target}/{uri.rpartition('/')[2]}", types, self._access) for uri in files]
        rewritten = rewrite(tasks) if tasks else []

        def point(entry: dict[str, Any]) -> None:
            if self._unpublished is None:
                if target != source:
                    entry["Parameters"][_SUPERSEDED] = source
                    entry["StorageDescriptor"]["Location"] = f"{target}/"
                _set_types(entry, wider)
            else:
                marked = json.loads(entry["Parameters"].get(_UNPUBLISHED_TYPES, "{}"))
                marked |= {name: glue_type(type_) for name, type_ in types.items()}
                entry["Parameters"][_UNPUBLISHED_TYPES] = json.dumps(marked)
                entry["Parameters"][_UNPUBLISHED] = target

        self._update(point)
        if self._unpublished is not None:
            self._unpublished = target
        self._files_hold = wider
        self._plan = replace(self._plan, folder=target)
        kept = {self._to_adopt[0]} if self._to_adopt is not None else set()
        self._sweep(keep={source, target, self._location, *kept})
        _logger.info(
            "Table %s: column %s became wider. The table's %d files were written anew (%.1f MB, %.1f s).",
            self.name,
            ", ".join(sorted(types)),
            len(rewritten),
            sum(file.size for file in rewritten) / 1e6,
            time.monotonic() - started,
        )

    def _publish_files(self, files: Sequence[DataFile]) -> None:
        s3 = self._access.client("s3")
        with ThreadPoolExecutor(8, "publish") as pool:
            list(pool.map(lambda file: file.hidden_object.publish(s3), files))

    def _settle(self, table: TableTypeDef) -> None:
        """Decide where files go, and what becomes of a replacement that was never published (see IcebergTable)."""
        parameters = table.get("Parameters", {})
        location = table["StorageDescriptor"]["Location"].rstrip("/")
        # Locations stand beside each other, never one inside another, because engines read folders to any depth.
        self._generations = f"{self._root}__generations" if location == self._root else self._root
        self._location = location
        left = parameters.get(_UNPUBLISHED)
        generation = self._stream.generation
        if not self._replaces(parameters):
            if left:
                self._adopt_or_wait(left, self._unpublished_types(parameters), location)
            self._note_generation(parameters)
            self._plan = replace(self._plan, folder=location)
            return
        if left and generation is not None and parameters.get(_UNPUBLISHED_GENERATION) == str(generation):
            self._unpublished = left
            self._resume_types(self._unpublished_types(parameters))
        else:
            self._unpublished = self._new_folder()
            marks = {_UNPUBLISHED: self._unpublished, _UNPUBLISHED_GENERATION: str(generation)}

            def mark(entry: dict[str, Any]) -> None:
                entry["Parameters"].pop(_UNPUBLISHED_TYPES, None)
                entry["Parameters"].update(marks)

            self._update(mark)
        self._plan = replace(self._plan, folder=self._unpublished)

    def _new_folder(self) -> str:
        return f"{self._generations}/generation-{self._stream.generation or 0}-{uuid.uuid4().hex[:12]}"

    def _unpublished_types(self, parameters: Mapping[str, str]) -> Mapping[str, ColumnType]:
        """Return the types of columns that are wider in an unpublished replacement than in the table."""
        marked: dict[str, str] = json.loads(parameters.get(_UNPUBLISHED_TYPES, "{}"))
        read = {name: parse_glue_type(text, self._files_hold.get(name)) for name, text in marked.items()}
        return {name: type_ for name, type_ in read.items() if type_ is not None}

    def _resume_types(self, types: Mapping[str, ColumnType]) -> None:
        """Take up columns that became wider in a replacement which is still to be published."""
        self._files_hold.update(types)
        self._plan = replace(self._plan, columns=evolve(self._files_hold, self._plan.columns).columns)

    def _replaces(self, parameters: Mapping[str, str]) -> bool:
        lowest = parameters.get(_LOWEST_GENERATION)
        return self._stream.outdates(None if lowest is None else int(lowest))

    def _note_generation(self, parameters: Mapping[str, str]) -> None:
        """Keep the lowest generation of the table's rows in its parameters; unknown for tables that others filled."""
        generation = self._stream.generation
        known = parameters.get(_LOWEST_GENERATION)
        empty = known is None and not any(self._objects(self._root))
        if generation is not None and (empty or (known is not None and int(known) > generation)):
            self._update(lambda entry: entry["Parameters"].update({_LOWEST_GENERATION: str(generation)}))

    def _adopt_or_wait(self, left: str, types: Mapping[str, ColumnType], location: str) -> None:
        """Adopt now, or, where the table's files must be written anew for it, with the first batch of a sync."""
        if types:
            self._to_adopt = (left, types)
        else:
            self._adopt(left, location)

    def _adopt(self, left: str, location: str) -> None:
        """Copy the files of an unpublished replacement into the table. Same names: doing it twice does no harm."""
        s3 = self._access.client("s3")
        for uri in list(self._objects(left)):
            source = S3Address.parse(uri)
            target = S3Address.parse(f"{location}/{uri.rpartition('/')[2]}")
            s3.copy({"Bucket": source.bucket, "Key": source.key}, target.bucket, target.key)

        def forget(entry: dict[str, Any]) -> None:
            for key in _UNPUBLISHED_MARKS:
                entry["Parameters"].pop(key, None)

        self._update(forget)
        self._delete(self._objects(left))

    def _sweep(self, keep: set[str]) -> None:
        """Delete the folders of generations that no reader can be in any more."""
        everything = [*self._objects(f"{self._generations}/generation-"), *self._objects(f"{self._root}/data/")]
        self._delete(uri for uri in everything if not _under(uri, keep))

    def _objects(self, prefix: str) -> Iterable[str]:
        where = S3Address.parse(prefix)
        pages = self._access.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=where.bucket, Prefix=where.key):
            for entry in page.get("Contents", []):
                yield str(S3Address(where.bucket, entry["Key"]))

    def _delete(self, uris: Iterable[str]) -> None:
        for uri in list(uris):
            where = S3Address.parse(uri)
            self._access.client("s3").delete_object(Bucket=where.bucket, Key=where.key)

    def _take_back(self, files: Sequence[DataFile]) -> None:
        for file in files:
            file.withdraw(self._access.client("s3"))
            self._delete([file.uri])

    def _update(self, change: Any) -> None:
        """Change the catalog's entry and nothing else in it; again from its new state if somebody else was faster."""
        glue = self._access.client("glue")
        for attempt in range(5):
            table = glue.get_table(DatabaseName=self.name.database, Name=self.name.table)["Table"]
            entry: dict[str, Any] = {key: table[key] for key in _TABLE_INPUT if key in table}  # type: ignore[literal-required]
            entry.setdefault("Parameters", {})
            change(entry)
            version = {"VersionId": table["VersionId"]} if "VersionId" in table else {}
            try:
                glue.update_table(DatabaseName=self.name.database, TableInput=entry, SkipArchive=True, **version)  # type: ignore[arg-type]
                return
            except glue.exceptions.ConcurrentModificationException:
                if attempt == 4:
                    raise


def _change_columns(entry: dict[str, Any], changes: Sequence[Change]) -> None:
    """Apply changes to a Glue table's columns; order, comments and columns of others stay as they are."""
    columns = entry["StorageDescriptor"]["Columns"]
    before = {column["Name"]: parse_glue_type(column.get("Type", "")) for column in columns}
    after = applied(before, changes)
    for column in columns:
        type_ = after[column["Name"]]
        if type_ is not None and type_ != before[column["Name"]]:
            column["Type"] = glue_type(type_)
    for change in changes:
        if isinstance(change, AddColumn) and not change.parent:
            columns.append(glue_column(change.field))


def _set_types(entry: dict[str, Any], types: Mapping[str, ColumnType | None]) -> None:
    """Give a Glue table's columns the types that its files have."""
    for column in entry["StorageDescriptor"]["Columns"]:
        type_ = types.get(column["Name"])
        if type_ is not None and parse_glue_type(column.get("Type", ""), type_) != type_:
            column["Type"] = glue_type(type_)


def _under(uri: str, folders: set[str]) -> bool:
    return any(uri.startswith(f"{folder}/") for folder in folders)
