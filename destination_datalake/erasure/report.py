"""The report of an erasure: what was found where, what became of each object, and what a second search has found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from destination_datalake.erasure.place import ErasedObject, Outcome

NEVER = (
    "Results of queries (such as Athena's, in the folder of its workgroup), and tables that others have made of these.",
    "Copies in other buckets, prefixes, accounts and backups (replication, AWS Backup, exports).",
    "The source: what it still has, the next sync brings again.",
    "Values of other columns: rows are erased whose value in the one column is one of the ids.",
)
"""What the command never touches, as the report says."""


_AGAIN = "it came while the command ran: run it again"
GONE = "by an attempt that did not end, or by another writer"


class PlaceLine(msgspec.Struct, kw_only=True):
    """A table, or a folder of objects of one kind. `found_afterwards` is what the second search has found.

    A row is found and removed in each object that has a copy of it; `distinct_rows` counts it once, if that is known.
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
    """The whole. `complete`: the second search has found nothing, and nothing was left or kept."""

    request: str
    connector: str
    bucket: str
    prefix: str
    column: str
    target: tuple[str, ...]
    ids: int
    ids_with_rows: int
    """Of how many ids this run has found rows, or other values: an attempt that was killed may have erased others."""
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
    def verdict(self) -> str:
        """What it comes to, in a sentence."""
        if self.dry_run:
            return "Nothing was changed"
        if self.complete:
            return "A second search has found no object with these rows"
        if self.is_left:
            left = sum(each.outcome == "left" for place in self.places for each in place.left)
            what = "1 object" if left == 1 else f"{left} objects"
            return f"Not done: {what} may still have rows. The report says of each what to do"
        return "Done but for the history that --keep-history keeps, in which the rows can be read"

    def objects(self, outcomes: Sequence[str]) -> list[tuple[PlaceLine, ErasedObject]]:
        """Return the objects with one of these outcomes, and the place of each."""
        return [(place, each) for place in self.places for each in place.objects if each.outcome in outcomes]

    def page(self) -> str:
        """Return the report as a page: one file, without scripts, and nothing from elsewhere."""
        from destination_datalake.reports.page import templates

        rows = sum(each.rows_found if self.dry_run else each.rows_removed for each in self.places)
        kpis = (
            ("Ids", f"{self.ids_with_rows:,}", f"of {self.ids:,} had rows, as this run has found them"),
            ("Rows", f"{rows:,}", "found" if self.dry_run else "removed, with the copies in history and versions"),
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
    objects: Iterable[ErasedObject],
    afterwards: Sequence[ErasedObject] | None,
    earlier: Mapping[str, int],
    mask: Callable[[str], str],
    hidden: Callable[[str], str],
) -> PlaceLine:
    """Return what there is to say of a place but for its figures.

    `objects` are those that were erased, or, if there was no second search (`afterwards`), those that were found.
    `mask` hides ids in a URI, `hidden` in a text. `earlier` are objects with their rows that attempts have found: what
    neither this one has erased nor the second
    search has found, an attempt has erased that did not end.
    """
    by_uri = {each.uri: each for each in objects}
    for each in afterwards or ():
        if each.uri not in by_uri or by_uri[each.uri].outcome != "left":
            outcome: Outcome = "kept" if each.outcome == "kept" else "left"
            by_uri[each.uri] = replace(each, outcome=outcome, reason=each.reason or _AGAIN)
    lines = [
        replace(
            each,
            uri=mask(each.uri),
            new=(*map(mask, each.new),),
            reason=hidden(each.reason.replace(each.uri, mask(each.uri))),
        )
        for each in by_uri.values()
    ]
    known = {each.uri for each in lines}
    lines += [
        ErasedObject(uri, rows, rows, "removed", reason=GONE) for uri, rows in earlier.items() if uri not in known
    ]
    lines.sort(key=lambda each: each.uri)
    return PlaceLine(
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
