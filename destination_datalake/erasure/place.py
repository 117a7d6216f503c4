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
# changes anything, then `erase` of each, and finally `find` of each: this second search must find nothing.

Outcome = Literal["found", "rewritten", "removed", "left", "kept"]
"""The outcome of an object: "rewritten" without the rows; "removed"; "left" unchanged, as it could not be erased; or
"kept" because of `Request.keep_history`. "found" is the result of a search alone."""


class ErasedObject(msgspec.Struct, frozen=True):
    """An object with rows of the IDs, and its outcome.

    `rows_found` is -1 if the rows cannot be counted (bounds in metadata). `new` are the objects with its other rows.
    An object that is `left` has a `reason`: a clause about the object, with the date of its expiry if known.
    `versions_deleted` is the number of older versions of the object that were also deleted.
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

    `id` names the request and its folder in the ledger; an identical request that resumes has the same ID.
    With `keep_history`, snapshots of that many days are kept.
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
    """The type of the column in each table that was searched so far."""

    mask: Mask | None = None
    """Masks IDs in user-facing output. Targets add the names of their partition fields."""

    redirected_from: str | None = None
    """The column whose values were redirected to this one because of their type. IDs that this column's type cannot
    represent are skipped."""

    searched: list[Ids] = field(default_factory=list)
    """The IDs as values of each type that was searched."""

    _ids: dict[pa.DataType, Ids] = field(default_factory=dict)

    def ids(self, type_: pa.DataType, table: TableName) -> Ids:
        """Return the IDs as values of a table's column of this type. Raises ConfigError."""
        self.types.setdefault(table, type_)
        if type_ not in self._ids:
            typed = self.file.typed if self.redirected_from is None else self.file.possible
            self._ids[type_] = typed(type_, self.column)
            self.searched.append(self._ids[type_])
        return self._ids[type_]

    def of(self, name: str) -> str:
        """Return the display name of a target, with the column if it is not the command line's."""
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
    """Number of objects whose column was read. Bounds and partitions exclude the others."""
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
    def figures(self) -> ErasureStats:
        """Return the statistics so far."""

    def require(self) -> None:
        """Raise ConnectorError if rows cannot be erased here. Changes nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that has rows of the IDs now, as found or kept. Changes nothing."""

    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows; yield each object that had rows, once its outcome is final.

        Idempotent: detects the present objects and the results of an earlier attempt, which may have been killed at any
        point.
        """


# --- Report -----------------------------------------------------------------------------------------------------------
# Report an erasure: the objects found, their outcomes, and the result of the second search.


NEVER = (
    "Query results (such as Athena's, in the folder of its workgroup), and tables derived from these tables.",
    "Copies in other buckets, prefixes, accounts and backups (replication, AWS Backup, exports).",
    "The source: the next sync writes rows again that the source still has.",
    "Values of other columns: the command erases rows by the value of one column.",
)
"""Exclusions of the command, as listed in the report."""


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
    """The report of an erasure. `complete`: the second search found nothing, and no object was left or kept."""

    request: str
    connector: str
    bucket: str
    prefix: str
    column: str
    target: tuple[str, ...]
    ids: int
    ids_with_rows: int
    """Number of IDs with rows, or other values, in this run. A killed attempt may have erased rows of others."""
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
        """Return whether an object still has rows without a request to keep them."""
        return any(each.outcome == "left" for place in self.places for each in place.left)

    @property
    def verdict(self) -> str:
        """Return the result as a sentence without a period."""
        if self.dry_run:
            return "Nothing was changed"
        if self.complete:
            return "Complete: a second search found no object with these rows"
        if self.is_left:
            left = sum(each.outcome == "left" for place in self.places for each in place.left)
            objects = "1 object" if left == 1 else f"{left} objects"
            return f"Incomplete: {objects} may still have rows. The report has a remedy for each"
        return "Complete except for the history that --keep-history keeps: the rows can still be read there"

    def objects(self, outcomes: Sequence[str]) -> list[tuple[TargetReport, ErasedObject]]:
        """Return the objects with one of these outcomes, and the target of each."""
        return [(place, each) for place in self.places for each in place.objects if each.outcome in outcomes]

    def page(self) -> str:
        """Return the report as one HTML file, without scripts and external resources."""
        from destination_datalake.reports.page import templates

        rows = sum(each.rows_found if self.dry_run else each.rows_removed for each in self.places)
        kpis = (
            ("Ids", f"{self.ids_with_rows:,}", f"of {self.ids:,} had rows in this run"),
            ("Rows", f"{rows:,}", "found" if self.dry_run else "removed, including copies in history and versions"),
            ("Objects", f"{sum(each.objects_found for each in self.places):,}", "had such rows"),
            ("Snapshots", f"{sum(each.snapshots_expired for each in self.places):,}", "expired"),
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
    earlier: Mapping[str, int],
    mask: Callable[[str], str],
    hidden: Callable[[str], str],
) -> TargetReport:
    """Return the report of a target without its statistics.

    `objects` are the erased objects, or the found ones without a second search (`afterwards`). `mask` masks IDs in a
    URI, `hidden` in a text. `earlier` maps the objects that any attempt found to their rows. An unfinished attempt
    removed those that this attempt did not erase and the second search did not find.
    """
    by_uri = {each.uri: each for each in objects}
    for each in afterwards or ():
        if each.uri not in by_uri or by_uri[each.uri].outcome != "left":
            outcome: Outcome = "kept" if each.outcome == "kept" else "left"
            by_uri[each.uri] = msgspec.structs.replace(each, outcome=outcome, reason=each.reason or _WRITTEN_MEANWHILE)
    lines = [
        msgspec.structs.replace(
            each,
            uri=mask(each.uri),
            new=(*map(mask, each.new),),
            reason=hidden(each.reason.replace(each.uri, mask(each.uri))),
        )
        for each in by_uri.values()
    ]
    known = {each.uri for each in lines}
    lines += [
        ErasedObject(uri, rows, rows, "removed", reason=REMOVED_EARLIER)
        for uri, rows in earlier.items()
        if uri not in known
    ]
    lines.sort(key=lambda each: each.uri)
    return TargetReport(
        place=name,
        objects_found=len(lines),
        rows_found=sum(max(0, each.rows_found) for each in lines),
        rows_removed=sum(max(0, each.rows_removed) for each in lines),
        found_afterwards=None if afterwards is None else len(afterwards),
        left=tuple(each for each in lines if each.outcome in ("left", "kept")),
        objects=tuple(lines),
    )


def now() -> str:
    """Return the time, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
