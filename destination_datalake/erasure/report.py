"""The report of an erasure: what was found where, what became of each object, and what a second search has found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from destination_datalake.erasure.place import ErasedObject, FoundObject

NEVER = (
    "Results of queries (such as Athena's, in the folder of its workgroup), and tables that others have made of these.",
    "Copies in other buckets, prefixes, accounts and backups (replication, AWS Backup, exports).",
    "The source: what it still has, the next sync brings again.",
    "Values of other columns: rows are erased whose value in the one column is one of the ids.",
)
"""What the command never touches, as the report says."""


_GONE = "by an attempt that did not end, or by another writer"


class ObjectLine(msgspec.Struct, frozen=True, kw_only=True):
    """An object that had rows: how many were found (-1: that cannot be told), and how many were removed."""

    uri: str
    rows_found: int
    rows_removed: int
    outcome: str
    new: tuple[str, ...] = ()
    reason: str = ""
    versions_deleted: int = 0


class PlaceLine(msgspec.Struct, kw_only=True):
    """A table, or a folder of objects of one kind. `found_afterwards` is what the second search has found."""

    place: str
    objects_found: int = 0
    rows_found: int = 0
    rows_removed: int = 0
    objects_searched: int = 0
    objects_read: int = 0
    snapshots_expired: int = 0
    found_afterwards: int | None = None
    left: tuple[ObjectLine, ...] = ()
    objects: tuple[ObjectLine, ...] = ()
    notes: tuple[str, ...] = ()


class Report(msgspec.Struct, kw_only=True):
    """The whole. `complete`: the second search has found nothing, and nothing was left or kept."""

    request: str
    connector: str
    bucket: str
    prefix: str
    column: str
    target: tuple[str, ...]
    ids: int
    started: str
    ended: str
    dry_run: bool
    complete: bool
    keeps_history_days: float | None
    found_afterwards: int | None
    places: tuple[PlaceLine, ...]
    suppress: bool = False
    """Later syncs reject records with these ids."""
    never_touched: tuple[str, ...] = NEVER

    @property
    def is_left(self) -> bool:
        """Whether an object has rows that nobody has asked to keep."""
        return any(each.outcome == "left" for place in self.places for each in place.left)

    @property
    def rows_removed(self) -> int:
        """Rows that were removed, in all objects: a row may be in several."""
        return sum(each.rows_removed for each in self.places)

    @property
    def verdict(self) -> str:
        """What it comes to, in a sentence."""
        if self.dry_run:
            return "Nothing was changed"
        if self.complete:
            return "A second search has found no object with these rows"
        if self.is_left:
            return "Not done: objects still have rows. Run the command again"
        return "Done but for the history that --keep-history keeps, in which the rows can be read"

    def page(self) -> str:
        """Return the report as a page: one file, without scripts, and nothing from elsewhere."""
        from destination_datalake.reports.page import templates

        rows = sum(each.rows_found if self.dry_run else each.rows_removed for each in self.places)
        kpis = (
            ("Rows", f"{rows:,}", "found" if self.dry_run else "removed, in all objects"),
            ("Objects", f"{sum(each.objects_found for each in self.places):,}", "had such rows"),
            ("Snapshots", f"{sum(each.snapshots_expired for each in self.places):,}", "expired"),
            ("Second search", "–" if self.found_afterwards is None else f"{self.found_afterwards:,}", "objects found"),
        )
        template = templates(Path(__file__).parent).get_template("erasure.html")
        return template.render(report=self, kpis=kpis, verdict=self.verdict)

    def encoded(self) -> bytes:
        """Return the report in JSON, for people too."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def place_line(
    name: str,
    found: Sequence[FoundObject],
    erased: Sequence[ErasedObject],
    afterwards: Sequence[FoundObject] | None,
    earlier: Mapping[str, int],
    mask: Callable[[str], str],
) -> PlaceLine:
    """Return what there is to say of a place but for its figures.

    `earlier` are objects with their rows that an attempt has found which did not end: what neither this one has erased
    nor the second search has found, that attempt has erased.
    """
    lines = {
        each.uri: ObjectLine(
            uri=mask(each.uri),
            rows_found=each.found,
            rows_removed=each.removed,
            outcome=each.outcome,
            new=tuple(mask(uri) for uri in each.new),
            reason=each.reason,
            versions_deleted=each.versions,
        )
        for each in erased
    }
    for each in afterwards or ():
        if each.uri not in lines or lines[each.uri].outcome != "left":
            outcome = "kept" if each.is_kept else "left"
            lines[each.uri] = ObjectLine(
                uri=mask(each.uri), rows_found=each.rows, rows_removed=0, outcome=outcome, reason=each.note
            )
    if afterwards is None:
        lines |= {
            each.uri: ObjectLine(
                uri=mask(each.uri), rows_found=each.rows, rows_removed=0, outcome="found", reason=each.note
            )
            for each in found
        }
    known = {each.uri for each in lines.values()}
    done = [
        ObjectLine(uri=uri, rows_found=rows, rows_removed=rows, outcome="removed", reason=_GONE)
        for uri, rows in earlier.items()
        if uri not in known and afterwards is not None
    ]
    objects = (*sorted((*lines.values(), *done), key=lambda each: each.uri),)
    return PlaceLine(
        place=name,
        objects_found=len(objects),
        rows_found=sum(max(0, each.rows_found) for each in objects),
        rows_removed=sum(max(0, each.rows_removed) for each in objects),
        found_afterwards=None if afterwards is None else len(afterwards),
        left=tuple(each for each in objects if each.outcome in ("left", "kept")),
        objects=objects,
    )


def now() -> str:
    """Return the time, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
