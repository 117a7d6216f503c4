"""Run the steps of the check concurrently, collect their findings, and add remedies for missing permissions.

The duration and the outcome of each step are logged. A step waits only for the steps that it depends on.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.errors import explain, resource_policy
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.options import Config
from destination_datalake.errors import ErrorClass, Failure, MissingPermission
from destination_datalake.iam_policy.policy import (
    LakeFormationGrant,
    Statement,
    document,
    lake_formation_grants,
    statements,
)
from destination_datalake.iam_policy.rules import Scope
from destination_datalake.lake_formation.state import AllTables, Database

_logger = logging.getLogger(__name__)

LEFTOVER_AGE = timedelta(days=1)
"""The age from which temporary objects and tables are assumed to be leftovers of an interrupted check."""


@dataclass(slots=True)
class CheckContext:
    """The data that all steps of one check share: the configuration, the access to AWS, and results of earlier steps.

    `unique` is a string of 32 hexadecimal digits that no other check uses. It is part of the names of temporary
    objects.
    """

    config: Config
    access: AwsAccess
    unique: str
    remedies: Remedies | None = None
    """The remedies for missing permissions. None until the step that identifies the caller has run."""
    key_failures: list[Failure] = field(default_factory=list)
    """The failures to use the KMS key, collected from the checks of all folders."""
    encrypted_with: list[str] = field(default_factory=list)
    """The encryption of each object that the check wrote: "AES256", the ARN of a KMS key, or "nothing"."""
    settings: Mapping[str, Any] | None = None
    """The data lake settings (Lake Formation API: DataLakeSettings), or None if the caller may not read them."""

    @property
    def database(self) -> str:
        """The database of streams without a namespace."""
        return self.config.lakeformation_database_name


@dataclass(slots=True)
class _Attempt:
    succeeded: bool = False


@dataclass(slots=True)
class StepFindings:
    """The results of a step: its failures, and notes for the user that do not fail the check.

    `blocked_by` is the ID of the step whose failure prevented this step from completing. If a failure is due to a
    missing permission, `remedies` adds the remedy to its message.
    """

    remedies: Remedies | None = None
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blocked_by: str | None = None

    @contextmanager
    def attempt(self, doing: str, resource: str) -> Iterator[_Attempt]:
        """Run the body of the `with` block, and add a failure if AWS causes an exception.

        Yields an object whose `succeeded` is true after the body has succeeded. `doing` and `resource` complete the
        sentence "Cannot …", as for `explain`. Exceptions that AWS did not cause are raised.
        """
        attempt = _Attempt()
        try:
            yield attempt
            attempt.succeeded = True
        except Exception as error:
            failure = explain(error, doing=doing, resource=resource)
            if failure is None:
                raise
            self.add(failure)

    def add(self, failure: Failure) -> None:
        """Add a failure. If it is due to a missing permission, add the remedy to its message."""
        self.failures.append(failure if self.remedies is None else self.remedies.with_remedy(failure))

    def fail(self, message: str) -> None:
        """Add a failure that is caused by the options. `message` states the problem and the remedy."""
        self.failures.append(Failure(message, message, "config_error"))

    def warn(self, message: str, level: int = logging.WARNING) -> None:
        """Log a message and add it as a note for the user. A note does not fail the check."""
        _logger.log(level, message)
        self.notes.append(message)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the check. `attempt` runs the step; `does` describes the step in the documentation.

    A step runs only if it `applies` to the configuration, after the steps in `needs` have succeeded and the steps in
    `after` have ended. `needs` and `after` contain the IDs of steps.
    """

    id: str
    name: str
    does: str
    attempt: Callable[[CheckContext, StepFindings], None]
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    applies: Callable[[Config], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a step. `raised` is an exception of the step that AWS did not cause, or None."""

    step: Step
    findings: StepFindings
    seconds: float
    raised: Exception | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the step completed without a failure."""
        return self.raised is None and self.findings.blocked_by is None and not self.findings.failures

    def causes(self) -> set[object]:
        """Return the cause of each failure: the denied action if a permission is missing, or else the message."""
        raised = set[object]() if self.raised is None else {self.step.id}
        return raised | {
            failure.missing.action if failure.missing else failure.message for failure in self.findings.failures
        }

    def log_line(self) -> str:
        """Return the outcome as one line of JSON, including the error class of the first failure."""
        failures, blocked_by = self.findings.failures, self.findings.blocked_by
        error: str | None = None
        error_class: ErrorClass | None = None
        if self.raised is not None:
            error, error_class = f"Step {self.step.id} failed: {type(self.raised).__name__}.", "internal"
        elif failures:
            error = "\n".join(failure.message for failure in failures)
            error_class = failures[0].error_class
        elif blocked_by is not None:
            error = f"Skipped: step {blocked_by} failed."
        line = {
            "id": self.step.id,
            "name": self.step.name,
            "success": self.succeeded,
            "error": error,
            "error_class": error_class,
            "duration_ms": round(self.seconds * 1000),
        }
        return json.dumps(line, ensure_ascii=False)


def run_steps(steps: Sequence[Step], context: CheckContext) -> list[Outcome]:
    """Run the steps, log their outcomes in order, and return the outcomes.

    An outcome is logged as an error if one of its causes was not logged before, and as info otherwise. If steps raised
    exceptions that AWS did not cause, raises the first of these exceptions after all steps have ended.
    """
    futures: dict[str, Future[Outcome]] = {}
    outcomes = []
    causes = set[object]()
    with ThreadPoolExecutor(len(steps), "check") as pool:
        for step in steps:
            needed, ended = ([futures[id] for id in ids if id in futures] for ids in (step.needs, step.after))
            futures[step.id] = pool.submit(_try, step, context, needed, ended)
        for future in futures.values():
            outcome = future.result()
            new_causes = outcome.causes() - causes
            causes |= new_causes
            _logger.log(logging.ERROR if new_causes else logging.INFO, outcome.log_line())
            outcomes.append(outcome)
    for outcome in outcomes:
        if outcome.raised is not None:
            raise outcome.raised
    return outcomes


def _try(
    step: Step, context: CheckContext, needed: Sequence[Future[Outcome]], ended: Sequence[Future[Outcome]]
) -> Outcome:
    """Run a step in its own thread, after the steps that it depends on have ended.

    Deadlocks are impossible: a step only waits for earlier steps, and each step has its own thread.
    """
    wait(ended)
    findings = StepFindings()
    for future in needed:
        if not (earlier := future.result()).succeeded:
            findings.blocked_by = earlier.findings.blocked_by or earlier.step.id
            return Outcome(step, findings, 0)
    findings.remedies = context.remedies
    began = time.monotonic()
    raised = None
    try:
        step.attempt(context, findings)
    except Exception as error:
        raised = error
    return Outcome(step, findings, time.monotonic() - began, raised)


@dataclass(frozen=True, slots=True)
class Remedies:
    """Determines the remedies for missing permissions, for one configuration.

    `principal` is the ARN of the caller's user or role.
    """

    config: Config
    scope: Scope
    principal: str

    @classmethod
    def of(cls, config: Config, account: str, principal: str) -> Self:
        """Return the remedies for a principal in an AWS account."""
        return cls(config, Scope.of(config.model_copy(update={"aws_account_id": account})), principal)

    def with_folders(self, folders: Iterable[S3Address]) -> Self:
        """Return a copy that also covers these folders, which belong to tables outside bucket_prefix."""
        outside = tuple(S3Address(folder.bucket, folder.key.strip("/")) for folder in folders)
        return dataclasses.replace(self, scope=dataclasses.replace(self.scope, outside=outside))

    def with_remedy(self, failure: Failure) -> Failure:
        """Return the failure with a remedy in its message: the statement or command that grants the missing permission.

        A failure that is not due to a missing permission is returned unchanged.
        """
        missing = failure.missing
        # An additional statement cannot override an explicit deny, and some messages already contain the command.
        if missing is None or "explicit deny" in failure.detail or "aws lakeformation" in failure.message:
            return failure
        if missing.in_iam and (policy := resource_policy(missing.action, failure.detail)):
            remedy = f"Statement for {policy}: {json.dumps(self._for_resource(missing))}"
        elif missing.in_iam:
            remedy = f"Policy statement for {self.principal}: {json.dumps(self._statement(missing))}"
        else:
            remedy = f"Command: {self._grant(missing).command_line(self.principal, self.config)}"
            if missing == MissingPermission("DESCRIBE", self.scope.database):
                # AWS does not reveal whether a database exists to a caller without CREATE_DATABASE.
                creation = self._grant(MissingPermission("CREATE_DATABASE"))
                remedy += f" Or, if the database does not exist: {creation.command_line(self.principal, self.config)}"
        return dataclasses.replace(failure, message=f"{failure.message} {remedy}")

    def whole_policy(self) -> str:
        """Return a sentence with the complete IAM policy, because often more than one permission is missing."""
        policy = json.dumps(document(statements(self.config, self.scope)), ensure_ascii=False)
        return (
            "The whole IAM policy for this configuration, as printed by `destination-datalake iam-policy --config "
            f"FILE`: {policy}"
        )

    def _statement(self, missing: MissingPermission) -> dict[str, Any]:
        """Return the configuration's policy statement that contains the missing action, reduced to this action."""
        # Writing with a KMS key also requires kms:Decrypt, for multipart uploads and for reads.
        actions = ("kms:GenerateDataKey", "kms:Decrypt") if missing.action.startswith("kms:") else (missing.action,)
        candidates = [rule for rule in statements(self.config, self.scope) if missing.action in rule.actions]
        # Several statements may contain iam:PassRole.
        candidates.sort(key=lambda rule: missing.resource not in rule.resources)
        statement = candidates[0] if candidates else Statement("", actions, (missing.resource or "*",), {})
        document = dataclasses.replace(statement, actions=actions).document()
        # The Sid is omitted, because it may not be unique in the policy to which the user adds the statement.
        return {key: value for key, value in document.items() if key != "Sid"}

    def _for_resource(self, missing: MissingPermission) -> dict[str, Any]:
        """Return a statement for the policy of a resource, such as a bucket, with the caller as its principal."""
        document = self._statement(missing)
        if missing.action.startswith("kms:"):
            # In a key's policy, `*` stands for the key itself (KMS: Key policies).
            document["Resource"] = ["*"]
        return {"Effect": document.pop("Effect"), "Principal": {"AWS": self.principal}, **document}

    def _grant(self, missing: MissingPermission) -> LakeFormationGrant:
        """Return the grant from the configuration's Lake Formation grants that contains the missing permission."""
        database = Database(self.scope.database)
        is_on_database = missing.resource == self.scope.database
        grants = [
            grant for grant in lake_formation_grants(self.config, self.scope) if missing.action in grant.permissions
        ]
        # Some permissions exist for both databases and tables.
        preferred = [grant for grant in grants if (grant.resource == database) == is_on_database]
        for grant in (*preferred, *grants):
            return grant
        return LakeFormationGrant((missing.action,), AllTables(database.name), "")
