"""The requirements of a request that depend on the content of the bucket, or that S3 checks besides policies.

These are permissions to use KMS keys, the encryption of an upload, and the permission to learn that an object does not
exist.
"""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import msgspec

from emulated_aws.access.call import Call
from emulated_aws.access.refusal import Refusal
from emulated_aws.objects.policies import bucket_named, find_key, is_of_key
from emulated_aws.requests.needs import Need, key_arn
from emulated_aws.requests.request import AwsRequest

_KMS = frozenset({"aws:kms", "aws:kms:dsse"})
_CREATES = frozenset({"PutObject", "CopyObject", "CreateMultipartUpload"})
_CONTINUES = frozenset({"UploadPart", "UploadPartCopy", "CompleteMultipartUpload"})
_ENCRYPTION = "s3:x-amz-server-side-encryption"
_METADATA = "x-amz-meta-"
_MOST_METADATA_BYTES = 2048


def implied_needs(request: AwsRequest, account: str) -> Iterator[Need]:
    """Yield the needs of a request that depend on the state of the bucket or the object."""
    bucket = bucket_named(request.bucket, account) if request.service == "s3" and request.key else None
    if bucket is None:
        return
    operation = request.operation
    if operation in ("GetObject", "HeadObject") and not _is_there(bucket, request.key):
        # "If you have the s3:ListBucket permission on the bucket, Amazon S3 returns 404; if you don't, 403":
        # https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
        yield Need("s3:ListBucket", f"arn:aws:s3:::{request.bucket}")
    if (action := _kms_action(request)) and (key := _encryption_key(request, bucket)):
        yield _on_behalf(request, bucket, key, action, account)
    if (source := _copied(request, account)) and source.encryption in _KMS and source.kms_key_id:
        yield _on_behalf(request, bucket, source.kms_key_id, "kms:Decrypt", account)


def with_encryption_of_upload(needs: Iterable[Need], request: AwsRequest, account: str) -> list[Need]:
    """Return the needs. For later requests of a multipart upload, add the encryption with which the upload started.

    S3 accepts the encryption headers only at the start of an upload
    (https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPart.html), so a policy that requires these headers would
    otherwise allow no multipart upload at all.
    """
    needs = list(needs)
    bucket = bucket_named(request.bucket, account) if request.operation in _CONTINUES else None
    upload = None if bucket is None else bucket.multiparts.get(request.text("uploadId"))
    if upload is None:
        return needs
    begun_with = {_ENCRYPTION: upload.sse_encryption, f"{_ENCRYPTION}-aws-kms-key-id": upload.kms_key_id}
    conditions = {name: [value] for name, value in begun_with.items() if value}
    return [
        msgspec.structs.replace(need, conditions={**conditions, **need.conditions})
        if need.action == "s3:PutObject"
        else need
        for need in needs
    ]


def metadata_fits(call: Call) -> Refusal | None:
    """Require that the keys and values of an object's metadata have at most 2 KB in total.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html#UserMetadata
    """
    members = [(name, value) for name, value in call.request.headers.items() if name.startswith(_METADATA)]
    if sum(len(name) - len(_METADATA) + len(value.encode()) for name, value in members) <= _MOST_METADATA_BYTES:
        return None
    return Refusal(400, "MetadataTooLarge", "Your metadata headers exceed the maximum allowed metadata size.")


def key_can_be_used(call: Call) -> Refusal | None:
    """Require that the KMS key that S3 must use exists and is enabled.

    https://docs.aws.amazon.com/kms/latest/APIReference/API_GenerateDataKey.html lists the errors. S3 returns them with
    the prefix `KMS.`: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
    """
    if call.request.service != "s3":
        return None
    for need in call.needs:
        if is_of_key(need.resource):
            key = find_key(need.resource, call.request.region, call.account)
            if key is None:
                kind = "Alias" if ":alias/" in need.resource else "Key"
                return Refusal(400, "KMS.NotFoundException", f"{kind} '{need.resource}' does not exist")
            if key.key_state == "PendingDeletion":
                return Refusal(400, "KMS.KMSInvalidStateException", f"{key.arn} is pending deletion.")
            if not key.enabled:
                return Refusal(400, "KMS.DisabledException", f"{key.arn} is disabled.")
    return None


def _encryption_key(request: AwsRequest, bucket: Any) -> str:
    """Return the name of the KMS key that a request uses, or "" if it uses none or the AWS managed key `aws/s3`.

    The policy of the AWS managed key allows all principals in the account to use the key:
    https://docs.aws.amazon.com/kms/latest/developerguide/concepts.html#aws-managed-cmk
    """
    if request.operation in _CREATES:
        algorithm = request.headers.get("x-amz-server-side-encryption", "")
        key = request.headers.get("x-amz-server-side-encryption-aws-kms-key-id", "")
    elif request.operation in _CONTINUES:
        upload = bucket.multiparts.get(request.text("uploadId"))
        algorithm, key = (upload.sse_encryption or "", upload.kms_key_id or "") if upload is not None else ("none", "")
    else:
        stored = bucket.keys.get(request.key) if _is_there(bucket, request.key) else None
        algorithm, key = (stored.encryption or "none", stored.kms_key_id or "") if stored is not None else ("none", "")
    if not algorithm:
        default = (bucket.encryption or {}).get("Rule", {}).get("ApplyServerSideEncryptionByDefault", {})
        algorithm, key = default.get("SSEAlgorithm", ""), default.get("KMSMasterKeyID") or ""
    return key if algorithm in _KMS and not key.endswith("alias/aws/s3") else ""


def _kms_action(request: AwsRequest) -> str:
    """Return the action of KMS that S3 calls on behalf of the caller, or "" if it calls none.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html,
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html#mpuAndPermissions
    """
    if request.operation in _CREATES:
        return "kms:GenerateDataKey"
    # "If you enable checksum mode and the object is … encrypted with an AWS KMS key, you must have permission to use
    # the kms:Decrypt action": https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
    asks_for_checksum = request.operation == "HeadObject" and "x-amz-checksum-mode" in request.headers
    return "kms:Decrypt" if asks_for_checksum or request.operation in {"GetObject", *_CONTINUES} else ""


def _on_behalf(request: AwsRequest, bucket: Any, key: str, action: str, account: str) -> Need:
    kms_key = find_key(key, request.region, account)
    encryption = request.headers.get("x-amz-server-side-encryption-bucket-key-enabled")
    default = (bucket.encryption or {}).get("Rule", {}).get("BucketKeyEnabled", False)
    by_bucket = encryption == "true" if encryption is not None else str(default).lower() == "true"
    bucket_arn = f"arn:aws:s3:::{request.bucket}"
    return Need(
        action,
        key_arn(key, request.region, account) if kms_key is None else kms_key.arn,
        {
            # https://docs.aws.amazon.com/kms/latest/developerguide/conditions-kms.html
            "kms:viaservice": [f"s3.{request.region}.amazonaws.com"],
            "kms:calleraccount": [account],
            "kms:encryptioncontext:aws:s3:arn": [bucket_arn if by_bucket else f"{bucket_arn}/{request.key}"],
            "kms:encryptioncontextkeys": ["aws:s3:arn"],
        },
    )


def _copied(request: AwsRequest, account: str) -> Any:
    source = unquote(request.headers.get("x-amz-copy-source", "").partition("?")[0]).lstrip("/")
    name, _, key = source.partition("/")
    bucket = bucket_named(name, account) if key else None
    return bucket.keys.get(key) if bucket is not None and _is_there(bucket, key) else None


def _is_there(bucket: Any, key: str) -> bool:
    from moto.s3.models import FakeKey

    return isinstance(bucket.keys.get(key), FakeKey)
