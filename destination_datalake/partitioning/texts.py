"""Texts of partition values: in folders, and in the catalog's lists of partitions (Hive: FileUtils.makePartName)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal as DecimalValue

import numpy as np

from destination_datalake.partitioning.spec import NULL_PARTITION, PartitionValue
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
            moment = datetime(1970, 1, 1) + timedelta(microseconds=value)
            return moment.isoformat(" ").rstrip("0") if moment.microsecond else moment.isoformat(" ")
        case DecimalValue(), _:
            return f"{value:f}"
        case bytes(), _:
            return value.hex()
    return str(value)


def date_text(days: int) -> str:
    """Return the ISO text of a date, from days since 1970; unlike Python's, its calendar has a year 0 and 10000."""
    return str(np.datetime64(days, "D"))


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
