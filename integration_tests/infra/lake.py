"""A lake that a stack has created, with the stack's parameters, and syncs of orders into it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from emulated_aws.account import Account, Member, trust
from emulated_aws.server import ACCESS_KEY_ID, ACCOUNT_ID, REGION, SECRET_ACCESS_KEY
from pyiceberg.catalog.glue import GlueCatalog

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema
from integration_tests.infra.stack import Stack
from integration_tests.infra.template import Template

_TEMPLATES = Path(__file__).parents[2] / "infra" / "cloudformation"
_LAKE = Template.read(_TEMPLATES / "datalake.yaml")
_NAMESPACE = Template.read(_TEMPLATES / "namespace.yaml")


class DeployedLake(Lake):
    """A stack's bucket and database. `airbyte` may assume the connector's role."""

    def __init__(self, endpoint_url: str, airbyte: Member, **parameters: str) -> None:
        """Deploy a stack with new names and these parameters."""
        super().__init__(endpoint_url)
        self.external_id = f"workspace-{uuid4().hex[:8]}"
        self.stack = Stack(_LAKE, self.database.replace("_", "-"), endpoint_url)
        self._parameters = {
            "BucketName": f"{self.bucket}-stack",
            "DatabaseName": self.database,
            "TrustedPrincipalArn": airbyte.arn,
            "ExternalId": self.external_id,
        }
        self.deploy(**parameters)
        self.bucket = self.stack.outputs["BucketName"]

    def deploy(self, **parameters: str) -> list[str]:
        """Deploy the stack again with these parameters changed; return the resources that were touched."""
        self._parameters |= parameters
        return self.stack.deploy(**self._parameters)

    def config(self, **overrides: object) -> dict[str, object]:
        """Return the configuration that the stack has as its output, and where the tests' AWS is."""
        configuration: Mapping[str, Any] = json.loads(self.stack.outputs["Configuration"])
        return {**configuration, "endpoint_url": self.endpoint_url} | overrides

    def add_namespace(self, namespace: str) -> Stack:
        """Deploy the stack of a namespace's database, with the outputs of the lake's as parameters."""
        stack = Stack(_NAMESPACE, namespace.replace("_", "-"), self.endpoint_url)
        outputs = {name: self.stack.outputs[name] for name in ("BucketName", "BucketPrefix", "RoleArn")}
        stack.deploy(DatabaseName=namespace, LakeFormationMode=self.stack.outputs["LakeFormationMode"], **outputs)
        return stack

    def connector(self, airbyte: Member) -> Member:
        """Return the connector's role, as this user assumes it."""
        made = self.stack.resources["ConnectorRole"]
        credentials = {"role_arn": made.attributes["Arn"], "external_id": self.external_id}
        return Member(made.attributes["Arn"], made.ref, credentials, airbyte.environment)

    def firehose(self) -> Member:
        """Return the role for deliveries. Nobody here can be Firehose: from now on the account may assume the role."""
        made = self.stack.resources["DeliveryRole"]
        iam = Account(self.endpoint_url).client("iam")
        (trusted,) = iam.get_role(RoleName=made.ref)["Role"]["AssumeRolePolicyDocument"]["Statement"]
        assert trusted["Principal"] == {"Service": "firehose.amazonaws.com"}
        root = f"arn:aws:iam::{ACCOUNT_ID}:root"
        iam.update_assume_role_policy(RoleName=made.ref, PolicyDocument=trust(root))
        environment = {"AWS_ACCESS_KEY_ID": ACCESS_KEY_ID, "AWS_SECRET_ACCESS_KEY": SECRET_ACCESS_KEY}
        return Member(made.attributes["Arn"], made.ref, {"role_arn": made.attributes["Arn"]}, environment)

    def append(self, table: str, rows: pa.Table, role: Member) -> None:
        """Append rows to an Iceberg table as an engine does that has this role; columns that rows lack are null."""
        keys = {"AWS_REGION": REGION, **Account(self.endpoint_url).session(role)}
        # PyIceberg's names: client.access-key-id and so on.
        properties = {f"client.{name[4:].lower().replace('_', '-')}": value for name, value in keys.items()}
        properties |= {f"{service}.endpoint": self.endpoint_url for service in ("glue", "s3")}
        catalog = GlueCatalog("lake", None, **properties)
        catalog.load_table((self.database, table)).append(rows)


def sync(platform: Platform, lake: DeployedLake, numbers: Sequence[object], *, namespace: str | None = None) -> None:
    """Append orders with these numbers, by a sync that has to succeed. A namespace gets a database of its own."""
    config = lake.config() if namespace is None else lake.config(database_strategy="namespace")
    orders = configured_stream("orders", object_schema(id=INTEGER, name=STRING), namespace=namespace)
    messages = [
        status("orders", "STARTED", namespace=namespace),
        *(record("orders", {"id": number, "name": f"order {number}"}, namespace=namespace) for number in numbers),
        state("orders", str(numbers[-1]), namespace=namespace),
        status("orders", "COMPLETE", namespace=namespace),
    ]
    run = platform.write(config, configured_catalog(orders), messages)
    assert run.exit_code == 0, run.report()


def ids(lake: DeployedLake) -> list[int]:
    """The numbers of the orders that a reader sees."""
    return sorted(int(row["id"]) for row in lake.rows(lake.database, "orders"))
