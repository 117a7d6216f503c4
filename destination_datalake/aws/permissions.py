"""The permission that a denied call lacks: from AWS's text if that names it, else from the operation.

IAM's texts name action, resource and kind of policy (IAM: Troubleshoot access denied error messages,
https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html). S3 leaves them out across accounts
and in responses without a body. Lake Formation's texts name its own permission and resource.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from destination_datalake.errors import MissingPermission

_S3 = re.compile(r"(Object|Objects|ObjectsV2|Bucket|Multipart\w*|UploadPart\w*|\w*MultipartUploads?)$")
_STS = frozenset({"GetCallerIdentity", "AssumeRole"})
_LAKE_FORMATION = re.compile(
    r"LFTag|LakeFormation|DataLakeSettings|(Grant|Revoke|List)Permissions$|EffectivePermissions"
    r"|(Register|Deregister|Describe|Update)Resource$|ListResources$"
)
# S3's permissions do not always have the operation's name.
_S3_ACTIONS: Mapping[str, str] = {
    "HeadObject": "s3:GetObject",
    "HeadBucket": "s3:ListBucket",
    "ListObjects": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObjects": "s3:DeleteObject",
    "CopyObject": "s3:GetObject and s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListParts": "s3:ListMultipartUploadParts",
}
# Lake Formation: Lake Formation permissions reference (docs, lf-permissions-reference). A table's location needs
# DATA_LOCATION_ACCESS besides, which Lake Formation's text then names.
_GLUE_GRANTS: Mapping[str, str] = {
    "CreateDatabase": "CREATE_DATABASE",
    "GetDatabase": "DESCRIBE",
    "CreateTable": "CREATE_TABLE",
    "GetTable": "DESCRIBE",
    "GetTables": "DESCRIBE",
    "UpdateTable": "ALTER",
    "DeleteTable": "DROP",
    "BatchCreatePartition": "ALTER",
    "CreatePartition": "ALTER",
    "UpdatePartition": "ALTER",
}

_DENIED = re.compile(
    r"not authorized to perform: (?P<action>[a-z0-9-]+:\w+)(?: on resource: \"?(?P<resource>[^\s\"]+)\"?)?"
)
_EXPLICIT = re.compile(r"with (an explicit deny[^.;]*)", re.IGNORECASE)
_REQUIRED = re.compile(
    r"required (?P<permission>[a-z_]+(?: [a-z_]+){0,2}?)(?: on (?P<resource>[^\s.;)]+)|[.;)]|$)", re.IGNORECASE
)
_LOCATION = re.compile(r"permission\(?s?\)? on (?P<resource>(?:s3://|arn:aws[a-z-]*:s3:)[^\s;)]+)", re.IGNORECASE)

_RESOURCE_POLICIES: Mapping[str, str] = {
    "glue": "the Data Catalog's resource policy",
    "kms": "the key's policy",
    "s3": "the bucket's policy",
}


@dataclass(frozen=True, slots=True)
class Denial:
    """A denied call: what it lacks, and IAM's words for an explicit deny, which no further permission outweighs."""

    missing: MissingPermission
    explicit_deny: str | None = None
    resource_policy: str | None = None
    """The policy that has to allow it, as a key's must: "the key's policy". None if IAM's policies may."""


def service_of(operation: str) -> str:
    """Return the service that has the operation, among those that the connector uses."""
    if operation in _STS:
        return "STS"
    if _LAKE_FORMATION.search(operation):
        return "Lake Formation"
    return "S3" if operation in _S3_ACTIONS or _S3.search(operation) else "Glue"


def denial_by_iam(operation: str, text: str) -> Denial:
    """Return what IAM denied, where `text` is AWS's; kms:GenerateDataKey, for example, in a response of S3."""
    explicit = _EXPLICIT.search(text)
    found = _DENIED.search(text)
    missing = MissingPermission(found["action"], found["resource"]) if found else MissingPermission(_action(operation))
    return Denial(missing, explicit[1].strip() if explicit else None, resource_policy(missing.action, text))


def resource_policy(action: str, text: str) -> str | None:
    """Return which policy of a resource has to allow an action, if AWS's text says that one has to."""
    if "no resource-based policy allows" not in text:
        return None
    return _RESOURCE_POLICIES.get(action.partition(":")[0], "the resource's policy")


def missing_grant(operation: str, text: str) -> MissingPermission:
    """Return what Lake Formation denied, such as CREATE_TABLE, or DATA_LOCATION_ACCESS for a location in S3."""
    if (location := _LOCATION.search(text)) is not None:
        return MissingPermission("DATA_LOCATION_ACCESS", location["resource"])
    if (required := _REQUIRED.search(text)) is not None:
        return MissingPermission(required["permission"].upper().replace(" ", "_"), required["resource"])
    return MissingPermission(_GLUE_GRANTS.get(operation, "ALL"))


def _action(operation: str) -> str:
    match service_of(operation):
        case "S3":
            return _S3_ACTIONS.get(operation, f"s3:{operation}")
        case service:
            return f"{service.lower().replace(' ', '')}:{operation}"
