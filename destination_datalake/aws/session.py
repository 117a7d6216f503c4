"""The botocore session of an `AwsAccess`: assumed roles, session credentials for other processes, and request hooks.

Hooks are registered on the session, so they also apply to clients that libraries create from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.credentials import Credentials
    from botocore.session import Session
    from mypy_boto3_sts import STSClient

_SESSION_NAME = "airbyte-destination-datalake"
_MEMBERS = ("CatalogId", "TableCatalogId")
_CATALOG_ITSELF = "CatalogResource"
"""Lake Formation's structure whose `Id` is the catalog's."""
_CREATING = ("PutObject", "CreateMultipartUpload", "CopyObject")
_SESSION_SECONDS = 3600
_RENEWED_BEFORE_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class Role:
    """An IAM role, assumed with the environment's credentials. Its credentials are renewed before they expire."""

    arn: str
    external_id: str | None = None
    session_duration_seconds: int = 3600

    @property
    def renewed_before_seconds(self) -> int:
        """The time before expiry at which credentials are renewed: a third of their lifetime, at most 15 minutes."""
        return min(self.session_duration_seconds // 3, 15 * 60)


def assume(role: Role, source: Session, make_client: Callable[..., BaseClient], session: Session) -> None:
    """Set the credentials of `session` to those of `role`, which is assumed with the credentials of `source`.

    They are renewed. `make_client` receives the name of a service, and the source credentials as keywords. Raises
    NoCredentialsError (botocore) if `source` has no credentials.
    """
    from botocore.credentials import (
        AssumeRoleCredentialFetcher,
        CredentialProvider,
        CredentialResolver,
        RefreshableCredentials,
    )
    from botocore.exceptions import NoCredentialsError

    source_credentials = source.get_credentials()
    if source_credentials is None:
        raise NoCredentialsError()
    request: dict[str, Any] = {
        "RoleSessionName": _SESSION_NAME,
        "DurationSeconds": role.session_duration_seconds,
    }
    if role.external_id is not None:
        request["ExternalId"] = role.external_id
    fetcher = AssumeRoleCredentialFetcher(make_client, source_credentials, role.arn, extra_args=request)

    class AssumedRole(CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> RefreshableCredentials:
            # With botocore's fixed 15 minutes, a session of 15 minutes would be renewed for every request.
            return RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(),
                fetcher.fetch_credentials,
                self.METHOD,
                advisory_timeout=role.renewed_before_seconds,
                mandatory_timeout=role.renewed_before_seconds * 2 // 3,
            )

    session.register_component("credential_provider", CredentialResolver([AssumedRole()]))


def delegable_credentials(session: Session, sts: Callable[[], STSClient]) -> Credentials:
    """Return session credentials that are renewed on access: those of `session`, or a new session of its keys.

    Keys of an IAM user are not shared. They create a session of an hour, which does not need a permission
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp_control-access_getsessiontoken.html). Raises
    NoCredentialsError (botocore) if `session` has no credentials, and errors of STS.
    """
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    own = session.get_credentials()
    if own is None:
        raise NoCredentialsError()
    if own.get_frozen_credentials().token is not None:
        return own

    def fetch() -> dict[str, Any]:
        keys = sts().get_session_token(DurationSeconds=_SESSION_SECONDS)["Credentials"]
        return {
            "access_key": keys["AccessKeyId"],
            "secret_key": keys["SecretAccessKey"],
            "token": keys["SessionToken"],
            "expiry_time": keys["Expiration"].isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        fetch(),
        fetch,
        "session-token",
        advisory_timeout=_RENEWED_BEFORE_SECONDS,
        mandatory_timeout=_RENEWED_BEFORE_SECONDS * 2 // 3,
    )


def name_catalog(session: Session, catalog_id: str) -> None:
    """Add the ID of this Data Catalog to requests of future Glue and Lake Formation clients of the session.

    It is added to every input with a member for the catalog ID, unless it is set, and in Lake Formation's inputs also
    to nested resources. Glue's nested structures stay unchanged, because their catalog ID belongs to another object,
    such as the target of a resource link.
    """

    def name_in_input(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            event["params"].update({**dict.fromkeys(_members(shape), catalog_id), **event["params"]})

    def name_everywhere(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            # Only `params` itself may be modified: nested structures belong to the caller.
            event["params"].update(_with_catalog_id(event["params"], shape, catalog_id))

    session.register("before-parameter-build.glue", name_in_input)
    session.register("before-parameter-build.lakeformation", name_everywhere)


def _with_catalog_id(value: Any, shape: Any, catalog_id: str) -> Any:
    """Return a copy of `value` with the catalog ID in each structure that has a member for it."""
    if isinstance(value, dict) and shape.type_name == "structure":
        # botocore later rejects unknown members, with a message.
        known = {
            name: _with_catalog_id(inner, shape.members[name], catalog_id) if name in shape.members else inner
            for name, inner in value.items()
        }
        return {**dict.fromkeys(_members(shape), catalog_id), **known}
    if isinstance(value, (list, tuple)) and shape.type_name == "list":
        return [_with_catalog_id(inner, shape.member, catalog_id) for inner in value]
    return value


def _members(shape: Any) -> tuple[str, ...]:
    """Return the names of a structure's members for the catalog ID."""
    if shape.name == _CATALOG_ITSELF:
        return ("Id",)
    return tuple(name for name in _MEMBERS if name in shape.members)


@dataclass(frozen=True, slots=True)
class Encryption:
    """Encryption with the KMS key `key_arn` (SSE-KMS), or with keys that S3 manages if it is None (SSE-S3).

    With `bucket_key`, S3 requests one key per bucket from KMS instead of one per object.
    """

    key_arn: str | None = None
    bucket_key: bool = True


def encrypt_objects(session: Session, encryption: Encryption) -> None:
    """Add this encryption to requests of future S3 clients of the session that create objects.

    The parts of a multipart upload inherit its encryption.
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/specifying-kms-encryption.html
    """
    arguments: dict[str, Any] = {"ServerSideEncryption": "AES256"}
    if encryption.key_arn is not None:
        arguments = {
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": encryption.key_arn,
            "BucketKeyEnabled": encryption.bucket_key,
        }

    def add_arguments(**event: Any) -> None:
        event["params"].update(arguments)

    for operation in _CREATING:
        session.register(f"before-parameter-build.s3.{operation}", add_arguments)
