"""What a template of the data lake has to be, whatever its parameters are. Each rule yields what is against it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from unit_tests.infra.resolved import Resolved

Rule: TypeAlias = Callable[[Resolved], Iterator[str]]

_HOLD_DATA = frozenset({"AWS::S3::Bucket", "AWS::S3::BucketPolicy", "AWS::KMS::Key", "AWS::Glue::Database"})
_WITHOUT_ARNS = "lakeformation:"
"""Actions of Lake Formation take no resource.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_awslakeformation.html
"""

_TEMPORARY = re.compile(r"lake/(_staging|_errors|_raw)/|athena-results/lake/")
_DAYS = {"lake/_staging/": 14, "lake/_errors/": 90, "lake/_raw/": 30, "athena-results/lake/": 30}


def nothing_is_public(stack: Resolved) -> Iterator[str]:
    """No bucket, policy or role lets in everybody."""
    for name, bucket in stack.of_type("AWS::S3::Bucket").items():
        blocks = bucket.get("PublicAccessBlockConfiguration", {})
        if [*blocks.values()] != [True] * 4:
            yield f"{name} does not block every public access"
        if bucket["OwnershipControls"] != {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}:
            yield f"{name} accepts ACLs"
    for name, statement in stack.statements():
        principals = statement.get("Principal")
        named = [*_texts(principals.values())] if isinstance(principals, dict) else [principals]
        if statement["Effect"] == "Allow" and "*" in named:
            yield f"{name} allows everybody"


def only_tls(stack: Resolved) -> Iterator[str]:
    """A bucket denies every action without TLS, to everybody, on itself and all objects."""
    for name, bucket in stack.of_type("AWS::S3::Bucket").items():
        arn = f"arn:aws:s3:::{bucket['BucketName']}"
        wanted = {
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [arn, f"{arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
        policies = [
            statement for owner, statement in stack.statements() if stack.type_of(owner) == "AWS::S3::BucketPolicy"
        ]
        if not any({**policy, "Sid": ""} == {**wanted, "Sid": ""} for policy in policies):
            yield f"{name} can be read without TLS"


def data_never_expires(stack: Resolved) -> Iterator[str]:
    """Lifecycle rules reach what is kept for a time only, each kind after its days."""
    for name, bucket in stack.of_type("AWS::S3::Bucket").items():
        rules = bucket["LifecycleConfiguration"]["Rules"]
        aborts = [rule.pop("AbortIncompleteMultipartUpload", None) for rule in map(dict, rules)]
        if {"DaysAfterInitiation": 7} not in aborts:
            yield f"{name} keeps unfinished uploads"
        expiring = {rule.get("Prefix", ""): rule for rule in rules if "AbortIncompleteMultipartUpload" not in rule}
        for prefix, rule in expiring.items():
            if _TEMPORARY.fullmatch(prefix) is None or {*rule} != {"Id", "Status", "Prefix", "ExpirationInDays"}:
                yield f"{name} expires objects under {prefix!r}"
        if {prefix: int(rule["ExpirationInDays"]) for prefix, rule in expiring.items()} != _DAYS:
            yield f"{name} expires objects after other days"


def keys_rotate_and_encrypt(stack: Resolved) -> Iterator[str]:
    """Keys rotate; a bucket encrypts with a key and a bucket key; results, streams and deliveries use a key as well."""
    for name, key in stack.of_type("AWS::KMS::Key").items():
        if key["EnableKeyRotation"] is not True:
            yield f"{name} does not rotate"
    for name, bucket in stack.of_type("AWS::S3::Bucket").items():
        (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        default = rule["ServerSideEncryptionByDefault"]
        if (rule["BucketKeyEnabled"], default["SSEAlgorithm"]) != (True, "aws:kms"):
            yield f"{name} does not encrypt with a key and a bucket key"
    for name, group in stack.of_type("AWS::Athena::WorkGroup").items():
        configuration = group["WorkGroupConfiguration"]
        option = configuration["ResultConfiguration"]["EncryptionConfiguration"]["EncryptionOption"]
        if (configuration["EnforceWorkGroupConfiguration"], option) != (True, "SSE_KMS"):
            yield f"{name} lets clients choose location or encryption of results"


def policies_name_resources(stack: Resolved) -> Iterator[str]:
    """No action or resource is everything, where there is something to name. A key's policy is about that key."""
    for name, statement in stack.statements():
        if statement["Effect"] == "Deny" or stack.type_of(name) == "AWS::KMS::Key":
            continue
        actions = [*_texts(statement["Action"])]
        if any("*" in action for action in actions):
            yield f"{name} allows actions by pattern: {actions}"
        if "*" in _texts(statement.get("Resource", ())) and not all(map(_takes_no_resource, actions)):
            yield f"{name} allows {actions} on everything"
        if any(action.startswith("kms:") for action in actions) and "kms:ViaService" not in str(statement):
            yield f"{name} uses the key outside of services"


def _takes_no_resource(action: str) -> bool:
    return action.startswith(_WITHOUT_ARNS)


def grants_are_narrow(stack: Resolved) -> Iterator[str]:
    """No grant is of everything, and nobody can pass one on."""
    for name, grant in stack.of_type("AWS::LakeFormation::PrincipalPermissions").items():
        if {"ALL", "SUPER", "DROP"} & {*grant["Permissions"]}:
            yield f"{name} grants {grant['Permissions']}"
        if grant["PermissionsWithGrantOption"]:
            yield f"{name} can be passed on"


def roles_know_who_assumes_them(stack: Resolved) -> Iterator[str]:
    """A role is assumed with an external id, or by services that Lake Formation names, for this account alone."""
    for name, role in stack.of_type("AWS::IAM::Role").items():
        (statement,) = role["AssumeRolePolicyDocument"]["Statement"]
        services = statement["Principal"].get("Service", [])
        by_lake_formation = services == ["lakeformation.amazonaws.com", "glue.amazonaws.com"]
        needed = "aws:SourceAccount" if by_lake_formation else "sts:ExternalId"
        if [*statement.get("Condition", {}).get("StringEquals", {})] != [needed]:
            yield f"{name} can be assumed without {needed}"


def times_are_of_the_calendar(stack: Resolved) -> Iterator[str]:
    """`yyyy` is the calendar's year, `YYYY` that of the week (Java: DateTimeFormatter)."""
    for name, delivery in stack.of_type("AWS::KinesisFirehose::DeliveryStream").items():
        for pattern in re.findall(r"!\{timestamp:([^}]+)\}", str(delivery)):
            if re.search("Y|D", pattern):
                yield f"{name} has a week's year or a year's day in {pattern}"


def deliveries_touch_nothing_of_others(stack: Resolved) -> Iterator[str]:
    """Firehose deletes and replaces files of its table alone: under `_errors/` are the connector's rejects as well."""
    for name, statement in stack.statements():
        resources = [text for text in _texts(statement.get("Resource", ())) if "/_errors/" in text]
        if resources and "s3:DeleteObject" in _texts(statement["Action"]):
            yield f"{name} may delete {resources}"
        yield from (f"{name} may write to {resource}" for resource in resources if "landing.events" not in resource)


def errors_lie_apart(stack: Resolved) -> Iterator[str]:
    """What cannot be delivered goes under `_errors/`, which no reader looks into, and only there."""
    for name, delivery in stack.of_type("AWS::KinesisFirehose::DeliveryStream").items():
        destination = delivery["IcebergDestinationConfiguration"]
        prefix = destination["S3Configuration"]["ErrorOutputPrefix"]
        if not fnmatchcase(prefix, "lake/_errors/!{firehose:error-output-type}/landing.events/dt=*/"):
            yield f"{name} puts errors under {prefix}"


def administrators_stay(stack: Resolved) -> Iterator[str]:
    """The settings of Lake Formation, with the list of its administrators, are not the template's."""
    yield from stack.of_type("AWS::LakeFormation::DataLakeSettings")


RULES: Sequence[Rule] = (
    nothing_is_public,
    only_tls,
    data_never_expires,
    keys_rotate_and_encrypt,
    policies_name_resources,
    grants_are_narrow,
    roles_know_who_assumes_them,
    times_are_of_the_calendar,
    deliveries_touch_nothing_of_others,
    errors_lie_apart,
    administrators_stay,
)


def not_retained(resources: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield the resources that hold data and go with the stack, or with a change that replaces them."""
    for name, resource in resources.items():
        policies = {resource.get("DeletionPolicy"), resource.get("UpdateReplacePolicy")}
        if resource["Type"] in _HOLD_DATA | {"AWS::Glue::Table"} and policies != {"Retain"}:
            yield name


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a text or of lists of texts."""
    if isinstance(value, str):
        yield value
    else:
        for element in value:
            yield from _texts(element)
