"""The guarantees of each table type, as the behaviour suite tests them."""

from __future__ import annotations

from docs.generator.markdown import code, table
from unit_tests.tables.behaviour.promises import PROMISES

_TITLES = {"iceberg": "Iceberg", "hive-parquet": "Hive, Parquet", "hive-jsonl": "Hive, JSON lines"}
_FROM = {"bigint": "int", "double": "float"}


def promises() -> str:
    """Return a row for each promise, a column for each table type."""
    by_type = [PROMISES[name] for name in _TITLES]
    files = ["in one step" if each.commits_atomically else "one after the other" for each in by_type]
    appends = ["all go on" if each.appends_side_by_side else "the newest goes on, older ones fail" for each in by_type]
    rows = [["the files of a commit become visible", *files], ["syncs that append at the same time", *appends]]
    for wide, narrow in _FROM.items():
        promotions = [each.promotions[wide] for each in by_type]
        title = f"{code(narrow)} becomes {code(wide)}:"
        rows += [
            [f"{title} the table's files are rewritten, once", *(_yes(each.rewrites_files) for each in promotions)],
            [
                f"{title} every batch that needs it is encoded a second time",
                *(_yes(each.reencodes_batch) for each in promotions),
            ],
            [
                f"{title} uncommitted files of other syncs are encoded again",
                *(_yes(each.outdates_files) for each in promotions),
            ],
        ]
    return table(["", *_TITLES.values()], rows)


def _yes(promised: bool) -> str:
    return "yes" if promised else "no"
