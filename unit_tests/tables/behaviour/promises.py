"""What readers and writers of a table may rely on, by table type. What is not listed here, all of them promise."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Promotion:
    """What the promotion of a column to a wider type costs."""

    rewrites_files: bool
    """Files of the table that hold the column in the narrow type are rewritten, once."""
    reencodes_batch: bool
    """Every batch that needs the wider type is encoded a second time; otherwise only one with narrow files as well."""
    outdates_files: bool
    """Files that another sync encoded with the narrow type, and has not committed yet, must be encoded again. False if
    that sync is fenced."""


@dataclass(frozen=True)
class Promises:
    """What a table type promises differently from others."""

    commits_atomically: bool
    """The files of a commit become visible in one step; otherwise each file is atomic, one after the other."""
    appends_side_by_side: bool
    """Any number of syncs may append at the same time; otherwise the newest continues, and older ones are fenced."""
    promotions: Mapping[str, Promotion]
    """By the type that the column is promoted to."""


_FREE = Promotion(rewrites_files=False, reencodes_batch=False, outdates_files=False)
_REWRITTEN_IN_THE_COMMIT = Promotion(rewrites_files=True, reencodes_batch=False, outdates_files=True)
_REWRITTEN_TO_ANOTHER_FOLDER = Promotion(rewrites_files=True, reencodes_batch=True, outdates_files=False)

PROMISES: Mapping[str, Promises] = {
    "iceberg": Promises(
        commits_atomically=True,
        appends_side_by_side=True,
        promotions={"bigint": _FREE, "double": _REWRITTEN_IN_THE_COMMIT},
    ),
    "hive-parquet": Promises(
        commits_atomically=False,
        appends_side_by_side=False,
        promotions={"bigint": _REWRITTEN_TO_ANOTHER_FOLDER, "double": _REWRITTEN_TO_ANOTHER_FOLDER},
    ),
    "hive-jsonl": Promises(
        commits_atomically=False,
        appends_side_by_side=False,
        promotions={"bigint": _FREE, "double": _FREE},
    ),
}
