"""The request and the report of an erasure, and the interface of the tables and folders from which it erases rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.erasure.ids import IdsFile, Mask
    from destination_datalake.files.ids import Ids
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import Executors
    from destination_datalake.tables.table import TableName


# --- Targets ----------------------------------------------------------------------------------------------------------
# A target is one table, or one folder of objects of one kind. Before the command `delete-rows` changes anything, it
# calls `require` of every target. It then calls `find` of every target, `erase` of every target, and `find` of every
# target again. The erasure is complete if this second search finds nothing.

Outcome = Literal["found", "rewritten", "removed", "left", "kept"]
"""The outcome for an object that contains rows with one of the IDs.

- "found": the command only searched the object.
- "rewritten": the command replaced the object by a copy without these rows.
- "removed": the command deleted the object.
- "left": the command could not erase the rows, and the object is unchanged.
- "kept": the command left the object unchanged because of `Request.keep_history`."""


class ErasedObject(msgspec.Struct, frozen=True):
    """An object that contains rows with one of the IDs, and the outcome of its erasure.

    - `rows_found`: the number of these rows. -1 if the command cannot count them, for example if the object is metadata
      with an ID as a bound.
    - `new`: the objects to which the command wrote the remaining rows.
    - `reason`: a clause that explains why the object is in the report. For the outcome "left", it explains the failure,
      and states the date on which the object expires, if this date is known.
    - `versions_deleted`: the number of noncurrent versions of the object that the command also deleted.
    """

    uri: str
    rows_found: int
    rows_removed: int = 0
    outcome: Outcome = "found"
    new: tuple[str, ...] = ()
    reason: str = ""
    versions_deleted: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request to erase the rows that contain one of the IDs in `column`.

    - `id`: identifies the request, and is the name of the request's folder in the ledger. A resumed request keeps its
      `id`.
    - `column`: the name of a column, or the dotted path of a nested field.
    - `file`: the file with the IDs.
    - `mask`: masks IDs in user-facing output. Targets add the partition fields whose values reveal IDs.
    - `keep_history`: if set, the erasure keeps the snapshots of the last `keep_history` days.
    - `drop_tags`: whether the erasure drops tags of snapshots that contain the rows.
    - `is_resumed`: whether an earlier attempt at this request may have erased rows.
    """

    id: str
    column: str
    file: IdsFile
    config: Config
    access: AwsAccess
    catalog: TableCatalog
    executors: Executors
    mask: Mask
    keep_history: float | None = None
    drop_tags: bool = False
    is_resumed: bool = False
    types: dict[TableName, pa.DataType] = field(default_factory=dict)
    """The type of the column in each table that a target has searched."""

    redirected_from: str | None = None
    """The original column, if syncs redirected some of its values to `column` because of their type, otherwise None. If
    set, the erasure skips IDs that the type of `column` cannot represent."""

    searched: list[Ids] = field(default_factory=list)
    """The IDs, once for each column type that a target has searched, as values of this type."""

    _ids: dict[pa.DataType, Ids] = field(default_factory=dict)

    def ids(self, type_: pa.DataType, table: TableName) -> Ids:
        """Return the IDs as values of `type_`, the type of the column in `table`.

        Raises ConfigError if `type_` cannot represent an ID, unless `redirected_from` is set.
        """
        self.types.setdefault(table, type_)
        if type_ not in self._ids:
            convert = self.file.typed if self.redirected_from is None else self.file.representable
            self._ids[type_] = convert(type_, self.column)
            self.searched.append(self._ids[type_])
        return self._ids[type_]

    def display_name(self, name: str) -> str:
        """Return `name`. Append the request's column if it differs from the column that the user named."""
        return name if self.redirected_from is None else f"{name}, column {self.column}"

    def redirected_to(self, column: str) -> Request:
        """Return a request for the column `column`, to which syncs redirected values of this request's column."""
        return replace(self, column=column, redirected_from=self.column, types={}, _ids={})


@dataclass(slots=True)
class ErasureStats:
    """Statistics about the erasure of one target, apart from the outcomes of its objects."""

    snapshots_expired: int = 0
    objects: int = 0
    objects_read: int = 0
    """The number of objects in which the search read the column. Bounds or partition values excluded all other
    objects."""
    distinct_rows: int | None = None
    """The number of distinct rows among the erased rows, or None if it is unknown."""
    notes: list[str] = field(default_factory=list)
    """Sentences for the report, for example about objects that the command skipped, with the reason."""

    def note(self, text: str) -> None:
        """Add a sentence to `notes`, unless `notes` already contains it."""
        if text not in self.notes:
            self.notes.append(text)


class ErasureTarget(ABC):
    """A table, or a folder of objects of one kind, that may contain rows with one of the IDs.

    The command calls `require` of all targets, then `find` of all targets, then `erase` of all targets, and finally
    `find` of all targets again. `name` is the name of the target in the report, such as "Iceberg table shop.orders".
    `stats` contains the statistics that `find` and `erase` have collected so far.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.stats = ErasureStats()

    def require(self) -> None:  # noqa: B027
        """Raise ConnectorError if the command cannot erase rows from this target. Changes nothing.

        By default, a target has no preconditions.
        """

    @abstractmethod
    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that contains rows with one of the IDs, with the outcome "found", "kept" or "left".

        The outcome "left" means that the command cannot erase the rows of the object. Changes nothing.
        """

    @abstractmethod
    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows with one of the IDs. Yield each object that contained such rows, once its outcome is final.

        If an attempt is killed at any point, another call erases the remaining rows.
        """


# --- Report -----------------------------------------------------------------------------------------------------------
# The report lists the objects that contained rows with one of the IDs, with their outcomes. It also contains the result
# of the second search.


NEVER = (
    "Query results, such as those of Athena in the folder of its workgroup, and tables derived from these tables.",
    "Copies in other buckets, prefixes, accounts and backups, such as replication, AWS Backup and exports.",
    "Records in the source: if the source sends records with these IDs again, the next sync writes their rows again.",
    "IDs in other columns: the command searches the values of one column only.",
)
"""The kinds of data that `delete-rows` never changes. The report lists them."""

_WRITTEN_MEANWHILE = "another writer wrote this object while the command ran. Run the command again"
_REMOVED_EARLIER = "removed by an unfinished attempt or by another writer"


class TargetReport(msgspec.Struct, kw_only=True):
    """The report of one target (a table or a folder).

    `found_afterwards` is the number of objects that the second search found, or None in a dry run. `rows_found` and
    `rows_removed` count every copy of a row. `distinct_rows` counts each row once, and is None if this number is
    unknown.
    """

    place: str
    objects_found: int = 0
    rows_found: int = 0
    rows_removed: int = 0
    distinct_rows: int | None = None
    objects_searched: int = 0
    objects_read: int = 0
    snapshots_expired: int = 0
    found_afterwards: int | None = None
    left: tuple[ErasedObject, ...] = ()
    objects: tuple[ErasedObject, ...] = ()
    notes: tuple[str, ...] = ()


class Report(msgspec.Struct, kw_only=True):
    """The report of an erasure.

    `target` contains the tables that the user selected: `("all",)`, `("table", name)` or `("stream", name)`. `places`
    contains one report for each table and folder that the command searched. `complete` is true if the second search
    found nothing, and no object has the outcome "left" or "kept".
    """

    request: str
    connector: str
    bucket: str
    prefix: str
    column: str
    target: tuple[str, ...]
    ids: int
    ids_with_rows: int
    """The number of IDs that this run found in rows or in metadata. It excludes IDs whose rows an earlier attempt has
    erased."""
    started: str
    ended: str
    dry_run: bool
    complete: bool
    keeps_history_days: float | None
    found_afterwards: int | None
    places: tuple[TargetReport, ...]
    suppress: bool = False
    """Whether later syncs reject new records with these IDs."""
    never_touched: tuple[str, ...] = NEVER

    @property
    def is_left(self) -> bool:
        """Return whether any object has the outcome "left", and thus may still contain rows to erase.

        Objects with the outcome "kept", which belong to the history, do not count.
        """
        return any(object_.outcome == "left" for place in self.places for object_ in place.left)

    @property
    def verdict(self) -> str:
        """Return the result of the erasure as a sentence, without its final period."""
        if self.dry_run:
            return "Nothing was changed"
        if self.complete:
            return "Complete: a second search found no object with these rows"
        if self.is_left:
            count = sum(object_.outcome == "left" for place in self.places for object_ in place.left)
            objects = "1 object" if count == 1 else f"{count} objects"
            return f"Incomplete: {objects} may still contain rows with these IDs. The report lists the remedies"
        return "Complete, except for the snapshots that --keep-history keeps. These snapshots still contain the rows"

    def objects(self, outcomes: Sequence[str]) -> list[tuple[TargetReport, ErasedObject]]:
        """Return the objects with one of these outcomes, each after the report of its target."""
        return [(place, object_) for place in self.places for object_ in place.objects if object_.outcome in outcomes]

    def page(self) -> str:
        """Return the report as an HTML page, without scripts and external resources."""
        from destination_datalake.reports.page import templates

        rows = sum(target.rows_found if self.dry_run else target.rows_removed for target in self.places)
        kpis = (
            ("IDs", f"{self.ids_with_rows:,}", f"of {self.ids:,} found in this run"),
            (
                "Rows",
                f"{rows:,}",
                "found" if self.dry_run else "removed, including copies in snapshots and noncurrent versions",
            ),
            ("Objects", f"{sum(target.objects_found for target in self.places):,}", "contained these rows"),
            ("Snapshots", f"{sum(target.snapshots_expired for target in self.places):,}", "expired"),
            ("Second search", "–" if self.found_afterwards is None else f"{self.found_afterwards:,}", "objects found"),
        )
        template = templates(Path(__file__).parent).get_template("erasure.html")
        return template.render(report=self, kpis=kpis, verdict=self.verdict)

    def encoded(self) -> bytes:
        """Return the report as indented JSON in UTF-8, with a newline at its end."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def target_report(
    target: ErasureTarget,
    objects: Iterable[ErasedObject],
    afterwards: Sequence[ErasedObject] | None,
    found_earlier: Mapping[str, int],
    mask: Mask,
) -> TargetReport:
    """Return the report of a target.

    `objects` contains the erased objects or, in a dry run, the found objects. `afterwards` contains the objects that
    the second search found, or is None in a dry run. `found_earlier` maps the URI of each object that any attempt found
    to the object's number of rows. If only `found_earlier` contains an object, an unfinished attempt or another writer
    removed the object.
    """
    by_uri = {object_.uri: object_ for object_ in objects}
    for object_ in afterwards or ():
        if object_.uri not in by_uri or by_uri[object_.uri].outcome != "left":
            outcome: Outcome = "kept" if object_.outcome == "kept" else "left"
            by_uri[object_.uri] = msgspec.structs.replace(
                object_, outcome=outcome, reason=object_.reason or _WRITTEN_MEANWHILE
            )
    reported = [
        msgspec.structs.replace(
            object_,
            uri=mask.uri(object_.uri),
            new=(*map(mask.uri, object_.new),),
            reason=mask(object_.reason.replace(object_.uri, mask.uri(object_.uri))),
        )
        for object_ in by_uri.values()
    ]
    uris, stats = {object_.uri for object_ in reported}, target.stats
    removed_earlier = {uri: rows for uri, rows in found_earlier.items() if uri not in uris}
    reported += [
        ErasedObject(uri, rows, rows, "removed", reason=_REMOVED_EARLIER) for uri, rows in removed_earlier.items()
    ]
    reported.sort(key=lambda object_: object_.uri)
    # If another attempt or writer removed objects, the number of distinct rows is unknown.
    is_unknown = afterwards is None or any(rows > 0 for rows in removed_earlier.values())
    return TargetReport(
        place=target.name,
        objects_found=len(reported),
        rows_found=sum(max(0, object_.rows_found) for object_ in reported),
        rows_removed=sum(max(0, object_.rows_removed) for object_ in reported),
        distinct_rows=None if is_unknown else stats.distinct_rows,
        objects_searched=stats.objects,
        objects_read=stats.objects_read,
        snapshots_expired=stats.snapshots_expired,
        found_afterwards=None if afterwards is None else len(afterwards),
        left=tuple(object_ for object_ in reported if object_.outcome in ("left", "kept")),
        objects=tuple(reported),
        notes=tuple(map(mask, stats.notes)),
    )


def now() -> str:
    """Return the current time in UTC as a string in ISO 8601, in whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
