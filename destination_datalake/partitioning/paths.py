"""Convert partition values to folder names and to the strings that the catalog stores, and convert these back."""

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
"""Maximum length of an S3 key, in bytes of UTF-8 (S3 user guide: object key names)."""

_NO_TIME = {"year": "0000", "month": "00", "day": "00", "hour": "00", "date": "0000-00-00"}
_DATE = "-?[0-9]{4,5}-[0-9]{2}-[0-9]{2}"
_FIRST_DAY, _LAST_DAY = ((day - date(1970, 1, 1)).days for day in (date.min, date.max))
_NO_LOCATION = re.compile("[\ufffe\uffff]")
"""Matches characters that Glue rejects in locations (Glue API: LocationString), and that Hive does not escape."""


CATALOG_DATE = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""A regular expression for dates that query engines can read."""
_TEXTS = {
    Boolean: "true|false",
    Int64: "-?[0-9]{1,19}",
    Float64: "-?[0-9.]+(?:e[+-]?[0-9]+)?|NaN|-?Infinity",
    Decimal: "-?[0-9]+(?:[.][0-9]+)?",
    Date: CATALOG_DATE,
    Timestamp: f"{CATALOG_DATE} [0-9:.]+",
}
"""Maps the type of a partition key to a regular expression for the strings that query engines can read as values."""


@dataclass(frozen=True, slots=True)
class IcebergPath:
    """The rules for the folders of an Iceberg table's partitions (Iceberg: PartitionSpec.partitionToPath).

    `types` contains the type of each field's source column, or None for a type that this connector does not write.

    Folders only help people who look at the files: engines read the partition of each file from Iceberg's manifests. So
    two partitions may share a folder, and this class truncates long folders.
    """

    fields: tuple[PartitionField, ...]
    types: tuple[ColumnType | None, ...]

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition, such as `at_day=2019-10-12/region=eu`. Uses only ASCII characters."""
        parts = zip(self.fields, self.types, values, strict=True)
        folder = "/".join(
            f"{quote_plus(field.name, '')}={quote_plus(iceberg_text(value, field.transform, type_), '')}"
            for field, type_, value in parts
        )
        if len(folder) <= MAX_KEY_BYTES // 2:  # The other half is for the table's location and the file's name.
            return folder
        # Do not leave half an escape such as `%2` at the cut.
        return re.sub("%.?$", "", folder[: MAX_KEY_BYTES // 2]).rstrip("/")


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A partition key of a Hive table: a column in the catalog that has one value per partition.

    `type` is the key's type in the catalog, and `source` is the type of its source column. `null` is the string for
    null in folders and in the catalog. If `projected` is True, Athena inserts the strings in the catalog into folder
    names unchanged (partition projection). So the strings in the catalog already contain the escapes for folder names.
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
        """Return whether the transform converts all values of a column of type `source` to valid values of the key."""
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
        """Return the string for a value in the catalog.

        If the catalog does not support the value, returns the string for null. For a date before the year 1 or after
        the year 9999, returns the first or the last day of these years.
        """
        transform = self.field.transform
        if value is None:
            return self.null
        if not isinstance(transform, CalendarPart):
            text = value_text(value, self.source)
            # Only the partition becomes null. The rows keep the value in their column.
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
        """Return the string for a value in folder names, given the string for this value in the catalog."""
        return text if self.projected else escaped(text)

    @property
    def pattern(self) -> str:
        """A regular expression for the key's values in folder names, including null."""
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
    """The rules for the folders of a Hive table's partitions.

    `template` is the path of a folder, in which the variable `{name}` stands for the value of the key `name`.
    `max_bytes` is the maximum length of this path, in bytes of UTF-8.
    """

    keys: tuple[PartitionKey, ...]
    template: str
    max_bytes: int = MAX_KEY_BYTES

    @classmethod
    def hive(cls, keys: Sequence[PartitionKey], max_bytes: int = MAX_KEY_BYTES) -> PartitionFolders:
        """Return the rules for folders of the form `key=value/key=value`, in the order of the keys.

        Hive names folders in the same way (Hive: FileUtils.makePartName).
        """
        return cls(tuple(keys), "/".join(f"{escaped(key.name)}={{{key.name}}}" for key in keys), max_bytes)

    @classmethod
    def from_template(
        cls, template: PathTemplate, keys: Sequence[PartitionKey], max_bytes: int = MAX_KEY_BYTES
    ) -> PartitionFolders:
        """Return the rules of a path template. The template's variables must be in the same order as `keys`."""
        by_variable = dict(zip(template.variables, keys, strict=True))
        nulls = tuple(replace(key, null=_null_text(template, variable)) for variable, key in by_variable.items())
        named = filled(template.partition, {variable: f"{{{key.name}}}" for variable, key in by_variable.items()})
        return cls(nulls, named, max_bytes)

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition, relative to the table, without leading and trailing slashes.

        If the folder would be too long for S3, null replaces the longest values in the folder (see `texts`). Raises
        ConfigError if the folder is too long even if null replaces all values.
        """
        # `texts` has replaced all values that it could.
        folder = self._filled(self.texts(values))
        if len(folder.encode()) > self.max_bytes:
            raise ConfigError(
                f"The path of a partition would exceed S3's limit of {MAX_KEY_BYTES} bytes for keys. "
                "Choose a shorter bucket_prefix, or fewer fields in partition_by."
            )
        return folder

    def texts(self, values: Sequence[PartitionValue]) -> tuple[str, ...]:
        """Return the strings for a partition's values in the catalog.

        If the folder would be too long for S3, this method replaces the longest values by null. Only the partition's
        values change: the rows keep the long values in their columns.
        """
        texts = [key.text(value) for key, value in zip(self.keys, values, strict=True)]
        while len(self._filled(texts).encode()) > self.max_bytes:
            non_null = [n for n, key in enumerate(self.keys) if texts[n] != key.null]
            if not non_null:
                break
            # Escapes and UTF-8 make folder names longer than values, so compare the bytes in the folder.
            longest = max(non_null, key=lambda n: len(self.keys[n].folder_text(texts[n]).encode()))
            texts[longest] = self.keys[longest].null
        return tuple(texts)

    def _filled(self, texts: Sequence[str]) -> str:
        named = {key.name: key.folder_text(text) for key, text in zip(self.keys, texts, strict=True)}
        return filled(self.template, named)

    def texts_of(self, folder: str) -> tuple[str, ...] | None:
        """Return the strings in the catalog for the partition in this folder.

        Return None if the folder does not match the template.
        """
        match = self._pattern().fullmatch(folder)
        if match is None:
            return None
        texts = (match[f"k{number}"] for number in range(len(self.keys)))
        return tuple(text if key.projected else unescaped(text) for key, text in zip(self.keys, texts, strict=True))

    def location_template(self, location: str) -> str:
        """Return the value of the table parameter `storage.location.template`, which Athena reads.

        The value is a partition's location, in which `${key}` stands for the value of each key. `location` is the
        location of the table, without a trailing slash.
        """
        return f"{location}/{filled(self.template, {key.name: f'${{{key.name}}}' for key in self.keys})}/"

    def _pattern(self) -> re.Pattern[str]:
        numbers = {key.name: number for number, key in enumerate(self.keys)}
        seen: set[str] = set()

        def group(name: str) -> str:
            # A variable may occur twice in a template. Both folders must then have the same value.
            if name in seen:
                return f"(?P=k{numbers[name]})"
            seen.add(name)
            return f"(?P<k{numbers[name]}>{self.keys[numbers[name]].pattern})"

        # `split` with a group returns literals at even positions and the variables between them at odd positions.
        pieces = VARIABLE.split(self.template)
        return re.compile("".join(group(piece) if n % 2 else re.escape(piece) for n, piece in enumerate(pieces)))


def key_type(field: PartitionField, source: ColumnType, *, digits: bool) -> ColumnType:
    """Return the type of a partition key in the catalog.

    If `digits` is True, the type is a string, and values equal the strings in the folders' names. Otherwise, if the key
    has the same values as its source column, its type is the widest type to which the column can change, because the
    catalog does not allow widening a key later.
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
    """Return the string for null in the folders that contain a variable.

    If all these folders have the form `name={variable}`, the string is Hive's string for null. Otherwise, the string
    consists of zeros: Hive's string begins with an underscore, and engines skip folders whose names begin with an
    underscore.
    """
    used = [folder for folder in template.partition.split("/") if variable in variables(folder)]
    return NULL_PARTITION if all(is_key_folder(folder) for folder in used) else _NO_TIME[variable]


# Strings for partition values in folders and in the catalog's lists of partitions (Hive: FileUtils.makePartName)

_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""Matches a character that Hive escapes in the names of folders (Hive: FileUtils.charToEscape)."""


def value_text(value: PartitionValue, type_: ColumnType) -> str:
    """Return the string that Hive and Spark use for a partition value.

    For an empty string, Hive and Spark use the same string as for null.
    """
    match value, type_:
        case (None | "", _):
            return NULL_PARTITION
        case bool(), Boolean():
            return "true" if value else "false"
        case int(), Date():
            return date_text(value)
        case int(), Timestamp():
            # Hive and Spark omit zeros at the end of the fraction.
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
    """Return the string for a partition value in Iceberg's folders, before escaping (Iceberg: Transform.toHumanString).

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
    """Return a date in ISO 8601 format. `days` is the number of days since 1970-01-01.

    Supports years before 1 and after 9999.
    """
    # Python's dates end at the year 9999, but NumPy's do not.
    return str(np.datetime64(days, "D"))


def _moment_text(microseconds: int) -> str:
    """Return a timestamp in ISO 8601 format. Omits the fraction of the second if it is 0.

    `microseconds` is the number of microseconds since 1970-01-01T00:00. Supports years before 1 and after 9999.
    """
    seconds, fraction = divmod(microseconds, 1_000_000)
    return str(np.datetime64(seconds, "s")) + (f".{fraction:06}" if fraction else "")


def escaped(text: str) -> str:
    """Return the text with Hive's escapes, such as `%2F` for a slash. The result can be part of a folder's name."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescaped(text: str) -> str:
    """Undo the function `escaped`: return the text without Hive's escapes (Hive: FileUtils.unescapePathName)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
