"""The connection check: validates a configuration by sending real requests, without starting Spark.

The steps of the check send every kind of request that a sync sends to AWS. Each check uses unique names for its
temporary objects and tables, so several checks can run concurrently. A check deletes these objects and tables even if
the check fails. If a check is interrupted, later checks delete its objects and tables.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from destination_datalake.archive.objects import ARCHIVE_FOLDER
from destination_datalake.aws.access import role_of_session
from destination_datalake.check import governance
from destination_datalake.check.catalog import try_database, try_optimizers, try_rest_catalog, try_table
from destination_datalake.check.existing_tables import try_existing_tables
from destination_datalake.check.step import CheckContext, Remedies, Step, StepFindings, run_steps
from destination_datalake.check.storage import KMS_KEY, try_kms_key, try_lifecycle, try_own_folder, try_region
from destination_datalake.config.options import Config, aws_access
from destination_datalake.iam_policy.conditions import ARCHIVED, GOVERNED, GRANTED, IN_GLUE, OPTIMIZED, TAGGED
from destination_datalake.rejects.ledger import REJECTS_FOLDER
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.jvm import require_java


def try_java(_: CheckContext, findings: StepFindings) -> None:
    """Add a failure if this machine has no Java runtime that Spark can use."""
    try:
        require_java()
    except SparkFailed as error:
        findings.add(error.failure)


def try_server(context: CheckContext, findings: StepFindings) -> None:
    """Request the version of the Spark Connect server. Add a failure if the request fails.

    Also adds warnings about connections without encryption or authentication. Does not check the server's executors.
    """
    from destination_datalake.spark.connect.backend import server_version

    for warning in context.config.spark.warnings:
        findings.warn(warning)

    try:
        server_version(context.config)
    except SparkFailed as error:
        findings.add(error.failure)


def try_identity(context: CheckContext, findings: StepFindings) -> None:
    """Identify the caller, so that later steps can add remedies for missing permissions.

    Adds a failure if the credentials are invalid, or if their account differs from the option `aws_account_id`.
    """
    with findings.attempt("identify", "the owner of the credentials"):
        identity = context.access.client("sts").get_caller_identity()
        principal = getattr(context.config.credentials, "role_arn", None) or role_of_session(identity["Arn"])
        context.remedies = Remedies.for_caller(context.config, identity["Account"], principal)
        account = context.config.aws_account_id
        if account is not None and identity["Account"] != account:
            findings.fail(
                f"The credentials belong to AWS account {identity['Account']} ({identity['Arn']}), "
                f"but aws_account_id is {account}. Correct credentials or aws_account_id."
            )


_OBJECTS = "writes, reads, lists and deletes an object, and begins and aborts a multipart upload"

STEPS: Sequence[Step] = (
    Step(
        "java",
        "Java",
        "finds the Java runtime for Spark; skipped with Spark Connect",
        try_java,
        applies=lambda config: not config.spark.is_connect,
    ),
    Step(
        "spark_connect",
        "Spark Connect server",
        "opens a session, reads Spark's version, and ends the session; only if `spark.remote` is set",
        try_server,
        applies=lambda config: config.spark.remote is not None,
    ),
    Step(
        "identity",
        "Identity and account",
        "compares the account of the credentials with `aws_account_id`",
        try_identity,
    ),
    Step(
        "region",
        "Region of the bucket",
        "finds the bucket, and compares its region with `region`",
        try_region,
        needs=["identity"],
    ),
    Step(
        "tables_folder",
        "Folder of the tables",
        f"{_OBJECTS}, in the database's folder",
        lambda context, findings: try_own_folder(context, findings, context.config.table_uri(context.database, "")),
        needs=["region"],
    ),
    Step(
        "staging_folder",
        "Folder of staged records",
        f"{_OBJECTS}, in `_staging/`; only if Spark runs on other machines",
        lambda context, findings: try_own_folder(context, findings, context.config.uri("_staging")),
        needs=["region"],
        applies=lambda config: not config.spark.is_local,
    ),
    Step(
        "rejects_folder",
        "Folder of rejects",
        f"{_OBJECTS}, in `_errors/`",
        lambda context, findings: try_own_folder(context, findings, context.config.uri(REJECTS_FOLDER)),
        needs=["region"],
    ),
    Step(
        "archive_folder",
        "Folder of the archive",
        f"{_OBJECTS}, in `_raw/`; only if `raw_archive.enabled` is set",
        lambda context, findings: try_own_folder(context, findings, context.config.uri(ARCHIVE_FOLDER)),
        needs=["region"],
        applies=ARCHIVED.holds,
    ),
    Step(
        "archive_lifecycle",
        "Lifecycle rule of the archive",
        "warns if the bucket's lifecycle rules keep objects in `_raw/` for a shorter or longer time than "
        "`raw_archive.retention_days`; only if `raw_archive.enabled` is set",
        try_lifecycle,
        needs=["region"],
        applies=ARCHIVED.holds,
    ),
    Step(
        KMS_KEY,
        "Encryption and KMS key",
        "reports requests that KMS rejected, and objects without the configured encryption",
        try_kms_key,
        needs=["region"],
        after=["tables_folder", "staging_folder", "rejects_folder", "archive_folder"],
    ),
    Step(
        "database",
        "Glue database",
        "creates the database if it does not exist",
        try_database,
        needs=["identity"],
        applies=IN_GLUE.holds,
    ),
    Step(
        "rest_catalog",
        "Iceberg REST catalog",
        "creates the namespace if it does not exist, and creates, changes and drops a table in it; only if "
        "`catalog.type` is not `glue`",
        try_rest_catalog,
        needs=["tables_folder"],
        applies=lambda config: not IN_GLUE.holds(config),
    ),
    Step(
        "table",
        "Glue table",
        "creates, reads, changes and drops a table, and creates a partition, which is allowed to fail; if syncs create "
        "partitioned Hive tables, also reads, changes and deletes the partition, and all requests must succeed",
        try_table,
        needs=["database"],
        applies=IN_GLUE.holds,
    ),
    Step(
        "table_optimizers",
        "Glue's table optimizers",
        "checks the permission to turn on the optimizers, with a table that does not exist; only if `maintenance.mode` "
        "is `glue`",
        try_optimizers,
        needs=["database"],
        applies=OPTIMIZED.holds,
    ),
    Step(
        "lake_formation_location",
        "Lake Formation: data location",
        "reads the data lake settings, and compares the registered data locations with the options",
        governance.try_location,
        needs=["identity"],
        applies=GOVERNED.holds,
    ),
    Step(
        "lake_formation_permissions",
        "Lake Formation: permissions",
        "warns about missing permissions on tables that other principals created",
        governance.try_permissions,
        needs=["database"],
        applies=GOVERNED.holds,
    ),
    Step(
        "lake_formation_optimizers",
        "Lake Formation: role of the table optimizers",
        "warns about missing permissions of the role on the tables; only if `maintenance.mode` is `glue`",
        governance.try_optimizers_role,
        needs=["database"],
        applies=lambda config: GOVERNED.holds(config) and OPTIMIZED.holds(config),
    ),
    Step(
        "lake_formation_tags",
        "Lake Formation: LF-Tags",
        "compares the definitions of LF-Tags with the options, and assigns existing LF-Tags to a temporary table",
        governance.try_lf_tags,
        needs=["table"],
        after=["lake_formation_location"],
        applies=TAGGED.holds,
    ),
    Step(
        "lake_formation_grants",
        "Lake Formation: grants",
        "compares the grants on the database with the options, and checks the permission to grant missing ones",
        governance.try_grants,
        needs=["database"],
        after=["lake_formation_location"],
        applies=GRANTED.holds,
    ),
    Step(
        "default_permissions",
        "Lake Formation: default permissions",
        "warns about permissions of `IAM_ALLOWED_PRINCIPALS`, which bypass governance; only if `mode` is `managed`",
        governance.try_defaults,
        needs=["database"],
        after=["lake_formation_location"],
        applies=lambda config: config.lake_formation.mode == "managed",
    ),
    Step(
        "existing_tables",
        "Existing tables",
        "compares existing tables with the options, and reads the metadata of Iceberg tables; if "
        "`follow_table_location` is set, also checks the permissions in the buckets of the tables",
        try_existing_tables,
        needs=["database"],
        applies=IN_GLUE.holds,
    ),
)
"""The steps of the check. The log and the messages list the outcomes in this order."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    `problems` contains user-facing messages, in the order of the steps. If IAM denied a request, the last message
    contains the complete IAM policy for the configuration. If there are no problems, `note` contains the warnings of
    the steps, one per line. It is None if there are problems, or no warnings.
    """

    problems: Sequence[str]
    note: str | None = None


def new_context(config: Config, unique: str) -> CheckContext:
    """Return a context for the steps of one check. `unique` has the same meaning as in `check_connection`."""
    # Make three attempts per request instead of ten, because a user waits for the result.
    access = dataclasses.replace(aws_access(config), attempts=3, connect_timeout_seconds=5)
    return CheckContext(config, access, unique)


def check_connection(config: Config, unique: str) -> CheckResult:
    """Run all steps that apply to the configuration, log their outcomes, and return the result.

    `unique` is a string of 32 hexadecimal digits that no other check uses. The result contains a message about each
    problem with AWS. Raises all other exceptions, such as programming errors.
    """
    context = new_context(config, unique)
    outcomes = run_steps([step for step in STEPS if step.applies(config)], context)
    failures = [failure for outcome in outcomes for failure in outcome.findings.failures]
    problems = list(dict.fromkeys(failure.message for failure in failures))
    if context.remedies is not None and any(failure.missing and failure.missing.in_iam for failure in failures):
        problems.append(context.remedies.whole_policy())
    notes = [note for outcome in outcomes for note in outcome.findings.notes]
    return CheckResult(problems, None if problems else "\n".join(notes) or None)


def answer(config: Config) -> tuple[Literal["SUCCEEDED", "FAILED"], str | None]:
    """Run the check, and return the status and message for Airbyte's platform.

    If the check failed, the message contains one line per problem. If the check succeeded, the message lists unknown
    options and the warnings of the steps. It is None if there are neither. Raises exceptions that AWS did not cause.
    """
    result = check_connection(config, uuid.uuid4().hex)
    if result.problems:
        return "FAILED", "\n".join(result.problems)
    notes = [*map(str, config.unknown_options()), *([result.note] if result.note else [])]
    return "SUCCEEDED", "\n".join(notes) or None
