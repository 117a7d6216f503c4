"""Every object of a table lies in a registered partition and in one that Athena projects, with the same values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from destination_datalake.aws.objects import Upload
from destination_datalake.config.options import Config
from destination_datalake.files.plan import DataFile
from destination_datalake.partitioning.transforms import by_partition
from destination_datalake.protocol.catalog import Stream
from destination_datalake.schema.names import EXTRACTED_AT
from destination_datalake.tables.context import TableContext
from destination_datalake.tables.factory import open_table
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.table import Committed, Table
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.partitioning.athena import AthenaTable
from unit_tests.tables.hive.orders import no_rewrite
from unit_tests.tables.jobs import in_process
from unit_tests.tables.layout.orders import ORDERS, SCHEMA, config

pytestmark = pytest.mark.share(3)

NOW = datetime.now(UTC)
Row = tuple[datetime, datetime | None, str | None]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


FIRST: Sequence[Row] = [
    (at("2019-10-12T08:40:50"), at("2019-10-12T08:40"), "DE"),
    (NOW, at("2019-12-31T23:59"), "a,b/c"),
]
SECOND: Sequence[Row] = [(NOW, None, None), (at("2018-01-01T00:00"), at("2017-02-28T23:00"), "")]
THIRD: Sequence[Row] = [(NOW + timedelta(days=400), at("2040-06-15T00:00"), "Ł"), (NOW, at("1969-12-31T23:59"), "%41")]
"""Rows of three batches: when each was extracted, and its values of `created_at` and `country`."""

BY_COUNTRY = [{"stream": "orders", "partition_by": [{"source": "country", "name": "land"}]}]


@dataclass
class Orders:
    """The table of the stream `shop.orders`."""

    cloud: Cloud
    config: Config
    names: Any = field(default_factory=count)

    def sync(self, *batches: Sequence[Row], overwrite: bool = False) -> None:
        """Write batches of rows, and publish them."""
        context = TableContext(uuid4().hex, self.cloud.access, ungoverned(self.cloud.access), in_process())
        stream = Stream(ORDERS, SCHEMA, overwrite, None, None, None, ("created_at",))
        name = TableNaming.from_config(self.config).table_of(ORDERS)
        table = open_table(stream, name, self.config, context)
        table.prepare()
        for batch in batches:
            while table.commit(self.encode(table, batch), no_rewrite) != Committed():
                pass
        table.publish(no_rewrite)

    def encode(self, table: Table, rows: Sequence[Row]) -> list[DataFile]:
        """Return a file for each partition of the rows."""
        plan = table.plan()
        assert plan.partitioning is not None
        extracted, created, countries = zip(*rows, strict=True)
        columns = {
            EXTRACTED_AT: pa.array(extracted, pa.timestamp("us", "UTC")),
            "created_at": pa.array(created, pa.timestamp("us", "UTC")),
            "country": pa.array(countries, pa.string()),
        }
        files = []
        for values, part in by_partition(pa.table(columns), plan.partitioning.fields):
            folder = f"{plan.folder}/{plan.partitioning.path.folder(values)}"
            upload = Upload(self.cloud.access.client("s3"), f"{folder}/{next(self.names)}.parquet", deferred=True)
            upload.write(b"rows")
            upload.close()
            uri, pending = upload.uri, upload.pending_upload
            files.append(DataFile(uri, 4, part.num_rows, plan.columns, b"", pending, partition=values))
        return files

    @property
    def entry(self) -> Any:
        return self.cloud.access.client("glue").get_table(DatabaseName="shop", Name="orders")["Table"]

    def registered(self) -> Mapping[str, tuple[str, ...]]:
        """Return the values of the registered partitions by location."""
        glue = self.cloud.access.client("glue")
        partitions = glue.get_partitions(DatabaseName="shop", TableName="orders")["Partitions"]
        return {
            partition["StorageDescriptor"]["Location"].rstrip("/"): tuple(partition["Values"])
            for partition in partitions
        }

    def athena(self) -> AthenaTable:
        return AthenaTable(self.entry["Parameters"], [key["Name"] for key in self.entry["PartitionKeys"]], NOW)

    def folders(self) -> set[str]:
        """Return the folders of the objects in the table's location."""
        location = self.entry["StorageDescriptor"]["Location"]
        uris = {f"s3://{BUCKET}/{key}" for key in self.cloud.objects()}
        return {uri.rpartition("/")[0] for uri in uris if uri.startswith(location)}


LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "hive, dates": {"partitioning": "DATE"},
    "hive, hours": {"partitioning": "YEAR/MONTH/DAY/HOUR"},
    "hive, months of any year": {"partitioning": "MONTH", "timezone": "Asia/Tokyo"},
    "hive, a text": {"streams": BY_COUNTRY},
    "plain": {"path_layout": "plain"},
    "plain, by the cursor": {"path_layout": "plain", "partition_source": "cursor"},
    "rudderstack": {"path_layout": "rudderstack", "timezone": "Pacific/Kiritimati"},
    "segment": {"path_layout": "segment", "partition_source": "cursor"},
    "firehose": {"path_layout": "firehose", "partition_source": "cursor", "timezone": "America/New_York"},
    "template": {"path_layout": "{database}/{table}/land={land}/{date}-{hour}", "streams": BY_COUNTRY},
}


@pytest.mark.share(4)
@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_object_lies_in_a_registered_and_in_a_projected_partition(
    options: Mapping[str, Any], cloud: Cloud
) -> None:
    orders = Orders(cloud, config(bucket_name=BUCKET, catalog_partitions="both", **options))
    steps: Sequence[Callable[[], None]] = (
        lambda: orders.sync(FIRST, SECOND),
        lambda: orders.sync(THIRD),
        lambda: orders.sync(SECOND, overwrite=True),
        lambda: orders.sync(THIRD, FIRST),
    )
    for step in steps:
        step()
        folders, registered, athena = orders.folders(), orders.registered(), orders.athena()

        assert folders
        assert folders == registered.keys(), "each folder is a partition, and there is no other"
        assert {folder for folder in folders if not athena.reads(folder)} == set()
        assert {folder: athena.partition(folder) for folder in folders} == registered


@pytest.mark.parametrize("options", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_an_overwrite_is_projected_for_its_own_content_alone(options: Mapping[str, Any], cloud: Cloud) -> None:
    given = config(bucket_name=BUCKET, catalog_partitions="projection", **options)
    Orders(cloud, given).sync(SECOND, THIRD)
    overwritten = Orders(cloud, given)
    overwritten.sync(FIRST, overwrite=True)
    parameters = overwritten.entry["Parameters"]

    kinds = {text for name, text in parameters.items() if name.startswith("projection.") and name.endswith(".type")}
    assert overwritten.registered() == {}
    assert kinds <= {"date", "integer"} | ({"enum"} if "streams" in options else set())
    leftovers = [name for name in parameters if name.endswith(".values") and "streams" not in options]
    assert leftovers == [], "no parameter is left of what was projected before"
