"""Access to AWS as the options configure it."""

from __future__ import annotations

from destination_datalake.aws.access import AccessKeys, AwsAccess, Environment, Identity
from destination_datalake.aws.session.assumed_role import Role
from destination_datalake.aws.session.encryption import Encryption, SseKms, SseS3
from destination_datalake.config.options import Config


def aws_access(config: Config) -> AwsAccess:
    """Return the access to AWS that the options configure."""
    return AwsAccess(
        region=config.region,
        identity=_identity(config),
        endpoint_url=config.endpoint_url,
        encryption=_encryption(config),
        glue_region=config.glue_region,
        glue_catalog_id=config.glue_catalog_id,
    )


def _identity(config: Config) -> Identity:
    credentials = config.credentials
    match credentials.credentials_title:
        case "IAM Role":
            return Role(credentials.role_arn, credentials.external_id, credentials.session_duration_seconds)
        case "IAM User":
            return AccessKeys(
                credentials.aws_access_key_id.get_secret_value(), credentials.aws_secret_access_key.get_secret_value()
            )
        case "Default chain":
            return Environment()


def _encryption(config: Config) -> Encryption | None:
    encryption = config.encryption
    match encryption.encryption_type:
        case "Bucket default":
            return None
        case "SSE-S3":
            return SseS3()
        case "SSE-KMS":
            return SseKms(encryption.kms_key_arn, encryption.bucket_key)
