"""Convert partition values to folder names and to the texts that the catalog stores, and convert them back."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal as DecimalValue
from math import isfinite, isnan
from urllib.parse import quote_plus

import numpy as np

from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.spec import (
    NULL_PARTITION,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
    Since1970,
    TimeUnit,
    Transform,
)
from destination_datalake.partitioning.templates import VARIABLE, PathTemplate, filled, is_key_folder, variables
from destination_datalake.partitioning.transforms import permits
from destination_datalake.schema.arrow import widest
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Float64,
    Int64,
    String,
    Timestamp,
)

MAX_KEY_BYTES = 1024
"""The maximum length of an S3 key in bytes of UTF-8 (S3 user guide: object key names)."""

_NO_TIME = {"year": "0000", "month": "00", "day": "00", "hour": "00", "date": "0000-00-00"}
_DATE = "-?[0-9]{4,5}-[0-9]{2}-[0-9]{2}"
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_NO_LOCATION = re.compile("[\ufffe\uffff]")
"""Characters that Glue rejects in locations (Glue API: LocationString), and that Hive does not escape."""


CATALOG_DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""The regular expression for dates that query engines can read."""
_TEXTS = {
    Boolean: "true|false",
    Int64: "-?[0-9]{1,19}",
    Float64: "-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|-?Infinity",
    Decimal: "-?[0-9]+(?:[.][0-9]+)?",
    Date: CATALOG_DATE,
    Timestamp: f"{CATALOG_DATE} [0-9:.]+",
}
"""Maps the type of a partition key to a regular expression for the texts that query engines can read as its values."""


@dataclass(frozen=True, slots=True)
class IcebergPath:
    """The folders of an Iceberg table's partitions (Iceberg: PartitionSpec.partitionToPath).

    `types` are the types of the source columns of `fields`. None is a type that this connector does not write.

    Folders are only informative, because manifests record the partition of each file. Two partitions may share a
    folder, and long folder names are truncated.
    """

    fields: tuple[PartitionField, ...]
    types: tuple[ColumnType | None, ...]

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition in ASCII characters, such as `at_day=2019-10-12/region=eu`."""
        parts = zip(self.fields, self.types, values, strict=True)
        folder = "/".join(
            f"{quote_plus(field.name, '')}={quote_plus(iceberg_text(value, field.transform, type_), '')}"
            for field, type_, value in parts
        )
        if len(folder) <= MAX_KEY_BYTES // 2:  # The other half is for the table's location and the file's name.
            return folder
        return re.sub("%.?$", "", folder[: MAX_KEY_BYTES // 2]).rstrip("/")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition key of a Hive table: a column in the catalog that has one value per partition.

    `type` is the key's type in the catalog, and `source` is the type of its source column. `null` is the text for null
    in folders and in the catalog. If the key is `projected` (Athena's partition projection), folders contain the same
    texts as the catalog, without escaping.
    """

    field: PartitionField
    type: ColumnType
    source: ColumnType
    projected: bool = False
    null: str = NULL_PARTITION

    @property
    def name(self) -> str:
        """The key's name in the catalog."""
        return self.field.name

    def takes(self, source: ColumnType) -> bool:
        """Return whether all values of a column of type `source`, after the transform, are valid values of the key."""
        if not permits(self.field.transform, source):
            return False
        if isinstance(self.field.transform, CalendarPart):
            return True
        match self.type, widest(source):
            case (String(), _) | (Timestamp(), Timestamp()):
                return True
            case Decimal(digits, scale), Decimal(of_source, finer):
                return of_source - finer <= digits - scale and finer <= scale
            case key, column:
                return key == column

    def holds(self, text: str) -> bool:
        """Return whether query engines can read `text` as a value of the key's type."""
        pattern = _TEXTS.get(type(self.type))
        return pattern is None or text == self.null or re.fullmatch(pattern, text) is not None

    def text(self, value: PartitionValue) -> str:
        """Return the text for a value in the catalog.

        Values that the catalog does not support become null. Dates outside the years 1 to 9999 become the first or the
        last supported day.
        """
        transform = self.field.transform
        if value is None:
            return self.null
        if not isinstance(transform, CalendarPart):
            text = value_text(value, self.source)
            if _NO_LOCATION.search(text):
                return self.null
            # Athena inserts projected values into storage.location.template unchanged, and separates them by commas.
            return escaped(text).replace(",", "%2C") if self.projected else text
        assert isinstance(value, int)
        if transform.part == "date":
            # A time zone can move a date out of the years 1 to 9999. Engines fail on such dates.
            return date_text(min(max(value, _FIRST_DAY), _LAST_DAY))
        return f"{value:0{transform.digits or 1}}"

    def folder_text(self, text: str) -> str:
        """Return a value's text in folders, given its text in the catalog."""
        return text if self.projected else escaped(text)

    @property
    def pattern(self) -> str:
        """The regular expression for the key's values, including null, in folder names."""
        match self.field.transform:
            case CalendarPart(part="date"):
                pattern = _DATE
            case CalendarPart(part="year", digits=digits):
                pattern = f"-?[0-9]{{{digits or 1},5}}"
            case CalendarPart(digits=digits):
                pattern = f"[0-9]{{{digits or 1},2}}"
            case _:
                pattern = "[^/]+"
        return f"{re.escape(self.null)}|{pattern}"


@dataclass(frozen=True, slots=True)
class PartitionFolders:
    """The folders of a Hive table's partitions.

    `template` is the path of a folder, with a variable `{name}` for the value of the key `name`. `max_bytes` is the
    maximum length of a folder in bytes of UTF-8.
    """

    keys: tuple[PartitionKey, ...]
    template: str
    max_bytes: int = MAX_KEY_BYTES

    @classmethod
    def hive(cls, keys: Sequence[PartitionKey], max_bytes: int = MAX_KEY_BYTES) -> PartitionFolders:
        """Return folders of the form `key=value/key=value`, in the order of the keys (Hive: FileUtils.makePartName)."""
        return cls(tuple(keys), "/".join(f"{escaped(key.name)}={{{key.name}}}" for key in keys), max_bytes)

    @classmethod
    def from_template(
        cls, template: PathTemplate, keys: Sequence[PartitionKey], max_bytes: int = MAX_KEY_BYTES
    ) -> PartitionFolders:
        """Return the folders of a path template. Its variables and `keys` must be in the same order."""
        by_variable = dict(zip(template.variables, keys, strict=True))
        nulls = tuple(replace(key, null=_null_text(template, variable)) for variable, key in by_variable.items())
        named = filled(template.partition, {variable: f"{{{key.name}}}" for variable, key in by_variable.items()})
        return cls(nulls, named, max_bytes)

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition, relative to the table, without leading and trailing slashes.

        Raises ConfigError if the folder is too long for S3 even after all values are replaced by null.
        """
        folder = self._filled(self.texts(values))
        if len(folder.encode()) > self.max_bytes:
            raise ConfigError(
                f"The path of a partition would exceed S3's limit of {MAX_KEY_BYTES} bytes for keys. "
                "Choose a shorter bucket_prefix, or fewer fields in partition_by."
            )
        return folder

    def texts(self, values: Sequence[PartitionValue]) -> tuple[str, ...]:
        """Return the texts for a partition's values in the catalog.

        If the folder would be too long for S3, the longest values are replaced by null. The rows keep these values in
        their columns.
        """
        texts = [key.text(value) for key, value in zip(self.keys, values, strict=True)]
        while len(self._filled(texts).encode()) > self.max_bytes:
            non_null = [n for n, key in enumerate(self.keys) if texts[n] != key.null]
            if not non_null:
                break
            longest = max(non_null, key=lambda n: len(self.keys[n].folder_text(texts[n]).encode()))
            texts[longest] = self.keys[longest].null
        return tuple(texts)

    def _filled(self, texts: Sequence[str]) -> str:
        named = {key.name: key.folder_text(text) for key, text in zip(self.keys, texts, strict=True)}
        return filled(self.template, named)

    def texts_of(self, folder: str) -> tuple[str, ...] | None:
        """Return the texts in the catalog of the partition with this folder, or None if the folder does not match."""
        match = self._pattern().fullmatch(folder)
        if match is None:
            return None
        texts = (match[f"k{number}"] for number in range(len(self.keys)))
        return tuple(text if key.projected else unescaped(text) for key, text in zip(self.keys, texts, strict=True))

    def location_template(self, location: str) -> str:
        """Return the table parameter `storage.location.template` for Athena: a location with `${key}` for each value.

        `location` is the location of the table, without a trailing slash.
        """
        return f"{location}/{filled(self.template, {key.name: f'${{{key.name}}}' for key in self.keys})}/"

    def _pattern(self) -> re.Pattern[str]:
        numbers = {key.name: number for number, key in enumerate(self.keys)}
        seen: set[str] = set()

        def group(name: str) -> str:
            if name in seen:
                return f"(?P=k{numbers[name]})"
            seen.add(name)
            return f"(?P<k{numbers[name]}>{self.keys[numbers[name]].pattern})"

        pieces = VARIABLE.split(self.template)
        return re.compile("".join(group(piece) if n % 2 else re.escape(piece) for n, piece in enumerate(pieces)))


def key_type(field: PartitionField, source: ColumnType, *, digits: bool) -> ColumnType:
    """Return the type of a partition key in the catalog.

    With `digits`, the key is a string that equals the text in the folder. A key with the values of its source column
    gets the widest type to which the column can change, because a key cannot be widened later.
    """
    match field.transform:
        case _ if digits:
            return String()
        case CalendarPart(part="date"):
            return Date()
        case CalendarPart():
            return Int64()
    return widest(source)


def _null_text(template: PathTemplate, variable: str) -> str:
    """Return the text for null in the folders that contain a variable.

    In folders of the form `name={variable}`, this is Hive's text. In other folders, it is zeros, because Hive's text
    begins with an underscore, and engines skip folders whose names begin with one.
    """
    used = [folder for folder in template.partition.split("/") if variable in variables(folder)]
    return NULL_PARTITION if all(is_key_folder(folder) for folder in used) else _NO_TIME[variable]


# Texts of partition values, in folders and in the catalog's lists of partitions (Hive: FileUtils.makePartName)

_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""The characters that Hive escapes in the names of folders (Hive: FileUtils.charToEscape)."""


def value_text(value: PartitionValue, type_: ColumnType) -> str:
    """Return the text that Hive and Spark use for a partition value. For an empty text, this is the text for null."""
    match value, type_:
        case (None | "", _):
            return NULL_PARTITION
        case bool(), Boolean():
            return "true" if value else "false"
        case int(), Date():
            return date_text(value)
        case int(), Timestamp():
            text = _moment_text(value).replace("T", " ")
            return text.rstrip("0") if "." in text else text
        case DecimalValue(), _:
            return f"{value:f}"
        case float(), _ if not isfinite(value):
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes(), _:
            return value.hex()
    return str(value)


def iceberg_text(value: PartitionValue, transform: Transform, type_: ColumnType | None) -> str:
    """Return the text for a partition value in Iceberg's folders, before escaping (Iceberg: Transform.toHumanString).

    `type_` is the type of the source column, or None for a type that this connector does not write.
    """
    match value, transform:
        case None, _:
            return "null"
        case int(), Since1970(unit):
            return _ICEBERG_PERIODS[unit](value)
        case bool(), _:
            return "true" if value else "false"
        case int(), Identity() if isinstance(type_, Date):
            return date_text(value)
        case int(), Identity() if isinstance(type_, Timestamp):
            return _moment_text(value) + ("+00:00" if type_.zoned else "")
        case bytes(), _:
            return b64encode(value).decode()
    return str(value)


_ICEBERG_PERIODS: Mapping[TimeUnit, Callable[[int], str]] = {
    "year": lambda years: f"{1970 + years:04}",
    "month": lambda months: f"{1970 + months // 12:04}-{months % 12 + 1:02}",
    "day": lambda days: date_text(days),
    "hour": lambda hours: f"{date_text(hours // 24)}-{hours % 24:02}",
}


def date_text(days: int) -> str:
    """Return the ISO text of a date, given in days since 1970. Supports years before 1 and after 9999."""
    return str(np.datetime64(days, "D"))


def _moment_text(microseconds: int) -> str:
    """Return the ISO text of a timestamp, given in microseconds since 1970. Omits microseconds that are 0.

    Supports years before 1 and after 9999.
    """
    seconds, fraction = divmod(microseconds, 1_000_000)
    return str(np.datetime64(seconds, "s")) + (f".{fraction:06}" if fraction else "")


def escaped(text: str) -> str:
    """Return the text with Hive's escapes, such as `%2F` for a slash, so that it can be part of a folder name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescaped(text: str) -> str:
    """Reverse `escaped` (Hive: FileUtils.unescapePathName)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
