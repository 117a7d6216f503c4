"""Determine the IAM actions, and the resources of these actions, that a request needs.

Source: the pages about each service in
https://docs.aws.amazon.com/service-authorization/latest/reference/reference_policies_actions-resources-contextkeys.html
"""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from emulated_aws.requests.request import AwsRequest


class Need(msgspec.Struct, frozen=True):
    """One action on one resource, and the values of the request's condition keys, by name in lower case."""

    action: str
    resource: str
    conditions: dict[str, list[str]] = {}


def needs(request: AwsRequest, account: str) -> list[Need]:
    """Return the permissions that a request needs, judging by the request alone."""
    match request.service:
        case "s3":
            return list(_s3(request))
        case "glue":
            return list(_glue(request, account))
        case "lakeformation":
            return list(_lake_formation(request))
        case "sts":
            return list(_sts(request))
        case "kms":
            key = request.text("KeyId")
            return [Need(f"kms:{request.operation}", key_arn(key, request.region, account) if key else "*")]
        case "iam":
            return [Need(f"iam:{request.operation}", _iam_resource(request, account))]
        case service:
            return [Need(f"{service}:{request.operation}", "*")]


def key_arn(key: str, region: str, account: str) -> str:
    """Return the ARN of a KMS key or alias. `key` is an ID, an alias or an ARN."""
    if key.startswith("arn:"):
        return key
    return f"arn:aws:kms:{region}:{account}:{key if key.startswith('alias/') else f'key/{key}'}"


# S3: https://docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html


def _s3(request: AwsRequest) -> Iterator[Need]:
    bucket = f"arn:aws:s3:::{request.bucket}" if request.bucket else "*"
    resource = f"{bucket}/{request.key}" if request.key else bucket
    operation = request.operation
    conditions = _s3_conditions(request)
    if operation == "DeleteObjects":
        for key in request.parameters["Keys"]:
            yield Need("s3:DeleteObject", f"{bucket}/{key}", conditions)
        return
    versioned = "Version" if operation in _VERSIONED and "versionId" in request.parameters else ""
    yield Need(f"s3:{S3_ACTIONS.get(operation, operation)}{versioned}", resource, conditions)
    if source := request.headers.get("x-amz-copy-source"):
        yield Need("s3:GetObject", f"arn:aws:s3:::{unquote(source.partition('?')[0]).lstrip('/')}")
    if "x-amz-tagging" in request.headers:
        yield Need("s3:PutObjectTagging", resource, conditions)


S3_ACTIONS: Mapping[str, str] = {
    "HeadObject": "GetObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
    "CompleteMultipartUpload": "PutObject",
    "ListParts": "ListMultipartUploadParts",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "HeadBucket": "ListBucket",
    "ListObjects": "ListBucket",
    "ListObjectsV2": "ListBucket",
    "ListObjectVersions": "ListBucketVersions",
    "ListBuckets": "ListAllMyBuckets",
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "DeleteBucketEncryption": "PutEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "DeleteBucketLifecycle": "PutLifecycleConfiguration",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
    "DeleteBucketTagging": "PutBucketTagging",
    "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
}
"""The actions of those operations whose name differs from the name of their action."""

_VERSIONED = frozenset({"GetObject", "HeadObject", "DeleteObject"})

_S3_QUERY = ("prefix", "delimiter", "max-keys")
_S3_HEADERS = (
    "x-amz-acl",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-storage-class",
    "x-amz-copy-source",
)


def _s3_conditions(request: AwsRequest) -> dict[str, list[str]]:
    """Return the values of S3's condition keys in a request.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/amazon-s3-policy-keys.html
    """
    query = {f"s3:{name}": [request.parameters[name]] for name in _S3_QUERY if name in request.parameters}
    return query | {f"s3:{name}": [request.headers[name]] for name in _S3_HEADERS if name in request.headers}


# Glue: https://docs.aws.amazon.com/glue/latest/dg/glue-specifying-resource-arns.html
# "All operations performed on a Data Catalog resource require permission on the resource and all the ancestors";
# "all delete operations require permission on all children of that resource".


def _glue(request: AwsRequest, account: str) -> Iterator[Need]:
    if request.operation == "BatchGetTableOptimizer":
        arn = f"arn:aws:glue:{request.region}:"
        for entry in request.parameters["Entries"]:
            database, table = entry["databaseName"], entry["tableName"]
            for name in ("catalog", f"database/{database}", f"table/{database}/{table}"):
                yield Need("glue:BatchGetTableOptimizer", f"{arn}{entry['catalogId']}:{name}")
        return
    for resource in _glue_resources(request, account):
        yield Need(f"glue:{request.operation}", resource)
    configuration = request.parameters.get("TableOptimizerConfiguration") or {}
    if role := configuration.get("roleArn"):
        # "A role passed by the caller": https://docs.aws.amazon.com/glue/latest/webapi/API_TableOptimizerConfiguration.html
        yield Need("iam:PassRole", role, {"iam:passedtoservice": ["glue.amazonaws.com"]})


def _glue_resources(request: AwsRequest, account: str) -> list[str]:
    operation, parameters = request.operation, request.parameters
    catalog = request.text("CatalogId") or account
    arn = f"arn:aws:glue:{request.region}:{catalog}"
    database = request.text("DatabaseName")
    tables: list[str] = []
    match operation:
        case "GetDatabases" | "SearchTables":
            return [f"{arn}:catalog", f"{arn}:database/*", *([f"{arn}:table/*/*"] if operation[0] == "S" else [])]
        case "CreateDatabase":
            database = _name(parameters, "DatabaseInput")
        case "GetDatabase" | "UpdateDatabase" | "DeleteDatabase":
            database = request.text("Name")
        case "CreateTable" | "UpdateTable":
            tables = [_name(parameters, "TableInput") or request.text("Name")]
        case "GetTable" | "DeleteTable":
            tables = [request.text("Name")]
        case "GetTables":
            tables = ["*"]
        case "BatchDeleteTable":
            tables = [name for name in parameters.get("TablesToDelete", []) if isinstance(name, str)]
        case _ if table := request.text("TableName"):
            tables = [table]
    if not database:
        return [f"{arn}:catalog"] if _is_of_the_catalog(operation) else ["*"]
    resources = [f"{arn}:catalog", f"{arn}:database/{database}"]
    if operation == "DeleteDatabase":
        return [*resources, f"{arn}:table/{database}/*", f"{arn}:userDefinedFunction/{database}/*"]
    return [*resources, *(f"{arn}:table/{database}/{table}" for table in tables)]


def _name(parameters: Mapping[str, Any], structure: str) -> str:
    name = (parameters.get(structure) or {}).get("Name", "")
    return name if isinstance(name, str) else ""


def _is_of_the_catalog(operation: str) -> bool:
    return any(word in operation for word in ("Catalog", "Database", "Table", "Partition"))


# Lake Formation: https://docs.aws.amazon.com/service-authorization/latest/reference/list_awslakeformation.html


def _lake_formation(request: AwsRequest) -> Iterator[Need]:
    yield Need(f"lakeformation:{request.operation}", "*")
    role = request.text("RoleArn")
    if role and request.operation in ("RegisterResource", "UpdateResource"):
        # "must have the iam:PassRole permission on the role":
        # https://docs.aws.amazon.com/lake-formation/latest/dg/registration-role.html
        yield Need("iam:PassRole", role, {"iam:passedtoservice": ["lakeformation.amazonaws.com"]})


# STS: https://docs.aws.amazon.com/service-authorization/latest/reference/list_awssecuritytokenservice.html


def _sts(request: AwsRequest) -> Iterator[Need]:
    # "No permissions are required to perform this operation":
    # https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp_control-access_getsessiontoken.html
    if request.operation in ("GetCallerIdentity", "GetSessionToken"):
        return
    parameters = {"sts:externalid": "ExternalId", "sts:rolesessionname": "RoleSessionName"}
    conditions = {name: [request.text(field)] for name, field in parameters.items() if request.text(field)}
    yield Need(f"sts:{request.operation}", request.text("RoleArn") or "*", conditions)


def _iam_resource(request: AwsRequest, account: str) -> str:
    for kind in ("Role", "User", "Group"):
        if name := request.text(f"{kind}Name"):
            return f"arn:aws:iam::{account}:{kind.lower()}/{name}"
    return request.text("PolicyArn") or "*"
