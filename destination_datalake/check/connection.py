"""The connection check: does this configuration work? Everything is tried for real, without Spark.

Every kind of request that a sync sends to AWS is sent once: identify, write, read, list and delete below the prefix;
create, read, change and drop a table. Java is looked for, and the existing tables are compared with the options. Names
are unique, so checks may run side by side, and a check deletes what it has created, also if it fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from destination_datalake.aws.address import S3Address
from destination_datalake.check.existing_tables import ExistingTables
from destination_datalake.check.probes import Probes, java_problems
from destination_datalake.config.access import aws_access
from destination_datalake.config.options import Config


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A sentence for each problem, and, if there is none, what else the user should know."""

    problems: Sequence[str]
    note: str | None = None


def check_connection(config: Config, unique: str) -> CheckResult:
    """Try everything; each problem names service, action, resource and remedy. Logs the tables that exist.

    `unique` is a word of letters and digits that no other check uses. Raises exceptions that do not come from AWS.
    """
    with ThreadPoolExecutor(1, "java") as pool:
        # Java takes a tenth of a second and more to say its version, during which AWS answers.
        java = pool.submit(java_problems)
        found = _check_aws(config, unique)
        problems = [*found.problems, *java.result()]
    return CheckResult(problems, None if problems else found.note)


def _check_aws(config: Config, unique: str) -> CheckResult:
    # A user waits for the answer: three attempts, not ten.
    access = dataclasses.replace(aws_access(config), attempts=3, connect_timeout_seconds=5)
    probes = Probes(config, access, unique)
    probes.probe_identity()
    if probes.problems:
        # Without valid credentials every further request would fail for the same reason.
        return CheckResult(probes.problems)
    probes.probe_bucket(S3Address(config.bucket_name, config.key("_staging", f"check-{unique}")))
    probes.probe_catalog()
    existing = ExistingTables.find(config, access)
    # If some tables are inside bucket_prefix, those outside may be another connection's: a note, not a problem.
    if config.follow_table_location or not existing.any_inside():
        probes.probe_locations(existing.outside())
    if probes.problems:
        return CheckResult(probes.problems)
    return CheckResult([], "\n".join(existing.notes()) or None)
