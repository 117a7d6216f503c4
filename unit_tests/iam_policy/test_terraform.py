"""The policy and the grants as Terraform: the same content as the documents, laid out as `terraform fmt` does."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import hcl2

from destination_datalake.config.options import Config
from destination_datalake.iam_policy import terraform
from destination_datalake.iam_policy.grants import lake_formation_grants
from destination_datalake.iam_policy.policy import document, parts, statements
from destination_datalake.iam_policy.scope import Scope
from destination_datalake.protocol.catalog import StreamId
from unit_tests.iam_policy.examples import ACCOUNT, ANALYST, KEY, LOCATION_ROLE, config

PRINCIPAL = f"arn:aws:iam::{ACCOUNT}:role/airbyte"
GRANTS = [{"principal": ANALYST, "permissions": ["SELECT"], "table": "*"}]
GOVERNED = {"mode": "hybrid", "registration_role_arn": LOCATION_ROLE, "tags": {"domain": ["sales"]}, "grants": GRANTS}

LAYOUT = f"""\
data "aws_iam_policy_document" "connector" {{
  statement {{
    sid = "Objects"

    actions = [
      "s3:PutObject",
      "s3:GetObject",
      "s3:DeleteObject",
      "s3:AbortMultipartUpload",
    ]

    resources = [
      "arn:aws:s3:::lake/airbyte/*",
    ]
  }}

  statement {{
    sid = "Folders"

    actions = [
      "s3:ListBucket",
    ]

    resources = [
      "arn:aws:s3:::lake",
    ]

    condition {{
      test     = "StringLike"
      variable = "s3:prefix"
      values   = ["airbyte/*"]
    }}
  }}
}}

resource "aws_lakeformation_permissions" "connector_catalog" {{
  principal        = "arn:aws:iam::{ACCOUNT}:role/airbyte"
  permissions      = ["CREATE_DATABASE"]
  catalog_resource = true
}}

resource "aws_lakeformation_permissions" "connector_location_lake_airbyte" {{
  principal   = "arn:aws:iam::{ACCOUNT}:role/airbyte"
  permissions = ["DATA_LOCATION_ACCESS"]

  data_location {{
    arn = "arn:aws:s3:::lake/airbyte"
  }}
}}
"""


def test_the_layout_is_that_of_terraform_fmt() -> None:
    given = config(lake_formation=GOVERNED)
    scope = Scope.of(given)
    policy, grants = statements(given, scope)[:2], lake_formation_grants(given, scope)[0::2][:2]

    found = f"{terraform.policy_documents([policy])}\n\n{terraform.permissions(grants, PRINCIPAL, given)}\n"

    assert found == LAYOUT


def test_terraform_fmt_where_it_is_installed_changes_nothing() -> None:
    given = config(
        lake_formation=GOVERNED,
        encryption={"encryption_type": "SSE-KMS", "kms_key_arn": KEY},
        glue_catalog_id="210987654321",
        glue_region="us-east-1",
    )

    text = _text(given)

    assert (_formatted(text) if shutil.which("terraform") else text) == text


def _formatted(text: str) -> str:
    program = ["terraform", "fmt", "-"]
    return subprocess.run(program, input=text, capture_output=True, text=True, timeout=60, check=True).stdout


def test_a_data_source_has_the_statements_of_the_document() -> None:
    given = config(lake_formation=GOVERNED, encryption={"encryption_type": "SSE-KMS", "kms_key_arn": KEY})
    scope = Scope.of(given, [StreamId("shop", "orders")])

    [source] = _parsed(terraform.policy_documents([statements(given, scope)]))["data"]

    [block] = source["aws_iam_policy_document"].values()
    assert [_as_document(each) for each in block["statement"]] == document(statements(given, scope))["Statement"]


def test_each_part_of_a_long_policy_is_a_data_source() -> None:
    scope = Scope.of(config(), [StreamId(f"namespace_{number}", "orders") for number in range(40)])

    sources = _parsed(terraform.policy_documents(parts(statements(config(), scope))))["data"]

    assert [name for each in sources for name in each["aws_iam_policy_document"]] == ["connector", "connector_2"]


def test_what_is_granted_on_the_same_is_one_resource() -> None:
    given = config(lake_formation=GOVERNED)
    grants = lake_formation_grants(given, Scope.of(given, [StreamId("raw-data", "x"), StreamId("raw_data", "x")]))

    found = _parsed(terraform.permissions(grants, PRINCIPAL, given))["resource"]

    # Lake Formation lists what a principal has on a resource as one, so that two would each see the other's as drift.
    blocks = {name: body for each in found for name, body in each["aws_lakeformation_permissions"].items()}
    assert len(blocks) == len(found) == len({grant.resource for grant in grants}) < len(grants)
    assert blocks["connector_catalog"]["permissions"] == ["CREATE_DATABASE", "CREATE_LF_TAG"]
    tables = blocks["connector_tables_raw"]
    assert tables["permissions"] == ["ALTER", "DELETE", "DESCRIBE", "INSERT", "SELECT"]
    assert tables["permissions_with_grant_option"] == ["SELECT"]


def test_text_that_terraform_would_take_for_a_template_is_escaped() -> None:
    given = config(bucket_prefix="$lake")
    assert '"arn:aws:s3:::lake/$lake/*"' in terraform.policy_documents([statements(given, Scope.of(given))])

    tagged = config(lake_formation={"mode": "managed", "tags": {"a%b": ["c"]}})
    assert '"a%b"' in terraform.permissions(lake_formation_grants(tagged, Scope.of(tagged)), PRINCIPAL, tagged)


def _text(given: Config) -> str:
    scope = Scope.of(given)
    documents = terraform.policy_documents([statements(given, scope)])
    return f"{documents}\n\n{terraform.permissions(lake_formation_grants(given, scope), PRINCIPAL, given)}\n"


def _parsed(text: str) -> Any:
    return _plain(hcl2.loads(text))


def _plain(value: Any) -> Any:
    """What python-hcl2 has parsed, without the quotes that it leaves around strings and its own keys."""
    match value:
        case dict():
            return {_plain(key): _plain(each) for key, each in value.items() if not str(key).startswith("__")}
        case list():
            return [_plain(each) for each in value]
        case str():
            return value.strip('"')
    return value


def _as_document(statement: dict[str, Any]) -> dict[str, Any]:
    found = {
        "Sid": statement["sid"],
        "Effect": "Allow",
        "Action": statement["actions"],
        "Resource": statement["resources"],
    }
    for condition in statement.get("condition", []):
        found["Condition"] = {condition["test"]: {condition["variable"]: condition["values"]}}
    return found
