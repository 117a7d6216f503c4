"""PyIceberg's REST catalog, extended to determine the outcome of every commit and to raise readable errors.

Before a server makes a commit, it checks only the requirements that the client sends with the commit (Iceberg REST
specification: TableRequirement). `iceberg.commit.fence` adds requirements, so that the server rejects one of two
commits planned on the same state of a table.

If the response to a commit does not state whether the server has made the commit, the client does not send the commit
again. The client searches for the commit in the table's metadata. If the commit is missing, the client changes the
state that the commit requires. The server then rejects the commit, even if the request arrives late.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar
from urllib.parse import urljoin

import requests
import requests.auth
from pydantic import ValidationError as InvalidAnswer
from pyiceberg.catalog.rest import Capability, ConfigResponse, RestCatalog, TableResponse
from pyiceberg.catalog.rest.auth import NoopAuthManager
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier, Properties
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from destination_datalake.aws.access import AccessKeys, mask_secrets, register_secrets
from destination_datalake.aws.objects import retry_on
from destination_datalake.config.services import NO_LIMITS, CatalogLimits
from destination_datalake.errors import ConfigError, ConnectorError, Failure, FailureType, printable
from destination_datalake.tables.iceberg.commit import (
    INCOMPLETE_HISTORY,
    CommitStatus,
    SharingTransaction,
    fence,
    set_property,
)
from destination_datalake.tables.iceberg.file_io import S3FileIO, background_writes
from destination_datalake.tables.iceberg.untrusted import SERVER_KEYS, DataOnlyTable, allowed, origin

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.services import RestCatalogOptions

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

COMMIT_PROPERTY = "airbyte.commit"
"""A table property with the IDs of the last commits that added no snapshot, the newest first, separated by commas.

The client searches for its ID if the response to the commit is lost.
"""

_MAX_COMMIT_IDS = 10
"""Maximum number of IDs in COMMIT_PROPERTY."""

_TIMEOUT_SECONDS = (10, 60)
"""Seconds to wait for a connection to the server, and for each read of a response."""

_MAX_METADATA_RATIO = 0.95
"""Maximum size of a table's metadata, as a fraction of the catalog's limit.

Loading a table with larger metadata raises ConfigError.
"""

_MAX_SEARCHES = 4
"""Maximum number of times that the client searches for a commit whose response was lost."""


def client_properties(options: RestCatalogOptions) -> dict[str, Any]:
    """Return the properties, including secrets, with which to create PyIceberg's catalog."""
    uri = options.uri.rstrip("/")
    properties: dict[str, Any] = {"uri": uri}
    if options.warehouse is not None:
        properties["warehouse"] = options.warehouse
    if options.realm is not None:
        properties["header.Polaris-Realm"] = options.realm
    # PyIceberg requests vended credentials by default, so an empty value is set here, and `_config_headers` removes it.
    properties["header.X-Iceberg-Access-Delegation"] = "vended-credentials" if options.vended_credentials else ""
    if options.client_secret is not None:
        properties["credential"] = f"{options.client_id}:{options.client_secret.get_secret_value()}"
        properties["scope"] = options.scope
        properties["oauth2-server-uri"] = options.oauth2_server_uri or f"{uri}/v1/oauth/tokens"
    elif options.token is not None:
        properties["token"] = options.token.get_secret_value()
        properties["oauth2-server-uri"] = uri  # No request uses this URI, but without it, PyIceberg logs a warning.
    else:
        properties["auth"] = {"type": "noop"}
    return properties


class _Signing(requests.auth.AuthBase):
    """Signs requests with AWS credentials (SigV4).

    PyIceberg's own signing is not suitable, because it creates a separate boto3 session.
    """

    def __init__(self, service: str, region: str, access: AwsAccess) -> None:
        self.auth_manager = NoopAuthManager()  # PyIceberg calls this object to renew a token.
        self._service = service
        self._region = region
        self._access = access

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        # Read the credentials for each request, because temporary ones are renewed.
        credentials = self._access.session().get_credentials()
        if credentials is None:
            raise ConfigError(
                "Cannot sign requests to the Iceberg catalog, because no AWS credentials are available. Configure "
                "credentials, or provide credentials in the environment."
            )
        # A proxy that changes a signed header invalidates the signature, so sign only this one. SigV4Auth adds the host
        # and the date.
        headers = {"Content-Type": request.headers["Content-Type"]}
        signed = AWSRequest(method=request.method, url=request.url, data=request.body or b"", headers=headers)
        SigV4Auth(credentials.get_frozen_credentials(), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request


class CertainRestCatalog(RestCatalog):
    """A PyIceberg REST catalog that all tables of a sync share. Thread-safe.

    Methods raise ConnectorError if a request fails, unless they document another error for the failure. ConfigError is
    a subclass of ConnectorError.
    """

    def __init__(self, options: RestCatalogOptions, access: AwsAccess, limits: CatalogLimits = NO_LIMITS) -> None:
        self._access = access
        self._limits = limits
        properties = client_properties(options)
        self._requests = _Requests(properties["uri"], properties.get("oauth2-server-uri"))
        self._authorities = _authorities(options.ca_certificates)
        self._signing: _Signing | None = None
        if options.signing_name is not None:
            self._signing = _Signing(options.signing_name, options.signing_region or access.region, access)
        self._vended: dict[str, VendedAccess] = {}
        with _explained(options.uri):
            super().__init__("rest", **properties)

    def _config_headers(self, session: requests.Session) -> None:
        # PyIceberg calls this method before it requests a token, so the settings apply to every request of the session.
        super()._config_headers(session)
        # Set `verify` for each request, because variables such as REQUESTS_CA_BUNDLE override a session's attribute.
        verify: dict[str, Any] = {} if self._authorities is None else {"verify": self._authorities.name}
        # PyIceberg passes no timeout to its requests, so replace the session's method.
        session.request = partial(self._requests.send, session.request, timeout=_TIMEOUT_SECONDS, **verify)  # type: ignore[method-assign]
        session.hooks["response"].append(_read_bounded)
        if not session.headers["X-Iceberg-Access-Delegation"]:
            del session.headers["X-Iceberg-Access-Delegation"]

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        if self._signing is not None:
            session.auth = self._signing
        return session

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """Return the table in a server's response. If the response contains vended credentials, store them.

        Raises ConfigError if the table's metadata is close to the catalog's size limit, and in the same cases as
        `VendedAccess.from_response`.
        """
        name, location = ".".join(identifier_tuple), table_response.metadata.location
        vended = VendedAccess.from_response(
            table_response.config, table_response.storage_credentials, location, self._access
        )
        if vended is not None:
            self._vended[name] = vended
        self._require_metadata_below_limit(name, table_response.metadata)
        return DataOnlyTable(
            identifier_tuple,
            table_response.metadata,
            str(table_response.metadata_location),
            S3FileIO((self._access if vended is None else vended.access).client("s3")),
            self,
            # Omit the response's config: PyIceberg would use a token in this config for the requests of all tables.
        )

    def _require_metadata_below_limit(self, name: str, metadata: TableMetadata) -> None:
        """Raise ConfigError if the table's metadata is close to the catalog's size limit.

        Each commit makes the metadata larger, so a later commit could exceed the limit.
        """
        # A snapshot takes about a thousand bytes. So a table with few snapshots is far below the limit.
        limit = self._limits.metadata_bytes
        if limit is None or len(metadata.snapshots) < limit / 5000:
            return
        size = len(metadata.model_dump_json().encode())
        if size > limit * _MAX_METADATA_RATIO:
            raise ConfigError(
                f"The metadata of table {name} ({size:,} bytes) is close to the catalog's limit of {limit:,} bytes. "
                "Expire snapshots with the table properties history.expire.*, with the catalog's table maintenance, "
                "or with another engine."
            )

    def access_of(self, identifier: Identifier) -> AwsAccess:
        """Return the access to a table's files.

        If less than a third of the lifetime of vended credentials remains, first request new credentials. If the server
        vends no credentials, or if this object has not loaded the table, return the configured access. Raises
        ConnectorError if a request to the server fails.
        """
        vended = self._vended.get(".".join(identifier))
        if vended is None:
            return self._access
        # Two threads may renew the same credentials. That costs a request, but does no harm.
        if vended.must_be_renewed(time.time()):
            vended = self._renewed(identifier, vended)
        return vended.access

    def _renewed(self, identifier: Identifier, vended: VendedAccess) -> VendedAccess:
        with _explained(self.uri):
            if Capability.V1_LOAD_CREDENTIALS not in self._supported_endpoints:
                _retried(super().load_table, identifier)
                # `_response_to_table` has stored the new credentials.
                return self._vended[".".join(identifier)]
            credentials = _retried(self._load_credentials, identifier).storage_credentials
        renewed = VendedAccess.from_response({}, credentials, vended.location, self._access) or vended
        self._vended[".".join(identifier)] = renewed
        return renewed

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do nothing, because the server itself deletes old metadata files."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load the present state of the table. Raises NoSuchTableError if the table does not exist."""
        with _explained(self.uri):
            table: Table = _retried(super().load_table, identifier)
        return table

    def create_table(self, identifier: str | Identifier, *arguments: Any, **options: Any) -> Table:
        """Create the table. Raises TableAlreadyExistsError if a table with this name exists.

        If the response is lost and the table exists afterwards, also raises TableAlreadyExistsError, because another
        writer may have created the table.
        """
        with _explained(self.uri):
            try:
                table: Table = _retried(super().create_table, identifier, *arguments, **options)
            except Exception as error:
                if _is_rejected(error):
                    raise
                with suppress(NoSuchTableError):
                    # Either the lost request or another writer has created the table. The caller loads it in both
                    # cases.
                    super().load_table(identifier)
                    raise TableAlreadyExistsError(f"Table {identifier} already exists") from error
                raise
        return table

    def find_table(self, identifier: str | Identifier) -> Table | None:
        """Load the present state of the table. Return None if the table or its namespace does not exist."""
        try:
            return self.load_table(identifier)
        except NoSuchTableError:
            return None

    def tables(self, namespace: str) -> Iterator[Table]:
        """Load and yield all tables of a namespace. Send one request per table."""
        with _explained(self.uri):
            identifiers = super().list_tables(namespace)
        for identifier in identifiers:
            # Skip a table that another program has dropped since the listing.
            if (table := self.find_table(identifier)) is not None:
                yield table

    def namespaces(self) -> Iterator[tuple[str, Properties]]:
        """Yield the top-level namespaces with their properties. Send one request per namespace."""
        with _explained(self.uri):
            names = [identifier[0] for identifier in super().list_namespaces() if len(identifier) == 1]
        for name in names:
            with _explained(self.uri):
                properties = super().load_namespace_properties(name)
            yield name, properties

    def ensure_namespace(self, namespace: str, properties: Properties) -> None:
        """Create the namespace with these properties. Do nothing if the namespace exists."""
        with _explained(self.uri):
            if not super().namespace_exists(namespace):
                with suppress(NamespaceAlreadyExistsError):
                    super().create_namespace(namespace, properties)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table and delete its files. Raises NoSuchTableError if the table does not exist."""
        with _explained(self.uri):
            super().purge_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates that the caller planned on `table`, with the requirements of `iceberg.commit.fence`.

        Raises CommitFailedException if another writer has committed since the caller loaded `table`. The server then
        has not made this commit, and will never make it. Raises ConnectorError if the server has rejected this commit
        for another reason. Raises CommitStateUnknownException if the server may or may not have made this commit.
        """
        # Readers follow the new metadata as soon as the server accepts the commit, so all files must be in S3 before.
        background_writes(table).wait()
        commit = _Commit.for_updates(updates, table.metadata)
        with _explained(self.uri):
            try:
                return self._post(table, requirements, commit.updates)
            except Exception as error:
                # Search for the commit even after a conflict: a proxy may have repeated a successful request, so that
                # the server rejected only the repetition.
                if _is_rejected(error) and not isinstance(error, CommitFailedException):
                    raise
                return self._outcome(commit, table, requirements, error)

    def _post(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        # All attempts of `_retried` send the same key, because they are the same operation.
        with self._requests.with_idempotency_key():
            response: CommitTableResponse = _retried(super().commit_table, table, requirements, updates)
        return response

    def _outcome(
        self, commit: _Commit, table: Table, requirements: tuple[TableRequirement, ...], error: Exception
    ) -> CommitTableResponse:
        """Return the response to a commit if the table contains the commit.

        Otherwise ensure that the server will never make the commit, and raise CommitFailedException. If every attempt
        to ensure this fails, for whatever reason, raise CommitStateUnknownException. `error` is the error that the
        commit's request raised.
        """
        was_refused = isinstance(error, CommitFailedException)
        reason = ""
        for _ in range(_MAX_SEARCHES):
            try:
                with _explained(self.uri):
                    current = _retried(super().load_table, table.name())
                    metadata, location = current.metadata, current.metadata_location
                    status = commit.status(metadata)
                    if status is CommitStatus.SUCCESS:
                        return CommitTableResponse(metadata=metadata, **{"metadata-location": location})
                    # If the requirements are not met, the server rejects the commit even if the request arrives late.
                    # If they are met, it could still accept it, so change the state.
                    if not was_refused and _are_met(requirements, metadata):
                        self._change_state(current)
            except ConnectorError as failure:
                reason = str(failure)
            # Also after a conflict: another commit was made before the change.
            except Exception as failure:
                reason = f"The search for the commit failed: {type(failure).__name__}."
            else:
                # A refusal is final, unless a proxy has repeated the request. The search then finds the commit, if its
                # snapshot has not expired within these seconds.
                if was_refused or status is CommitStatus.FAILURE:
                    raise CommitFailedException("Another commit was made first") from error
                reason = INCOMPLETE_HISTORY
                break
        raise CommitStateUnknownException(reason) from error

    def _change_state(self, table: Table) -> None:
        """Commit a change that affects no rows, so that the server rejects all other commits planned on `table`."""
        change = SharingTransaction(table)
        set_property(COMMIT_PROPERTY, _with_commit_id(uuid.uuid4().hex, table.metadata), change)
        fence(table, change, whole=False)
        self._post(table, change.requirements, change.updates)


# --- Vended credentials -----------------------------------------------------------------------------------------------


_LIFETIME_SECONDS = 900
"""Assumed lifetime of vended credentials without an expiry time: the shortest lifetime that STS allows."""


@dataclass(frozen=True, slots=True)
class VendedAccess:
    """Access to a table's files with vended credentials, valid from `begins` to `ends` (seconds since 1970)."""

    access: AwsAccess
    location: str
    begins: float
    ends: float

    @classmethod
    def from_response(
        cls, config: Properties, credentials: Sequence[StorageCredential], location: str, configured: AwsAccess
    ) -> Self | None:
        """Return access to `location` with the credentials that the server vends for the longest matching prefix.

        `config` and `credentials` are from the server's response. `configured` supplies all settings that the response
        lacks. Return None if the server vends no credentials for the location.

        Raises ConfigError if the server specifies an S3 endpoint that belongs neither to AWS nor to the configuration.
        Also raises ConfigError if the server vends no credentials but offers to sign requests to S3 (remote signing).
        """
        matching = [credential for credential in credentials if location.startswith(credential.prefix)]
        best = max(matching, key=lambda credential: len(credential.prefix), default=None)
        settings = allowed({**config, **(best.config if best is not None else {})}, SERVER_KEYS)
        keys = [settings.get(f"s3.{name}") for name in ("access-key-id", "secret-access-key", "session-token")]
        if None in keys:
            if settings.get("s3.remote-signing-enabled", "").lower() == "true":
                raise ConfigError(
                    "The Iceberg catalog signs requests to S3 itself (remote signing), which the connector does not "
                    "support. Configure the catalog to vend credentials, or set catalog.vended_credentials to false."
                )
            return None
        endpoint, configured_endpoint = settings.get("s3.endpoint"), configured.client("s3").meta.endpoint_url
        if endpoint is not None and origin(endpoint) != origin(configured_endpoint) and not _is_of_aws(endpoint):
            raise ConfigError(
                f"The Iceberg catalog specifies the S3 endpoint {endpoint}, but the connector is configured for "
                f"{configured_endpoint}. If you trust {endpoint}, set endpoint_url to this address."
            )
        identity = AccessKeys(*map(str, keys))
        register_secrets(identity.access_key_id, identity.secret_access_key, identity.session_token)
        access = replace(
            configured,
            identity=identity,
            region=settings.get("client.region") or settings.get("s3.region") or configured.region,
            # The configuration takes precedence over the server.
            endpoint_url=configured.endpoint_url or endpoint,
        )
        now, expiry = time.time(), settings.get("s3.session-token-expires-at-ms", "")
        return cls(access, location, now, int(expiry) / 1000 if expiry.isdecimal() else now + _LIFETIME_SECONDS)

    def must_be_renewed(self, now: float) -> bool:
        """Return whether less than a third of the credentials' lifetime remains at `now` (seconds since 1970)."""
        return self.ends - now < (self.ends - self.begins) / 3


# --- Commits ----------------------------------------------------------------------------------------------------------


_NOT_PROCESSED = (ServiceUnavailableError, TooManyRequestsError)
"""After these errors, the server has not processed the request (Iceberg REST specification: status 429 and 503)."""


class _Requests:
    """Sends requests to a server, and removes disallowed entries from the configuration that the server returns.

    Registers the tokens that the server at `token_uri` issues as secrets, so that log lines do not contain them.

    A server that supports idempotency keys answers a repeated request with its first response, even if a proxy repeated
    the request. This class sends keys only to such servers (Iceberg REST specification: Idempotency-Key,
    CatalogConfig).
    """

    def __init__(self, uri: str, token_uri: str | None) -> None:
        self._uri = uri
        self._token_uri = token_uri
        self._supports_keys = False
        self._key: ContextVar[str | None] = ContextVar("key", default=None)

    @contextmanager
    def with_idempotency_key(self) -> Iterator[None]:
        """Send the same idempotency key with every request in the block.

        All these requests must be attempts of the same operation. If the server does not support keys, send none.
        """
        token = self._key.set(_uuid7() if self._supports_keys else None)
        try:
            yield
        finally:
            self._key.reset(token)

    def send(
        self, request: Callable[..., requests.Response], method: str, url: str, **options: Any
    ) -> requests.Response:
        """Send a request. Inside `with_idempotency_key`, add the block's key.

        If the response is the server's configuration, remove its disallowed entries. Raises ConfigError if the
        configuration refers to another host.
        """
        if (key := self._key.get()) is not None:
            options["headers"] = {**options["headers"], "Idempotency-Key": key}
        response = request(method, url, **options)
        if response.ok and url == f"{self._uri}/v1/config":
            self._restrict(response)
        if response.ok and url == self._token_uri:
            _register_tokens(response)
        return response

    def _restrict(self, response: requests.Response) -> None:
        # Read the configuration with PyIceberg's model, and keep only allowed entries before PyIceberg itself reads it.
        config = ConfigResponse.model_validate_json(response.text)
        with suppress(ValueError, RecursionError):  # PyIceberg's model lacks this entry, so parse the response again.
            self._supports_keys = "idempotency-key-lifetime" in response.json()
        settings = allowed({**(config.defaults or {}), **(config.overrides or {})}, SERVER_KEYS)
        if origin(settings.get("uri", self._uri)) != origin(self._uri):
            _refuse(self._uri, settings["uri"])
        endpoints = [str(endpoint) for endpoint in config.endpoints or ()]
        # The client itself sets none of these entries but the URI, so all of them can be overrides.
        response._content = json.dumps({"overrides": settings, "endpoints": endpoints}).encode()
        response.encoding = "utf-8"


def _register_tokens(response: requests.Response) -> None:
    with suppress(ValueError, RecursionError):  # PyIceberg rejects an invalid response.
        if isinstance(answer := response.json(), dict):
            register_secrets(*(answer[name] for name in _TOKENS if isinstance(answer.get(name), str)))


_TOKENS = ("access_token", "refresh_token", "id_token")


def _uuid7() -> str:
    """Return a new UUID of version 7, which begins with the time (RFC 9562)."""
    octets = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    # The version (7) and the variant (binary 10) of RFC 9562.
    octets[6] = (octets[6] & 0x0F) | 0x70
    octets[8] = (octets[8] & 0x3F) | 0x80
    return str(uuid.UUID(bytes=bytes(octets)))


def _retried(call: Callable[_Arguments, _Result], *arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
    return retry_on(_NOT_PROCESSED, partial(call, *arguments, **options))


def _is_rejected(error: Exception) -> bool:
    """Return whether the server cannot have made the change that a request asked for.

    True if the server rejected the request (status 4xx, 501 or 503), or does not support the operation. After any other
    error, such as a broken connection, an invalid response or status 500, the server may have made the change.
    """
    # PyIceberg raises this error also before the request, if the server's configuration does not list the operation.
    if isinstance(error, (NotImplementedError, *_NOT_PROCESSED)):
        return True
    cause = error.__cause__
    response = cause.response if isinstance(cause, requests.HTTPError) else None
    return response is not None and 400 <= response.status_code < 500


@dataclass(frozen=True, slots=True)
class _Commit:
    """The updates of a commit, and the means to find the commit in a table's metadata.

    The IDs of the added snapshots identify the commit. If the commit adds no snapshot, `id` identifies it. `base` is
    the metadata on which the commit was planned.
    """

    updates: tuple[TableUpdate, ...]
    base: TableMetadata
    snapshots: frozenset[int]
    id: str

    @classmethod
    def for_updates(cls, updates: tuple[TableUpdate, ...], base: TableMetadata) -> Self:
        added = (update.snapshot for update in updates if isinstance(update, AddSnapshotUpdate))
        snapshots = frozenset(snapshot.snapshot_id for snapshot in added)
        id_ = uuid.uuid4().hex
        # A commit without snapshots leaves no other trace that the client could find.
        marks = () if snapshots else (SetPropertiesUpdate(updates={COMMIT_PROPERTY: _with_commit_id(id_, base)}),)
        return cls((*updates, *marks), base, snapshots, id_)

    def status(self, metadata: TableMetadata) -> CommitStatus:
        """Search a table's present metadata for the commit.

        Return UNKNOWN if the metadata does not contain the commit, but also lacks other commits since `base`. The
        missing commits may include this one.
        """
        if metadata.table_uuid != self.base.table_uuid:
            return CommitStatus.FAILURE
        if self.snapshots:
            is_found = any(metadata.snapshot_by_id(snapshot) is not None for snapshot in self.snapshots)
            # Each snapshot since `base` has one of these numbers. A missing one has expired.
            numbers = {snapshot.sequence_number for snapshot in metadata.snapshots}
            is_complete = numbers.issuperset(range(_last_sequence(self.base) + 1, _last_sequence(metadata) + 1))
        else:
            former, ids = _commit_ids(self.base), _commit_ids(metadata)
            is_found = self.id in ids
            is_complete = former[0] in ids if former else len(ids) < _MAX_COMMIT_IDS
        if is_found:
            return CommitStatus.SUCCESS
        return CommitStatus.FAILURE if is_complete else CommitStatus.UNKNOWN


def _commit_ids(metadata: TableMetadata) -> list[str]:
    return [id_ for id_ in metadata.properties.get(COMMIT_PROPERTY, "").split(",") if id_]


def _with_commit_id(id_: str, metadata: TableMetadata) -> str:
    """Return the value of COMMIT_PROPERTY after a commit with this ID, which was planned on `metadata`."""
    return ",".join([id_, *_commit_ids(metadata)][:_MAX_COMMIT_IDS])


def _last_sequence(metadata: TableMetadata) -> int:
    # Tables of format version 1 have no sequence numbers.
    return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


def _are_met(requirements: tuple[TableRequirement, ...], metadata: TableMetadata) -> bool:
    """Return whether a server would accept a commit with these requirements to a table with this metadata."""
    try:
        for requirement in requirements:
            requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True


def _authorities(certificates: str | None) -> IO[bytes] | None:
    """Return a temporary file with the configured certificates and the certificates of all public authorities.

    Return None if no certificates are configured. Python deletes the file when nothing references the returned object.
    """
    if certificates is None:
        return None
    file = tempfile.NamedTemporaryFile(prefix="destination-datalake-", suffix=".pem")  # noqa: SIM115
    # `verify` replaces the public authorities, so the file must contain them too.
    file.write(Path(DEFAULT_CA_BUNDLE_PATH).read_bytes() + b"\n" + certificates.encode())
    file.flush()
    return file


# --- Hosts ------------------------------------------------------------------------------------------------------------


MAX_ANSWER_BYTES = 256 * 1024**2
"""Maximum size of a response's body in bytes, after decompression. The largest responses contain a table's metadata."""

_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def _read_bounded(response: requests.Response, **_: object) -> None:
    """Read a response's body, up to a limit of MAX_ANSWER_BYTES.

    Raises ConfigError if the body is larger, or if the response redirects to another host. The library `requests` would
    follow such a redirect, and send the request's body to the other host. This body may contain the client's secret.
    """
    try:
        # `requests` calls this hook before it follows a redirect.
        if response.is_redirect:
            target = urljoin(response.url, response.headers["Location"])
            if origin(target) != origin(response.url):
                _refuse(response.url, target)
        body = bytearray()
        for part in response.iter_content(64 * 1024):
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise ConfigError(
                    f"The response of the Iceberg catalog at {response.url} exceeds the limit of {MAX_ANSWER_BYTES:,} "
                    "bytes. Check catalog.uri."
                )
        # `requests` then does not read the body again, and `text` and `json` use these bytes.
        response._content = bytes(body)
    finally:
        response.close()


def _is_of_aws(url: str) -> bool:
    match origin(url):
        case "https", str(host), 443:
            return host.endswith(_OF_AWS)
    return False


def _refuse(requested: str, target: str) -> NoReturn:
    """Raise ConfigError, because the server at `requested` refers to another host."""
    raise ConfigError(
        f"The Iceberg catalog at {requested} refers to another server, {target}. The connector sends secrets only to "
        f"configured servers. If you trust {target}, set catalog.uri (or catalog.oauth2_server_uri for tokens) to "
        "this address."
    )


# --- Errors -----------------------------------------------------------------------------------------------------------


_CREDENTIALS = "Check catalog.client_id and catalog.client_secret, or catalog.token. Renew expired credentials."
_RIGHTS = "Grant the connector's principal the right to create and write tables in the catalog."
_SERVER = "Run the sync again. If it fails again, check the log of the catalog's server."
_NO_RESPONSE = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
_RULES: Sequence[tuple[tuple[type[Exception], ...], str, str, FailureType]] = (
    (
        (OAuthError, UnauthorizedError, AuthorizationExpiredError),
        "rejected the credentials",
        _CREDENTIALS,
        "config_error",
    ),
    ((ForbiddenError,), "denied access", _RIGHTS, "config_error"),
    (
        (requests.exceptions.SSLError,),
        "presented a certificate that is not trusted",
        "If a private certificate authority issued the certificate, set catalog.ca_certificates.",
        "config_error",
    ),
    (
        _NO_RESPONSE,
        "did not respond",
        "Check catalog.uri. Check that the server is running and that this machine can reach the server. Then try "
        "again.",
        "transient_error",
    ),
    ((*_NOT_PROCESSED, ServerError), "failed to process the request", _SERVER, "transient_error"),
    ((InvalidAnswer,), "did not respond as an Iceberg catalog", "Check catalog.uri.", "config_error"),
    ((requests.RequestException,), "could not be called", "Check catalog.uri.", "config_error"),
    (
        (RESTError,),
        "rejected the request",
        "Check catalog.uri and catalog.warehouse.",
        "config_error",
    ),
)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Convert errors from the server and the network to ConnectorError, with a reason and a remedy.

    Other errors pass unchanged, and so does CommitStateUnknownException.
    """
    try:
        yield
    except CommitStateUnknownException:
        raise
    except (RESTError, requests.RequestException, InvalidAnswer) as error:
        for kinds, reason, remedy, type_ in _RULES:
            if isinstance(error, kinds):
                text = printable(mask_secrets(_text(error)))
                message = f"The Iceberg catalog at {uri} {reason}. {remedy}"
                # If the server did not respond, the error's text comes from a Python library and does not help users.
                if text and not isinstance(error, _NO_RESPONSE):
                    message += f" Response: {text[:_MAX_ANSWER_IN_MESSAGE]}"
                detail = f"{type(error).__name__}: {text}"
                raise ConnectorError(Failure(message, detail, type_)) from error
        raise


def _text(error: Exception) -> str:
    """Return the message of an error. Omit what Pydantic quotes from a response, because it may be part of a secret."""
    if not isinstance(error, InvalidAnswer):
        return str(error)
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(": ".join([*map(str, problem["loc"]), problem["msg"]]) for problem in problems)


_MAX_ANSWER_IN_MESSAGE = 500
"""Maximum number of characters that a message quotes from a server's response."""
