"""Access AWS from the driver and from executors: create clients and credentials, mask secrets, and count requests."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, assert_never, overload
from urllib.parse import quote

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


# --- Secrets ----------------------------------------------------------------------------------------------------------
# Mask the secrets of this process, and secrets in URLs, in all output of the process.
#
# The secrets are the secret options, and all credentials that sign requests, including each renewal of temporary
# credentials. Error texts may contain these secrets: AWS quotes canonical requests, which contain the session token,
# and other servers may quote the whole request.

_MASK = "****"
_MIN_LENGTH = 6
"""Minimum length of a secret. The connector does not mask shorter strings. Java's key tool requires the same minimum
length for passwords."""

_ORDINARY = re.compile(
    r"[-+.,:\d]{1,15}\s?[a-z]{0,3}"  # numbers and durations, shorter than any key
    r"|true|false|default|enabled|disabled|required|optional|always|simple|static|custom|kerberos|anonymous|bearer"
    r"|(?-i:[a-z]\w*(\.[a-z]\w*)+\.[A-Z][\w$]*)"  # a Java class
    r"|arn:aws[a-z-]*:\S+",  # an ARN, such as the KMS key in the setting fs.s3a.encryption.key
    re.IGNORECASE,
)
"""Matches values that are never secrets, even if the name of their setting suggests a secret. If such values were
masked, messages would be unreadable."""

# Error texts may quote requests and credentials of other processes, such as executors, that are not registered here.
_TEMPORARY_CREDENTIAL = re.compile(
    r"((?<!/)(?:x-amz-security-token|session_?token|secret_?access_?key)"
    r"(?:\\*[\"'])?\s*[:=>]\s*(?:b?\\*[\"'])?)[^\s\"'&<>,;\\]+",
    re.IGNORECASE,
)
"""Matches a session token or a secret key after its name: in a header, in JSON, in XML or in a Python literal. The
group contains everything before the value."""

_URL = re.compile(r"\b(?!s3[an]?:)([a-z][a-z0-9+.-]*://)([^\s\"<>]*)", re.IGNORECASE)
"""Matches a URL. The groups are the scheme and the rest of the URL. S3 URIs do not match, because `@` and `?` are
ordinary characters in S3 keys."""

_QUERY = re.compile(r"\?[^#]*")
_PARAMETER = re.compile(r"([?&])([^=&]*=)?[^&]*")

_secrets_lock = threading.Lock()
_secrets: frozenset[str] = frozenset()
_spellings: tuple[str, ...] = ()


def register_secrets(*secrets: str | None) -> None:
    """Mask these secrets in all later output, in every spelling (see `_spelled`). Thread-safe.

    Ignores None, strings of less than 6 characters, and common values such as `true`.
    """
    global _secrets, _spellings
    new = {secret for secret in secrets if secret is not None and _may_be_secret(secret)}
    if new.issubset(_secrets):
        return
    with _secrets_lock:
        _secrets = _secrets | new
        # Replace the longest spelling first, because one secret may contain another one.
        spellings = {spelling for secret in _secrets for spelling in _spelled(secret)}
        _spellings = tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling)))


def mask_secrets(text: str) -> str:
    """Return the text with each secret replaced by `****`.

    Masks registered secrets, AWS session tokens and secret keys that follow their names, and user names, passwords and
    parameter values in URLs.
    """
    for spelling in _spellings:
        text = text.replace(spelling, _MASK)
    text = _TEMPORARY_CREDENTIAL.sub(rf"\g<1>{_MASK}", text)
    return _URL.sub(_mask_url, text) if "://" in text else text


def _mask_url(match: re.Match[str]) -> str:
    scheme, remainder = match.groups()
    _, at, address = remainder.rpartition(
        "@"
    )  # Passwords that are not percent-encoded may contain `/`, `?`, `#` and `@`.
    user = _MASK if at else ""
    return scheme + user + at + _QUERY.sub(lambda query: _PARAMETER.sub(rf"\g<1>\g<2>{_MASK}", query[0]), address)


def _may_be_secret(text: str) -> bool:
    return len(text) >= _MIN_LENGTH and _ORDINARY.fullmatch(text) is None


def _spelled(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret that output may contain: plain, in JSON, in a Python literal, and in a URL."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield quote(secret.encode("utf-8", "surrogatepass"), safe="")


# --- Sessions ---------------------------------------------------------------------------------------------------------
# Configure botocore sessions: assumed roles, session credentials for other processes, and request hooks.
#
# These functions register hooks on a session, so the hooks also apply to the clients that libraries create from the
# session.


_SESSION_NAME = "airbyte-destination-datalake"
_MEMBERS = ("CatalogId", "TableCatalogId")
_CATALOG_RESOURCE = "CatalogResource"
"""A structure in Lake Formation's API whose member `Id` is the ID of the Data Catalog."""
_CREATE_OPERATIONS = ("PutObject", "CreateMultipartUpload", "CopyObject")
_SESSION_SECONDS = 3600
_RENEWAL_MARGIN_SECONDS = 15 * 60


@dataclass(frozen=True, slots=True)
class Role:
    """An IAM role that the connector assumes with the credentials of its environment.

    `session_duration_seconds` is the lifetime of the role's credentials. The connector renews the credentials before
    they expire.
    """

    arn: str
    external_id: str | None = None
    session_duration_seconds: int = 3600

    @property
    def renewal_margin_seconds(self) -> int:
        """The number of seconds before their expiry at which the connector renews the role's credentials.

        This is 15 minutes, or a third of the credentials' lifetime if a third is shorter.
        """
        return min(self.session_duration_seconds // 3, 15 * 60)


def assume(role: Role, source: Session, make_client: Callable[..., BaseClient], session: Session) -> None:
    """Make `session` use an IAM role, which it assumes with the credentials of the session `source`.

    The session renews the role's credentials before they expire. `make_client` creates a client for a service name. It
    accepts credentials as keyword arguments. Raises NoCredentialsError (botocore) if `source` has no credentials.
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
            # By default, botocore renews credentials 15 minutes before expiry. It would renew credentials with a
            # lifetime of 15 minutes for every request.
            return RefreshableCredentials.create_from_metadata(
                fetcher.fetch_credentials(),
                fetcher.fetch_credentials,
                self.METHOD,
                advisory_timeout=role.renewal_margin_seconds,
                mandatory_timeout=role.renewal_margin_seconds * 2 // 3,
            )

    # The resolver has no other provider, so the session never falls back to the credentials of the environment.
    session.register_component("credential_provider", CredentialResolver([AssumedRole()]))


def name_catalog(session: Session, catalog_id: str) -> None:
    """Make Glue and Lake Formation clients of `session` send this Data Catalog ID with every request.

    The clients set the ID in each top-level member of the request for such an ID, unless the caller has set the member.
    In requests to Lake Formation, they also set it in nested resources. In requests to Glue, they do not change nested
    structures, because an ID in such a structure belongs to another object, such as the target of a resource link.
    """

    def name_in_input(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            # The members of the caller come last, so they take precedence.
            event["params"].update({**dict.fromkeys(_members(shape), catalog_id), **event["params"]})

    def name_in_structures(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            # Only `params` itself may be modified, because the caller owns the nested structures.
            event["params"].update(_with_catalog_id(event["params"], shape, catalog_id))

    session.register("before-parameter-build.glue", name_in_input)
    session.register("before-parameter-build.lakeformation", name_in_structures)


def _with_catalog_id(value: Any, shape: Any, catalog_id: str) -> Any:
    """Return a copy of `value` that contains the ID in each structure with a member for a Data Catalog ID.

    `shape` is botocore's description of the type of `value`. Keeps IDs that the caller has set.
    """
    if isinstance(value, dict) and shape.type_name == "structure":
        # Keep unknown members, so that botocore rejects them with an error message.
        members = {
            name: _with_catalog_id(member, shape.members[name], catalog_id) if name in shape.members else member
            for name, member in value.items()
        }
        # The members of the caller come last, so they take precedence.
        return {**dict.fromkeys(_members(shape), catalog_id), **members}
    if isinstance(value, (list, tuple)) and shape.type_name == "list":
        return [_with_catalog_id(member, shape.member, catalog_id) for member in value]
    return value


def _members(shape: Any) -> tuple[str, ...]:
    """Return the names of those members of a structure that contain a Data Catalog ID."""
    if shape.name == _CATALOG_RESOURCE:
        return ("Id",)
    return tuple(name for name in _MEMBERS if name in shape.members)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of new objects: SSE-KMS with the KMS key `key_arn`, or SSE-S3 if `key_arn` is None.

    With `bucket_key`, S3 derives the keys of objects from one key that it requests from KMS for the bucket, instead of
    requesting a key for each object.
    """

    key_arn: str | None = None
    bucket_key: bool = True


def encrypt_objects(session: Session, encryption: Encryption) -> None:
    """Encrypt all objects that S3 clients of `session` write from now on.

    S3 encrypts the parts of a multipart upload like the upload itself
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/specifying-kms-encryption.html).
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

    for operation in _CREATE_OPERATIONS:
        session.register(f"before-parameter-build.s3.{operation}", add_arguments)


# --- Usage ------------------------------------------------------------------------------------------------------------
# Measure the resource usage of a process, on the driver and on executors: requests to AWS, CPU time and memory.


_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that one or more processes have used.

    `calls` maps operations, such as `s3.PutObject`, to numbers of requests, including retries. `peak_bytes` is the
    maximum resident memory of a single process.
    """

    calls: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_bytes: int = 0

    @classmethod
    def total(cls, parts: Iterable[Self]) -> Self:
        """Return the sum of several usages. The `peak_bytes` of the result is the maximum, not the sum."""
        calls: Counter[str] = Counter()
        seconds, peak = 0.0, 0
        for part in parts:
            calls.update(part.calls)
            seconds += part.cpu_seconds
            peak = max(peak, part.peak_bytes)
        return cls(dict(calls), seconds, peak)


_usage_lock = threading.Lock()
_calls: Counter[str] = Counter()
_reported_cpu_seconds = 0.0


def _forget_after_fork() -> None:
    """Reset the counters and the lock in a forked child. A thread of the parent may have held the lock."""
    global _usage_lock, _reported_cpu_seconds
    _usage_lock = threading.Lock()
    _reported_cpu_seconds = 0.0
    _calls.clear()


# The driver forks PySpark's worker daemon, and the daemon forks the Python workers.
os.register_at_fork(after_in_child=_forget_after_fork)


def count_calls(session: Session) -> None:
    """Count each request that clients of `session` send, including retries."""

    def count(*, event_name: str = "", **_: object) -> None:
        with _usage_lock:
            _calls[event_name.removeprefix("before-send.")] += 1

    session.register("before-send", count)


def take_usage() -> Usage:
    """Return the usage of this process since the last call of this function, or since the start of the process.

    Resets the counts. `peak_bytes` is always the maximum since the start of the process.
    """
    global _reported_cpu_seconds
    # Linux reports kibibytes, and macOS reports bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    with _usage_lock:
        calls = dict(_calls)
        _calls.clear()
        cpu_seconds = time.process_time()
        elapsed, _reported_cpu_seconds = cpu_seconds - _reported_cpu_seconds, cpu_seconds
    return Usage(calls, elapsed, peak)


def metered(work: Callable[..., Iterable[_Result]], *arguments: Any) -> Iterator[_Result | Usage]:
    """Call `work`, and yield its results. Finally, yield the usage of this process since the last `take_usage`."""
    yield from work(*arguments)
    yield take_usage()


# --- Access -----------------------------------------------------------------------------------------------------------
# Clients and sessions for AWS, on the driver and on executors.
#
# An `AwsAccess` is a small value that the driver can pickle and send to executors. Each process that uses the value
# creates its own clients. It imports boto3 only when it creates its first client.


Service = Literal["s3", "glue", "lakeformation", "sts", "sns", "s3tables"]


@dataclass(frozen=True, slots=True)
class AccessKeys:
    """The keys of an IAM user or, with `session_token`, of a session.

    The connector never renews these keys. `repr` does not show them.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def from_credentials(cls, credentials: Credentials) -> Self:
        """Return the current keys of `credentials`, which must come from `AwsAccess.delegable_credentials`.

        Registers the keys as secrets. Renews expiring credentials, and raises errors from the renewal.
        """
        frozen = credentials.get_frozen_credentials()
        keys = cls(str(frozen.access_key), str(frozen.secret_key), str(frozen.token))
        # Executors sign requests with these keys, and AWS's error messages may quote them.
        register_secrets(keys.access_key_id, keys.secret_access_key, keys.session_token)
        return keys


@dataclass(frozen=True, slots=True)
class Environment:
    """The identity that botocore's default credential chain finds.

    The chain searches environment variables, a profile, a web identity, and the role of the container or instance.
    """


Identity = Role | AccessKeys | Environment

MAX_CONNECTIONS = 256
"""Maximum number of connections per client. If more threads used a client at the same time, urllib3 would repeatedly
open new connections, and log a warning each time."""


@dataclass(frozen=True, slots=True)
class AwsAccess:
    """The identity, regions, endpoint and settings for requests to AWS.

    Equal instances in a process share their clients.
    """

    region: str
    identity: Identity = field(default_factory=Environment)
    endpoint_url: str | None = None
    encryption: Encryption | None = None
    """The encryption of new objects, or None for the bucket's default encryption."""
    glue_region: str | None = None
    """The region of Glue and Lake Formation, or None if it is the bucket's region."""
    glue_catalog_id: str | None = None
    """The ID of the Data Catalog, or None for the Data Catalog of the identity's own account."""
    attempts: int = 10
    """Maximum number of attempts per request. botocore waits between attempts, with exponential backoff."""
    connect_timeout_seconds: int = 10

    @property
    def has_session_credentials(self) -> bool:
        """Whether the identity is a fixed session, supplied by the driver or vended by a catalog."""
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
        """Return this process's client for a service. Create the client on first use. The client is thread-safe.

        Raises NoCredentialsError (botocore) if the identity is a role and the environment contains no credentials with
        which to assume the role.
        """
        with _clients_lock:
            key = (self, service)
            if key not in _clients:
                _forget_ended_sessions()
                client = self._boto_session().client(
                    service, self._region(service), endpoint_url=self.endpoint_url, config=self._client_config(service)
                )
                # botocore creates a client's exception classes on first use. Create them under the lock: if two threads
                # did so at the same time, `except` with one thread's class would not catch the other's exception.
                _ = client.exceptions
                _clients[key] = client
            return _clients[key]

    def session(self) -> boto3.Session:
        """Return this process's boto3 session, from which libraries can create Glue clients."""
        with _clients_lock:
            return self._boto_session()

    def delegable_credentials(self) -> Credentials:
        """Return session credentials that may be sent to other processes. Reading them renews expiring credentials.

        If the identity already uses session credentials, returns these. The keys of an IAM user must not leave this
        process. For such keys, creates one-hour sessions, which requires no permission
        (https://docs.aws.amazon.com/IAM/latest/UserGuide/id_credentials_temp_control-access_getsessiontoken.html).
        Raises NoCredentialsError (botocore) if there are no credentials, and errors of STS.
        """
        from botocore.credentials import RefreshableCredentials
        from botocore.exceptions import NoCredentialsError

        credentials = self._session().get_credentials()
        if credentials is None:
            raise NoCredentialsError()
        if credentials.get_frozen_credentials().token is not None:
            return credentials

        def fetch() -> dict[str, Any]:
            keys = self.client("sts").get_session_token(DurationSeconds=_SESSION_SECONDS)["Credentials"]
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
            advisory_timeout=_RENEWAL_MARGIN_SECONDS,
            mandatory_timeout=_RENEWAL_MARGIN_SECONDS * 2 // 3,
        )

    def _boto_session(self) -> boto3.Session:
        """Return this process's boto3 session. The caller must hold `_clients_lock`."""
        if self not in _sessions:
            import boto3

            # `client` sets the region of each client. This default applies to the Glue clients that libraries create.
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
                # The source needs a session of its own, because `assume` replaces the credentials of `session`.
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
        """Return a client that uses the environment's credentials, to assume the role."""
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
            # S3-compatible stores have no host name per bucket, and many do not support trailing checksums.
            compatible = Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            )
            config = config.merge(compatible)
        return config


_clients_lock = threading.Lock()
_sessions: dict[AwsAccess, boto3.Session] = {}
_clients: dict[tuple[AwsAccess, Service], object] = {}


_MAX_DELEGATED_SESSIONS = 16
"""Maximum number of delegated sessions whose clients a process keeps. A catalog vends a session for each table, and
running tasks may still use the session before the last one."""


def _forget_ended_sessions() -> None:
    """Drop the clients of old delegated sessions, because clients use memory and keep connections open.

    The caller must hold `_clients_lock`.
    """
    # A dict keeps the order of insertion, so the oldest sessions come first.
    delegated = [access for access in _sessions if access.has_session_credentials]
    for access in delegated[:-_MAX_DELEGATED_SESSIONS]:
        del _sessions[access]
    for key in [key for key in _clients if key[0] in delegated and key[0] not in _sessions]:
        del _clients[key]


def _clear_after_fork() -> None:
    """Drop all clients and replace the lock, in a forked child.

    The parent still uses the connections of the clients, and a thread of the parent may have held the old lock.
    """
    global _clients_lock
    _clients_lock = threading.Lock()
    _sessions.clear()
    _clients.clear()


os.register_at_fork(after_in_child=_clear_after_fork)


def _forget_missing_profile(session: Session) -> None:
    """Ignore the configured AWS profile if it does not exist on this machine.

    A session with explicit keys does not need the profile, but botocore would raise an error.
    """
    if session.get_config_variable("profile") not in (None, *session.available_profiles):
        # The tuple stands for the name in the configuration file, the environment variable, the default and the
        # conversion. Without them, botocore finds no profile.
        session.session_var_map["profile"] = (None, None, None, None)


@cache
def _loader() -> Any:
    """Return the loader of botocore's service models, which all sessions share. Each loader uses 13 MB for S3 alone."""
    from botocore.session import get_session

    return get_session().get_component("data_loader")


def _with_hooks(session: Session) -> Session:
    """Add hooks to a session, make it share the service models of other sessions, and return it.

    The hooks register the session's credentials as secrets, count requests, and reject truncated responses of Glue.
    """
    session.register_component("data_loader", _loader())

    def register_credentials(**_: object) -> None:
        credentials = session.get_credentials()
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            register_secrets(frozen.access_key, frozen.secret_key, frozen.token)

    # Before each signature, because every renewal results in new credentials.
    session.register("before-sign", register_credentials)
    for operation in ("GetTable", "GetTables", "GetDatabase", "GetDatabases", "GetPartitions"):
        session.register(f"after-call.glue.{operation}", _require_content)
    count_calls(session)
    return session


def _require_content(**call: Any) -> None:
    """Raise ResponseParserError if a response contains none of the members that its operation returns.

    Without this check, botocore would parse a truncated response as an empty one, such as a table without properties.
    """
    from botocore.parsers import ResponseParserError

    shape = call["model"].output_shape
    if call["http_response"].status_code == 200 and call["parsed"].keys().isdisjoint(shape.members):
        raise ResponseParserError(f"Glue returned a truncated response to {call['model'].name}")


_SESSION_ARN = re.compile(r"arn:(?P<partition>[a-z-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/.+")


def caller_arn(access: AwsAccess) -> str:
    """Return the ARN of the caller's IAM user or role, as the principal of a grant. Raises errors of STS.

    STS does not report the path of a session's role. If the role has a path, and the options do not contain the role,
    users must add the path to the result.
    """
    if isinstance(access.identity, Role):
        return access.identity.arn
    return role_of_session(access.client("sts").get_caller_identity()["Arn"])


def catalog_id(access: AwsAccess) -> str:
    """Return the configured ID of the Data Catalog, or the ID of the caller's account. Raises errors of STS."""
    return access.glue_catalog_id or caller_arn(access).split(":")[4]


def role_of_session(arn: str) -> str:
    """Return the ARN of the role of a session, without the role's path. Return any other ARN unchanged."""
    match = _SESSION_ARN.fullmatch(arn)
    return f"arn:{match['partition']}:iam::{match['account']}:role/{match['role']}" if match else arn
