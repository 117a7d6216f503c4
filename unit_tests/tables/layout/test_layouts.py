"""What the options mean for a Hive table: where it lies, its partition keys, and what is refused."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.errors import ConfigError
from destination_datalake.partitioning.templates import PRESETS, PathTemplate
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.glue import glue_type
from destination_datalake.tables.naming import TableNaming
from unit_tests.config.examples import options, refusal
from unit_tests.tables.layout.orders import ORDERS, columns, config, layout

HOURS = "YEAR/MONTH/DAY/HOUR"


def keys(path_layout: str, partitioning: str, **given: Any) -> list[tuple[str, str]]:
    """Return names and types of the partition keys in the catalog."""
    schema = given.pop("schema", {"properties": {"created_at": {"type": "string", "format": "date-time"}}})
    configured = config(path_layout=path_layout, partitioning=partitioning, partition_source="cursor", **given)
    folders = layout(configured, schema=schema).hive_folders(columns(configured, schema))
    assert folders is not None
    return [(key.name, glue_type(key.type)) for key in folders.keys]


@pytest.mark.parametrize(
    ("path_layout", "partitioning", "expected"),
    [
        ("hive", "DATE", [("created_at_date", "date")]),
        (
            "hive",
            HOURS,
            [(f"created_at_{part}", "bigint") for part in ("year", "month", "day", "hour")],
        ),
        ("hive", "DAY/HOUR", [("created_at_date", "date"), ("created_at_hour", "bigint")]),
        ("plain", HOURS, [(part, "string") for part in ("year", "month", "day", "hour")]),
        ("rudderstack", HOURS, [(part, "string") for part in ("year", "month", "day", "hour")]),
        ("firehose", HOURS, [(part, "string") for part in ("year", "month", "day", "hour")]),
        ("segment", "DAY/HOUR", [("day", "string"), ("hr", "string")]),
        ("segment", HOURS, [(part, "string") for part in ("year", "month", "day", "hr")]),
        ("{database}/{table}/dt={date}/hr={hour}", "NO PARTITIONING", [("dt", "string"), ("hr", "string")]),
        ("{database}/{table}/{year}{month}", "NO PARTITIONING", [("year", "string"), ("month", "string")]),
    ],
)
def test_partition_keys_have_the_names_that_users_of_the_layout_know(
    path_layout: str, partitioning: str, expected: list[tuple[str, str]]
) -> None:
    assert keys(path_layout, partitioning) == expected


def test_keys_that_athena_projects_are_strings_as_in_folders() -> None:
    assert keys("hive", "DAY/HOUR", catalog_partitions="projection") == [
        ("created_at_date", "string"),
        ("created_at_hour", "string"),
    ]


def test_a_key_gives_way_to_a_column_of_its_name_while_its_folder_stays() -> None:
    schema = {"properties": {"year": {"type": "integer"}, "created_at": {"type": "string", "format": "date-time"}}}
    configured = config(path_layout="firehose", partition_source="cursor")
    folders = layout(configured, schema=schema).hive_folders(columns(configured, schema))

    assert folders is not None
    assert folders.folder([2019, 10, 12, 8]) == "year=2019/month=10/day=12/hour=08"
    assert [key.name for key in folders.keys] == ["year_1", "month", "day", "hour"]


def test_a_key_of_the_value_itself_is_a_column_beside_its_source() -> None:
    streams = [{"stream": "orders", "partition_by": [{"source": "country", "name": "country"}, {"source": "id"}]}]

    partition_keys = keys("hive", "NO PARTITIONING", streams=streams, schema=WITH_COUNTRY)

    assert partition_keys == [("country_1", "string"), ("id_key", "bigint")]


WITH_COUNTRY = {"properties": {"id": {"type": "integer"}, "country": {"type": "string"}}}


@pytest.mark.parametrize("path_layout", ["plain", "segment", "{database}/{table}/{date}"])
def test_a_stream_without_a_date_is_not_partitioned(path_layout: str) -> None:
    configured = config(path_layout=path_layout, partition_source="cursor")

    assert layout(configured, schema=WITH_COUNTRY).hive_folders(columns(configured, WITH_COUNTRY)) is None


def test_a_stream_with_partition_keys_and_without_the_date_of_its_template_is_refused_not_half_partitioned() -> None:
    streams = [{"stream": "orders", "partition_by": [{"source": "country", "name": "land"}]}]
    template = "{database}/{table}/land={land}/{date}"
    configured = config(path_layout=template, partition_source="cursor", streams=streams)

    with pytest.raises(
        ConfigError, match=r"contains the folder \{date\}, but partition_source names no date of stream shop\.orders"
    ):
        layout(configured, schema=WITH_COUNTRY).hive_folders(columns(configured, WITH_COUNTRY))


@pytest.mark.parametrize("path_layout", ["hive", "plain", "{database}/{table}/{date}"])
def test_an_empty_partition_by_means_no_partitions(path_layout: str) -> None:
    configured = config(path_layout=path_layout, streams=[{"stream": "orders", "partition_by": []}])
    folders = layout(configured).hive_folders(columns(configured))

    assert folders is not None
    assert folders.keys == ()


@pytest.mark.parametrize(
    ("path_layout", "partition_by", "message"),
    [
        ("plain", [{"source": "country"}], "contains the key country_key, but path_layout has no folder"),
        (
            "{database}/{table}/land={land}/{date}",
            None,
            "contains the folder {land}, but stream shop.orders has no partition",
        ),
        (
            "{database}/{table}/land={land}",
            [{"source": "country", "name": "land"}, {"source": "id"}],
            "contains the key id_key, but path_layout has no folder",
        ),
    ],
)
def test_a_stream_s_keys_and_the_variables_of_the_template_must_be_the_same(
    path_layout: str, partition_by: list[dict[str, str]] | None, message: str
) -> None:
    streams = [{"stream": "orders", **({} if partition_by is None else {"partition_by": partition_by})}]
    configured = config(path_layout=path_layout, streams=streams)

    with pytest.raises(ConfigError) as refused:
        layout(configured).hive_folders(columns(configured))

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{year}/{month}", "must contain {database} or {namespace}, and {table} or {stream}"),
        ("lake/{table}/{date}", "must contain {database} or {namespace}"),
        ("lake/{database}/{date}", "and {table} or {stream}"),
        ("{date}/{database}/{table}", "contains {date} in or before the folder with {table}"),
        ("{database}/{table}-{date}", "contains {date} in or before the folder with {table}"),
        ("{database}_{table}/{date}", "contains two names in one folder"),
        ("{database}/x/{table}/{date}", "a separate folder, such as lake/{database}/x/{table}"),
        ("segment-data/{database}/{table}/{date}", "must begin with segment-data/data/{namespace}/"),
        ("{database}/{table}/_{date}", "folders that begin with _ or a dot"),
        (".lake/{database}/{table}/{date}", "folders that begin with _ or a dot"),
        ("lake/../{database}/{table}/{date}", "folders that begin with _ or a dot"),
        ("{database}//{table}/{date}", "contains an empty folder"),
        ("{database}/{table}/{date}?", "letters, digits, the characters = _ . - and variables in braces."),
        ("{database}/{table}/{date}#", "letters, digits, the characters = _ . - and variables in braces."),
        ("{database}/{table}/${date}", "letters, digits, the characters = _ . - and variables in braces."),
        ("{database}/{table}/größe={date}", "letters, digits, the characters = _ . - and variables in braces."),
        ("{database}/{table}/{date", "letters, digits, the characters = _ . - and variables in braces."),
        ("s3://lake/{database}/{table}/{date}", "letters, digits, the characters = _ . - and variables in braces."),
        ("{database}/{table}/{country}", "write a folder of the form name={name}"),
        ("{database}/{table}/c-{country}", "write a folder of the form name={name}"),
        ("{database}/{table}/{epoch}", "write a folder of the form name={name}"),
        ("{database}/{table}/{}", "write a folder of the form name={name}"),
        ("{database}/{table}/{date}/data", "the last folder must contain a variable"),
        ("{database}/{table}/dt={date}/DT={hour}", "contains several folders dt=…, but query engines read only one"),
    ],
)
def test_a_template_is_refused_if_tables_could_meet_or_engines_would_not_find_the_data(
    template: str, message: str
) -> None:
    refused = refusal(options(table_type="HIVE", path_layout=template))

    assert refused.startswith("path_layout ")
    assert message in refused


@pytest.mark.parametrize(
    ("path_layout", "partitioning", "message"),
    [
        ("plain", "DATE", "plain does not support partitioning DATE. Set partitioning to YEAR, YEAR/MONTH, "),
        ("segment", "DAY", "segment does not support partitioning DAY. Set partitioning to DATE, DAY/HOUR, "),
        ("firehose", "DAY/HOUR", "or YEAR/MONTH/DAY/HOUR, or path_layout to hive."),
        ("{database}/{table}/{date}", "DATE", "partitioning DATE has no effect if path_layout is a template"),
    ],
)
def test_a_layout_without_folders_for_partitioning_says_which_it_has(
    path_layout: str, partitioning: str, message: str
) -> None:
    assert message in refusal(options(table_type="HIVE", path_layout=path_layout, partitioning=partitioning))


def test_a_template_without_the_table_s_prefix_is_refused_since_another_connection_s_tables_could_share_folders() -> (
    None
):
    template = "{database}/{stream}/{date}"

    refused = refusal(options(table_type="HIVE", path_layout=template, table_prefix="raw_"))

    assert "connections with a different table_prefix would write to the same folders" in refused


@pytest.mark.parametrize(("path_layout", "preset"), PRESETS.items())
def test_presets_are_templates_themselves(path_layout: str, preset: Any) -> None:
    for partitioning in preset.partitions:
        template = preset.template(partitioning)

        assert PathTemplate.parse(str(template)) == template
    assert config(path_layout=path_layout).partitioning == preset.default


LAYOUTS = st.sampled_from(["hive", *PRESETS, "{database}/{table}/dt={date}"])
NAMES = st.sampled_from(["2019", "10", "12", "shop", "data", "rudder-datalake", "segment-data", "orders", "_staging"])
STREAMS = st.lists(st.tuples(st.none() | NAMES, NAMES).map(lambda pair: StreamId(*pair)), max_size=5, unique=True)


@given(
    streams=STREAMS,
    layouts=st.lists(LAYOUTS, min_size=1, max_size=2),
    style=st.sampled_from(["snake_case", "preserve"]),
)
def test_no_table_lies_in_another_nor_in_its_partitions(
    streams: list[StreamId], layouts: list[str], style: str
) -> None:
    folders: set[str] = set()
    for path_layout in layouts:
        given = config(path_layout=path_layout, naming={"style": style})
        tables = {stream: TableNaming.from_config(given).table_of(stream) for stream in streams}
        table_folders = {tables[stream]: layout(given, stream).location.folder for stream in streams}
        assert len({*table_folders.values()}) == len(table_folders), "each table has its own folder"
        folders.update(table_folders.values())

    for first, second in permutations(folders, 2):
        assert not f"{first}/".startswith(f"{second}/"), (first, second)


@pytest.mark.parametrize(
    ("path_layout", "stream", "given", "folder"),
    [
        ("hive", ORDERS, {}, "shop/orders"),
        ("hive", StreamId("segment-data", "orders"), {"naming": {"style": "aws_datalake"}}, "segment-data.db/orders"),
        ("plain", StreamId(None, "Cart Viewed"), {"table_prefix": "raw_"}, "raw/raw_cart_viewed"),
        ("rudderstack", StreamId(None, "orders"), {}, "rudder-datalake/raw/orders"),
        ("rudderstack", ORDERS, {"database_strategy": "single"}, "rudder-datalake/raw/orders"),
        ("segment", ORDERS, {"bucket_prefix": "a/b"}, "a/b/segment-data/data/shop/segment_type=orders"),
        ("{database}/{stream}/{date}", ORDERS, {}, "shop/orders"),
        ("{table}/{database}/{date}", StreamId("shop", "_errors"), {}, "_errors.db/shop"),
        ("{stream}/{database}/{date}", StreamId("shop", "_staging"), {}, "_staging.db/shop"),
        ("lake/{stream}/{namespace}/{table}/{date}", ORDERS, {"table_prefix": "raw_"}, "lake/orders/shop/raw_orders"),
        ("/lake/{database}/t={table}/{date}/", ORDERS, {}, "lake/shop/t=orders"),
    ],
)
def test_a_table_lies_in_the_folder_of_its_layout(
    path_layout: str, stream: StreamId, given: dict[str, Any], folder: str
) -> None:
    assert layout(config(path_layout=path_layout, **given), stream).location.folder == f"s3://lake/{folder}"
