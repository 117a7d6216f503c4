"""Replacements of a Hive table's content that are not published yet, as the table's entry in the catalog knows them.

Their records were acknowledged, so the platform will not send them again: a sync of the same generation goes on with
one, a newer replacement makes it worthless, and a sync that appends takes its rows in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from destination_datalake.tables.glue.glue_table import TableInput

_LOWEST_GENERATION = "airbyte.lowest-generation-id"
_LOCATION = "airbyte.unpublished-location"
_GENERATION = "airbyte.unpublished-generation-id"
_TYPES = "airbyte.unpublished-types"


@dataclass(frozen=True, slots=True)
class PendingOverwrite:
    """The folder with the new content (an S3 URI), its generation, and the types of its columns in Glue's words."""

    location: str
    generation: int | None
    types: Mapping[str, str]

    @classmethod
    def noted(cls, entry: TableInput) -> Self | None:
        """Return what the entry says, or None if no replacement was left."""
        parameters = entry["Parameters"]
        if not parameters.get(_LOCATION):
            return None
        generation = parameters.get(_GENERATION, "")
        types: dict[str, str] = json.loads(parameters.get(_TYPES, "{}"))
        return cls(parameters[_LOCATION], int(generation) if generation.isdecimal() else None, types)

    def note(self, entry: TableInput) -> None:
        """Write it into the entry, in place of what is there."""
        forget(entry)
        entry["Parameters"][_LOCATION] = self.location
        entry["Parameters"][_GENERATION] = str(self.generation)
        if self.types:
            entry["Parameters"][_TYPES] = json.dumps(self.types)


def forget(entry: TableInput) -> None:
    """Let the entry say nothing of a replacement."""
    for key in (_LOCATION, _GENERATION, _TYPES):
        entry["Parameters"].pop(key, None)


def lowest_generation(entry: TableInput) -> int | None:
    """Return the lowest generation among the table's rows; None for tables that others filled."""
    lowest = entry["Parameters"].get(_LOWEST_GENERATION)
    return None if lowest is None else int(lowest)


def generation_parameter(generation: int | None) -> dict[str, str]:
    """Return what a new table says of the lowest generation among its rows; nothing if nobody counts."""
    return {} if generation is None else {_LOWEST_GENERATION: str(generation)}


def note_lowest_generation(entry: TableInput, generation: int | None) -> None:
    """Remember the lowest generation among the table's rows; None if they have none."""
    if generation is None:
        entry["Parameters"].pop(_LOWEST_GENERATION, None)
    else:
        entry["Parameters"][_LOWEST_GENERATION] = str(generation)
