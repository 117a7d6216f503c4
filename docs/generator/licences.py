"""The packages of the image, as `uv.lock` has them, and what their metadata say of their licences."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from packaging.markers import Marker

from docs.generator.markdown import table
from docs.generator.project import ROOT

_PROJECT = "destination-datalake"


def licences() -> str:
    """Return each package that the connector is installed with, and its licence."""
    return table(["package", "licence"], [[name, licence(name)] for name in packages()])


def packages() -> list[str]:
    """Return the names of the packages that the connector requires on this system, directly or not."""
    locked = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))["package"]
    by_name = {package["name"]: package for package in locked}
    found: set[str] = set()
    remaining = [*_required(by_name[_PROJECT], ())]
    while remaining:
        name, extras = remaining.pop()
        if name not in found or extras:
            found.add(name)
            remaining += [each for each in _required(by_name[name], extras) if each[0] not in found or each[1]]
    return sorted(found)


def licence(name: str) -> str:
    """Return the licence of an installed package: its SPDX expression, or else what older metadata begin with."""
    of = metadata.metadata(name)
    classified = [
        text.rpartition(" :: ")[2] for text in of.get_all("Classifier") or () if text.startswith("License ::")
    ]
    for text in (of.get("License-Expression"), ", ".join(classified), *(of.get("License") or "").splitlines()[:1]):
        if text:
            return str(text).strip()
    raise ValueError(f"{name} has no licence in its metadata")


def _required(package: dict[str, Any], extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    groups = [package.get("dependencies", []), *(package.get("optional-dependencies", {}).get(e, []) for e in extras)]
    for group in groups:
        for each in group:
            if "marker" not in each or Marker(each["marker"]).evaluate():
                yield each["name"], tuple(each.get("extra", ()))
