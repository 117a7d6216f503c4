"""The interface of an erasure target, and the report of an erasure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

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
# Define the interface between the command and its targets, and the values of the report.
#
# A target is one table, or one folder of objects of one kind. The command calls `require` of all targets before it
# changes anything. Then it calls `erase` of all targets. Finally it calls `find` of all targets: this second search
# must find nothing.

Outcome = Literal["found", "rewritten", "removed", "left", "kept"]
"""The outcome of an object: "rewritten" without the rows; "removed"; "left" unchanged, because the erasure failed; or
"kept" because of `Request.keep_history`. "found" is the result of a search alone."""


class ErasedObject(msgspec.Struct, frozen=True):
    """An object with rows of the IDs, and its outcome.

    `rows_found` is -1 if the rows cannot be counted (bounds in metadata). `new` are the objects that its other rows
    were written to. An object that is "left" has a `reason`: a clause about the object, with the date of its expiry if
    known. `versions_deleted` is the number of older versions of the object that were also deleted.
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
    """A request to erase the rows with one of the IDs in `column`, a name or the dotted path of a field.

    `id` identifies the request, and names its folder in the ledger. A resumed request keeps its ID. With
    `keep_history`, the snapshots of this number of days are kept.
    """

    id: str
    column: str
    file: IdsFile
    config: Config
    access: AwsAccess
    catalog: TableCatalog
    executors: Executors
    keep_history: float | None = None
    drop_tags: bool = False
    types: dict[TableName, pa.DataType] = field(default_factory=dict)
    """The type of the column, by searched table."""

    mask: Mask | None = None
    """Masks IDs in user-facing output. Targets add the names of their partition fields."""

    redirected_from: str | None = None
    """The column whose values were redirected to `column` because of their type. IDs that the type of `column` cannot
    represent are skipped."""

    searched: list[Ids] = field(default_factory=list)
    """The IDs as values of each searched type."""

    _ids: dict[pa.DataType, Ids] = field(default_factory=dict)

    def ids(self, type_: pa.DataType, table: TableName) -> Ids:
        """Return the IDs as values of a table's column of this type. Raises ConfigError."""
        self.types.setdefault(table, type_)
        if type_ not in self._ids:
            convert = self.file.typed if self.redirected_from is None else self.file.representable
            self._ids[type_] = convert(type_, self.column)
            self.searched.append(self._ids[type_])
        return self._ids[type_]

    def display_name(self, name: str) -> str:
        """Return the display name of a target, with the column if it differs from the option --column."""
        return name if self.redirected_from is None else f"{name}, column {self.column}"

    def redirected_to(self, column: str) -> Request:
        """Return the request for a column to which values of this request's column were redirected."""
        return replace(self, column=column, redirected_from=self.column, types={}, _ids={})


@dataclass(slots=True)
class ErasureStats:
    """Statistics of a target besides its objects."""

    snapshots_expired: int = 0
    objects: int = 0
    objects_read: int = 0
    """Number of objects whose column was read. Bounds and partitions exclude other objects."""
    distinct_rows: int | None = None
    """Number of distinct rows among the erased rows; None if unknown."""
    notes: list[str] = field(default_factory=list)
    """Sentences about skipped objects, with the reason."""

    def note(self, text: str) -> None:
        """Add a note unless it exists."""
        if text not in self.notes:
            self.notes.append(text)


class ErasureTarget(Protocol):
    """A table, or a folder of objects of one kind, that may have rows of the IDs."""

    @property
    def name(self) -> str:
        """Return the name in the report, such as "Iceberg table shop.orders"."""

    @property
    def stats(self) -> ErasureStats:
        """Return the statistics so far."""

    def require(self) -> None:
        """Raise ConnectorError if rows cannot be erased here. Changes nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield the objects that have rows of the IDs now, as "found" or "kept". Changes nothing."""

    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows; yield the objects that had rows, each as soon as its outcome is final.

        Idempotent: an earlier attempt may have been killed at any point.
        """


# --- Report -----------------------------------------------------------------------------------------------------------
# Report an erasure: the objects found, their outcomes, and the result of the second search.


NEVER = (
    "Query results (such as Athena's, in the folder of its workgroup), and tables derived from these tables.",
    "Copies in other buckets, prefixes, accounts and backups (replication, AWS Backup, exports).",
    "The source: the next sync writes rows again that the source still has.",
    "Values of other columns: the command erases rows by the value of one column.",
)
"""Data that the command never changes, as listed in the report."""

_WRITTEN_MEANWHILE = "written while the command ran; run the command again"
REMOVED_EARLIER = "removed by an unfinished attempt or by another writer"


class TargetReport(msgspec.Struct, kw_only=True):
    """The report of one target. `found_afterwards` is the number of objects that the second search found.

    `rows_found` and `rows_removed` count every copy of a row; `distinct_rows` counts a row once, if known.
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
    """The report of an erasure. `complete`: the second search found nothing, and no object is "left" or "kept"."""

    request: str
    connector: str
    bucket: str
    prefix: str
    column: str
    target: tuple[str, ...]
    ids: int
    ids_with_rows: int
    """Number of IDs with rows, or with values in metadata, in this run. A killed attempt may have erased other rows."""
    started: str
    ended: str
    dry_run: bool
    complete: bool
    keeps_history_days: float | None
    found_afterwards: int | None
    places: tuple[TargetReport, ...]
    suppress: bool = False
    """Later syncs reject records with these ids."""
    never_touched: tuple[str, ...] = NEVER

    @property
    def is_left(self) -> bool:
        """Return whether an object still has rows, apart from the kept history."""
        return any(object_.outcome == "left" for place in self.places for object_ in place.left)

    @property
    def verdict(self) -> str:
        """Return the result as a sentence without a period."""
        if self.dry_run:
            return "Nothing was changed"
        if self.complete:
            return "Complete: a second search found no object with these rows"
        if self.is_left:
            count = sum(object_.outcome == "left" for place in self.places for object_ in place.left)
            objects = "1 object" if count == 1 else f"{count} objects"
            return f"Incomplete: {objects} may still have rows. The report has a remedy for each"
        return "Complete except for the history that --keep-history keeps: the rows can still be read there"

    def objects(self, outcomes: Sequence[str]) -> list[tuple[TargetReport, ErasedObject]]:
        """Return the objects with one of these outcomes, and the target of each."""
        return [(place, object_) for place in self.places for object_ in place.objects if object_.outcome in outcomes]

    def page(self) -> str:
        """Return the report as one HTML file, without scripts and external resources."""
        from destination_datalake.reports.page import templates

        rows = sum(target.rows_found if self.dry_run else target.rows_removed for target in self.places)
        kpis = (
            ("Ids", f"{self.ids_with_rows:,}", f"of {self.ids:,} had rows in this run"),
            ("Rows", f"{rows:,}", "found" if self.dry_run else "removed, including copies in history and versions"),
            ("Objects", f"{sum(target.objects_found for target in self.places):,}", "had such rows"),
            ("Snapshots", f"{sum(target.snapshots_expired for target in self.places):,}", "expired"),
            ("Second search", "–" if self.found_afterwards is None else f"{self.found_afterwards:,}", "objects found"),
        )
        template = templates(Path(__file__).parent).get_template("erasure.html")
        return template.render(report=self, kpis=kpis, verdict=self.verdict)

    def encoded(self) -> bytes:
        """Return the report in indented JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def target_report(
    name: str,
    objects: Iterable[ErasedObject],
    afterwards: Sequence[ErasedObject] | None,
    found_earlier: Mapping[str, int],
    mask_uri: Callable[[str], str],
    mask_text: Callable[[str], str],
) -> TargetReport:
    """Return the report of a target without its statistics.

    `objects` are the erased objects; in a dry run, the found objects. `afterwards` are the objects of the second
    search. `found_earlier` maps the objects that any attempt found to their rows. An object of `found_earlier` that is
    in neither list was removed by an unfinished attempt or by another writer.
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
            uri=mask_uri(object_.uri),
            new=(*map(mask_uri, object_.new),),
            reason=mask_text(object_.reason.replace(object_.uri, mask_uri(object_.uri))),
        )
        for object_ in by_uri.values()
    ]
    uris = {object_.uri for object_ in reported}
    reported += [
        ErasedObject(uri, rows, rows, "removed", reason=REMOVED_EARLIER)
        for uri, rows in found_earlier.items()
        if uri not in uris
    ]
    reported.sort(key=lambda object_: object_.uri)
    return TargetReport(
        place=name,
        objects_found=len(reported),
        rows_found=sum(max(0, object_.rows_found) for object_ in reported),
        rows_removed=sum(max(0, object_.rows_removed) for object_ in reported),
        found_afterwards=None if afterwards is None else len(afterwards),
        left=tuple(object_ for object_ in reported if object_.outcome in ("left", "kept")),
        objects=tuple(reported),
    )


def now() -> str:
    """Return the current time in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
