"""How a missing permission is given to the caller: the statement of its policy, or the command of a grant."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.permissions import resource_policy
from destination_datalake.config.options import Config
from destination_datalake.errors import Failure, MissingPermission
from destination_datalake.iam_policy.grants import LakeFormationGrant, lake_formation_grants
from destination_datalake.iam_policy.policy import Statement, document, statements
from destination_datalake.iam_policy.scope import Scope
from destination_datalake.lake_formation.resources import AllTables, Database


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
                # Lake Formation does not tell whoever may not create databases which ones exist.
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
