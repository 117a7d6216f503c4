"""Multipart uploads: the encryption that their parts take over."""

from collections.abc import Iterable

import msgspec

from integration_tests.aws.objects.policies import bucket_named
from integration_tests.aws.requests.needs import Need
from integration_tests.aws.requests.request import AwsRequest

CONTINUES = frozenset({"UploadPart", "UploadPartCopy", "CompleteMultipartUpload"})
_ENCRYPTION = "s3:x-amz-server-side-encryption"


def with_encryption_of_upload(needs: Iterable[Need], request: AwsRequest, account: str) -> list[Need]:
    """Return the needs, those of an upload's parts and end with the encryption that the upload was begun with.

    S3 takes the headers at the beginning only (https://docs.aws.amazon.com/AmazonS3/latest/API/API_UploadPart.html),
    so a policy that demands them would otherwise allow no multipart upload at all.
    """
    needs = list(needs)
    bucket = bucket_named(request.bucket, account) if request.operation in CONTINUES else None
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
