"""The botocore session of an `AwsAccess`: a role that it assumes, credentials that it lends, hooks for each request.

Hooks of the session, so that clients that libraries make from it have them too.
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
    """An IAM role, assumed with the environment's credentials; its own are renewed before they expire."""

    arn: str
    external_id: str | None = None
    session_duration_seconds: int = 3600

    @property
    def renewed_before_seconds(self) -> int:
        """How long before they expire its credentials are renewed: a third of their lifetime, 15 minutes at most."""
        return min(self.session_duration_seconds // 3, 15 * 60)


def assume(role: Role, source: Session, make_client: Callable[..., BaseClient], session: Session) -> None:
    """Give `session` the credentials of `role`, assumed with those of `source`, for as long as it is used.

    `make_client` takes the name of a service, and as keywords the credentials that the role is assumed with. Raises
    NoCredentialsError (botocore) if `source` has none.
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
            # With botocore's fixed 15 minutes, a role of 15 minutes would be assumed again for every request.
            return RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(),
                fetcher.fetch_credentials,
                self.METHOD,
                advisory_timeout=role.renewed_before_seconds,
                mandatory_timeout=role.renewed_before_seconds * 2 // 3,
            )

    session.register_component("credential_provider", CredentialResolver([AssumedRole()]))


def lendable(session: Session, sts: Callable[[], STSClient]) -> Credentials:
    """Return credentials of a session, which renew themselves when read: those of `session`, or else made of its keys.

    Keys of an IAM user are not lent: they begin a session of an hour, which needs no permission
    (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp_control-access_getsessiontoken.html). Raises
    NoCredentialsError (botocore) if `session` has none, and what STS raises.
    """
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import NoCredentialsError

    own = session.get_credentials()
    if own is None:
        raise NoCredentialsError()
    if own.get_frozen_credentials().token is not None:
        return own

    def begun() -> dict[str, Any]:
        keys = sts().get_session_token(DurationSeconds=_SESSION_SECONDS)["Credentials"]
        return {
            "access_key": keys["AccessKeyId"],
            "secret_key": keys["SecretAccessKey"],
            "token": keys["SessionToken"],
            "expiry_time": keys["Expiration"].isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(
        begun(),
        begun,
        "session-token",
        advisory_timeout=_RENEWED_BEFORE_SECONDS,
        mandatory_timeout=_RENEWED_BEFORE_SECONDS * 2 // 3,
    )


def name_catalog(session: Session, catalog_id: str) -> None:
    """Have the Glue and Lake Formation clients that the session makes from now on name this Data Catalog.

    Every request whose input has a member for a catalog's id gets it, unless it has one. Lake Formation's inputs name
    the catalog once more in each resource that they contain. Glue's nested structures are left alone: a catalog id in
    them belongs to something else, such as the database that a resource link points to.
    """

    def name_in_input(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            event["params"].update({**dict.fromkeys(_members(shape), catalog_id), **event["params"]})

    def name_everywhere(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            # Only `params` is this request's own: the structures in it are the caller's.
            event["params"].update(_named(event["params"], shape, catalog_id))

    session.register("before-parameter-build.glue", name_in_input)
    session.register("before-parameter-build.lakeformation", name_everywhere)


def _named(value: Any, shape: Any, catalog_id: str) -> Any:
    """Return a copy of `value` in which each structure that has a member for a catalog's id has that member."""
    if isinstance(value, dict) and shape.type_name == "structure":
        # botocore refuses members that the shape does not have, later and with a message.
        known = {
            name: _named(inner, shape.members[name], catalog_id) if name in shape.members else inner
            for name, inner in value.items()
        }
        return {**dict.fromkeys(_members(shape), catalog_id), **known}
    if isinstance(value, (list, tuple)) and shape.type_name == "list":
        return [_named(inner, shape.member, catalog_id) for inner in value]
    return value


def _members(shape: Any) -> tuple[str, ...]:
    """Return the members of a structure that are a catalog's id."""
    if shape.name == _CATALOG_ITSELF:
        return ("Id",)
    return tuple(name for name in _MEMBERS if name in shape.members)


@dataclass(frozen=True, slots=True)
class Encryption:
    """Encryption with a key in KMS, given by its ARN (SSE-KMS); without one, with keys that S3 manages (SSE-S3).

    With `bucket_key`, S3 asks KMS for a key per bucket, not per object.
    """

    key_arn: str | None = None
    bucket_key: bool = True


def encrypt_objects(session: Session, encryption: Encryption) -> None:
    """Have the S3 clients that the session makes from now on ask for this encryption of what they write.

    The headers go on every request that creates an object. The parts of a multipart upload take over what it was begun
    with. https://docs.aws.amazon.com/AmazonS3/latest/userguide/specifying-kms-encryption.html
    """
    arguments: dict[str, Any] = {"ServerSideEncryption": "AES256"}
    if encryption.key_arn is not None:
        arguments = {
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": encryption.key_arn,
            "BucketKeyEnabled": encryption.bucket_key,
        }

    def ask(**event: Any) -> None:
        event["params"].update(arguments)

    for operation in _CREATING:
        session.register(f"before-parameter-build.s3.{operation}", ask)
