"""Options for the connector's AWS identity and for the encryption of objects in S3."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import ROLE_ARN, Options


class IamRole(Options):
    """A role that the connector assumes with the credentials of its environment, and renews during a sync."""

    credentials_title: Literal["IAM Role"]
    role_arn: Annotated[str, Field(pattern=ROLE_ARN)]
    external_id: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")] = None
    session_duration_seconds: Annotated[int, Field(ge=900, le=43200)] = 3600


class IamUser(Options):
    """The access key of an IAM user."""

    credentials_title: Literal["IAM User"]
    aws_access_key_id: Annotated[SecretStr, Field(min_length=1)]
    aws_secret_access_key: Annotated[SecretStr, Field(min_length=1)]


class DefaultChain(Options):
    """The credentials of AWS's default chain: environment variables, a profile, or a container's role."""

    credentials_title: Literal["Default chain"]


Credentials = IamRole | IamUser | DefaultChain


class BucketDefault(Options, title="Bucket Default"):
    """The bucket's default encryption. Requests do not set any encryption."""

    encryption_type: Literal["Bucket default"]


class SseS3(Options, title="SSE-S3: Keys of S3"):
    """Encryption with keys that S3 manages (SSE-S3)."""

    encryption_type: Literal["SSE-S3"]


class SseKms(Options, title="SSE-KMS: Your Key in KMS"):
    """Encryption with your own key in KMS (SSE-KMS)."""

    encryption_type: Literal["SSE-KMS"]
    # Not an alias: an IAM policy cannot allow the use of a key by its alias's ARN (KMS: aliases and IAM policies).
    kms_key_arn: Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$")]
    bucket_key: bool = True
