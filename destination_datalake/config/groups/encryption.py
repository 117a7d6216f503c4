"""Options of encryption: how S3 encrypts the objects that the connector writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from destination_datalake.config.base import Form, Options
from destination_datalake.config.messages import Expects


class BucketDefault(Options, title="Bucket Default"):
    """As the bucket is configured: requests say nothing of encryption."""

    encryption_type: Literal["Bucket default"]


class SseS3(Options, title="SSE-S3: Keys of S3"):
    """With keys that S3 manages (SSE-S3)."""

    encryption_type: Literal["SSE-S3"]


class SseKms(Options, title="SSE-KMS: Your Key in KMS"):
    """With a key of the user's in KMS (SSE-KMS)."""

    encryption_type: Literal["SSE-KMS"]
    kms_key_arn: Annotated[
        str,
        # No alias: a policy cannot allow the use of a key by its alias's ARN (KMS: aliases and IAM policies).
        Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$"),
        Expects("the ARN of a KMS key, such as arn:aws:kms:eu-west-1:123456789012:key/…, not of an alias"),
        Form(
            "The key; not an alias.",
            title="KMS Key ARN",
            examples=("arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",),
            secret=False,
        ),
    ]
    bucket_key: Annotated[
        bool,
        Form("Use a bucket key, which makes most requests to KMS unnecessary."),
    ] = True
