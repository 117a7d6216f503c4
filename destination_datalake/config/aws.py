"""Options of the connector's AWS identity, and of how S3 encrypts the objects that it writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import ROLE_ARN, Expects, Form, Options


class IamRole(Options):
    """A role, assumed with the credentials of the place the connector runs in, and renewed while a sync lasts."""

    credentials_title: Literal["IAM Role"]
    role_arn: Annotated[
        str,
        Field(pattern=ROLE_ARN),
        Expects("a role's ARN, such as arn:aws:iam::123456789012:role/airbyte"),
        Form(
            "The role to assume.", title="Role ARN", examples=("arn:aws:iam::123456789012:role/airbyte",), secret=False
        ),
    ]
    external_id: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$"),
        Expects("the external id in the role's trust policy, 2 to 1224 characters without spaces"),
        Form("The external id that the role's trust policy asks for. Default: empty, none."),
    ] = None
    session_duration_seconds: Annotated[
        int,
        Field(ge=900, le=43200),
        Expects("a whole number of seconds from 900 to 43200"),
        Form(
            "How long the role's credentials last before they are renewed; at most what the role "
            "allows. Default: 3600.",
            title="Session Duration (seconds)",
        ),
    ] = 3600


class IamUser(Options):
    """The access key of an IAM user."""

    credentials_title: Literal["IAM User"]
    aws_access_key_id: Annotated[
        SecretStr,
        Field(min_length=1),
        Expects("the user's access key id"),
        Form("The user's access key id.", title="Access Key Id"),
    ]
    aws_secret_access_key: Annotated[
        SecretStr,
        Field(min_length=1),
        Expects("the user's secret access key"),
        Form("The secret that belongs to the access key id.", title="Secret Access Key"),
    ]


class DefaultChain(Options):
    """What AWS's default chain finds where the connector runs: environment, profile, or the role of a container."""

    credentials_title: Literal["Default chain"]


Credentials = IamRole | IamUser | DefaultChain


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
            "The ARN of the key; not of an alias.",
            title="KMS Key ARN",
            examples=("arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",),
            secret=False,
        ),
    ]
    bucket_key: Annotated[
        bool,
        Form("Use a bucket key, which saves most requests to KMS. Default: on."),
    ] = True
