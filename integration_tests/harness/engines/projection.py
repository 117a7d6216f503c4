"""Evaluate Athena's partition projection from a table's parameters.

Athena computes every location that the parameters describe. This module instead checks for a given object whether it is
in such a location, which has the same result.
https://docs.aws.amazon.com/athena/latest/ug/partition-projection-supported-types.html.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

_UNITS = {"YEAR": 366, "MONTH": 31, "WEEK": 7, "DAY": 1, "HOUR": 1 / 24, "MINUTE": 1 / 1440, "SECOND": 1 / 86400}
"""The length in days of each unit in a bound such as NOW+1YEARS. An approximation is enough, because no test depends on
a single day."""

_JAVA = {"yyyy": ("%Y", r"\d{4}"), "MM": ("%m", r"\d\d"), "dd": ("%d", r"\d\d"), "HH": ("%H", r"\d\d")}
"""Maps Java's date format letters to those of strptime and to a regular expression."""


def is_projected(entry: "TableTypeDef") -> bool:
    """Return whether partition projection is enabled, so that Athena ignores the registered partitions."""
    return entry.get("Parameters", {}).get("projection.enabled", "").lower() == "true"


@dataclass(frozen=True)
class Projection:
    """The partition projection of a table: its parameters, keys and location template."""

    parameters: Mapping[str, str]
    keys: tuple[str, ...]
    template: str

    @classmethod
    def from_entry(cls, entry: "TableTypeDef") -> "Projection":
        """Read the projection from the table's entry in Glue."""
        parameters = entry["Parameters"]
        keys = tuple(key["Name"] for key in entry["PartitionKeys"])
        location = entry["StorageDescriptor"]["Location"].rstrip("/")
        default = "/".join((location, *(f"{key}=${{{key}}}" for key in keys)))
        template = parameters.get("storage.location.template", default).rstrip("/") + "/"
        assert {*re.findall(r"\$\{(.+?)\}", template)} == {*keys}, f"the template {template} lacks keys of {keys}"
        return cls(parameters, keys, template)

    def values(self, uri: str) -> dict[str, str] | None:
        """Return the values of the partition whose location contains the object `uri`, or None if no partition does."""
        parts = re.split(r"\$\{(.+?)\}", self.template)
        pattern, seen = "", set[str]()
        for number, part in enumerate(parts):
            if number % 2 == 0:
                pattern += re.escape(part)
            else:
                pattern += f"(?P={part})" if part in seen else f"(?P<{part}>{self._pattern(part)})"
                seen.add(part)
        match = re.match(pattern, uri)
        if match is None or not all(self._admits(key, match[key]) for key in self.keys):
            return None
        return {key: match[key] for key in self.keys}

    def _get(self, key: str, name: str, default: str = "") -> str:
        return self.parameters.get(f"projection.{key}.{name}", default)

    def _pattern(self, key: str) -> str:
        match self._get(key, "type"):
            case "enum":
                return "|".join(map(re.escape, self._get(key, "values").split(",")))
            case "integer":
                return r"-?\d+"
            case "date":
                parts = re.split("(yyyy|MM|dd|HH)", self._get(key, "format"))
                return "".join(_JAVA[part][1] if part in _JAVA else re.escape(part) for part in parts)
            case "injected":
                return "[^/]+"
            case other:
                raise AssertionError(f"Athena knows no projection of type {other!r}")

    def _admits(self, key: str, text: str) -> bool:
        match self._get(key, "type"):
            case "integer":
                low, high = map(int, self._get(key, "range").split(","))
                value, interval = int(text), int(self._get(key, "interval", "1"))
                digits = int(self._get(key, "digits", "0"))
                return low <= value <= high and (value - low) % interval == 0 and text == f"{value:0{digits}d}"
            case "date":
                form = self._get(key, "format").replace("'", "")
                for java, (python, _) in _JAVA.items():
                    form = form.replace(java, python)
                first, last = (_bound(bound.strip(), form) for bound in self._get(key, "range").split(","))
                try:
                    return first <= datetime.strptime(text, form).replace(tzinfo=UTC) <= last
                except ValueError:
                    return False
            case _:
                return True


def _bound(text: str, form: str) -> datetime:
    relative = re.fullmatch(r"NOW(?:\s*([+-])\s*(\d+)\s*(YEAR|MONTH|WEEK|DAY|HOUR|MINUTE|SECOND)S?)?", text)
    if relative is None:
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    sign, count, unit = relative.groups()
    return datetime.now(UTC) + timedelta(days=int(f"{sign}{count}") * _UNITS[unit] if unit else 0)
