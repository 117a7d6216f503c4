"""The policy of an example, and the rules behind it, as the command `iam-policy` applies them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.policy import document, lake_formation_grants, statements
from destination_datalake.iam_policy.rules import CAPABILITIES, ERASURE, Scope
from docs.generator.markdown import code, table

_ACCOUNT = "123456789012"
_EXAMPLE: Mapping[str, Any] = {
    "aws_account_id": _ACCOUNT,
    "credentials": {"credentials_title": "IAM Role", "role_arn": f"arn:aws:iam::{_ACCOUNT}:role/airbyte"},
    "region": "eu-central-1",
    "bucket_name": "my-lake",
    "bucket_prefix": "airbyte",
    "lakeformation_database_name": "landing",
}

_GOVERNED: Mapping[str, Any] = {
    **_EXAMPLE,
    "encryption": {
        "encryption_type": "SSE-KMS",
        "kms_key_arn": f"arn:aws:kms:eu-central-1:{_ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    },
    "lake_formation": {
        "mode": "hybrid",
        "registration_role_arn": f"arn:aws:iam::{_ACCOUNT}:role/lake-location",
        "tags": {"domain": ["sales"]},
        "grants": [
            {
                "principal": f"arn:aws:iam::{_ACCOUNT}:role/analyst",
                "permissions": ["SELECT", "DESCRIBE"],
                "table": "*",
            }
        ],
    },
}


def policy() -> str:
    """Return the policy of the example, as JSON to copy."""
    return _json(document(_statements(_EXAMPLE)))


def governed_statements() -> str:
    """Return the statements that encryption and Lake Formation add to it."""
    plain = {statement.sid for statement in _statements(_EXAMPLE)}
    return _json([statement.document() for statement in _statements(_GOVERNED) if statement.sid not in plain])


def actions() -> str:
    """Return a row for each action: what it is allowed on, who uses it, for what, and with which options."""
    optimizers = {"mode": "glue", "role_arn": f"arn:aws:iam::{_ACCOUNT}:role/table-optimizers"}
    scope = Scope.for_config(Config.parse({**_GOVERNED, "maintenance": optimizers}))

    def rows() -> Iterator[list[str]]:
        for capability in (*CAPABILITIES, *ERASURE):
            resources = _shortened(capability.resources(scope))
            for permission in capability.permissions:
                yield [
                    code(permission.action),
                    resources,
                    permission.need.value,
                    permission.why,
                    permission.when.options,
                ]

    return table(["action", "on", "used by", "purpose", "only with"], rows())


def writer_grants() -> str:
    """Return a row for each Lake Formation permission of the example's role."""
    config = Config.parse(_GOVERNED)

    def rows() -> Iterator[list[str]]:
        for grant in lake_formation_grants(config, Scope.for_config(config)):
            option = " with grant option" if grant.grantable else ""
            yield [str(grant.resource), ", ".join(map(code, grant.permissions)) + option, grant.why]

    return table(["on", "permissions", "purpose"], rows())


def writer_commands() -> str:
    """Return the first commands that `iam-policy --grants` prints for the example."""
    config = Config.parse(_GOVERNED)
    principal = _EXAMPLE["credentials"]["role_arn"]
    lines = [grant.command_line(principal, config) for grant in lake_formation_grants(config, Scope.for_config(config))]
    return "```sh\n" + "".join(f"{line}\n" for line in lines[2:4]) + "```\n"


def _statements(options: Mapping[str, Any]) -> Any:
    config = Config.parse(options)
    return statements(config, Scope.for_config(config))


def _shortened(arns: Iterable[str]) -> str:
    """Return the last parts of ARNs; `*` of actions that take no resources is left out."""
    names = (arn.removeprefix("arn:aws:s3:::").rpartition(":")[2] for arn in arns if arn != "*")
    return ", ".join(code(name) for name in names if name != "catalog")


def _json(value: Any) -> str:
    return f"```json\n{_compact(json.dumps(value, indent=2))}\n```\n"


def _compact(text: str) -> str:
    """Return indented JSON with each list of one text on one line."""
    lines = text.splitlines()
    compacted: list[str] = []
    while lines:
        line = lines.pop(0)
        if line.endswith("[") and len(lines) > 1 and lines[1].strip() in ("]", "],"):
            line += lines.pop(0).strip() + lines.pop(0).strip()
        compacted.append(line)
    return "\n".join(compacted)
