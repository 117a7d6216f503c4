"""Where Athena looks for the files of a table with partition projection (Athena user guide: partition projection).

Written from its pages, apart from the rules of the connector: dates by the letters of `java.time`, `NOW` with offsets,
in UTC, and values put into `storage.location.template` as they are.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_NOW = re.compile(r"\s*NOW\s*(?:([+-])\s*([0-9]+)\s*(DAY|HOUR)S?\s*)?")
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H"}


@dataclass(frozen=True, slots=True)
class Anything:
    """The values of an injected key: whichever a query compares it to."""

    def __contains__(self, value: object) -> bool:
        return isinstance(value, str) and value != ""


@dataclass(frozen=True, slots=True)
class AthenaTable:
    """A table as Athena reads it at a moment, by its parameters and the names of its partition keys."""

    parameters: Mapping[str, str]
    keys: Sequence[str]
    now: datetime

    def reads(self, folder: str) -> bool:
        """Whether a query without conditions (but on injected keys) reads the files in a folder, an S3 URI."""
        return self.partition(folder) is not None

    def partition(self, folder: str) -> tuple[str, ...] | None:
        """Return the values of the projected partition whose location a folder is; None if there is none."""
        assert self.parameters["projection.enabled"] == "true"
        match = self._pattern().fullmatch(f"{folder}/")
        if match is None or not all(match[key] in self.values(key) for key in self.keys):
            return None
        return tuple(match[key] for key in self.keys)

    def locations(self) -> Iterator[str]:
        """Yield all locations that a query without conditions lists."""
        template = self.parameters["storage.location.template"]
        for values in product(*map(self.listed, self.keys)):
            named = dict(zip(self.keys, values, strict=True))
            yield _PLACEHOLDER.sub(lambda match, named=named: named[match[1]], template)  # type: ignore[misc]

    def values(self, key: str) -> Container[str]:
        """Return the projected values of a key."""
        kind = self._property(key, "type").strip().lower()
        match kind:
            case "injected":
                return Anything()
            case "date":
                return _Dates(*self._days(key))
        return self.listed(key)

    def listed(self, key: str) -> Sequence[str]:
        """Return all projected values of a key, in order."""
        match self._property(key, "type").strip().lower():
            case "enum":
                return self._property(key, "values").split(",")
            case "integer":
                first, last = map(int, self._property(key, "range").split(","))
                digits = int(self.parameters.get(f"projection.{key}.digits", "0"))
                return [f"{number:0{digits}}" if digits else str(number) for number in range(first, last + 1)]
            case "date":
                format_, day, last_day = self._days(key)
                return [(day + timedelta(n)).strftime(format_) for n in range((last_day - day).days + 1)]
        raise AssertionError(f"{key} is projected by conditions alone")

    def _days(self, key: str) -> tuple[str, datetime, datetime]:
        letters = self._property(key, "format")
        assert re.fullmatch(r"(yyyy|MM|dd|HH|[^A-Za-z])*", letters), "another letter means something else"
        format_ = re.sub("yyyy|MM|dd|HH", lambda match: _LETTERS[match[0]], letters)
        assert (self._property(key, "interval"), self._property(key, "interval.unit").upper()) == ("1", "DAYS")
        first, last = self._property(key, "range").split(",")
        return format_, self._moment(first, format_), self._moment(last, format_)

    def _moment(self, text: str, format_: str) -> datetime:
        relative = _NOW.fullmatch(text)
        if relative is None:
            return datetime.strptime(text, format_)
        sign, number, unit = relative.groups()
        offset = timedelta(**{f"{unit.lower()}s": int(f"{sign}{number}")}) if unit else timedelta()
        return self.now.astimezone(UTC).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0) + offset

    def _texts(self, key: str) -> str:
        """Return a regular expression of texts that a key's projection can have, which those around it cannot begin."""
        match self._property(key, "type").strip().lower():
            case "enum":
                return "|".join(map(re.escape, sorted(self.listed(key), key=len, reverse=True)))
            case "integer":
                return "-?[0-9]+"
            case "date":
                return re.sub("[A-Za-z]", "[0-9]", self._property(key, "format"))
        return "[^/]+"

    def _property(self, key: str, name: str) -> str:
        return self.parameters[f"projection.{key}.{name}"]

    def _pattern(self) -> re.Pattern[str]:
        template = self.parameters["storage.location.template"]
        assert set(_PLACEHOLDER.findall(template)) == {*self.keys}, "Athena requires a placeholder for each key"
        seen: set[str] = set()
        pieces = []
        for number, piece in enumerate(_PLACEHOLDER.split(template)):
            if number % 2 == 0:
                pieces.append(re.escape(piece))
            else:
                pieces.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>{self._texts(piece)})")
                seen.add(piece)
        return re.compile("".join(pieces))


@dataclass(frozen=True, slots=True)
class _Dates:
    format: str
    first: datetime
    last: datetime

    def __contains__(self, value: object) -> bool:
        try:
            return isinstance(value, str) and self.first <= datetime.strptime(value, self.format) <= self.last
        except ValueError:
            return False
