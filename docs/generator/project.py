"""Tables from the connector's specification, its checks and `CHANGELOG.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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


def options() -> str:
    """Return every option by its group, as in the settings form."""
    connection = specification()["connectionSpecification"]
    groups = {group["id"]: group.get("title", "") for group in connection["groups"]}
    rows = []
    for name, option in connection["properties"].items():
        required = "required" if name in connection["required"] else ""
        rows.append([groups[option["group"]], code(name), option["description"], _default(option) or required])
        rows += [["", code(f"{name}.{inner}"), what, _default(each)] for inner, what, each in _inner(option)]
    return table(["group", "option", "meaning", "default"], rows)


def sync_modes() -> str:
    """Return which of the platform's sync modes the spec supports."""
    offered = specification()["supported_destination_sync_modes"]
    return table(["sync mode", "supported"], [[name, "yes" if mode in offered else "no"] for name, mode in _SYNC_MODES])


def versions() -> str:
    """Return every version in the changelog, with a link to it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = [[version, day, "[CHANGELOG.md](../CHANGELOG.md)"] for version, day in _VERSION.findall(changelog)]
    return table(["version", "date", "changes"], rows)


def _inner(option: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the options inside an option, each once, without the constants that distinguish variants."""
    variants = option.get("oneOf", [option])
    found: dict[str, Mapping[str, Any]] = {}
    for variant in variants:
        for name, inner in variant.get("properties", {}).items():
            found.setdefault(name, inner)
    for name, inner in found.items():
        if "const" not in inner:
            yield name, inner["description"], inner


def _default(option: Mapping[str, Any]) -> str:
    return code(json.dumps(option["default"]).strip('"')) if option.get("default") not in (None, "", {}) else ""


def check_steps() -> str:
    """Return the steps of `check`, in their order."""
    return table(["step", "name", "what it does"], [[code(step.id), step.name, step.does] for step in STEPS])
