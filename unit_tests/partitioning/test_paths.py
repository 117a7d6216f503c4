"""Folders of partitions, and the values that the catalog has for them."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.paths import PartitionFolders, PartitionKey, key_type
from destination_datalake.partitioning.spec import (
    NULL_PARTITION,
    CalendarPart,
    Identity,
    PartitionField,
    PartitionValue,
)
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Float64,
    Int32,
    Int64,
    String,
    Timestamp,
)
from destination_datalake.schema.types import Decimal as DecimalType
from unit_tests.partitioning.values import template_folders

EPOCH = datetime(1970, 1, 1)


def days(text: str) -> int:
    return (date.fromisoformat(text) - EPOCH.date()).days


def identity(type_: ColumnType, *, projected: bool = False) -> PartitionFolders:
    field = PartitionField("key", ("column",), Identity())
    return PartitionFolders.hive([PartitionKey(field, type_, type_, projected)])


@pytest.mark.parametrize(
    ("type_", "value", "text", "folder"),
    [
        (String(), "DE", "DE", "DE"),
        (String(), "a b", "a b", "a b"),
        (String(), "a/b:c=d%e", "a/b:c=d%e", "a%2Fb%3Ac%3Dd%25e"),
        (String(), "\n\x7f'\"#*?\\{[]^", "\n\x7f'\"#*?\\{[]^", "%0A%7F%27%22%23%2A%3F%5C%7B%5B%5D%5E"),
        (String(), "Łódź, 京都", "Łódź, 京都", "Łódź, 京都"),
        (String(), "", "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
        (String(), "..", "..", ".."),
        (Boolean(), True, "true", "true"),
        (Int64(), -7, "-7", "-7"),
        (DecimalType(38, 2), Decimal("1E+3"), "1000", "1000"),
        (Float64(), 0.5, "0.5", "0.5"),
        (Float64(), float("-inf"), "-Infinity", "-Infinity"),
        (Float64(), float("nan"), "NaN", "NaN"),
        (Date(), days("2024-02-29"), "2024-02-29", "2024-02-29"),
        (Date(), days("0001-01-01"), "0001-01-01", "0001-01-01"),
        (Date(), days("9999-12-31"), "9999-12-31", "9999-12-31"),
        (Timestamp(zoned=True), 0, "1970-01-01 00:00:00", "1970-01-01 00%3A00%3A00"),
        (Timestamp(zoned=True), -500_000, "1969-12-31 23:59:59.5", "1969-12-31 23%3A59%3A59.5"),
        (Timestamp(zoned=True), 253402300800000000, "10000-01-01 00:00:00", "10000-01-01 00%3A00%3A00"),
        (Int64(), None, "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_a_key_of_the_layout_hive_has_its_value_in_the_folder_with_the_escapes_of_hive(
    type_: ColumnType, value: PartitionValue, text: str, folder: str
) -> None:
    folders = identity(type_)

    assert folders.texts([value]) == (text,)
    assert folders.folder([value]) == f"key={folder}"
    assert folders.texts_of(f"key={folder}") == (text,)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_a_folder_leads_back_to_the_values_in_the_catalog(text: str) -> None:
    for folders in (identity(String()), identity(String(), projected=True)):
        [catalog] = folders.texts([text])
        folder = folders.folder([text])

        assert folders.texts_of(folder) == (catalog,)
        assert folder.count("/") == 0
        assert not {"?", "#", "%2F"} & set(folder)


def test_a_projected_value_is_the_text_in_the_folder_since_athena_puts_it_there_as_it_is() -> None:
    folders = identity(String(), projected=True)

    assert folders.texts(["a,b:c"]) == ("a%2Cb%3Ac",)
    assert folders.folder(["a,b:c"]) == "key=a%2Cb%3Ac"


@pytest.mark.parametrize(
    ("template", "folder", "of_null"),
    [
        ("{year}/{month}/{day}/{hour}", "2019/01/02/03", "0000/00/00/00"),
        ("{date}", "2019-01-02", "0000-00-00"),
        ("{year}{month}{day}", "20190102", "00000000"),
        ("dt={year}-{month}", "dt=2019-01", "dt=0000-00"),
        (
            "day={date}/hr={hour}",
            "day=2019-01-02/hr=03",
            f"day={'__HIVE_DEFAULT_PARTITION__'}/hr={'__HIVE_DEFAULT_PARTITION__'}",
        ),
        ("{year}/year={year}", "2019/year=2019", "0000/year=0000"),
        ("at/dt={date}/at/{hour}", "at/dt=2019-01-02/at/03", "at/dt=__HIVE_DEFAULT_PARTITION__/at/00"),
    ],
)
def test_rows_without_a_date_lie_in_zeros_or_in_hive_s_default_partition_which_engines_would_hide_elsewhere(
    template: str, folder: str, of_null: str
) -> None:
    folders = template_folders(template, projected=False)
    by_name = {"year": 2019, "month": 1, "day": 2, "hour": 3, "date": days("2019-01-02")}
    values = [by_name[key.name] for key in folders.keys]

    assert folders.folder(values) == folder
    assert folders.folder([None] * len(values)) == of_null
    assert folders.texts_of(folder) == folders.texts(values)
    assert folders.texts_of(of_null) == folders.texts([None] * len(values))
    assert not any(part.startswith(("_", ".")) for part in of_null.split("/"))


@pytest.mark.parametrize("folder", ["", "2019", "2019/01/02", "2019/01/02/03/04", "x/01/02/03", "2019/01/02/03/"])
def test_a_folder_that_is_no_partition_s_has_no_values(folder: str) -> None:
    assert template_folders("{year}/{month}/{day}/{hour}", projected=False).texts_of(folder) is None


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), min_size=3, max_size=3))
def test_folders_are_as_long_as_s3_permits_and_of_values_that_do_not_fit_the_longest_are_null(texts: list[str]) -> None:
    keys = [PartitionKey(PartitionField(f"k{n}", ("column",), Identity()), String(), String()) for n in range(3)]
    folders = PartitionFolders.hive(keys, 140)
    free = PartitionFolders.hive(keys)

    folder, given = folders.folder(texts), folders.texts(texts)

    assert len(folder.encode()) <= 140
    assert folders.texts_of(folder) == given
    kept = {value for value, text in zip(given, free.texts(texts), strict=True) if value == text}
    assert set(given) - kept <= {NULL_PARTITION}
    if len(free.folder(texts).encode()) <= 140:
        assert given == free.texts(texts)


def test_a_table_whose_folder_leaves_no_room_for_partitions_is_refused() -> None:
    key = PartitionKey(PartitionField("key", ("column",), Identity()), String(), String())

    with pytest.raises(ConfigError, match="shorter bucket_prefix"):
        PartitionFolders.hive([key], 20).folder(["x" * 30])


@pytest.mark.parametrize(
    ("transform", "source", "digits", "type_"),
    [
        (CalendarPart("date"), Timestamp(zoned=True), False, Date()),
        (CalendarPart("year"), Timestamp(zoned=True), False, Int64()),
        (Identity(), Boolean(), False, Boolean()),
        (Identity(), Int32(), False, Int64()),  # for values that widen the source
        (CalendarPart("date"), Date(), True, String()),
        (CalendarPart("hour"), Timestamp(zoned=True), True, String()),
        (Identity(), Boolean(), True, String()),
    ],
)
def test_keys_are_numbers_and_dates_as_aws_datalake_s_or_strings_as_in_folders(
    transform: Identity | CalendarPart, source: ColumnType, digits: bool, type_: ColumnType
) -> None:
    assert key_type(PartitionField("key", ("at",), transform), source, digits=digits) == type_


def test_folders_can_be_sent_to_executors() -> None:
    import pickle

    folders = template_folders("day={date}/hr={hour}", projected=False)

    assert pickle.loads(pickle.dumps(folders)) == folders
