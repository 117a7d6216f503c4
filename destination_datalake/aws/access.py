"""Access to AWS, on the driver and on executors.

An `AwsAccess` is a small value that can be pickled. It creates clients in the process that uses it. boto3 is imported
with the first client.
"""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, assert_never, overload

from destination_datalake.aws.secrets import register_secrets
from destination_datalake.aws.session import (
    Encryption,
    Role,
    assume,
    delegable_credentials,
    encrypt_objects,
    name_catalog,
)
from destination_datalake.aws.usage import count_calls

if TYPE_CHECKING:
    import boto3
    from botocore.client import BaseClient
    from botocore.config import Config as ClientConfig
    from botocore.credentials import Credentials
    from botocore.session import Session
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_lakeformation import LakeFormationClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sts import STSClient

Service = Literal["s3", "glue", "lakeformation", "sts", "sns", "s3tables"]


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """The keys of an IAM user, or, with a token, of a session, which are not renewed. `repr` does not show them."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, credentials: Credentials) -> Self:
        """Return the current keys of `AwsAccess.delegable_credentials`. Raises errors of their renewal."""
        frozen = credentials.get_frozen_credentials()
        keys = cls(str(frozen.access_key), str(frozen.secret_key), str(frozen.token))
        # Executors sign with these keys, and error messages of AWS may quote them.
        register_secrets(keys.access_key_id, keys.secret_access_key, keys.session_token)
        return keys


@dataclass(frozen=True, slots=True)
class Environment:
    """AWS's default credential chain: environment, profile, container or instance role, web identity."""


Identity = Role | AccessKeys | Environment

MAX_CONNECTIONS = 256
"""The number of connections that a client keeps. With fewer than threads, urllib3 often opens new ones, and warns."""


@dataclass(frozen=True, slots=True)
class AwsAccess:
    """Identity, regions, endpoint and settings of requests. Equal values share their clients within a process."""

    region: str
    identity: Identity = field(default_factory=Environment)
    endpoint_url: str | None = None
    encryption: Encryption | None = None
    """The encryption of new objects; None for the bucket's default."""
    glue_region: str | None = None
    """The region of Glue and Lake Formation; None if it is the bucket's."""
    glue_catalog_id: str | None = None
    """The Data Catalog in Glue and Lake Formation; None for that of the identity's account."""
    attempts: int = 10
    """The maximum number of attempts of a request by botocore, with exponential backoff."""
    connect_timeout_seconds: int = 10

    @property
    def has_session_credentials(self) -> bool:
        """Whether its credentials are session credentials from the driver or vended by a catalog."""
        return isinstance(self.identity, AccessKeys) and self.identity.session_token is not None

    @overload
    def client(self, service: Literal["s3"]) -> S3Client: ...
    @overload
    def client(self, service: Literal["glue"]) -> GlueClient: ...
    @overload
    def client(self, service: Literal["lakeformation"]) -> LakeFormationClient: ...
    @overload
    def client(self, service: Literal["sts"]) -> STSClient: ...
    @overload
    def client(self, service: Literal["sns"]) -> SNSClient: ...
    @overload
    def client(self, service: Literal["s3tables"]) -> BaseClient: ...
    def client(self, service: Service) -> Any:
        """Return this process's client for `service`, which is thread-safe.

        Raises NoCredentialsError (botocore) if a role must be assumed and the environment has no credentials.
        """
        with _lock:
            key = (self, service)
            if key not in _clients:
                _forget_ended_sessions()
                client = self._boto_session().client(
                    service, self._region(service), endpoint_url=self.endpoint_url, config=self._client_config(service)
                )
                # botocore creates a client's exception classes on first use. If two threads created them, an `except`
                # with the class of one would not catch the other's. Here only one thread creates them.
                _ = client.exceptions
                _clients[key] = client
            return _clients[key]

    def session(self) -> boto3.Session:
        """Return this process's session, for libraries that create their own Glue clients."""
        with _lock:
            return self._boto_session()

    def delegable_credentials(self) -> Credentials:
        """Return session credentials of this identity for other processes (see `session.delegable_credentials`).

        Raises NoCredentialsError (botocore) without credentials, and errors of STS.
        """
        return delegable_credentials(self._session(), lambda: self.client("sts"))

    def _boto_session(self) -> boto3.Session:
        """Return the session of this process. The caller must hold `_lock`: creating a session is not thread-safe."""
        if self not in _sessions:
            import boto3

            _sessions[self] = boto3.Session(botocore_session=self._session(), region_name=self._region("glue"))
        return _sessions[self]

    def _session(self) -> Session:
        from botocore.session import get_session

        session = _with_hooks(get_session())
        match self.identity:
            case Environment():
                pass
            case AccessKeys(access_key_id, secret_access_key, token):
                _forget_missing_profile(session)
                session.set_credentials(access_key_id, secret_access_key, token)
            case Role() as role:
                source = _with_hooks(get_session())
                assume(role, source, partial(self._source_client, source), session)
            case _:
                assert_never(self.identity)
        if self.encryption is not None:
            encrypt_objects(session, self.encryption)
        if self.glue_catalog_id is not None:
            name_catalog(session, self.glue_catalog_id)
        return session

    def _source_client(self, source: Session, service: str, **credentials: Any) -> BaseClient:
        """Return a client for assuming the role with the credentials of `source`."""
        return source.create_client(
            service,
            region_name=self.region,
            endpoint_url=self.endpoint_url,
            config=self._client_config("sts"),
            **credentials,
        )

    def _region(self, service: Service) -> str:
        return (self.glue_region or self.region) if service in ("glue", "lakeformation") else self.region

    def _client_config(self, service: Service) -> ClientConfig:
        from botocore.config import Config

        config = Config(
            retries={"mode": "standard", "total_max_attempts": self.attempts},
            connect_timeout=self.connect_timeout_seconds,
            read_timeout=60,
            max_pool_connections=MAX_CONNECTIONS,
            user_agent_extra="destination-datalake",
        )
        if service == "s3" and self.endpoint_url is not None:
            # Other stores and emulators do not have a host name per bucket, and many do not support trailing checksums.
            compatible = Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            config = config.merge(compatible)
        return config


_lock = threading.Lock()
_sessions: dict[AwsAccess, boto3.Session] = {}
_clients: dict[tuple[AwsAccess, Service], object] = {}


_SESSIONS_KEPT = 2
"""The number of delegated sessions that keep their clients. Other tasks may still use the previous one."""


def _forget_ended_sessions() -> None:
    """Drop the clients of replaced sessions, which use megabytes each. The caller must hold `_lock`."""
    lent = [access for access in _sessions if access.has_session_credentials]
    for access in lent[:-_SESSIONS_KEPT]:
        del _sessions[access]
    for key in [key for key in _clients if key[0] in lent and key[0] not in _sessions]:
        del _clients[key]


def _clear_after_fork() -> None:
    """Reset state that a forked child shares with its parent: connections, and a lock that a thread may hold."""
    global _lock
    _lock = threading.Lock()
    _sessions.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_clear_after_fork)


def _forget_missing_profile(session: Session) -> None:
    """Ignore a profile that does not exist on this machine. Its credentials are not needed."""
    if session.get_config_variable("profile") not in (None, *session.available_profiles):
        session.session_var_map["profile"] = (None, None, None, None)


def _with_hooks(session: Session) -> Session:
    """Register hooks that mask credentials of signed requests, count requests, and reject truncated responses."""

    def register_credentials(**_: object) -> None:
        credentials = session.get_credentials()
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            register_secrets(frozen.access_key, frozen.secret_key, frozen.token)

    session.register("before-sign", register_credentials)
    for operation in ("GetTable", "GetTables", "GetDatabase", "GetDatabases", "GetPartitions"):
        session.register(f"after-call.glue.{operation}", _require_content)
    count_calls(session)
    return session


def _require_content(**call: Any) -> None:
    """Raise ResponseParserError for a response without any member of the operation's output.

    botocore parses a truncated response as an empty one, such as a table without properties.
    """
    from botocore.parsers import ResponseParserError

    shape = call["model"].output_shape
    if call["http_response"].status_code == 200 and call["parsed"].keys().isdisjoint(shape.members):
        raise ResponseParserError(f"Truncated response of Glue to {call['model'].name}")


_SESSION_ARN = re.compile(r"arn:(?P<partition>[a-z-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.+")


def caller_arn(access: AwsAccess) -> str:
    """Return the ARN of the caller's IAM user or role, for grants. Raises errors of STS.

    A session's ARN does not contain the path of its role. For a role with a path, users must add it, unless the options
    name the role.
    """
    if isinstance(access.identity, Role):
        return access.identity.arn
    return role_of_session(access.client("sts").get_caller_identity()["Arn"])


def catalog_id(access: AwsAccess) -> str:
    """Return the ID of the Data Catalog: the configured one, or the caller's account. Raises errors of STS."""
    return access.glue_catalog_id or caller_arn(access).split(":")[4]


def role_of_session(arn: str) -> str:
    """Return the ARN of a session's role without its path, or any other ARN unchanged."""
    match = _SESSION_ARN.fullmatch(arn)
    return f"arn:{match['partition']}:iam::{match['account']}:role/{match['role']}" if match else arn
