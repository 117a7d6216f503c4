"""Does this configuration work? Tried out for real, and without Spark.

Everything a sync will do to AWS is done once, in small: who are we, can we write, read, list and delete under the
prefix, can we create, read, change and drop a table. Is there a Java for Spark, and are the tables that are there where
the options say? Names are unique, so checks may run side by side, and whatever a check made it removes, also when it
fails.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.config.access import aws_access
from destination_datalake.config.options import Config
from destination_datalake.spark.java import JavaUnusable, find_java
from destination_datalake.tables.aws_datalake import advice
from destination_datalake.tables.glue.database import ensure_database
from destination_datalake.tables.location import is_inside, not_in_s3, outside_warehouse
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.relocations import (
    OwnedTable,
    any_table_inside,
    list_owned_tables,
    relocations,
    tables_of_other_kind,
    tables_outside,
)

_logger = logging.getLogger(__name__)

_MOVES_SHOWN = 10
_TABLES_SHOWN = 100
_BUCKETS_TRIED = 5

_CONTENT = b"Written by a connection check of destination-datalake; safe to delete.\n"


@dataclass(frozen=True, slots=True)
class Findings:
    """What a check found: a sentence per thing to mend, none if all works; and a note on what may be worth knowing."""

    problems: Sequence[str]
    note: str | None = None


def look(config: Config, unique: str) -> Findings:
    """Try everything out; service, action, resource and remedy are named in each problem.

    Logs the tables that it finds. `unique` is a word of letters and digits that no other check uses. Exceptions that
    are not AWS's come through: they are our mistakes, not the user's.
    """
    with ThreadPoolExecutor(1, "java") as pool:
        # A tenth of a second and more, which AWS takes as well.
        java = pool.submit(_java_problems)
        found = _look_at_aws(config, unique)
        problems = [*found.problems, *java.result()]
    return Findings(problems, None if problems else found.note)


def _java_problems() -> list[str]:
    """Say what keeps Spark from starting here, if it is its Java."""
    try:
        find_java()
    except JavaUnusable as error:
        return [str(error)]
    return []


def _look_at_aws(config: Config, unique: str) -> Findings:
    access = _access(config)
    problems: list[str] = []
    with _noting(problems, "identify", "the owner of the credentials"):
        _probe_identity(config, access, problems)
    if problems:
        # With credentials that do not work, every later sentence would say the same again.
        return Findings(problems)
    _probe_bucket(S3Address(config.bucket_name, config.key("_staging", f"check-{unique}")), access, problems)
    _probe_catalog(config, access, unique, problems)
    tables = _tables(config, access)
    naming = TableNaming.of(config)
    elsewhere_now = list(tables_outside(tables, naming, config.uri("")))
    of_others = not config.follow_table_location and any_table_inside(tables, naming, config.uri(""))
    if not of_others:
        _probe_strays(elsewhere_now, config, access, unique, problems)
    if problems:
        return Findings(problems)
    notes = (
        _note(config, tables, naming),
        _note_on_strays(config, elsewhere_now) if of_others else None,
        _note_on_other_kinds(config, tables, naming),
        _note_on_inherited_tables(config, access),
    )
    return Findings(problems, "\n".join(filter(None, notes)) or None)


def _tables(config: Config, access: AwsAccess) -> list[OwnedTable]:
    """The tables there are, each logged with its kind and its location; none if nobody may look for them."""
    try:
        tables = list_owned_tables(access.client("glue"), config.lakeformation_database_name)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables of", resource=config.lakeformation_database_name)
        if failure is None:
            raise
        _logger.info("%s Only a warning would have come of it.", failure.message)
        return []
    for table in tables[:_TABLES_SHOWN]:
        _logger.info("Found: %s.", table)
    if len(tables) > _TABLES_SHOWN:
        _logger.info("Found: %d more tables.", len(tables) - _TABLES_SHOWN)
    return tables


def _probe_strays(
    found: Sequence[OwnedTable], config: Config, access: AwsAccess, unique: str, problems: list[str]
) -> None:
    """Refuse tables that lie elsewhere than the options say; try their buckets out if they are to be followed."""
    if config.follow_table_location:
        in_s3 = [table.location for table in found if not_in_s3(table.location) is None]
        by_bucket = {(at := S3Address.parse(location)).bucket: at for location in in_s3}
        for bucket, at in islice(by_bucket.items(), _BUCKETS_TRIED):
            _probe_bucket(S3Address(bucket, f"{at.key.rstrip('/')}/_check-{unique}"), access, problems)
        return
    folder = config.uri("")
    refused = [
        f"Cannot write stream {table.owner.stream} to table {table.name}: {outside_warehouse(table.location, folder)}"
        for table in found[:_MOVES_SHOWN]
    ]
    more = [f"And {len(found) - _MOVES_SHOWN} more tables like these."] if len(found) > _MOVES_SHOWN else []
    problems += [*refused, *more]


def _note(config: Config, tables: Sequence[OwnedTable], naming: TableNaming) -> str | None:
    """Say what other options than these have made that a sync would not go on with; None if there is nothing to say.

    It is no problem: it may be what the user wants, or the tables of another connection in the same bucket.
    """
    folder = config.uri("")
    here = [table for table in tables if is_inside(table.location, folder)]
    found = [str(move) for move in relocations(here, naming)]
    if not found:
        return None
    more = [f"and {len(found) - _MOVES_SHOWN} more like these"] if len(found) > _MOVES_SHOWN else []
    note = (
        f"There are tables under {folder} that other options have named: {'; '.join(found[:_MOVES_SHOWN] + more)}. If "
        "another connection writes them, all is well. If these are this connection's, its next sync begins what is "
        "new without the earlier records, and what is there gets no more. To go on with it, set "
        "lakeformation_database_name, database_strategy, table_prefix and naming as they were. If the change is meant, "
        "refresh these streams where the earlier records are needed, and drop the old tables when nobody reads them."
    )
    _logger.info(note)
    return note


def _note_on_strays(config: Config, found: Sequence[OwnedTable]) -> str | None:
    """Say which tables lie elsewhere than the options say, where other tables lie as they say; None if none do."""
    if not found:
        return None
    shown = [f"{table.name} ({table.location}, stream {table.owner.stream})" for table in found[:_MOVES_SHOWN]]
    more = [f"and {len(found) - _MOVES_SHOWN} more"] if len(found) > _MOVES_SHOWN else []
    note = (
        f"Some tables of database {config.lakeformation_database_name} lie under {config.uri('')}, and others do not: "
        f"{', '.join(shown + more)}. If another connection writes these, all is well. If they are this connection's, "
        "its syncs refuse their streams: correct bucket_name and bucket_prefix, choose another table_prefix, or set "
        "follow_table_location to true."
    )
    _logger.info(note)
    return note


def _note_on_other_kinds(config: Config, tables: Sequence[OwnedTable], naming: TableNaming) -> str | None:
    """Say which tables are not of the kind that table_type asks for: a sync of their streams would be refused."""
    found = list(tables_of_other_kind(tables, naming, "Iceberg" if config.table_type == "ICEBERG" else "Hive"))
    if not found:
        return None
    shown = [f"{table.name} ({table.kind}, stream {table.owner.stream})" for table in found[:_MOVES_SHOWN]]
    more = [f"and {len(found) - _MOVES_SHOWN} more"] if len(found) > _MOVES_SHOWN else []
    note = (
        f"With table_type {config.table_type}, a sync would refuse to write to {', '.join(shown + more)}. If another "
        "connection writes them, all is well. If these are this connection's, set table_type and format_type as they "
        "were, or choose another lakeformation_database_name or table_prefix."
    )
    _logger.info(note)
    return note


def _note_on_inherited_tables(config: Config, access: AwsAccess) -> str | None:
    """Say which tables of another connector these options leave behind; None if there are none, or none can be seen."""
    database = config.lakeformation_database_name
    try:
        note = advice(access.client("glue"), config)
    except Exception as error:
        failure = explain(error, doing="look for tables of AWS Datalake in", resource=database)
        if failure is None:
            raise
        _logger.info("%s Only a warning would have come of it.", failure.message)
        return None
    if note is not None:
        _logger.warning(note)
    return note


def _access(config: Config) -> AwsAccess:
    # Somebody is waiting for the answer: three tries, not ten.
    return dataclasses.replace(aws_access(config), attempts=3, connect_timeout_seconds=5)


def _probe_identity(config: Config, access: AwsAccess, problems: list[str]) -> None:
    identity = access.client("sts").get_caller_identity()
    if config.aws_account_id is not None and identity["Account"] != config.aws_account_id:
        problems.append(
            f"The credentials belong to AWS account {identity['Account']} ({identity['Arn']}), "
            f"but aws_account_id is {config.aws_account_id}. Correct one or the other."
        )


def _probe_bucket(at: S3Address, access: AwsAccess, problems: list[str]) -> None:
    """Do with an object at `at` everything that a sync does with its own."""
    s3 = access.client("s3")
    bucket, key = at
    _probe_region(bucket, access, problems)

    with _noting(problems, "upload in parts to", str(at)):
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
        s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])

    with _noting(problems, "write to", str(at)) as written:
        s3.put_object(Bucket=bucket, Key=key, Body=_CONTENT)
    try:
        if written():
            with _noting(problems, "read", str(at)):
                content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                if content != _CONTENT:
                    problems.append(f"S3 gave back other bytes for {at} than were written. Check endpoint_url.")
            with _noting(problems, "list", str(at)):
                s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    finally:
        # Also after a write that failed: it may have failed on its way back. Only then is it no news if this fails too.
        with _noting(problems if written() else [], "delete", str(at)):
            s3.delete_object(Bucket=bucket, Key=key)


def _probe_region(bucket: str, access: AwsAccess, problems: list[str]) -> None:
    """Compare the bucket's region with ours: boto3 would find its way to another one, others may not."""
    s3 = access.client("s3")
    try:
        headers = s3.head_bucket(Bucket=bucket)["ResponseMetadata"]["HTTPHeaders"]
    except s3.exceptions.ClientError as error:
        # S3 says the region also to those whom it refuses. What else is wrong, the next steps will tell.
        headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    region = headers.get("x-amz-bucket-region", access.region)
    if region != access.region:
        problems.append(
            f"Bucket {bucket} is in region {region}, but region is {access.region}. Set region to {region}, or choose "
            f"a bucket in {access.region}."
        )


def _probe_catalog(config: Config, access: AwsAccess, unique: str, problems: list[str]) -> None:
    glue = access.client("glue")
    database, table = config.lakeformation_database_name, f"airbyte_check_{unique}"

    with _noting(problems, "create or read database", database) as usable:
        ensure_database(glue, database)
    if not usable():
        return

    name = f"{database}.{table}"
    with _noting(problems, "create table", name) as created:
        glue.create_table(
            DatabaseName=database,
            TableInput={
                "Name": table,
                "TableType": "EXTERNAL_TABLE",
                "StorageDescriptor": {
                    "Columns": [{"Name": "id", "Type": "string"}],
                    "Location": config.uri("_staging", f"check-{unique}", ""),
                },
            },
        )
    try:
        if created():
            with _noting(problems, "read table", name):
                glue.get_table(DatabaseName=database, Name=table)
            with _noting(problems, "change table", name):
                glue.update_table(DatabaseName=database, TableInput={"Name": table, "Description": "Safe to delete."})
    finally:
        with _noting(problems if created() else [], "drop table", name):
            glue.delete_table(DatabaseName=database, Name=table)


class _Outcome:
    """Whether what was tried has worked."""

    def __init__(self) -> None:
        self.worked = False

    def __call__(self) -> bool:
        return self.worked


@contextmanager
def _noting(problems: list[str], doing: str, resource: str) -> Iterator[_Outcome]:
    """Turn an AWS failure inside the block into a sentence among `problems`; the value tells whether there was none."""
    outcome = _Outcome()
    try:
        yield outcome
        outcome.worked = True
    except Exception as error:
        failure = explain(error, doing=doing, resource=resource)
        if failure is None:
            raise
        problems.append(failure.message)
