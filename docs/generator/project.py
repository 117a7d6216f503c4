"""Tables about the project: its specification, checks and guarantees, its versions, the packages of its image."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import Marker

from destination_datalake.check.connection import STEPS
from docs.generator.markdown import code, table
from docs.generator.spec import specification
from unit_tests.tables.behaviour.promises import PROMISES

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
    supported = dict.fromkeys(offered, "yes") | {"append_dedup": "yes, in Iceberg tables"}
    return table(["sync mode", "supported"], [[name, supported.get(mode, "no")] for name, mode in _SYNC_MODES])


def versions() -> str:
    """Return every version in the changelog, with a link to it."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    rows = [[version, day, "[CHANGELOG.md](../CHANGELOG.md)"] for version, day in _VERSION.findall(changelog)]
    return table(["version", "date", "changes"], rows)


def check_steps() -> str:
    """Return the steps of `check`, in their order."""
    return table(["step", "name", "what it does"], [[code(step.id), step.name, step.does] for step in STEPS])


_TITLES = {"iceberg": "Iceberg", "hive-parquet": "Hive, Parquet", "hive-jsonl": "Hive, JSON Lines"}
_FROM = {"bigint": "int", "double": "float"}


def promises() -> str:
    """Return a row for each promise, a column for each table type."""
    by_type = [PROMISES[name] for name in _TITLES]
    files = ["in one step" if promise.commits_atomically else "one after the other" for promise in by_type]
    appends = [
        "all continue" if promise.appends_side_by_side else "the newest continues, older ones fail"
        for promise in by_type
    ]
    rows = [["the files of a commit become visible", *files], ["syncs that append at the same time", *appends]]
    for wide, narrow in _FROM.items():
        promotions = [promise.promotions[wide] for promise in by_type]
        title = f"{code(narrow)} becomes {code(wide)}:"
        rows += [
            [
                f"{title} the table's files are rewritten, once",
                *(_yes(promotion.rewrites_files) for promotion in promotions),
            ],
            [
                f"{title} every batch that needs it is encoded a second time",
                *(_yes(promotion.reencodes_batch) for promotion in promotions),
            ],
            [
                f"{title} uncommitted files of other syncs are encoded again",
                *(_yes(promotion.outdates_files) for promotion in promotions),
            ],
        ]
    return table(["", *_TITLES.values()], rows)


def _yes(promised: bool) -> str:
    return "yes" if promised else "no"


def licences() -> str:
    """Return each package that the connector is installed with, and its licence."""
    return table(["package", "licence"], [[name, licence(name)] for name in packages()])


def packages() -> list[str]:
    """Return the names of the packages that the connector requires on this system, directly or not."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    by_name = {package["name"]: package for package in locked}
    names: set[str] = set()
    remaining = [*_required(by_name["destination-datalake"], ())]
    while remaining:
        name, extras = remaining.pop()
        if name not in names or extras:
            names.add(name)
            remaining += [
                requirement
                for requirement in _required(by_name[name], extras)
                if requirement[0] not in names or requirement[1]
            ]
    return sorted(names)


def licence(name: str) -> str:
    """Return the licence of an installed package: its SPDX expression, or else what older metadata begin with."""
    fields = metadata.metadata(name)
    classified = [
        text.rpartition(" :: ")[2] for text in fields.get_all("Classifier") or () if text.startswith("License ::")
    ]
    for text in (
        fields.get("License-Expression"),
        ", ".join(classified),
        *(fields.get("License") or "").splitlines()[:1],
    ):
        if text:
            return str(text).strip()
    raise ValueError(f"{name} has no licence in its metadata")


def _required(package: dict[str, Any], extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = [package.get("dependencies", []), *(package.get("optional-dependencies", {}).get(e, []) for e in extras)]
    for group in groups:
        for dependency in group:
            if "marker" not in dependency or Marker(dependency["marker"]).evaluate():
                yield dependency["name"], tuple(dependency.get("extra", ()))
