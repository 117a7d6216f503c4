"""Warnings and command lines, which an administrator may copy and run."""

from __future__ import annotations

import json
import shlex

import pytest

from destination_datalake.aws.access import AwsAccess
from destination_datalake.lake_formation.difference import RegisteredDifferently
from destination_datalake.lake_formation.messages import CommandLines, warning
from destination_datalake.lake_formation.resources import Columns, Table
from destination_datalake.lake_formation.state import Registration, Tag

LOCATION = "arn:aws:s3:::lake/raw"
ROLE, OTHER = "arn:aws:iam::123456789012:role/ours", "arn:aws:iam::123456789012:role/other"
SERVICE = "aws-service-role/lakeformation.amazonaws.com"
SERVICE_LINKED = f"arn:aws:iam::123456789012:role/{SERVICE}/AWSServiceRoleForLakeFormationDataAccess"
LINES = CommandLines("eu-west-1", "111122223333")


@pytest.mark.parametrize(
    ("present", "desired", "command"),
    [
        (
            Registration(LOCATION, OTHER, hybrid=True),
            Registration(LOCATION, ROLE, hybrid=False),
            f"update-resource --resource-arn {LOCATION} --role-arn {ROLE} --no-hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, OTHER, hybrid=False),
            Registration(LOCATION, None, hybrid=True),
            f"update-resource --resource-arn {LOCATION} --role-arn {OTHER} --hybrid-access-enabled",
        ),
        (
            Registration("arn:aws:s3:::lake", OTHER, hybrid=False),
            Registration(LOCATION, ROLE, hybrid=True),
            f"update-resource --resource-arn arn:aws:s3:::lake --role-arn {OTHER} --hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, SERVICE_LINKED, hybrid=False),
            Registration(LOCATION, ROLE, hybrid=True),
            f"deregister-resource --resource-arn {LOCATION} --region eu-west-1 && "
            f"aws lakeformation register-resource --resource-arn {LOCATION} --role-arn {ROLE} --hybrid-access-enabled",
        ),
        (
            Registration(LOCATION, SERVICE_LINKED, hybrid=False),
            Registration(LOCATION, None, hybrid=True),
            f"deregister-resource --resource-arn {LOCATION} --region eu-west-1 && "
            f"aws lakeformation register-resource --resource-arn {LOCATION} --role-arn <ROLE_ARN> "
            "--hybrid-access-enabled",
        ),
    ],
    ids=["role and access", "access", "a folder above keeps its role", "service-linked", "service-linked, no role"],
)
def test_a_registration_that_differs_comes_with_what_changes_it(
    present: Registration, desired: Registration, command: str
) -> None:
    assert warning(RegisteredDifferently(present, desired), LINES).endswith(
        f"To change it: aws lakeformation {command} --region eu-west-1"
    )


def test_names_survive_the_shell() -> None:
    odd = Columns("shop", "it's", ("a b", "ü$HOME"))

    words = shlex.split(LINES.grant("arn:aws:iam::1:role/a", ["SELECT"], odd, grantable=True))

    expected = {"DatabaseName": "shop", "Name": "it's", "ColumnNames": ["a b", "ü$HOME"]}
    assert json.loads(words[words.index("--resource") + 1]) == {"TableWithColumns": expected}
    assert words[words.index("--permissions-with-grant-option") + 1] == "SELECT"


def test_lines_name_the_catalog_and_its_region() -> None:
    access = AwsAccess("eu-west-1", glue_region="us-east-1", glue_catalog_id="111122223333")

    line = CommandLines.of(access).assign(Tag(Table("shop", "orders"), "pii", "yes"))

    assert line.endswith("--catalog-id 111122223333 --region us-east-1")
