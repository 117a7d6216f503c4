"""Steps about where the connector runs, and as whom."""

from __future__ import annotations

from destination_datalake.aws.caller import role_of_session
from destination_datalake.check.remedies import Remedies
from destination_datalake.check.step import Findings
from destination_datalake.check.trial import Trial
from destination_datalake.spark.backend import SparkFailed
from destination_datalake.spark.classic.failure import JavaUnusable, find_java


def try_java(_: Trial, findings: Findings) -> None:
    """Find the Java that Spark would start on here."""
    try:
        find_java()
    except JavaUnusable as error:
        findings.add(error.failure)


def try_server(trial: Trial, findings: Findings) -> None:
    """Ask the Spark Connect server for its version. Its executors are not tried."""
    from destination_datalake.spark.connect.backend import server_version

    for warning in trial.config.spark.warnings:
        findings.warn(warning)

    try:
        server_version(trial.config)
    except SparkFailed as error:
        findings.add(error.failure)


def try_identity(trial: Trial, findings: Findings) -> None:
    """Compare the account of the credentials with aws_account_id."""
    with findings.attempt("identify", "the owner of the credentials"):
        identity = trial.access.client("sts").get_caller_identity()
        principal = getattr(trial.config.credentials, "role_arn", None) or role_of_session(identity["Arn"])
        trial.remedies = Remedies.of(trial.config, identity["Account"], principal)
        account = trial.config.aws_account_id
        if account is not None and identity["Account"] != account:
            findings.fail(
                f"The credentials belong to AWS account {identity['Account']} ({identity['Arn']}), "
                f"but aws_account_id is {account}. Correct one or the other."
            )
