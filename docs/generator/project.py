"""Tables of what the project's other files say: `spec.json` and `CHANGELOG.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.generator.markdown import code, table

ROOT = Path(__file__).parents[2]
_SPEC: Mapping[str, Any] = json.loads((ROOT / "destination_datalake" / "spec.json").read_text(encoding="utf-8"))
_VERSION = re.compile(r"^## \[([^]]+)\] - (\S+)", re.MULTILINE)

_SYNC_MODES = (
    ("Full refresh, overwrite", "overwrite"),
    ("Full refresh, append", "append"),
    ("Incremental, append", "append"),
    ("Incremental, append + deduped", "append_dedup"),
)
"""Airbyte's names, and what each asks of a destination."""


def options() -> str:
    """Every option by its group, as the settings' form shows it."""
    connection = _SPEC["connectionSpecification"]
    groups = {group["id"]: group.get("title", "") for group in connection["groups"]}
    rows = []
    for name, option in connection["properties"].items():
        required = "required" if name in connection["required"] else ""
        rows.append([groups[option["group"]], code(name), option["description"], _default(option) or required])
        rows += [["", code(f"{name}.{inner}"), what, _default(each)] for inner, what, each in _inner(option)]
    return table(["group", "option", "meaning", "default"], rows)


def sync_modes() -> str:
    """Which of the platform's sync modes the spec offers."""
    offered = _SPEC["supported_destination_sync_modes"]
    return table(["sync mode", "supported"], [[name, "yes" if mode in offered else "no"] for name, mode in _SYNC_MODES])


def versions() -> str:
    """Every version that the changelog knows; what each changed stands there."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = [[version, day, "[CHANGELOG.md](../CHANGELOG.md)"] for version, day in _VERSION.findall(changelog)]
    return table(["version", "date", "changes"], rows)


def _inner(option: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """The options inside an option, each once, but for the constants that tell variants apart."""
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
