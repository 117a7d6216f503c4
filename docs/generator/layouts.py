"""Tables on the layouts of tables: trees of keys, made by the connector's rules from example rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import pyarrow as pa

from destination_datalake.config.options import Config
from destination_datalake.partitioning.paths import PartitionFolders
from destination_datalake.partitioning.projection import projection
from destination_datalake.partitioning.spec import NULL_PARTITION
from destination_datalake.partitioning.templates import NAMES, PRESETS, TIMES, table_root
from destination_datalake.partitioning.transforms import PERMITTED, by_partition
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.glue import glue_type
from destination_datalake.schema.names import EXTRACTED_AT
from destination_datalake.schema.types import (
    ColumnType,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    NumericTypes,
)
from destination_datalake.tables.layout import PARTS, TableLayout
from destination_datalake.tables.naming import TableLocation, TableNaming
from docs.generator.markdown import code, table

_OPTIONS: Mapping[str, Any] = {
    "credentials": {"credentials_title": "Default chain"},
    "region": "eu-west-1",
    "bucket_name": "lake",
    "bucket_prefix": "raw",
    "lakeformation_database_name": "landing",
    "table_type": "HIVE",
}
_SCHEMA: Mapping[str, Any] = {
    "properties": {"country": {"type": "string"}, "bought_at": {"type": "string", "format": "date-time"}}
}
PURCHASES = StreamId("shop", "Product Purchased")
VIEWS = StreamId("shop", "Cart Viewed")

_ROWS: Mapping[StreamId, Sequence[tuple[str, str | None, str | None]]] = {
    PURCHASES: (
        ("2019-10-12T08:40:50.52", "2019-10-12T08:40:50.52", "DE"),
        ("2019-12-31T23:59:59.9", None, None),
    ),
    VIEWS: (("2019-11-12T09:34:50.52", "2019-11-12T09:34:50.52", "FR"),),
}
"""For each stream its rows: when they were extracted, and the values of `bought_at`, its cursor, and `country`."""

_PARTITION_BY = [{"stream": stream.name, "partition_by": [{"source": "country"}]} for stream in _ROWS]

TREES: Mapping[str, Mapping[str, Any]] = {
    "hive": {"partitioning": "DATE"},
    "hive_hours": {"partitioning": "DAY/HOUR", "partition_source": "extracted_at"},
    "hive_key": {"streams": _PARTITION_BY},
    **{name: {"path_layout": name} for name in PRESETS},
    "template": {"path_layout": "lake/{database}/{table}/dt={date}/hr={hour}"},
}
"""Examples, each with the options that it adds to the others."""


@dataclass(frozen=True)
class Example:
    """A stream's table in a layout: its location without the bucket, and its partition keys."""

    root: str
    folders: PartitionFolders | None

    @classmethod
    def from_options(cls, options: Mapping[str, Any], stream: StreamId = PURCHASES) -> Example:
        """Return the table of a stream whose cursor is `bought_at`."""
        config = Config.parse({**_OPTIONS, **options})
        naming = TableNaming.from_config(config)
        columns = stream_columns(_SCHEMA, NumericTypes(config.numeric_types), naming.naming)
        location = TableLocation.for_stream(config, stream, naming.table_of(stream), naming.naming)
        layout = TableLayout(Stream(stream, _SCHEMA, False, None, None, None, ("bought_at",)), config, location)
        return cls(location.folder.removeprefix("s3://lake/"), layout.hive_folders(columns))

    def partitions(self, stream: StreamId) -> list[str]:
        """Return the folders, relative to the table's, of the stream's rows."""
        if self.folders is None:
            return [""]
        extracted, bought, countries = zip(*_ROWS[stream], strict=True)
        rows = pa.table(
            {
                EXTRACTED_AT: pa.array(map(_moment, extracted), pa.timestamp("us", "UTC")),
                "bought_at": pa.array(map(_moment, bought), pa.timestamp("us", "UTC")),
                "country": pa.array(countries, pa.string()),
            }
        )
        fields = [key.field for key in self.folders.keys]
        return [self.folders.folder(values) for values, _ in by_partition(rows, fields)]


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(f"{text}+00:00")


def tree(name: str) -> str:
    """Return the keys of the files of both streams as a tree, in a block."""
    options = TREES[name]
    paths = []
    for stream in _ROWS:
        example = Example.from_options(options, stream)
        # Contents of the layout `hive`, and all that replace others, are in folders of their own.
        content = "generation-0-…/" if "path_layout" not in options else ""
        paths += [f"{example.root}/{content}{folder}/….parquet" for folder in example.partitions(stream)]
    return "```text\n" + "\n".join(["s3://lake/", *_branches(paths)]) + "\n```\n"


def _branches(paths: Iterable[str]) -> list[str]:
    """Return the lines of a tree of paths. A folder that holds nothing but a folder stands in one line with it."""
    children: dict[str, list[str]] = {}
    for path in paths:
        first, _, remainder = path.partition("/")
        children.setdefault(first, []).append(remainder)
    lines = []
    for number, (first, rests) in enumerate(children.items(), 1):
        last = number == len(children)
        below = _branches(filter(None, rests))
        name = first
        while len([line for line in below if line[0] in "├└"]) == 1:
            name, below = f"{name}/{below[0].removeprefix('└── ')}", [line[4:] for line in below[1:]]
        lines.append(f"{'└' if last else '├'}── {name}")
        lines += [f"{'    ' if last else '│   '}{line}" for line in below]
    return lines


def units() -> str:
    """Return the values of `partitioning` that each layout has folders for, with its key names and null folder."""
    rows = []
    for name, preset in PRESETS.items():
        for partitioning, partition in preset.partitions.items():
            if not partition:
                continue
            example = Example.from_options(
                {"path_layout": name, "partitioning": partitioning, "partition_source": "cursor"}
            )
            assert example.folders is not None
            texts = example.folders.texts([None] * len(example.folders.keys))
            nulls = NULL_PARTITION if {*texts} == {NULL_PARTITION} else example.folders.folder([None] * len(texts))
            default = " (default)" if partitioning == preset.default else ""
            keys = ", ".join(code(key.name) for key in example.folders.keys)
            rows.append([code(name), code(partitioning) + default, code(partition), keys, code(nulls)])
    return table(["layout", "`partitioning`", "folder", "keys in the catalog", "rows without a date"], rows)


def hive_keys() -> str:
    """Return the partition keys of the layout `hive`."""
    rows = []
    for partitioning in (units for units, parts in PARTS.items() if parts):
        example = Example.from_options({"partitioning": partitioning})
        assert example.folders is not None
        keys = ", ".join(f"`{key.name}` {glue_type(key.type)}" for key in example.folders.keys)
        rows.append([code(partitioning), keys, code(example.partitions(PURCHASES)[0])])
    return table(["`partitioning`", "keys in the catalog", "folder"], rows)


def template_variables() -> str:
    """Return the variables of templates."""
    names = [[code(f"{{{name}}}"), meaning, "the table's folder"] for name, meaning in NAMES.items()]
    times = [[code(f"{{{name}}}"), meaning, "a partition's folder"] for name, meaning in TIMES.items()]
    key = [code("name={name}"), "the value of the key `name` in the stream's `partition_by`", "a partition's folder"]
    return table(["variable", "stands for", "in"], [*names, *times, key])


_TODAY = date(2026, 1, 31)

_PROJECTIONS: Sequence[tuple[str, str, Sequence[Sequence[str]]]] = (
    ("years", "YEAR", [["2019"], ["2026"]]),
    ("months, days, hours", "MONTH", [["10"]]),
    ("dates", "DATE", [["2019-10-12"], ["2026-01-31"]]),
    ("… with a date in the future", "DATE", [["2019-10-12"], ["2027-01-01"]]),
    ("any of these, with rows without a date", "YEAR", [["2019"], ["2020"], ["__HIVE_DEFAULT_PARTITION__"]]),
)


def projections() -> str:
    """Return the parameters of partition projection for each kind of key."""
    rows = []
    for kind, partitioning, values in _PROJECTIONS:
        folders = Example.from_options({"partitioning": partitioning, "catalog_partitions": "projection"}).folders
        rows.append([kind, _parameters(folders, values)])
    keyed = Example.from_options({"streams": _PARTITION_BY, "catalog_partitions": "projection"}).folders
    rows.append(["values of a column", _parameters(keyed, [["DE"], ["FR"]])])
    many = [[f"{number:05}"] for number in range(50_000)]
    rows.append(["more values than fit into 256 KiB", _parameters(keyed, many)])
    return table(["key", "`projection.<key>.…`"], rows)


def _parameters(folders: PartitionFolders | None, values: Sequence[Sequence[str]]) -> str:
    assert folders is not None
    [key] = folders.keys
    prefix = f"projection.{key.name}."
    parameters = projection(folders, "s3://lake/raw/shop/product_purchased", values, {}, _TODAY)
    own = [f"{name.removeprefix(prefix)} = {text}" for name, text in parameters.items() if name.startswith(prefix)]
    return ", ".join(map(code, own))


def table_level(path_layout: str, bucket_prefix: str) -> int:
    """Return the level at which tables lie, for a Glue crawler; the bucket is level 1."""
    folders = [*filter(None, bucket_prefix.split("/")), *table_root(path_layout).split("/")]
    return 1 + len(folders)


def table_levels() -> str:
    """Return the level of tables by layout and depth of bucket_prefix."""
    prefixes = ("", "raw", "lake/raw")
    header = [
        "layout",
        "tables in",
        *(f"`bucket_prefix` {code(prefix) if prefix else 'not set'}" for prefix in prefixes),
    ]
    layouts = (*PRESETS, "lake/{database}/{table}/dt={date}")
    rows = [
        [code(name), code(table_root(name)), *(str(table_level(name, prefix)) for prefix in prefixes)]
        for name in layouts
    ]
    return table(header, rows)


def permitted_transforms() -> str:
    """Return the transforms that each type of column permits; types that permit the same stand together."""
    types: dict[tuple[str, ...], list[str]] = {}
    for kind, transforms in PERMITTED.items():
        types.setdefault(transforms, []).append(code(_KINDS.get(kind, kind.__name__.lower())))
    return table(
        ["column", "transforms"],
        [[", ".join(kinds), ", ".join(map(code, transforms)) or "none"] for transforms, kinds in types.items()],
    )


_KINDS: Mapping[type[ColumnType], str] = {
    Int32: "int",
    Int64: "bigint",
    Float32: "float",
    Float64: "double",
    Json: "JSON text",
    List: "array",
}
"""Types as the documentation calls them, where that is not the class's name."""
