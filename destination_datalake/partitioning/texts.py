"""Texts of partition values: in folders, and in the catalog's lists of partitions (Hive: FileUtils.makePartName)."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from decimal import Decimal as DecimalValue
from math import isfinite, isnan

import numpy as np

from destination_datalake.partitioning.spec import (
    NULL_PARTITION,
    Identity,
    PartitionValue,
    Since1970,
    TimeUnit,
    Transform,
)
from destination_datalake.schema.types import Boolean, ColumnType, Date, Timestamp

_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
"""The characters that Hive escapes in folders (Hive: FileUtils.charToEscape)."""


def value_text(value: PartitionValue, type_: ColumnType) -> str:
    """Return the text of a column's value, as Hive and Spark write it in partitions; no text is a null as well."""
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
    """Return the text of a partition's value in Iceberg's folders, before escaping (Iceberg: Transform.toHumanString).

    `type_` is that of the column; None for a type that this connector does not write.
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
    """Return the ISO text of a date, from days since 1970; unlike Python's, its calendar has a year 0 and 10000."""
    return str(np.datetime64(days, "D"))


def _moment_text(microseconds: int) -> str:
    """Return the ISO text of a moment, with microseconds if it has some; its calendar is that of `date_text`."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return str(np.datetime64(microseconds, "us") if rest else np.datetime64(seconds, "s"))


def escaped(text: str, also: str = "") -> str:
    """Return a text as a part of a folder's name, with the escapes of Hive, and of the characters in `also`."""
    hive = _ESCAPED.sub(_escape, text)
    return re.sub(f"[{re.escape(also)}]", _escape, hive) if also else hive


def unescaped(text: str) -> str:
    """Return the text that `escaped` was given (Hive: FileUtils.unescapePathName)."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def _escape(found: re.Match[str]) -> str:
    return f"%{ord(found[0]):02X}"
