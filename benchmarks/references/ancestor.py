"""The ancestor (destination-aws-datalake): the CDK's parser, 25,000 dicts, a pandas DataFrame, and awswrangler.

`python -m benchmarks.references.ancestor MESSAGES CATALOG URL` writes the message file as a dataset of Parquet files
with a Glue table. Like the ancestor, it cleans each record one key at a time, and writes the collected records before
it answers a STATE. It omits type casts in Glue and pandas, tags and nested types, which favours the ancestor.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import awswrangler as wr
import boto3
import msgspec
import pandas as pd  # type: ignore[import-untyped]
from airbyte_cdk.destinations import Destination
from airbyte_cdk.models import AirbyteMessageSerializer, Type  # type: ignore[attr-defined]

from benchmarks.cloud import BUCKET, DATABASE, KEY, REGION, SECRET

BATCH_RECORDS = 25_000
_PANDAS = {"integer": "Int64", "number": "float64", "boolean": "bool", "string": "string"}
_NUMBERS: dict[str, Any] = {"integer": int, "number": float}
_GLUE = {"integer": "bigint", "number": "double", "boolean": "boolean", "string": "string"}


class _Ancestor(Destination):
    """A destination of which the benchmark only uses the CDK's parser."""

    def check(self, logger: Any, config: Any) -> Any:
        raise NotImplementedError

    def write(self, config: Any, configured_catalog: Any, input_messages: Any) -> Any:
        raise NotImplementedError


def main(messages: Path, catalog: Path, url: str) -> None:
    """Append the records of the only stream in `catalog` to a Glue table of Parquet files."""
    wr.config.s3_endpoint_url = wr.config.glue_endpoint_url = url
    session = boto3.Session(aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION)
    stream = json.loads(catalog.read_bytes())["streams"][0]["stream"]
    properties: dict[str, dict[str, Any]] = stream["json_schema"]["properties"]
    records: list[dict[str, Any]] = []
    with messages.open("rb") as source:
        for message in _Ancestor()._parse_input_stream(io.TextIOWrapper(source, encoding="utf-8")):
            if message.type is Type.RECORD and message.record:
                records.append(_cleaned(message.record.data, properties))
            if len(records) == BATCH_RECORDS or (message.type is Type.STATE and records):
                _append(records, stream["name"], properties, session)
                records.clear()
            if message.type is Type.STATE:
                print(msgspec.json.encode(AirbyteMessageSerializer.dump(message)).decode())


def _cleaned(data: dict[str, Any], properties: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the record with exactly the declared keys. Replace invalid numbers by null."""
    cleaned = {name: value for name, value in data.items() if name in properties}
    for name, column in properties.items():
        kind = next(kind for kind in column["type"] if kind != "null")
        value = cleaned.setdefault(name, None)
        if kind in _NUMBERS and value is not None and not isinstance(value, int | float):
            try:
                cleaned[name] = _NUMBERS[kind](value)
            except ValueError:
                cleaned[name] = None
    return cleaned


def _append(
    records: list[dict[str, Any]], table: str, properties: dict[str, dict[str, Any]], session: boto3.Session
) -> None:
    kinds = {name: column["type"][1] for name, column in properties.items()}
    instants = [name for name, column in properties.items() if column.get("format") == "date-time"]
    frame = pd.DataFrame(records).astype({name: _PANDAS[kind] for name, kind in kinds.items()})
    for name in instants:
        frame[name] = pd.to_datetime(frame[name])
    wr.s3.to_parquet(
        df=frame,
        path=f"s3://{BUCKET}/{DATABASE}/{table}/",
        dataset=True,
        database=DATABASE,
        table=table,
        mode="append",
        use_threads=False,
        dtype={name: "timestamp" if name in instants else _GLUE[kind] for name, kind in kinds.items()},
        compression="snappy",
        boto3_session=session,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
