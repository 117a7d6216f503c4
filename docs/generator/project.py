"""Tables from the connector's specification, its checks and `CHANGELOG.md`."""

from __future__ import annotations

import re
from pathlib import Path

from destination_datalake.check.connection import STEPS
from docs.generator.markdown import code, table
from docs.generator.spec import specification

ROOT = Path(__file__).parents[2]
_VERSION = re.compile(r"^## \[([^]]+)\] - (\S+)", re.MULTILINE)

_SYNC_MODES = (
    ("Full refresh, overwrite", "overwrite"),
    ("Full refresh, append", "append"),
    ("Incremental, append", "append"),
    ("Incremental, append + deduped", "append_dedup"),
)
"""Airbyte's names, and the destination sync mode of each."""


def sync_modes() -> str:
    """Return which of the platform's sync modes the spec supports."""
    offered = specification()["supported_destination_sync_modes"]
    return table(["sync mode", "supported"], [[name, "yes" if mode in offered else "no"] for name, mode in _SYNC_MODES])


def versions() -> str:
    """Return every version in the changelog, with a link to it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = [[version, day, "[CHANGELOG.md](../CHANGELOG.md)"] for version, day in _VERSION.findall(changelog)]
    return table(["version", "date", "changes"], rows)


def check_steps() -> str:
    """Return the steps of `check`, in their order."""
    return table(["step", "name", "what it does"], [[code(step.id), step.name, step.does] for step in STEPS])
