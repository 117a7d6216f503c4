"""Tables as Airbyte's AWS Datalake destination left them, written by awswrangler as that connector had it write."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import awswrangler
import boto3
import pandas as pd  # type: ignore[import-untyped]
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

from integration_tests.harness.lake import PREFIX, Lake

Format = Literal["Parquet", "JSONL"]
Mode = Literal["append", "overwrite"]
Row = Mapping[str, Any]

PARTITIONINGS = ("DATE", "YEAR", "MONTH", "DAY", "YEAR/MONTH", "YEAR/MONTH/DAY")
"""The values of its option `partitioning` that partition."""

_PARTS: Mapping[str, tuple[str, str]] = {
    "DATE": ("date", "%Y-%m-%d"),
    "YEAR": ("bigint", "%Y"),
    "MONTH": ("bigint", "%m"),
    "DAY": ("bigint", "%d"),
}
"""Of each part of `partitioning`: the type of its column, and how strftime writes it."""


@dataclass(frozen=True)
class AwsDatalake:
    """That connector, writing into a lake; `prefix` is its bucket_prefix."""

    lake: Lake
    format: Format = "Parquet"
    codec: Literal["snappy", "gzip", "zstd"] | None = "snappy"
    prefix: str = PREFIX

    def sync(
        self,
        stream: str,
        types: Mapping[str, str],
        rows: Sequence[Row],
        *,
        cursor: str,
        partitioning: str,
        overwrites: bool = False,
        namespace: str | None = None,
    ) -> None:
        """Write the rows of one flush of a stream whose cursor is a date or a date-time, partitioned by it.

        A cursor that is null got 0 for its year, month and day. It got a null date, and awswrangler drops such rows.
        """
        frame = _frame(types, rows)
        keys = {}
        for part in partitioning.split("/"):
            kind, form = _PARTS[part]
            keys[name := f"{cursor}_{part.lower()}"] = kind
            texts = frame[cursor].dt.strftime(form)
            frame[name] = texts if kind == "date" else texts.fillna("0").astype("Int64")
        mode: Mode = "overwrite" if overwrites else "append"
        self._write(stream, {**types, **keys}, frame, mode, partitions=[*keys], namespace=namespace)

    def append(
        self,
        stream: str,
        types: Mapping[str, str],
        rows: Sequence[Row],
        *,
        namespace: str | None = None,
        partitions: Sequence[str] = (),
    ) -> None:
        """Write rows, by the source's names, to columns of these Glue types; the folder bears the source's names too.

        Glue stores a database's name in lower case. The emulated one would not.
        """
        self._write(stream, types, _frame(types, rows), "append", partitions=partitions, namespace=namespace)

    def _write(
        self,
        stream: str,
        types: Mapping[str, str],
        frame: pd.DataFrame,
        mode: Mode,
        *,
        partitions: Sequence[str],
        namespace: str | None,
    ) -> None:
        folder = namespace or self.lake.database
        with awswrangler_session(self.lake) as session:
            awswrangler.catalog.create_database(folder.lower(), exist_ok=True, boto3_session=session)
            write = awswrangler.s3.to_parquet if self.format == "Parquet" else awswrangler.s3.to_json
            own: dict[str, Any] = {} if self.format == "Parquet" else {"orient": "records", "lines": True}
            write(
                df=frame,
                path=f"s3://{self.lake.bucket}/{self.prefix}/{folder}/{stream}/",
                index=False,
                dataset=True,
                database=folder.lower(),
                table=stream,
                glue_table_settings={"table_type": "EXTERNAL_TABLE"},
                mode=mode,
                use_threads=False,
                catalog_versioning=True,
                partition_cols=[*partitions] or None,
                dtype=dict(types),
                compression=self.codec,
                boto3_session=session,
                **own,
            )


def _frame(types: Mapping[str, str], rows: Sequence[Row]) -> pd.DataFrame:
    frame = pd.DataFrame([{name: row.get(name) for name in types} for row in rows])
    for name, kind in types.items():
        if kind in ("timestamp", "date"):
            frame[name] = pd.to_datetime(frame[name])
    return frame


@contextmanager
def awswrangler_session(lake: Lake) -> Iterator[boto3.Session]:
    """Let awswrangler talk to the lake's account, and lend a session for it."""
    awswrangler.config.s3_endpoint_url = awswrangler.config.glue_endpoint_url = lake.endpoint_url
    try:
        yield boto3.Session(
            aws_access_key_id=ACCESS_KEY_ID, aws_secret_access_key=SECRET_ACCESS_KEY, region_name=REGION
        )
    finally:
        awswrangler.config.reset("s3_endpoint_url")
        awswrangler.config.reset("glue_endpoint_url")
