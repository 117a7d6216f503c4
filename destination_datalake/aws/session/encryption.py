"""Server-side encryption of the objects that are written, where the bucket's default shall not decide.

The headers go on every request that creates an object. The parts of a multipart upload take over what it was begun
with. https://docs.aws.amazon.com/AmazonS3/latest/userguide/specifying-kms-encryption.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

if TYPE_CHECKING:
    from botocore.session import Session

_CREATING = ("PutObject", "CreateMultipartUpload", "CopyObject")


@dataclass(frozen=True, slots=True)
class SseS3:
    """Keys that S3 manages (SSE-S3)."""


@dataclass(frozen=True, slots=True)
class SseKms:
    """A key in KMS (SSE-KMS), given by its ARN. With `bucket_key`, S3 asks KMS for a key per bucket, not per object."""

    key_arn: str
    bucket_key: bool


Encryption = SseS3 | SseKms


def encrypt_objects(session: Session, encryption: Encryption) -> None:
    """Have the S3 clients that the session makes from now on ask for this encryption of what they write."""
    arguments = _arguments(encryption)

    def ask(**event: Any) -> None:
        event["params"].update(arguments)

    for operation in _CREATING:
        session.register(f"before-parameter-build.s3.{operation}", ask)


def _arguments(encryption: Encryption) -> dict[str, Any]:
    match encryption:
        case SseS3():
            return {"ServerSideEncryption": "AES256"}
        case SseKms(key_arn, bucket_key):
            return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key_arn, "BucketKeyEnabled": bucket_key}
        case _:
            assert_never(encryption)
