"""Does this configuration work? Tried out for real, and without Spark.

Everything a sync will do to AWS is done once, in small: who are we, can we write, read, list and delete under the
prefix, can we create, read, change and drop a table. Names are unique, so checks may run side by side, and whatever a
check made it removes, also when it fails.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.errors import explain
from destination_datalake.config import Config
from destination_datalake.tables.database import ensure_database
from destination_datalake.tables.moves import known_tables, moves
from destination_datalake.tables.naming import TableNaming

_logger = logging.getLogger(__name__)

_MOVES_SHOWN = 10

_CONTENT = b"Written by a connection check of destination-datalake; safe to delete.\n"


def find_problems(config: Config, unique: str) -> list[str]:
    """Return one sentence per thing that does not work, service, action, resource and remedy named; none if all does.

    `unique` is a word of letters and digits that no other check uses. Exceptions that are not AWS's come through: they
    are our mistakes, not the user's.
    """
    access = _access(config)
    problems: list[str] = []
    with _noting(problems, "identify", "the owner of the credentials"):
        _probe_identity(config, access, problems)
    if problems:
        # With credentials that do not work, every later sentence would say the same again.
        return problems
    _probe_bucket(config, access, unique, problems)
    _probe_catalog(config, access, unique, problems)
    return problems


def find_changes(config: Config) -> str | None:
    """Say what other options than these have made that a sync would not go on with; None if there is nothing to say.

    It is no problem: it may be what the user wants, or the tables of another connection in the same bucket.
    """
    folder = config.uri("")
    try:
        tables = known_tables(_access(config).client("glue"), config.lakeformation_database_name, folder)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables under", resource=folder)
        if failure is None:
            raise
        _logger.info("%s Only a warning would have come of it.", failure.message)
        return None
    found = [str(move) for move in moves(tables, TableNaming.of(config))]
    if not found:
        return None
    more = [f"and {len(found) - _MOVES_SHOWN} more like these"] if len(found) > _MOVES_SHOWN else []
    return (
        f"Names have changed: {'; '.join(found[:_MOVES_SHOWN] + more)}. The next sync begins what is new without the "
        "earlier records; what is there stays as it is and gets no more. To go on with it, set "
        "lakeformation_database_name, database_strategy, table_prefix and naming as they were. If the change is meant, "
        "refresh these streams where the earlier records are needed, and drop the old tables when nobody reads them. "
        "(If another connection writes them, all is well.)"
    )


def _access(config: Config) -> AwsAccess:
    # Somebody is waiting for the answer: three tries, not ten.
    return dataclasses.replace(AwsAccess.of(config), attempts=3, connect_timeout_seconds=5)


def _probe_identity(config: Config, access: AwsAccess, problems: list[str]) -> None:
    identity = access.client("sts").get_caller_identity()
    if config.aws_account_id is not None and identity["Account"] != config.aws_account_id:
        problems.append(
            f"The credentials belong to AWS account {identity['Account']} ({identity['Arn']}), "
            f"but aws_account_id is {config.aws_account_id}. Correct one or the other."
        )


def _probe_bucket(config: Config, access: AwsAccess, unique: str, problems: list[str]) -> None:
    s3 = access.client("s3")
    bucket, key = config.bucket_name, config.key("_staging", f"check-{unique}")
    address = config.uri("_staging", f"check-{unique}")

    with _noting(problems, "upload in parts to", address):
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key)
        s3.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload["UploadId"])

    with _noting(problems, "write to", address) as written:
        s3.put_object(Bucket=bucket, Key=key, Body=_CONTENT)
    try:
        if written():
            with _noting(problems, "read", address):
                content = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
                if content != _CONTENT:
                    problems.append(f"S3 gave back other bytes for {address} than were written. Check endpoint_url.")
            with _noting(problems, "list", address):
                s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    finally:
        # Also after a write that failed: it may have failed on its way back. Only then is it no news if this fails too.
        with _noting(problems if written() else [], "delete", address):
            s3.delete_object(Bucket=bucket, Key=key)


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
