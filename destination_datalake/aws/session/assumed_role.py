"""An IAM role: assumed with the environment's credentials, and again before its own expire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.session import Session

_SESSION_NAME = "airbyte-destination-datalake"


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


class MakesClient(Protocol):
    """Makes a client of a service with given credentials, which are those that the role is assumed with."""

    def __call__(self, service: str, **credentials: Any) -> BaseClient:
        """Return the client."""
        ...


def assume(role: Role, source: Session, make_client: MakesClient, session: Session) -> None:
    """Give `session` the credentials of `role`, assumed with those of `source`, for as long as it is used.

    Raises NoCredentialsError (botocore) if `source` has none.
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
