"""Run the steps of the check concurrently, log their outcomes, and add remedies for missing permissions.

A step waits only for the steps on which it depends.
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
"""The age after which temporary objects and tables count as leftovers of an interrupted check. A check deletes such
leftovers."""


@dataclass(slots=True)
class CheckContext:
    """The data that all steps of one check share: the configuration, the access to AWS, and results of earlier steps.

    `unique` is a string of 32 hexadecimal digits that no other check uses. The names of temporary objects and tables
    contain `unique`.
    """

    config: Config
    access: AwsAccess
    unique: str
    remedies: Remedies | None = None
    """The remedies for missing permissions. None until the step `identity` has identified the caller."""
    key_failures: list[Failure] = field(default_factory=list)
    """The failures of requests that KMS rejected, in any folder. The step `kms_key` reports all of them."""
    encrypted_with: list[str] = field(default_factory=list)
    """The encryption of each object that the check wrote: "AES256", the ARN of a KMS key, or "nothing"."""
    settings: Mapping[str, Any] | None = None
    """The data lake settings (Lake Formation API: DataLakeSettings), or None if the caller may not read them."""

    @property
    def caller(self) -> Remedies:
        """The remedies for missing permissions of the caller. Only steps that need the step `identity` may use them."""
        assert self.remedies is not None
        return self.remedies

    @property
    def database(self) -> str:
        """The configured database, which contains the tables of streams without a namespace."""
        return self.config.lakeformation_database_name


@dataclass(slots=True)
class _Attempt:
    succeeded: bool = False


@dataclass(slots=True)
class StepFindings:
    """The results of a step: failures, and notes for the user that do not fail the check.

    `blocked_by` is the ID of another step whose failure prevented the success of this step, or None. If the caller is
    known, `remedies` adds remedies to messages about missing permissions.
    """

    remedies: Remedies | None = None
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blocked_by: str | None = None

    @contextmanager
    def attempt(self, doing: str, resource: str) -> Iterator[_Attempt]:
        """Catch an exception that AWS causes in the `with` block, and add it as a failure. Raise all other exceptions.

        Yields an object whose `succeeded` is true after the block has completed without an exception. `doing` and
        `resource` complete the message "Cannot …", such as "Cannot read table shop.orders".
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
        """Add a failure. If a missing permission caused the failure, append the remedy to the message."""
        self.failures.append(failure if self.remedies is None else self.remedies.with_remedy(failure))

    def fail(self, message: str) -> None:
        """Add a configuration error. `message` states the problem and the remedy."""
        self.failures.append(Failure(message, message, "config_error"))

    def warn(self, message: str, level: int = logging.WARNING) -> None:
        """Log a message, and add it to the notes for the user. A note does not fail the check."""
        _logger.log(level, message)
        self.notes.append(message)


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the check.

    `attempt` runs the step. `does` describes the step in the documentation. `needs` and `after` contain the IDs of
    other steps. The check includes a step only if `applies(config)` returns True. It starts the step when all steps in
    `after` have ended and all steps in `needs` have succeeded. If a step in `needs` fails, it skips the step.
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
    """The outcome of a step. If the step raised an exception that AWS did not cause, `raised` is this exception."""

    step: Step
    findings: StepFindings
    seconds: float
    raised: Exception | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the step has completed without a failure."""
        return self.raised is None and self.findings.blocked_by is None and not self.findings.failures

    def causes(self) -> set[object]:
        """Return a cause for each failure of the step: the denied action or, if none is denied, the failure's message.

        If the step raised an exception, the result also contains the step's ID. Two steps with the same cause probably
        have the same problem.
        """
        raised = set[object]() if self.raised is None else {self.step.id}
        return raised | {
            failure.missing.action if failure.missing else failure.message for failure in self.findings.failures
        }

    def log_line(self) -> str:
        """Return the outcome as a line of JSON: ID, name, success, error, error class and duration in milliseconds.

        The error class is the class of the first failure.
        """
        failures, blocked_by = self.findings.failures, self.findings.blocked_by
        error: str | None = None
        error_class: ErrorClass | None = None
        if self.raised is not None:
            error, error_class = (
                f"Step {self.step.id} failed with an unexpected error: {type(self.raised).__name__}.",
                "internal",
            )
        elif failures:
            error = "\n".join(failure.message for failure in failures)
            error_class = failures[0].error_class
        elif blocked_by is not None:
            error = f"The check skipped this step because step {blocked_by} failed."
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
    """Run the steps concurrently. Log and return their outcomes in the order of `steps`.

    Logs an outcome as an error if it has a cause that no earlier outcome has, and as info otherwise. If steps raise
    exceptions that AWS did not cause, raises the first of these exceptions after all steps have ended.
    """
    futures: dict[str, Future[Outcome]] = {}
    outcomes = []
    causes = set[object]()
    # One thread per step, because a step blocks its thread while it waits for others.
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
    """Wait for the steps on which a step depends, run the step, and return its outcome.

    If a needed step failed, skips the step. Deadlocks are impossible, because each step has its own thread, and only
    waits for steps before it in the order of submission.
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
    """Adds remedies to failures: the policy statement or the command that grants the missing permission.

    `principal` is the ARN of the caller's user or role. `scope` contains the resources of the policy statements.
    """

    config: Config
    scope: Scope
    principal: str

    @classmethod
    def for_caller(cls, config: Config, account: str, principal: str) -> Self:
        """Return the remedies for a configuration. The caller is `principal` in the AWS account `account`."""
        return cls(config, Scope.for_config(config.model_copy(update={"aws_account_id": account})), principal)

    def with_folders(self, folders: Iterable[S3Address]) -> Self:
        """Return a copy whose policy statements also include `folders`, which contain tables outside bucket_prefix."""
        return dataclasses.replace(self, scope=dataclasses.replace(self.scope, outside=tuple(folders)))

    def with_remedy(self, failure: Failure) -> Failure:
        """Return a copy of the failure whose message ends with the statement or command that grants the permission.

        Returns the failure unchanged if no permission is missing, if an explicit deny caused the failure, or if the
        message already contains a Lake Formation command.
        """
        missing = failure.missing
        # An additional statement cannot override an explicit deny.
        if missing is None or "explicit deny" in failure.detail or "aws lakeformation" in failure.message:
            return failure
        if missing.in_iam and (policy := resource_policy(missing.action, failure.detail)):
            remedy = f"Add this statement to {policy}: {json.dumps(self._for_resource(missing))}"
        elif missing.in_iam:
            remedy = f"Add this statement to an IAM policy of {self.principal}: {json.dumps(self._statement(missing))}"
        else:
            remedy = f"Run: {self._grant(missing).command_line(self.principal, self.config)}"
            if missing == MissingPermission("DESCRIBE", self.scope.database):
                # AWS does not reveal whether a database exists to a caller without CREATE_DATABASE.
                creation = self._grant(MissingPermission("CREATE_DATABASE"))
                command = creation.command_line(self.principal, self.config)
                remedy += f" If the database does not exist, run instead: {command}"
        return dataclasses.replace(failure, message=f"{failure.message} {remedy}")

    def whole_policy(self) -> str:
        """Return a sentence with the complete IAM policy for the configuration.

        The check adds this sentence to its messages, because the caller usually lacks more than one permission.
        """
        policy = json.dumps(document(statements(self.config, self.scope)), ensure_ascii=False)
        return (
            "The complete IAM policy for this configuration, as printed by `destination-datalake iam-policy --config "
            f"FILE`: {policy}"
        )

    def _statement(self, missing: MissingPermission) -> dict[str, Any]:
        """Return a policy statement that allows only the missing action.

        Its resources and conditions are those of the statement for this action in the configuration's IAM policy.
        """
        # Writing with a KMS key also requires kms:Decrypt, for multipart uploads and for reads.
        actions = ("kms:GenerateDataKey", "kms:Decrypt") if missing.action.startswith("kms:") else (missing.action,)
        candidates = [rule for rule in statements(self.config, self.scope) if missing.action in rule.actions]
        # Prefer the statement for the same resource, because several statements may contain iam:PassRole.
        candidates.sort(key=lambda rule: missing.resource not in rule.resources)
        statement = candidates[0] if candidates else Statement("", actions, (missing.resource or "*",), {})
        document = dataclasses.replace(statement, actions=actions).document()
        # Omit the Sid, because the user's policy may already contain a statement with the same Sid.
        return {key: value for key, value in document.items() if key != "Sid"}

    def _for_resource(self, missing: MissingPermission) -> dict[str, Any]:
        """Return a statement for the policy of a resource, such as a bucket, with the caller as its principal."""
        document = self._statement(missing)
        if missing.action.startswith("kms:"):
            # In a key's policy, `*` stands for the key itself (KMS: Key policies).
            document["Resource"] = ["*"]
        return {"Effect": document.pop("Effect"), "Principal": {"AWS": self.principal}, **document}

    def _grant(self, missing: MissingPermission) -> LakeFormationGrant:
        """Return the grant with the missing permission among the Lake Formation grants that the configuration needs.

        If there is no such grant, returns a grant of this permission on all tables of the database.
        """
        database = Database(self.scope.database)
        is_on_database = missing.resource == self.scope.database
        grants = [
            grant for grant in lake_formation_grants(self.config, self.scope) if missing.action in grant.permissions
        ]
        # Some permissions exist for databases and for tables, so prefer the kind of resource that was denied.
        preferred = [grant for grant in grants if (grant.resource == database) == is_on_database]
        for grant in (*preferred, *grants):
            return grant
        return LakeFormationGrant((missing.action,), AllTables(database.name), "")
