"""Probes: each tries with AWS what a sync does, and deletes what it has created."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.config.options import Config
from destination_datalake.spark.java import JavaUnusable, find_java
from destination_datalake.tables.glue.database import ensure_database
from destination_datalake.tables.location import not_in_s3, outside_warehouse
from destination_datalake.tables.relocations import OwnedTable
from destination_datalake.tables.table import cannot_write

_TABLES_SHOWN = 10
_BUCKETS_TRIED = 5

_CONTENT = b"Written by a connection check of destination-datalake; safe to delete.\n"


def java_problems() -> list[str]:
    """Return the problem with the Java that Spark would start on here; empty if there is none."""
    try:
        find_java()
    except JavaUnusable as error:
        return [str(error)]
    return []


@dataclass(slots=True)
class _Attempt:
    succeeded: bool = False


class Probes:
    """Probes of AWS with one configuration; `problems` has a sentence for each request that failed."""

    def __init__(self, config: Config, access: AwsAccess, unique: str) -> None:
        self.problems: list[str] = []
        self._config = config
        self._access = access
        self._unique = unique

    def probe_identity(self) -> None:
        """Compare the account of the credentials with aws_account_id."""
        with _attempt(self.problems, "identify", "the owner of the credentials"):
            identity = self._access.client("sts").get_caller_identity()
            account = self._config.aws_account_id
            if account is not None and identity["Account"] != account:
                self.problems.append(
                    f"The credentials belong to AWS account {identity['Account']} ({identity['Arn']}), "
                    f"but aws_account_id is {account}. Correct one or the other."
                )

    def probe_bucket(self, address: S3Address) -> None:
        """Send every request for an object at `address` that a sync sends for its own."""
        s3 = self._access.client("s3")
        bucket, key = address
        self._probe_region(bucket)

        with _attempt(self.problems, "upload in parts to", str(address)):
            upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
            s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])

        with _attempt(self.problems, "write to", str(address)) as write:
            s3.put_object(Bucket=bucket, Key=key, Body=_CONTENT)
        try:
            if write.succeeded:
                with _attempt(self.problems, "read", str(address)):
                    content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                    if content != _CONTENT:
                        self.problems.append(
                            f"S3 returned other bytes for {address} than were written. Check endpoint_url."
                        )
                with _attempt(self.problems, "list", str(address)):
                    s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
        finally:
            # A write may have failed after the object was stored. If it failed, a failing delete is no further problem.
            with _attempt(self.problems if write.succeeded else [], "delete", str(address)):
                s3.delete_object(Bucket=bucket, Key=key)

    def probe_catalog(self) -> None:
        """Create the database unless it exists; create, read, change and drop a table in it."""
        glue = self._access.client("glue")
        database, table = self._config.lakeformation_database_name, f"airbyte_check_{self._unique}"

        with _attempt(self.problems, "create or read database", database) as use:
            ensure_database(glue, database)
        if not use.succeeded:
            return

        name = f"{database}.{table}"
        with _attempt(self.problems, "create table", name) as create:
            glue.create_table(
                DatabaseName=database,
                TableInput={
                    "Name": table,
                    "TableType": "EXTERNAL_TABLE",
                    "StorageDescriptor": {
                        "Columns": [{"Name": "id", "Type": "string"}],
                        "Location": self._config.uri("_staging", f"check-{self._unique}", ""),
                    },
                },
            )
        try:
            if create.succeeded:
                with _attempt(self.problems, "read table", name):
                    glue.get_table(DatabaseName=database, Name=table)
                with _attempt(self.problems, "change table", name):
                    glue.update_table(
                        DatabaseName=database, TableInput={"Name": table, "Description": "Safe to delete."}
                    )
        finally:
            with _attempt(self.problems if create.succeeded else [], "drop table", name):
                glue.delete_table(DatabaseName=database, Name=table)

    def probe_locations(self, outside: Sequence[OwnedTable]) -> None:
        """Refuse tables outside bucket_prefix, or probe their buckets if follow_table_location is set."""
        if self._config.follow_table_location:
            in_s3 = [table.location for table in outside if not_in_s3(table.location) is None]
            by_bucket = {(address := S3Address.parse(location)).bucket: address for location in in_s3}
            for bucket, address in islice(by_bucket.items(), _BUCKETS_TRIED):
                self.probe_bucket(S3Address(bucket, f"{address.key.rstrip('/')}/_check-{self._unique}"))
            return
        warehouse = self._config.uri("")
        for table in outside[:_TABLES_SHOWN]:
            if (problem := outside_warehouse(table.location, warehouse)) is not None:
                self.problems.append(cannot_write(table.owner.stream, table.name, problem))
        if len(outside) > _TABLES_SHOWN:
            self.problems.append(f"And {len(outside) - _TABLES_SHOWN} more tables like these.")

    def _probe_region(self, bucket: str) -> None:
        """Compare the bucket's region with the option's: boto3 follows redirects, other clients may not."""
        s3 = self._access.client("s3")
        try:
            headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
        except s3.exceptions.ClientError as error:
            # S3 names the region also if it denies access. Later requests report what else is wrong.
            headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        region = headers.get("x-amz-bucket-region", self._access.region)
        if region != self._access.region:
            self.problems.append(
                f"Bucket {bucket} is in region {region}, but region is {self._access.region}. Set region to {region}, "
                f"or choose a bucket in {self._access.region}."
            )


@contextmanager
def _attempt(problems: list[str], doing: str, resource: str) -> Iterator[_Attempt]:
    """Append a sentence to `problems` if the block fails because of AWS; the value says whether it succeeded."""
    attempt = _Attempt()
    try:
        yield attempt
        attempt.succeeded = True
    except Exception as error:
        failure = explain(error, doing=doing, resource=resource)
        if failure is None:
            raise
        problems.append(failure.message)
