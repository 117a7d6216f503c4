"""How this connector, driver and executors alike, reaches AWS.

An `AwsAccess` is a small value that travels (executors receive it pickled) and makes clients where it arrives. boto3 is
imported only when the first client is made.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, assert_never, overload

from destination_datalake.aws.faulty_responses import retry_faulty_responses
from destination_datalake.aws.secrets import register_secrets

if TYPE_CHECKING:
    import boto3
    from botocore.client import BaseClient
    from botocore.config import Config as ClientConfig
    from botocore.session import Session
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sts import STSClient

Service = Literal["s3", "glue", "sts"]

_SESSION_NAME = "airbyte-destination-datalake"


@dataclass(frozen=True, slots=True)
class Role:
    """Assume a role, starting from the credentials the environment provides; renewed before they expire."""

    arn: str
    external_id: str | None = None
    session_duration_seconds: int = 3600

    @property
    def renewed_before_seconds(self) -> int:
        """How long before their end its credentials are renewed: a third of their life, at most 15 minutes."""
        return min(self.session_duration_seconds // 3, 15 * 60)


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """The long-lived keys of an IAM user. Never shown by `repr`."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Environment:
    """Whatever AWS's default chain finds: environment, profile, container or instance role, web identity."""


Identity = Role | AccessKeys | Environment


@dataclass(frozen=True, slots=True)
class AwsAccess:
    """Who we are and where AWS is. Equal values share their clients within a process."""

    region: str
    identity: Identity = field(default_factory=Environment)
    endpoint_url: str | None = None
    attempts: int = 10
    """How often a request is tried in all, with exponential backoff, when AWS throttles or fails."""
    connect_timeout_seconds: int = 10

    @overload
    def client(self, service: Literal["s3"]) -> S3Client: ...
    @overload
    def client(self, service: Literal["glue"]) -> GlueClient: ...
    @overload
    def client(self, service: Literal["sts"]) -> STSClient: ...
    def client(self, service: Service) -> Any:
        """Return this process's client for `service`; it may be used by many threads at once.

        Raises NoCredentialsError (botocore) if a role is to be assumed and the environment has no credentials.
        """
        with _lock:
            key = (self, service)
            if key not in _clients:
                client = self._boto_session().client(
                    service, endpoint_url=self.endpoint_url, config=self._client_config(service)
                )
                # botocore makes a client's exception classes at their first use, and two threads could make them twice:
                # an `except` would then miss what was raised. Here only one thread looks.
                _ = client.exceptions
                _clients[key] = client
            return _clients[key]

    def session(self) -> boto3.Session:
        """Return this process's session, for libraries that make their own clients."""
        with _lock:
            return self._boto_session()

    def _boto_session(self) -> boto3.Session:
        """Return the session of this process; `_lock` is held, because making one is not thread-safe."""
        if self not in _sessions:
            import boto3

            _sessions[self] = boto3.Session(botocore_session=self._session(), region_name=self.region)
        return _sessions[self]

    def _session(self) -> Session:
        from botocore.session import get_session

        session = get_session()
        match self.identity:
            case Environment():
                pass
            case AccessKeys(access_key_id, secret_access_key):
                session.set_credentials(access_key_id, secret_access_key)
            case Role() as role:
                _assume(role, session, self)
            case _:
                assert_never(self.identity)
        return _watched(session)

    def _client_config(self, service: Service) -> ClientConfig:
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            connect_timeout=self.connect_timeout_seconds,
            read_timeout=60,
            # Uploads and commits of many tables run side by side; the default of 10 makes them queue and log about it.
            max_pool_connections=32,
            user_agent_extra="destination-datalake",
        )
        if service == "s3" and self.endpoint_url is not None:
            # Stores and emulators behind one address know no bucket.host names, and many know no trailing checksums.
            elsewhere = Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            config = config.merge(elsewhere)
        return config


_lock = threading.Lock()
_sessions: dict[AwsAccess, boto3.Session] = {}
_clients: dict[tuple[AwsAccess, Service], object] = {}


def _forget_the_parents_clients() -> None:
    """Start a forked child afresh: connections, and a lock another thread may have held, are its parent's."""
    global _lock
    _lock = threading.Lock()
    _sessions.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_the_parents_clients)


def _watched(session: Session) -> Session:
    """Look at the answers to the session's clients, and remember what they sign with."""

    def remember_credentials(**_: object) -> None:
        found = session.get_credentials()
        if found is not None:
            frozen = found.get_frozen_credentials()
            register_secrets(frozen.access_key, frozen.secret_key, frozen.token)

    session.register("before-sign", remember_credentials)
    retry_faulty_responses(session)
    return session


def _assume(role: Role, session: Session, access: AwsAccess) -> None:
    """Make `session` act as `role`, renewing the role's credentials as long as it lives."""
    from botocore.credentials import (
        AssumeRoleCredentialFetcher,
        CredentialProvider,
        CredentialResolver,
        RefreshableCredentials,
    )
    from botocore.exceptions import NoCredentialsError
    from botocore.session import get_session

    source = _watched(get_session())
    source_credentials = source.get_credentials()
    if source_credentials is None:
        raise NoCredentialsError()

    def create_client(service: str, **credentials: Any) -> BaseClient:
        return source.create_client(
            service,
            region_name=access.region,
            endpoint_url=access.endpoint_url,
            config=access._client_config("sts"),
            **credentials,
        )

    request: dict[str, Any] = {
        "RoleSessionName": _SESSION_NAME,
        "DurationSeconds": role.session_duration_seconds,
    }
    if role.external_id is not None:
        request["ExternalId"] = role.external_id
    fetcher = AssumeRoleCredentialFetcher(create_client, source_credentials, role.arn, extra_args=request)

    class AssumedRole(CredentialProvider):
        METHOD = "assume-role"

        def load(self) -> RefreshableCredentials:
            # The library's own 15 minutes would have a role of 15 minutes assumed again for every request.
            return RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(),
                fetcher.fetch_credentials,
                self.METHOD,
                advisory_timeout=role.renewed_before_seconds,
                mandatory_timeout=role.renewed_before_seconds * 2 // 3,
            )

    session.register_component("credential_provider", CredentialResolver([AssumedRole()]))
