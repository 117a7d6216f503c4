"""Steps of the check: what they are given and find, and how a missing permission is given to the caller.

Each is tried, timed and logged; those that need nothing of each other run concurrently.
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
from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain, resource_policy
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
"""What a check has made and is older was left by one that was killed."""


@dataclass(slots=True)
class Trial:
    """One check. `unique` is a word of 32 hexadecimal digits that no other check uses."""

    config: Config
    access: AwsAccess
    unique: str
    remedies: Remedies | None = None
    """How missing permissions are given to the caller; set by the step that asks AWS who that is."""
    key_failures: list[Failure] = field(default_factory=list)
    """Why S3 could not use the KMS key, from each folder."""
    encrypted_with: list[str] = field(default_factory=list)
    """What S3 has encrypted objects with, from each folder: "AES256", or the ARN of a KMS key."""
    settings: Mapping[str, Any] | None = None
    """The data lake settings (Lake Formation API: DataLakeSettings), if the caller may read them."""

    @property
    def database(self) -> str:
        """The database that is tried: that of streams without a namespace."""
        return self.config.lakeformation_database_name


@dataclass(slots=True)
class _Attempt:
    succeeded: bool = False


@dataclass(slots=True)
class Findings:
    """What a step has found: the failures, and what the user should know without its being one.

    `blocked_by` is the id of the step that reports why this one could not be tried to its end. `remedies` are added to
    failures.
    """

    remedies: Remedies | None = None
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    blocked_by: str | None = None

    @contextmanager
    def attempt(self, doing: str, resource: str) -> Iterator[_Attempt]:
        """Add a failure if the block fails because of AWS; the value says whether it succeeded.

        `doing` completes "Cannot …", as in `explain`.
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
        """Add a failure, with the remedy if a permission is missing."""
        self.failures.append(failure if self.remedies is None else self.remedies.added_to(failure))

    def fail(self, message: str) -> None:
        """Add a failure that is due to the options. `message` says what is wrong and what to do."""
        self.failures.append(Failure(message, message, "config_error"))

    def warn(self, message: str, level: int = logging.WARNING) -> None:
        """Note and log what does not fail the check."""
        _logger.log(level, message)
        self.notes.append(message)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `attempt` tries what `does` says, and adds what it finds.

    It is tried once the steps whose ids are in `needs` have succeeded, and those in `after` have ended; and only with
    options that it `applies` to.
    """

    id: str
    name: str
    does: str
    attempt: Callable[[Trial, Findings], None]
    needs: Sequence[str] = ()
    after: Sequence[str] = ()
    applies: Callable[[Config], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a step; `raised` is an exception that AWS did not raise."""

    step: Step
    findings: Findings
    seconds: float
    raised: Exception | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the step was tried to its end and has no failure."""
        return self.raised is None and self.findings.blocked_by is None and not self.findings.failures

    def causes(self) -> set[object]:
        """Return why the step failed: the actions that were denied, otherwise the messages."""
        raised = set[object]() if self.raised is None else {self.step.id}
        return raised | {
            failure.missing.action if failure.missing else failure.message for failure in self.findings.failures
        }

    def log_line(self) -> str:
        """Return the outcome as one line of JSON. The class is that of the first failure."""
        failures, blocked_by = self.findings.failures, self.findings.blocked_by
        error: str | None = None
        error_class: ErrorClass | None = None
        if self.raised is not None:
            error, error_class = f"Step {self.step.id} failed: {type(self.raised).__name__}.", "internal"
        elif failures:
            error = "\n".join(failure.message for failure in failures)
            error_class = failures[0].error_class
        elif blocked_by is not None:
            error = f"Not tried to the end: step {blocked_by} failed."
        line = {
            "id": self.step.id,
            "name": self.step.name,
            "success": self.succeeded,
            "error": error,
            "error_class": error_class,
            "duration_ms": round(self.seconds * 1000),
        }
        return json.dumps(line, ensure_ascii=False)


def run_steps(steps: Sequence[Step], trial: Trial) -> list[Outcome]:
    """Try the steps, log each in their order, and return what became of them.

    The log has one error for each cause: a step that was not tried, or that failed of what was told, is an info.
    Raises what a step raised that AWS did not, after all steps have ended.
    """
    futures: dict[str, Future[Outcome]] = {}
    outcomes = []
    causes = set[object]()
    with ThreadPoolExecutor(len(steps), "check") as pool:
        for step in steps:
            needed, ended = ([futures[id] for id in ids if id in futures] for ids in (step.needs, step.after))
            futures[step.id] = pool.submit(_try, step, trial, needed, ended)
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


def _try(step: Step, trial: Trial, needed: Sequence[Future[Outcome]], ended: Sequence[Future[Outcome]]) -> Outcome:
    """Try the step on a thread of its own. Each step waits only for earlier ones, which have threads too."""
    wait(ended)
    findings = Findings()
    for future in needed:
        if not (earlier := future.result()).succeeded:
            findings.blocked_by = earlier.findings.blocked_by or earlier.step.id
            return Outcome(step, findings, 0)
    findings.remedies = trial.remedies
    began = time.monotonic()
    raised = None
    try:
        step.attempt(trial, findings)
    except Exception as error:
        raised = error
    return Outcome(step, findings, time.monotonic() - began, raised)


@dataclass(frozen=True, slots=True)
class Remedies:
    """Remedies for one configuration. `principal` is the ARN of the IAM user or role that lacks permissions."""

    config: Config
    scope: Scope
    principal: str

    @classmethod
    def of(cls, config: Config, account: str, principal: str) -> Self:
        """Return remedies for a principal of this account."""
        return cls(config, Scope.of(config.model_copy(update={"aws_account_id": account})), principal)

    def with_folders(self, folders: Iterable[S3Address]) -> Self:
        """Return remedies that include these folders, of tables elsewhere."""
        outside = tuple(S3Address(folder.bucket, folder.key.strip("/")) for folder in folders)
        return dataclasses.replace(self, scope=dataclasses.replace(self.scope, outside=outside))

    def added_to(self, failure: Failure) -> Failure:
        """Return the failure with the statement or command that gives what is missing, if a permission is."""
        missing = failure.missing
        # No statement outweighs an explicit deny. Some sentences have the command already.
        if missing is None or "explicit deny" in failure.detail or "aws lakeformation" in failure.message:
            return failure
        if missing.in_iam and (policy := resource_policy(missing.action, failure.detail)):
            remedy = f"Statement for {policy}: {json.dumps(self._for_resource(missing))}"
        elif missing.in_iam:
            remedy = f"Policy statement for {self.principal}: {json.dumps(self._statement(missing))}"
        else:
            remedy = f"Command: {self._grant(missing).command_line(self.principal, self.config)}"
            if missing == MissingPermission("DESCRIBE", self.scope.database):
                # A caller who may not create databases is not told which ones exist.
                creation = self._grant(MissingPermission("CREATE_DATABASE"))
                remedy += f" Or, if there is no such database yet: {creation.command_line(self.principal, self.config)}"
        return dataclasses.replace(failure, message=f"{failure.message} {remedy}")

    def whole_policy(self) -> str:
        """Return a sentence with all that IAM must allow: who lacks one permission often lacks others."""
        policy = json.dumps(document(statements(self.config, self.scope)), ensure_ascii=False)
        return (
            "All that this configuration needs from IAM, as `destination-datalake iam-policy --config FILE` prints it: "
            f"{policy}"
        )

    def _statement(self, missing: MissingPermission) -> dict[str, Any]:
        """Return the statement of the configuration's policy that allows the action, without others than it needs."""
        # Who writes objects with a KMS key also completes multipart uploads and reads, which takes both.
        actions = ("kms:GenerateDataKey", "kms:Decrypt") if missing.action.startswith("kms:") else (missing.action,)
        found = [each for each in statements(self.config, self.scope) if missing.action in each.actions]
        # More than one role may have to be passed.
        found.sort(key=lambda each: missing.resource not in each.resources)
        statement = found[0] if found else Statement("", actions, (missing.resource or "*",), {})
        document = dataclasses.replace(statement, actions=actions).document()
        # An id has to be unique in the policy that the statement is added to.
        return {key: value for key, value in document.items() if key != "Sid"}

    def _for_resource(self, missing: MissingPermission) -> dict[str, Any]:
        """Return the statement as the policy of a resource has it, with the caller as its principal."""
        document = self._statement(missing)
        if missing.action.startswith("kms:"):
            # In a key's policy this is the key (KMS: Key policies).
            document["Resource"] = ["*"]
        return {"Effect": document.pop("Effect"), "Principal": {"AWS": self.principal}, **document}

    def _grant(self, missing: MissingPermission) -> LakeFormationGrant:
        """Return the grant of the configuration's that has the permission, with all else that the resource needs."""
        database = Database(self.scope.database)
        of_database = missing.resource == self.scope.database
        grants = [each for each in lake_formation_grants(self.config, self.scope) if missing.action in each.permissions]
        # Some permissions are granted on databases as well as on tables.
        likely = [each for each in grants if (each.resource == database) == of_database]
        for grant in (*likely, *grants):
            return grant
        return LakeFormationGrant((missing.action,), AllTables(database.name), "")
