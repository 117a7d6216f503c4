"""`destination-datalake iam-policy`: print the permissions that a configuration requires, without calling AWS."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence

from destination_datalake import terminal
from destination_datalake.aws.objects import S3Address
from destination_datalake.config.options import Config
from destination_datalake.config.parsing import read_object
from destination_datalake.errors import ConfigError, counted
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
Print the minimal IAM policy that a configuration requires for the connector's user or role. The command also prints the
required Lake Formation permissions on standard error, as commands of the AWS CLI. With --grants, it prints only these
commands, on standard output. The command does not call AWS."""

_EPILOG = """\
Examples:

  destination-datalake iam-policy --config config.json > policy.json
  aws iam put-role-policy --role-name airbyte --policy-name data-lake --policy-document file://policy.json

  destination-datalake iam-policy --config config.json --grants | sh

The exit code is 0, 1 if the configuration is not valid, and 2 for an invalid command line."""


def run_iam_policy(arguments: Sequence[str]) -> int:
    """Run the command `iam-policy` with the given command-line arguments. Return the exit code, 0 or 1.

    Raises SystemExit with code 2 if the command line is invalid, and with code 0 for `--help`.
    """
    options = _parser().parse_args(arguments)
    return terminal.run(options, "print the policy of", "the configuration", lambda config: _print(config, options))


def _parser() -> argparse.ArgumentParser:
    parser = terminal.parser("iam-policy", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "--catalog",
        metavar="FILE",
        help="the configured catalog, as for the command write; the policy then also contains the databases of the "
        "streams' namespaces (default: only lakeformation_database_name)",
    )
    parser.add_argument(
        "--grants", action="store_true", help="print the Lake Formation permissions instead of the policy"
    )
    parser.add_argument(
        "--principal",
        metavar="ARN",
        help="the connector's user or role, for the Lake Formation permissions (default: role_arn)",
    )
    parser.add_argument(
        "--location",
        metavar="S3_URI",
        action="append",
        default=[],
        help="a folder of tables outside bucket_prefix, for follow_table_location; can be repeated",
    )
    parser.add_argument("--delete-rows", action="store_true", help="add the permissions for the command delete-rows")
    parser.add_argument(
        "--part",
        type=int,
        metavar="N",
        help="print only part N of a policy that exceeds the limit of managed policies, "
        f"{MANAGED_POLICY_CHARACTERS:,} characters",
    )
    return parser


def _print(config: Config, options: argparse.Namespace) -> int:
    """Print the policy or, with --grants, the Lake Formation grants to stdout. Print notes to stderr.

    If the configuration enables Lake Formation, also prints the grants to stderr after the policy. Raises ConfigError
    if the command's options are invalid or contradict the configuration.
    """
    scope, principal = _scope(config, options), _principal(config, options)
    policy = statements(config, scope, (*CAPABILITIES, *ERASURE) if options.delete_rows else CAPABILITIES)
    divided = parts(policy)
    grants = [grant.command_line(principal, config) for grant in lake_formation_grants(config, scope) if principal]
    if options.grants and principal is None:
        raise ConfigError("The connector's user or role is unknown. Set --principal to the ARN of the user or role.")
    if options.part is not None and not options.grants:
        if not 1 <= options.part <= len(divided):
            raise ConfigError(
                f"--part {options.part} does not exist. The policy consists of {counted(len(divided), 'part')}."
            )
        policy = divided[options.part - 1]
    answer = "\n".join(grants) if options.grants else json.dumps(document(policy), indent=2, ensure_ascii=False)
    terminal.put(sys.stdout, answer)  # Do not mask secrets here: masking would change a name that equals a secret.
    for note in _notes(config, options, scope, principal):
        terminal.note(f"Note: {note}")
    if len(divided) > 1 and options.part is None and not options.grants:
        terminal.note(
            f"Note: the policy contains {characters(policy):,} characters, not counting white space, but the limit of "
            f"managed policies is {MANAGED_POLICY_CHARACTERS:,}. "
            f"Use --part 1 to --part {len(divided)} to print policies within the limit."
        )
    if config.lake_formation.mode != "none" and principal and not options.grants:
        terminal.note("A data lake administrator must grant these Lake Formation permissions:")
        terminal.put(sys.stderr, "\n".join(grants))
    return 0


_PRINCIPAL = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/\S+")


def _scope(config: Config, options: argparse.Namespace) -> Scope:
    streams = parse_catalog(read_object(options.catalog, "configured catalog")) if options.catalog else ()
    if options.location and not config.follow_table_location:
        raise ConfigError(
            "--location requires follow_table_location true. Set follow_table_location, or remove --location."
        )
    if options.principal is not None and not _PRINCIPAL.fullmatch(options.principal):
        raise ConfigError(
            f"--principal {options.principal} is not the ARN of an IAM user or role, such as "
            "arn:aws:iam::123456789012:role/airbyte. For a session, use the ARN of its role."
        )
    return Scope.for_config(
        config, (stream.id for stream in streams), [_folder(location) for location in options.location]
    )


def _principal(config: Config, options: argparse.Namespace) -> str | None:
    if options.principal is not None:
        return str(options.principal)
    credentials = config.credentials
    return credentials.role_arn if credentials.credentials_title == "IAM Role" else None


def _notes(config: Config, options: argparse.Namespace, scope: Scope, principal: str | None) -> Iterator[str]:
    if config.database_strategy == "namespace" and options.catalog is None:
        yield (
            f"the policy contains only database {scope.database}. Streams with a namespace are written to the "
            "database with the namespace's name. Use --catalog with the configured catalog to add these databases."
        )
    if scope.account == ANY_ACCOUNT and config.catalog.type in ("glue", "glue_rest") and not options.grants:
        yield (
            "the account of the Glue Data Catalog is unknown, so the policy contains * instead of the account ID. To "
            "restrict the policy to one account, set aws_account_id, or glue_catalog_id if another account owns the "
            "catalog."
        )
    if config.follow_table_location and not options.location:
        yield (
            "the policy contains only bucket_name and bucket_prefix. Use --location to add the folders of tables at "
            "other locations."
        )
    if config.encryption.encryption_type == "Bucket default":
        yield (
            "the policy contains no KMS key. If the bucket's default encryption uses your KMS key, set encryption to "
            "SSE-KMS with kms_key_arn."
        )
    if config.lake_formation.mode != "none" and principal is None:
        yield "the connector's user or role is unknown. Use --principal to print the Lake Formation permissions."
    if replaced := scope.replaced():
        yield (
            f"the wildcard * replaces characters of {', '.join(replaced)} that policies do not support, so the policy "
            "allows more than necessary. To avoid the wildcard, use names in ASCII."
        )


def _folder(location: str) -> S3Address:
    try:
        address = S3Address.parse(location)
    except ValueError as error:
        raise ConfigError(f"--location: {error}, such as s3://bucket/folder.") from None
    # The first two are wildcards in policies, and `$` begins a policy variable.
    if not {"*", "?", "$"}.isdisjoint(location):
        raise ConfigError(
            f"--location {location} contains *, ? or $, which have a special meaning in policies. Use a folder "
            "without these characters."
        )
    return address
