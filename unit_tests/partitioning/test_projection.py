"""Athena finds every partition that was written, by the parameters of the table alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.partitioning.paths import PartitionFolders
from destination_datalake.partitioning.projection import MAX_BYTES, InvalidProjection, is_projection, projection
from unit_tests.partitioning.athena import AthenaTable
from unit_tests.partitioning.values import template_folders

TODAY = date(2026, 11, 22)
NOW = datetime(2026, 11, 22, 6, tzinfo=UTC)
LOCATION = "s3://lake/shop/orders"
NULL = "__HIVE_DEFAULT_PARTITION__"
HOURS = "{year}/{month}/{day}/{hour}"


def projected(
    template: str, *batches: Collection[Sequence[str]], before: dict[str, str] | None = None, today: date = TODAY
) -> dict[str, str]:
    """Return the parameters after batches of partitions were written, one after the other."""
    parameters = before or {}
    for batch in batches or ((),):
        parameters = projection(template_folders(template), LOCATION, batch, parameters, today)
    return parameters


def properties_of(parameters: dict[str, str], key: str) -> dict[str, str]:
    prefix = f"projection.{key}."
    return {name.removeprefix(prefix): text for name, text in parameters.items() if name.startswith(prefix)}


def test_years_grow_with_the_content_and_parts_of_a_year_are_projected_as_a_whole() -> None:
    parameters = projected(
        HOURS, [("2019", "10", "12", "08")], [("2024", "02", "29", "23"), ("2018", "01", "01", "00")]
    )

    assert parameters == {
        "projection.enabled": "true",
        "storage.location.template": "s3://lake/shop/orders/${year}/${month}/${day}/${hour}/",
        "projection.year.type": "integer",
        "projection.year.range": "2018,2024",
        "projection.year.digits": "4",
        "projection.month.type": "integer",
        "projection.month.range": "01,12",
        "projection.month.digits": "2",
        "projection.day.type": "integer",
        "projection.day.range": "01,31",
        "projection.day.digits": "2",
        "projection.hour.type": "integer",
        "projection.hour.range": "00,23",
        "projection.hour.digits": "2",
    }
    assert all(map(is_projection, parameters))


@pytest.mark.parametrize(
    ("days", "range_"),
    [
        ((), "2026-11-22,NOW+1DAYS"),
        (("2019-10-12",), "2019-10-12,NOW+1DAYS"),
        (("2026-11-22",), "2026-11-22,NOW+1DAYS"),
        (("2026-11-23",), "2026-11-23,2026-11-23"),
        (("2019-10-12", "9999-12-31"), "2019-10-12,9999-12-31"),
        (("0001-01-01",), "0001-01-01,NOW+1DAYS"),
    ],
)
def test_days_are_projected_from_the_first_to_tomorrow_or_to_a_later_day_that_was_written(
    days: Sequence[str], range_: str
) -> None:
    assert properties_of(projected("{date}", [(day,) for day in days]), "date") == {
        "type": "date",
        "format": "yyyy-MM-dd",
        "range": range_,
        "interval": "1",
        "interval.unit": "DAYS",
    }


def test_a_day_in_the_future_is_no_bound_any_more_once_it_has_passed() -> None:
    ahead = projected("{date}", [("2026-12-24",)])

    later = projected("{date}", [("2026-12-25",)], before=ahead, today=date(2026, 12, 25))

    assert properties_of(ahead, "date")["range"] == "2026-12-24,2026-12-24"
    assert properties_of(later, "date")["range"] == "2026-12-24,NOW+1DAYS"


@pytest.mark.parametrize(
    ("range_", "kept"),
    [
        ("NOW-3YEARS,NOW", "NOW-3YEARS,NOW"),
        ("NOW-3YEARS, NOW", "NOW-3YEARS, NOW"),
        ("2020-01-01,NOW+3MONTHS", "2020-01-01,NOW+3MONTHS"),
        ("2020-01-01,NOW", "2019-10-12,NOW+1DAYS"),
        ("2020-01-01, NOW", "2019-10-12,NOW+1DAYS"),
        (" 2020-01-01 , 2020-01-31 ", "2019-10-12,NOW+1DAYS"),
        ("2020-01-01,2030-01-31", "2019-10-12,2030-01-31"),
    ],
)
def test_a_range_that_a_user_has_set_grows_unless_it_depends_on_the_time_of_the_query(range_: str, kept: str) -> None:
    before = projected("{date}", [("2026-11-01",)]) | {"projection.date.range": range_}

    parameters = projected("{date}", [("2019-10-12",)], before=before)

    assert parameters == before | {"projection.date.range": kept}


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        ("date", "range", None),
        ("date", "range", "2020-01-01"),
        ("date", "range", "2020-01-01,2020-02-01,2020-03-01"),
        ("date", "range", "2020-1-1,2020-2-1"),
        ("date", "range", "01/01/2020,NOW"),
        ("date", "type", "days"),
        ("year", "range", None),
        ("year", "range", "2019,"),
        pytest.param("year", "range", f"2019,{'9' * 5_000}", id="a number of 5,000 digits"),
        ("year", "digits", "1000000000"),
        ("region", "values", None),
    ],
)
def test_an_invalid_projection_is_refused_with_the_name_of_the_parameter(
    key: str, name: str, value: str | None
) -> None:
    template = {"date": "{date}", "year": "{year}", "region": "region={region}"}[key]
    value_in_table = {"date": "2026-11-01", "year": "2026", "region": "eu"}[key]
    before = projected(template, [(value_in_table,)])
    parameter = f"projection.{key}.{name}"
    before |= {} if value is None else {parameter: value}
    if value is None:
        del before[parameter]

    with pytest.raises(InvalidProjection) as caught:
        projected(template, [(value_in_table,)], before=before)

    assert caught.value.parameter == parameter


def test_a_zone_ahead_of_utc_has_its_day_projected_before_utc_reaches_it() -> None:
    parameters = projected("{date}", [("2026-11-22",)])
    late = datetime(2026, 11, 22, 23, 59, tzinfo=UTC)

    assert AthenaTable(parameters, ["date"], late).reads(f"{LOCATION}/2026-11-23")


def test_rows_without_a_date_are_projected_by_a_list_of_values_that_begins_with_those_before() -> None:
    parameters = projected("dt={date}/hr={hour}", [("2026-11-20", "07")], [(NULL, NULL)], [("2026-12-24", "08")])

    assert properties_of(parameters, "date") == {
        "type": "enum",
        "values": f"2026-11-20,2026-11-21,2026-11-22,2026-12-24,{NULL}",
    }
    assert properties_of(parameters, "hour")["values"] == ",".join([*(f"{hour:02}" for hour in range(24)), NULL])


def test_zeros_for_rows_without_a_date_do_not_project_all_years_since_the_first() -> None:
    parameters = projected("{year}/{month}", [("2025", "10")], [("0000", "00")])

    assert properties_of(parameters, "year") == {"type": "enum", "values": "0000,2025"}
    assert properties_of(parameters, "month")["values"].startswith("00,01,02,")


def test_texts_are_listed_and_taken_from_the_query_when_they_are_too_many() -> None:
    few = projected("country={country}", [("DE",), ("FR",)], [("US",)])
    many = projected("country={country}", [(f"{number:06}",) for number in range(MAX_BYTES // 7 + 1)], before=few)

    assert properties_of(few, "country") == {"type": "enum", "values": "DE,FR,US"}
    assert properties_of(many, "country") == {"type": "injected"}
    assert properties_of(projected("country={country}", [("IT",)], before=many), "country") == {"type": "injected"}


def test_a_list_of_millions_of_days_is_never_made() -> None:
    outliers = projected("{date}", [("0001-01-01",), ("9999-12-31",)])

    assert properties_of(projected("{date}", [("0000-00-00",)], before=outliers), "date") == {"type": "injected"}


@pytest.mark.parametrize("day", ["0000-12-31", "10000-01-01"])
def test_a_date_that_a_zone_moves_out_of_the_calendar_of_athena_is_listed(day: str) -> None:
    assert day in properties_of(projected("{date}", [("2026-11-22",), (day,)]), "date")["values"].split(",")


DATES = st.dates(date(1900, 1, 1), date(2100, 12, 31)) | st.sampled_from([date(1, 1, 1), date(9999, 12, 31)])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(
    template=st.sampled_from(
        [HOURS, "{date}", "day={date}/hr={hour}", "year={year}/month={month}", "dt={year}-{month}"]
    ),
    batches=st.lists(st.lists(st.tuples(DATES | st.none(), st.integers(0, 23), TEXTS), max_size=5), max_size=4),
    keyed=st.booleans(),
)
def test_every_partition_of_every_batch_lies_in_a_projected_location(
    template: str, batches: list[list[tuple[date | None, int, str]]], keyed: bool
) -> None:
    paths = template_folders(f"key={{key}}/{template}" if keyed else template)
    parameters: dict[str, str] = {}
    written: set[str] = set()
    for batch in batches:
        partitions = [partition(paths, *row) for row in batch]
        parameters = projection(paths, LOCATION, [paths.texts(values) for values in partitions], parameters, TODAY)
        written.update(paths.folder(values) for values in partitions)

        for now in (NOW, NOW + timedelta(days=1000)):
            athena = AthenaTable(parameters, [key.name for key in paths.keys], now)
            assert [folder for folder in written if not athena.reads(f"{LOCATION}/{folder}")] == []


def partition(paths: PartitionFolders, day: date | None, hour: int, text: str) -> list[Any]:
    """Return the values of the partition of a row."""
    of_day = (
        {"year": None, "month": None, "day": None, "hour": None, "date": None}
        if day is None
        else {
            "year": day.year,
            "month": day.month,
            "day": day.day,
            "hour": hour,
            "date": (day - date(1970, 1, 1)).days,
        }
    )
    return [{**of_day, "key": text}[key.name] for key in paths.keys]


def test_all_projected_locations_are_folders_that_partitions_can_have() -> None:
    paths = template_folders("day={date}/hr={hour}")
    parameters = projection(paths, LOCATION, [("2026-11-20", "08"), (NULL, NULL)], {}, TODAY)
    locations = [*AthenaTable(parameters, ["date", "hour"], NOW).locations()]

    assert len(locations) == len(set(locations)) == 2 * 25
    assert all(paths.texts_of(location.removeprefix(f"{LOCATION}/").removesuffix("/")) for location in locations)
