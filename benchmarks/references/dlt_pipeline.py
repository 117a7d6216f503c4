"""A dlt pipeline that writes the records as typed Parquet files to S3. It receives dicts, in lists of 10,000.

`python dlt_pipeline.py MESSAGES CATALOG URL BUCKET KEY SECRET` runs in its own environment (environments.py). dlt
receives the types of all columns. It extracts all records, then normalizes them, and then loads them. It returns no
states.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import dlt  # type: ignore[import-not-found]

RECORDS_AT_ONCE = 10_000
_TYPES = {"integer": "bigint", "number": "double", "boolean": "bool", "string": "text"}


def main(messages: Path, catalog: Path, url: str, bucket: str, key: str, secret: str) -> None:
    """Append the records of the only stream in `catalog` to the dataset `dlt` in the bucket."""
    stream = json.loads(catalog.read_bytes())["streams"][0]["stream"]
    columns = {name: {"data_type": _type(column)} for name, column in stream["json_schema"]["properties"].items()}
    credentials = {"aws_access_key_id": key, "aws_secret_access_key": secret, "endpoint_url": url}
    destination = dlt.destinations.filesystem(bucket_url=f"s3://{bucket}", credentials=credentials)
    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline("benchmark", pipelines_dir=folder, destination=destination, dataset_name="dlt")
        resource = dlt.resource(_records(messages), name=stream["name"], columns=columns, max_table_nesting=0)
        pipeline.run(resource, loader_file_format="parquet").raise_on_failed_jobs()


def _type(column: dict[str, Any]) -> str:
    if column.get("format") == "date-time":
        return "timestamp"
    [kind] = (name for name in column["type"] if name != "null")
    return _TYPES[kind]


def _records(messages: Path) -> Iterator[list[dict[str, Any]]]:
    with messages.open("rb") as lines:
        parsed = map(json.loads, lines)
        records = (message["record"]["data"] for message in parsed if message["type"] == "RECORD")
        while batch := list(islice(records, RECORDS_AT_ONCE)):
            yield batch


if __name__ == "__main__":
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    path, catalog, *lake = sys.argv[1:]
    main(Path(path), Path(catalog), *lake)
