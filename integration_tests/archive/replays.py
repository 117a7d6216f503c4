"""The command `replay`, and two tables compared as an engine compares them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from integration_tests.harness.runs.commands import Ran, ran
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.warm import WarmLaunch

ARCHIVE: Mapping[str, Any] = {"raw_archive": {"enabled": True}}
"""The options with which what a sync receives is archived."""


@dataclass(frozen=True)
class Replays:
    """Runs the command, each time in a folder of its own below `folder`."""

    launch: WarmLaunch
    folder: Path

    def run(self, config: Mapping[str, object], *arguments: str, killed_at: KillPoint | None = None) -> Ran:
        """Run it to its end, or to the point at which it is killed."""
        return ran(self.launch, self.folder, "replay", config, *arguments, killed_at=killed_at)


def maintain(launch: WarmLaunch, folder: Path, config: Mapping[str, object], *arguments: str) -> list[str]:
    """Run the command, which must succeed; return its lines."""
    done = ran(launch, folder, "maintain", config, *arguments)
    assert done.exit_code == 0, done
    return done.lines


def difference(old: pa.Table, new: pa.Table) -> list[Any]:
    """Return the rows that one table has and the other has not, by DuckDB's EXCEPT ALL, with which of the two it is.

    All columns are compared, by name. A column that only one table has is a difference if it has values.
    """
    names = sorted({*old.column_names, *new.column_names})
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("old", old)
        engine.register("new", new)
        selected = [
            ", ".join(f'"{name}"' if name in table.column_names else f'NULL AS "{name}"' for name in names)
            for table in (old, new)
        ]
        return engine.sql(
            f"SELECT 'missing', * FROM (SELECT {selected[0]} FROM old EXCEPT ALL SELECT {selected[1]} FROM new) "
            f"UNION ALL SELECT 'more', * FROM (SELECT {selected[1]} FROM new EXCEPT ALL SELECT {selected[0]} FROM old)"
        ).fetchall()
