"""`destination-datalake iam-policy`: for the people who set the connector up. It calls nothing but reads files."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence

from destination_datalake import terminal
from destination_datalake.aws.address import S3Address
from destination_datalake.config.options import Config
from destination_datalake.config.parsing import read_object
from destination_datalake.errors import ConfigError
from destination_datalake.iam_policy.policy import (
    MANAGED_POLICY_CHARACTERS,
    characters,
    document,
    lake_formation_grants,
    parts,
    statements,
)
from destination_datalake.iam_policy.rules import ANY_ACCOUNT, CAPABILITIES, ERASURE, Scope
from destination_datalake.protocol.catalog import parse_catalog

_DESCRIPTION = """\
Print the IAM policy that the connector's user or role needs for a configuration, and nothing more. The Lake
Formation permissions that it needs are printed beside it: on standard error as commands of the AWS CLI, or, with
--grants, on standard output in place of the policy. Nothing in AWS is called or changed."""

_EPILOG = """\
Standard output can be piped and saved:

  destination-datalake iam-policy --config config.json > policy.json
  aws iam put-role-policy --role-name airbyte --policy-name data-lake --policy-document file://policy.json

  destination-datalake iam-policy --config config.json --grants | sh

The exit code is 0, 1 if the configuration is not valid, and 2 for a wrong command line."""


def run_iam_policy(arguments: Sequence[str]) -> int:
    """Run the command with these arguments (without its name); return the exit code, 0 or 1.

    Raises SystemExit with code 2 for a wrong command line, and with 0 for `--help`.
    """
    asked = _parser().parse_args(arguments)
    return terminal.run(asked, "print the policy of", "the configuration", lambda config: _print(config, asked))


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("iam-policy", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="the configured catalog, as for write: the policy then names the databases of its streams' namespaces. "
        "Without it the policy names lakeformation_database_name only",
    )
    parser.add_argument(
        "--grants", action="store_true", help="print the Lake Formation permissions in place of the policy"
    )
    parser.add_argument(
        "--principal",
        metavar="ARN",
        help="the user or role that the connector runs as, for the Lake Formation permissions; by default role_arn",
    )
    parser.add_argument(
        "--location",
        metavar="S3_URI",
        action="append",
        default=[],
        help="a folder outside bucket_prefix with tables that follow_table_location writes to; may be repeated",
    )
    parser.add_argument("--delete-rows", action="store_true", help="also allow what the command delete-rows needs")
    parser.add_argument(
        "--part",
        type=int,
        metavar="N",
        help="the N-th of the policies into which one is divided that exceeds the limit of managed policies, "
        f"{MANAGED_POLICY_CHARACTERS:,} characters",
    )
    return parser


def _print(config: Config, asked: argparse.Namespace) -> int:
    """Print the policy or the grants, and beside them notes and, unless they are asked for, the grants."""
    scope, principal = _scope(config, asked), _principal(config, asked)
    policy = statements(config, scope, (*CAPABILITIES, *ERASURE) if asked.delete_rows else CAPABILITIES)
    divided = parts(policy)
    grants = [each.command_line(principal, config) for each in lake_formation_grants(config, scope) if principal]
    if asked.grants and principal is None:
        raise ConfigError("No option tells who the connector is. Name its user or role with --principal.")
    if asked.part is not None and not asked.grants:
        if not 1 <= asked.part <= len(divided):
            raise ConfigError(f"--part {asked.part} does not exist: the policy has {len(divided)}.")
        policy = divided[asked.part - 1]
    answer = "\n".join(grants) if asked.grants else json.dumps(document(policy), indent=2, ensure_ascii=False)
    terminal.put(sys.stdout, answer)  # No secret is masked: a name that is also a password has to stay as it is.
    for note in _notes(config, asked, scope, principal):
        terminal.note(f"Note: {note}")
    if len(divided) > 1 and asked.part is None and not asked.grants:
        terminal.note(
            f"Note: the policy has {characters(policy):,} characters without white space; a managed policy may have "
            f"{MANAGED_POLICY_CHARACTERS:,}. --part 1 to --part {len(divided)} print policies within that."
        )
    if config.lake_formation.mode != "none" and principal and not asked.grants:
        terminal.note("Lake Formation permissions, to be granted by a data lake administrator:")
        terminal.put(sys.stderr, "\n".join(grants))
    return 0


_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/\S+")


def _scope(config: Config, asked: argparse.Namespace) -> Scope:
    streams = parse_catalog(read_object(asked.catalog, "configured catalog")) if asked.catalog else ()
    if asked.location and not config.follow_table_location:
        raise ConfigError("--location is for tables outside bucket_prefix: set follow_table_location to true.")
    if asked.principal is not None and not _PRINCIPAL.fullmatch(asked.principal):
        raise ConfigError(
            f"--principal {asked.principal} is not the ARN of an IAM user or role, such as "
            "arn:aws:iam::123456789012:role/airbyte; of a session, name the role."
        )
    return Scope.of(config, (stream.id for stream in streams), [_folder(location) for location in asked.location])


def _principal(config: Config, asked: argparse.Namespace) -> str | None:
    if asked.principal is not None:
        return str(asked.principal)
    credentials = config.credentials
    return credentials.role_arn if credentials.credentials_title == "IAM Role" else None


def _notes(config: Config, asked: argparse.Namespace, scope: Scope, principal: str | None) -> Iterator[str]:
    if config.database_strategy == "namespace" and asked.catalog is None:
        yield (
            f"only database {scope.database} is named. Streams with a namespace are written to a database of that "
            "name: pass the configured catalog with --catalog to add theirs."
        )
    if scope.account == ANY_ACCOUNT and config.catalog.type in ("glue", "glue_rest") and not asked.grants:
        yield (
            "no option names the account of the Data Catalog: * stands for it in the policy, which can be attached as "
            "it is. Set aws_account_id, or glue_catalog_id if another account owns the catalog, to name it."
        )
    if config.follow_table_location and not asked.location:
        yield "only bucket_name and bucket_prefix are named. Add the folders of tables elsewhere with --location."
    if config.encryption.encryption_type == "Bucket default":
        yield (
            "if the bucket encrypts with a KMS key of yours, the policy lacks that key. Set encryption to SSE-KMS "
            "with kms_key_arn."
        )
    if config.lake_formation.mode != "none" and principal is None:
        yield "no option tells who the connector is. Pass --principal to see the Lake Formation permissions."
    if replaced := scope.replaced():
        yield (
            f"policies cannot hold every character of {', '.join(replaced)}: the wildcard * stands for some. The "
            "policy allows more than it should; with other names it would not."
        )


def _folder(location: str) -> S3Address:
    try:
        address = S3Address.parse(location)
    except ValueError as error:
        raise ConfigError(f"--location: {error}, such as s3://bucket/folder.") from None
    if not {"*", "?", "$"}.isdisjoint(location):
        raise ConfigError(f"--location {location} has a character with a meaning of its own in policies: *, ? or $.")
    return address
