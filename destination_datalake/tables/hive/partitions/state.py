"""What a table's Glue entry says about its registered partitions: whether they follow its content.

Partitions are changed by calls of their own, after the compare-and-set that changes the table. So this change also says
that the partitions are behind; a sync that reads it brings them up to date, whether or not the one that changed the
table was killed. A table without registered partitions, or whose partitions never were behind, has no such parameter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import uuid4

from destination_datalake.tables.glue.glue_table import TableInput
from destination_datalake.tables.hive.partitions.scheme import has_registered_partitions

_PARAMETER = "airbyte.partition-index"


@dataclass(frozen=True, slots=True)
class Behind:
    """Partitions are behind the content. `id` is another one after each change of the table.

    `left` are the folders, S3 URIs, that the content has left. If it was `replaced`, no partition elsewhere may be seen
    beside those of the new content, all of which must be registered.
    """

    id: str
    left: tuple[str, ...] = ()
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class IndexState:
    """The state of the registered partitions. `settled` is another id each time that they were brought up to date."""

    settled: str = ""
    behind: Behind | None = None

    @classmethod
    def of(cls, table_input: TableInput) -> Self:
        """Read the state from a table's parameters."""
        saved: Mapping[str, Any] = json.loads(table_input["Parameters"].get(_PARAMETER, "{}"))
        behind = saved.get("behind")
        return cls(
            saved.get("settled", ""),
            None if behind is None else Behind(behind["id"], tuple(behind["left"]), behind["replaced"]),
        )

    def save(self, table_input: TableInput) -> None:
        """Put the state into a table's parameters."""
        saved: dict[str, Any] = {"settled": self.settled}
        if self.behind is not None:
            left = list(self.behind.left)
            saved["behind"] = {"id": self.behind.id, "left": left, "replaced": self.behind.replaced}
        table_input["Parameters"][_PARAMETER] = json.dumps(saved)


def mark_behind(table_input: TableInput, *, left: str | None = None, replaced: bool = False) -> None:
    """Say that the partitions are behind, if the table registers any; also what made them so before."""
    if not has_registered_partitions(table_input):
        return
    state = IndexState.of(table_input)
    before = state.behind or Behind("")
    folders = dict.fromkeys((*before.left, *([left] if left is not None else [])))
    behind = Behind(uuid4().hex, tuple(folders), before.replaced or replaced)
    replace(state, behind=behind).save(table_input)
