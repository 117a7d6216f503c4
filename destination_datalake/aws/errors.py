"""Explain AWS errors to users: the failed operation, the resource, the cause and the remedy.

botocore's errors contain only an operation and an error code. `explain` also adds a failure type, from which Airbyte
determines whether to retry the sync.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from destination_datalake.aws.access import mask_secrets
from destination_datalake.errors import ConnectorError, Failure, FailureType, MissingPermission
from destination_datalake.unforeseen import exhaustion, trace_of


@dataclass(frozen=True, slots=True)
class _Call:
    """A failed request to AWS. `code` and `text` are AWS's error code and error text.

    `status` is the HTTP status, or 0 if it is unknown.
    """

    service: str
    operation: str
    code: str
    text: str
    status: int = 0
    bucket: str | None = None


@dataclass(frozen=True, slots=True)
class _Rule:
    """The explanation of an error: reason, remedy, Airbyte's failure type, and the missing permission, if any."""

    reason: str
    remedy: str
    failure_type: FailureType = "config_error"
    missing: MissingPermission | None = None


def explain(error: BaseException, *, doing: str, resource: str) -> Failure | None:
    """Return the failure to report for an error, or None if the cause of the error is unknown.

    The cause is known if AWS returned the error, or if a resource of this machine is exhausted. This function also
    searches the chain of exceptions that caused `error`. If the chain contains a ConnectorError, returns the failure of
    that error.

    `doing` and `resource` form the message "Cannot {doing} {resource}", such as "write to" and "s3://lake/raw". The
    failure's detail contains AWS's error code and text. The message and the detail contain no secrets.
    """
    if not any(_call(cause) for cause in _causes(error)) and (exhausted := exhaustion(error)) is not None:
        return Failure(f"Cannot {doing} {resource}. {exhausted}", trace_of(error), "transient_error")
    for cause in _causes(error):
        if isinstance(cause, ConnectorError):
            return cause.failure
        if (failure := _explain(cause, doing, resource)) is not None:
            return failure
    return None


def is_expired(error: BaseException) -> bool:
    """Return whether AWS rejected a request because the credentials of the request have expired.

    Returns False for every HEAD request, because the response to a HEAD request contains no error code.
    """
    calls = (call for cause in _causes(error) if (call := _call(cause)) is not None)
    return any(_SYNONYMS.get(call.code, call.code) == "ExpiredToken" for call in calls)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, and the chain of exceptions that caused it. Stop at a cycle."""
    yielded: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in yielded:
        yielded.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _explain(error: BaseException, doing: str, resource: str) -> Failure | None:
    if (call := _call(error)) is not None:
        rule = _rule(call)
        source = f"{call.service}, {call.operation}"
        detail = mask_secrets(f"{call.code}: {call.text}")
        if call.bucket:
            source += f", bucket {call.bucket}"
    elif (client_rule := _rule_without_response(error)) is not None:
        rule = client_rule
        source = "AWS"
        detail = mask_secrets(f"{type(error).__name__}: {error}")
    else:
        return None
    message = mask_secrets(f"Cannot {doing} {resource} ({source}): {rule.reason}. {rule.remedy}")
    return Failure(message, detail, rule.failure_type, rule.missing)


# --- Error responses --------------------------------------------------------------------------------------------------

_CREDENTIALS = "Correct aws_access_key_id and aws_secret_access_key, or activate the access key in IAM."
_LASTING_CREDENTIALS = "Use an IAM role, whose credentials are renewed, or the access key of an IAM user."
_CODES: Mapping[str, _Rule] = {
    "NoSuchBucket": _Rule("the bucket does not exist", "Create the bucket, or correct bucket_name and region."),
    "PermanentRedirect": _Rule("the bucket is in another region", "Set region to the bucket's region."),
    "NoSuchKey": _Rule(
        "the object does not exist; another program or a lifecycle rule of the bucket has deleted it",
        "Try again. If the error persists, restore the object, and exclude the folder from lifecycle rules.",
        "transient_error",
    ),
    "NoSuchUpload": _Rule(
        "the multipart upload does not exist; another program or a lifecycle rule of the bucket has aborted it",
        "Try again. If the error persists, raise the number of days in the lifecycle rule for incomplete uploads.",
        "transient_error",
    ),
    "InvalidObjectState": _Rule(
        "the object is in an archive storage class, such as S3 Glacier",
        "Restore the object in S3, and exclude the folder from lifecycle rules that archive objects.",
    ),
    "PreconditionFailed": _Rule(
        "another program has changed the object at the same time", "Try again.", "transient_error"
    ),
    "InvalidBucketName": _Rule("the bucket name is invalid", "Correct bucket_name."),
    "InvalidAccessKeyId": _Rule("the access key ID does not exist", _CREDENTIALS),
    "SignatureDoesNotMatch": _Rule("the secret access key does not match the access key ID", _CREDENTIALS),
    "ExpiredToken": _Rule("the credentials have expired", _LASTING_CREDENTIALS),
    "EntityNotFoundException": _Rule(
        "a database or table does not exist in the Glue Data Catalog",
        "Create it again, or correct lakeformation_database_name.",
    ),
    "GlueEncryptionException": _Rule(
        "the connector cannot use the KMS key that encrypts the Data Catalog",
        "Allow kms:Encrypt, kms:Decrypt and kms:GenerateDataKey on this key for the connector's identity.",
    ),
    "ResourceNumberLimitExceededException": _Rule(
        "the account has reached a quota of the Glue Data Catalog", "Request a higher quota, or delete tables."
    ),
    "RequestTimeTooSkewed": _Rule(
        "this machine's clock differs from AWS's clock by more than 15 minutes", "Correct this machine's clock."
    ),
    # If KMS cannot use a key, S3 returns KMS's error code (KMS API: GenerateDataKey, Decrypt).
    "KMS.NotFoundException": _Rule("the KMS key does not exist", "Set kms_key_arn to a key in the bucket's region."),
    "KMS.DisabledException": _Rule("the KMS key is disabled", "Enable the key, or set another key."),
    "KMS.KMSInvalidStateException": _Rule(
        "KMS cannot use the key in its current state",
        "Cancel the deletion of the key, import its key material, or set another key.",
    ),
    # The response to a HEAD request has no body, and therefore no error code (S3 API: HeadObject).
    "400": _Rule(
        "S3 rejected the request without an error code, often because the credentials have expired",
        _LASTING_CREDENTIALS,
    ),
    "RegionDisabledException": _Rule(
        "STS is not active in this region", "Activate STS for this region in the account settings of IAM."
    ),
}
# STS returns the same error code for any invalid parameter (STS API: AssumeRole).
_SESSION_TOO_LONG = _Rule(
    "session_duration_seconds exceeds the role's maximum session duration",
    "Lower session_duration_seconds to this maximum, or to 3600 if the connector assumes the role with the credentials "
    "of another role.",
)
# Glue does not document a limit. UpdateTable failed for an Iceberg table with 3,600 columns (iceberg-go#701).
_DEFINITION_TOO_LARGE = _Rule(
    "the table definition exceeds Glue's size limit",
    "Set nested to json for the stream, or deselect fields in the connection.",
)
_SYNONYMS: Mapping[str, str] = {
    "ExpiredTokenException": "ExpiredToken",
    "TokenRefreshRequired": "ExpiredToken",
    "301": "PermanentRedirect",
    "404": "NoSuchKey",
    "412": "PreconditionFailed",
    "ConditionalRequestConflict": "PreconditionFailed",
    "AuthorizationHeaderMalformed": "PermanentRedirect",
    "IllegalLocationConstraintException": "PermanentRedirect",
    "NotSignedUp": "InvalidAccessKeyId",
    "UnrecognizedClientException": "InvalidAccessKeyId",
    "InvalidClientTokenId": "InvalidAccessKeyId",
    "InvalidSignatureException": "SignatureDoesNotMatch",
}
_SIZE_EXCEEDED = re.compile(r"(payload|entity) size .*exceeded", re.IGNORECASE)
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AllAccessDisabled", "Forbidden", "403"}
)
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "TooManyRequests",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
    }
)
_SERVER_ERRORS = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServiceException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "RequestTimeout",
        "RequestTimeoutException",
        "OperationTimeoutException",
        "ConcurrentModificationException",
        "ConcurrentRunsExceededException",
        "500",
        "502",
        "503",
        "504",
    }
)


def _rule(call: _Call) -> _Rule:
    # Lake Formation's denials are in responses of Glue and, if Lake Formation vends the credentials, of S3.
    if "lake formation" in call.text.lower() and (call.code in _DENIED or "permission" in call.text.lower()):
        missing = _missing_grant(call.operation, call.text)
        return _Rule(
            f"Lake Formation denied access ({_required(call.text)})",
            f"Grant {missing.action} on {_granted_on(missing)} to the connector's identity in Lake Formation.",
            missing=missing,
        )
    if call.code in _DENIED:
        return _denied(call)
    if call.operation == "AssumeRole" and "DurationSeconds" in call.text:
        return _SESSION_TOO_LONG
    if call.code == "InvalidInputException" and _SIZE_EXCEEDED.search(call.text):
        return _DEFINITION_TOO_LARGE
    code = _SYNONYMS.get(call.code, call.code)
    if code in _CODES:
        return _CODES[code]
    if code in _THROTTLED or call.status == 429:
        return _Rule("AWS throttled the request", "Try again later, or request a higher quota.", "transient_error")
    if code in _SERVER_ERRORS or call.status >= 500:
        return _Rule("AWS failed to process the request", "Try again later.", "transient_error")
    return _Rule(f"AWS returned the error {call.code}", "See the log for the text of the error.", "system_error")


def _denied(call: _Call) -> _Rule:
    missing = denied_by_iam(call.operation, call.text)
    action, on_resource = missing.action, f" on {missing.resource}" if missing.resource else ""
    if (explicit := _EXPLICIT.search(call.text)) is not None:
        # Additional permissions cannot override an explicit deny.
        return _Rule(
            f"access denied by {explicit[1].strip()}",
            f"Remove the explicit deny of {action}{on_resource} for the connector's identity.",
            missing=missing,
        )
    in_iam = "IAM or in the key's policy" if action.startswith("kms:") else "IAM"
    policy = resource_policy(action, call.text) or in_iam
    if action == "sts:AssumeRole":
        policy += ", and in the role's trust policy"
    return _Rule(
        "access denied", f"Allow {action}{on_resource} for the connector's identity in {policy}.", missing=missing
    )


def _call(error: BaseException) -> _Call | None:
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return None
    response = error.response.get("Error", {})
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    operation = str(error.operation_name)
    code, text, bucket = response.get("Code", "Unknown"), response.get("Message", ""), response.get("BucketName")
    return _Call(_service_of(operation), operation, code, text, status, str(bucket) if bucket else None)


# --- No response ------------------------------------------------------------------------------------------------------


def _rule_without_response(error: BaseException) -> _Rule | None:
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    match error:
        case ResponseParserError():
            return _Rule("the response of AWS is unreadable", "Try again later.", "transient_error")
        case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError():
            return _Rule(
                "the AWS client found no credentials",
                "Set credentials to IAM User with an access key, or assign an IAM role to the container.",
            )
        case exceptions.ProfileNotFound() | exceptions.CredentialRetrievalError():
            return _Rule(
                "the AWS client cannot read the credentials of the environment",
                "Correct AWS_PROFILE or the container's role, or set credentials to IAM User.",
            )
        case exceptions.SSLError():
            return _Rule(
                "the TLS connection failed", "Check endpoint_url and the server's certificate.", "transient_error"
            )
        case exceptions.ConnectionError():
            return _Rule(
                "the endpoint is unreachable",
                "Check region, endpoint_url and the network, and try again.",
                "transient_error",
            )
        case exceptions.HTTPClientError():
            return _Rule("the connection broke or timed out", "Try again later.", "transient_error")
        case exceptions.ParamValidationError() | exceptions.InvalidRegionError():
            return _Rule("the request is invalid", "See the log for details.", "system_error")
        case exceptions.BotoCoreError():
            return _Rule("the AWS client failed", "See the log for details.", "system_error")
    return None


def _granted_on(missing: MissingPermission) -> str:
    if missing.resource is None:
        return {"CREATE_DATABASE": "the Data Catalog", "CREATE_TABLE": "the database"}.get(
            missing.action, "the database or table"
        )
    kind = {"CREATE_TABLE": "the database ", "DATA_LOCATION_ACCESS": "the data location "}.get(missing.action, "")
    return f"{kind}{missing.resource}"


def _required(text: str) -> str:
    """Return the part of Lake Formation's text that names the permission, such as "Required Create Table on shop".

    If the text contains no such part, returns the whole text.
    """
    match = re.search(r"[Rr]equired [^.;)]+", text)
    return (match[0] if match else text).strip()


# --- The missing permission of a denied request, from AWS's error text or, if the text does not name it, from the
# operation.
#
# IAM's error texts contain the action, the resource and the kind of policy (IAM: Troubleshoot access denied error
# messages, https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html). S3 omits these details
# for requests across accounts, and in responses without a body. Lake Formation's error texts contain Lake Formation's
# permission and resource.

_S3 = re.compile(r"(Object|Objects|ObjectsV2|Bucket|Multipart\w*|UploadPart\w*|\w*MultipartUploads?)$")
_SERVICES: Mapping[str, str] = {
    "GetCallerIdentity": "STS",
    "AssumeRole": "STS",
    "GetSessionToken": "STS",
    "Publish": "SNS",
}
_LAKE_FORMATION_OPERATIONS = re.compile(
    r"LFTag|LakeFormation|DataLakeSettings|(Grant|Revoke|List)Permissions$|EffectivePermissions"
    r"|(Register|Deregister|Describe|Update)Resource$|ListResources$"
)
# The name of an S3 permission may differ from the name of the operation.
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
    "ListObjectVersions": "s3:ListBucketVersions",
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
}
# Source: Lake Formation permissions reference (docs, lf-permissions-reference). Operations on a table's location also
# need DATA_LOCATION_ACCESS, which Lake Formation's text names if it is missing.
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

_DENIED_TEXT = re.compile(
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


def _service_of(operation: str) -> str:
    """Return the AWS service to which an operation belongs. `operation` must be one that the connector uses."""
    if operation in _SERVICES:
        return _SERVICES[operation]
    if _LAKE_FORMATION_OPERATIONS.search(operation):
        return "Lake Formation"
    return "S3" if operation in _S3_ACTIONS or _S3.search(operation) else "Glue"


def denied_by_iam(operation: str, text: str) -> MissingPermission:
    """Return the missing IAM permission. Read it from AWS's text, or else derive it from `operation`.

    For an S3 operation, the missing permission can be an action of KMS, such as kms:GenerateDataKey.
    """
    match = _DENIED_TEXT.search(text)
    return MissingPermission(match["action"], match["resource"]) if match else MissingPermission(_action(operation))


def resource_policy(action: str, text: str) -> str | None:
    """Return the resource policy that must allow `action`, such as "the bucket's policy".

    Returns None if AWS's text does not mention a resource policy.
    """
    if "no resource-based policy allows" not in text:
        return None
    return _RESOURCE_POLICIES.get(action.partition(":")[0], "the resource's policy")


def _missing_grant(operation: str, text: str) -> MissingPermission:
    """Return the missing Lake Formation permission, such as CREATE_TABLE or DATA_LOCATION_ACCESS.

    Reads the permission from AWS's text, or else derives it from `operation`.
    """
    if (location := _LOCATION.search(text)) is not None:
        return MissingPermission("DATA_LOCATION_ACCESS", location["resource"])
    if (required := _REQUIRED.search(text)) is not None:
        return MissingPermission(required["permission"].upper().replace(" ", "_"), required["resource"])
    return MissingPermission(_GLUE_GRANTS.get(operation, "ALL"))


def _action(operation: str) -> str:
    match _service_of(operation):
        case "S3":
            return _S3_ACTIONS.get(operation, f"s3:{operation}")
        case service:
            return f"{service.lower().replace(' ', '')}:{operation}"
