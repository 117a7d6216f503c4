"""Folders of a Hive table that its rows are not in, as its entry in the catalog lists them: what may be swept.

Only folders that this connector has made get into the list, and only a compare-and-set of the entry changes it. What
stands in no list is not known to be dead, and stays.
"""

from __future__ import annotations

import json
from enum import StrEnum

from destination_datalake.tables.glue.glue_table import TableInput

_PARAMETER = "airbyte.other-locations"


class Standing(StrEnum):
    """What a folder is there for. From `DEAD` none comes back."""

    WRITTEN = "being written"
    """A sync writes the table's files anew into it. If that sync is dead, so is the folder."""
    SUPERSEDED = "superseded"
    """It held what the table shows; readers may still be in it."""
    DEAD = "dead"


def leftovers(entry: TableInput) -> dict[str, Standing]:
    """Return the folders (S3 URIs) that the entry lists."""
    listed: dict[str, str] = json.loads(entry["Parameters"].get(_PARAMETER, "{}"))
    return {folder: Standing(standing) for folder, standing in listed.items()}


def note(entry: TableInput, folder: str, standing: Standing) -> None:
    """Let the entry list a folder, with this standing from now on."""
    _write(entry, {**leftovers(entry), folder: standing})


def strike(entry: TableInput, *folders: str) -> None:
    """Take folders out of the list: the table's rows are in them now, or nothing is."""
    _write(entry, {folder: standing for folder, standing in leftovers(entry).items() if folder not in folders})


def _write(entry: TableInput, listed: dict[str, Standing]) -> None:
    if listed:
        entry["Parameters"][_PARAMETER] = json.dumps(listed)
    else:
        entry["Parameters"].pop(_PARAMETER, None)
