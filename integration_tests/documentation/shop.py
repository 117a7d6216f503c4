"""The lake of how-to pages: bucket `my-lake`, prefix `airbyte`, stream `shop.orders`, and a shell of its user."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.request import Request, urlopen

import duckdb
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.documentation.blocks import Block
from integration_tests.documentation.shell import Shell
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import META, object_schema

BUCKET, PREFIX, NAMESPACE, STREAM = "my-lake", "airbyte", "shop", "orders"
CREDENTIALS = f"[default]\naws_access_key_id = {ACCESS_KEY_ID}\naws_secret_access_key = {SECRET_ACCESS_KEY}\n"


class NamedLake(Lake):
    """A lake with the names of the pages, in an account that no other test uses."""

    def __init__(self, endpoint_url: str) -> None:
        urlopen(Request(f"{endpoint_url}/moto-api/reset", method="POST")).close()
        super().__init__(endpoint_url)
        self.s3.delete_bucket(Bucket=self.bucket)
        self.bucket = BUCKET
        self.database = self.name("landing")
        self.s3.create_bucket(Bucket=self.bucket)

    def name(self, word: str) -> str:
        """Return the word itself."""
        return word

    def config(self, **overrides: object) -> dict[str, object]:
        """Return a configuration for this lake."""
        return super().config(**{"bucket_prefix": PREFIX, **overrides})


@dataclass
class Shop:
    """The lake and a shell whose folder has its `config.json`. `options` are those that a user has set."""

    lake: NamedLake
    platform: Platform
    shell: Shell
    options: dict[str, object] = field(default_factory=dict)
    _syncs: int = 0

    def configure(self, **options: object) -> None:
        """Set options, for syncs and in `config.json`."""
        self.options |= options
        self.shell.save("config.json", json.dumps(self.config))

    @property
    def config(self) -> Mapping[str, object]:
        """The configuration of syncs."""
        return self.lake.config(**self.options)

    def sync(self, fields: Mapping[str, Json], *rows: Json, key: str | None = None) -> None:
        """Sync these rows of `shop.orders`; each sync has the next number as its ID. With a key it deduplicates."""
        self._syncs += 1
        stream = configured_stream(
            STREAM,
            object_schema(**fields),
            namespace=NAMESPACE,
            sync_id=self._syncs,
            mode="append" if key is None else "append_dedup",
            primary_key=[] if key is None else [key],
        )
        lines = [
            *(record(STREAM, row, namespace=NAMESPACE) for row in rows),
            state(STREAM, self._syncs, namespace=NAMESPACE),
            status(STREAM, "COMPLETE", namespace=NAMESPACE),
        ]
        run = self.platform.write(self.config, configured_catalog(stream), lines)
        assert run.exit_code == 0, run.report()

    def follow(self, *blocks: Block) -> Sequence[str]:
        """Run blocks of a page in one shell; return what each printed."""
        return self.shell.follow([block.step for block in blocks])

    def rows(self, table: str = STREAM) -> list[dict[str, Any]]:
        """Return a table's rows without the connector's own columns, in the order of `id`."""
        rows = self.lake.rows(NAMESPACE, table)
        return sorted(
            ({name: row[name] for name in row if name not in META} for row in rows), key=lambda row: int(row["id"])
        )

    def columns(self, table: str = STREAM) -> Mapping[str, str]:
        """Return the types of a table's columns."""
        return self.lake.columns(NAMESPACE, table)

    def drop(self) -> None:
        """Drop the table, and leave its files."""
        self.lake.drop_table(NAMESPACE, STREAM)

    @contextmanager
    def duckdb(self, *tables: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Lend an engine in which these tables have the rows and the names of the lake."""
        with duckdb.connect() as engine:
            engine.execute("SET TimeZone = 'UTC'")
            engine.execute(f"CREATE SCHEMA {NAMESPACE}")
            for table in tables:
                engine.register("rows", self.lake.read(NAMESPACE, table))
                engine.execute(f"CREATE TABLE {NAMESPACE}.{table} AS FROM rows")
            yield engine


def environment(endpoint_url: str) -> Mapping[str, str]:
    """Return the variables with which the AWS CLI and PyIceberg find this AWS."""
    return {
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_DEFAULT_REGION": REGION,
        "PYICEBERG_CATALOG__GLUE__S3__ENDPOINT": endpoint_url,
    }
