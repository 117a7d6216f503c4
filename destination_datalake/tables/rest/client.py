"""PyIceberg's REST catalog, with commits of which it is certain whether they were made, and with errors for users.

A server compares what a commit requires, and nothing else (Iceberg REST specification: TableRequirement);
`iceberg.commit.fence` requires so much that of two commits planned on the same state one is refused. An answer that is
lost, or that says nothing (500, 502, 504), is not asked for again: the commit is looked for in the table, and if it is
not there, the state that it requires is taken away, so that a request which is still on its way is refused.
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
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier, Properties
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from destination_datalake.aws.access import AccessKeys, mask_secrets, register_secrets
from destination_datalake.aws.objects import retry_on
from destination_datalake.config.services import NO_LIMITS, CatalogLimits
from destination_datalake.errors import ConfigError, ConnectorError, Failure, FailureType, printable
from destination_datalake.tables.iceberg.commit import SharingTransaction, fence, set_property
from destination_datalake.tables.iceberg.file_io import S3FileIO, background_writes
from destination_datalake.tables.iceberg.untrusted import SERVER_KEYS, DataOnlyTable, allowed, origin

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.services import RestCatalogOptions

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

COMMIT_PROPERTY = "airbyte.commit"
"""The table property with the id of the last commit that added no snapshot: by it such a commit is recognised."""

_SECONDS = (10, 60)
"""How long a connection, and an answer, may take."""

_FULL = 0.95
"""How much of the metadata that a catalog takes a table may have before a sync."""

_LOOKS = 4
"""How often a commit is looked for whose answer was lost."""


def client_properties(options: RestCatalogOptions) -> dict[str, Any]:
    """Return what PyIceberg is configured with."""
    uri = options.uri.rstrip("/")
    properties: dict[str, Any] = {"uri": uri}
    if options.warehouse is not None:
        properties["warehouse"] = options.warehouse
    if options.realm is not None:
        properties["header.Polaris-Realm"] = options.realm
    properties["header.X-Iceberg-Access-Delegation"] = "vended-credentials" if options.vended_credentials else ""
    if options.client_secret is not None:
        properties["credential"] = f"{options.client_id}:{options.client_secret.get_secret_value()}"
        properties["scope"] = options.scope
        properties["oauth2-server-uri"] = options.oauth2_server_uri or f"{uri}/v1/oauth/tokens"
    elif options.token is not None:
        properties["token"] = options.token.get_secret_value()
        properties["oauth2-server-uri"] = uri  # Never asked; without it, PyIceberg warns.
    else:
        properties["auth"] = {"type": "noop"}
    return properties


class _Signing(requests.auth.AuthBase):
    """Signs requests with the AWS credentials (SigV4). PyIceberg's own way needs a session that nobody else uses."""

    def __init__(self, service: str, region: str, access: AwsAccess) -> None:
        self.auth_manager = NoopAuthManager()  # What PyIceberg asks for another token.
        self._service = service
        self._region = region
        self._access = access

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        credentials = self._access.session().get_credentials()
        if credentials is None:
            raise ConfigError("Requests to the Iceberg catalog are to be signed, and there are no AWS credentials.")
        headers = {"Content-Type": request.headers["Content-Type"]}
        signed = AWSRequest(method=request.method, url=request.url, data=request.body or b"", headers=headers)
        SigV4Auth(credentials.get_frozen_credentials(), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        return request


class CertainRestCatalog(RestCatalog):
    """A REST catalog for all changes of all tables of a sync. Thread-safe.

    Raises ConnectorError for what a user can mend, and for servers that are out of order.
    """

    def __init__(self, options: RestCatalogOptions, access: AwsAccess, limits: CatalogLimits = NO_LIMITS) -> None:
        self._access = access
        self._limits = limits
        self._requests = _Requests(options.uri.rstrip("/"))
        self._authorities = _authorities(options.ca_certificates)
        self._signing: _Signing | None = None
        if options.signing_name is not None:
            self._signing = _Signing(options.signing_name, options.signing_region or access.region, access)
        self._lent: dict[str, Lent] = {}
        with _explained(options.uri):
            super().__init__("rest", **client_properties(options))

    def _config_headers(self, session: requests.Session) -> None:
        # PyIceberg sets the headers first, and asks for a token before it returns the session.
        super()._config_headers(session)
        # Of a session alone, variables such as REQUESTS_CA_BUNDLE would come before it.
        trusted: dict[str, Any] = {} if self._authorities is None else {"verify": self._authorities.name}
        session.request = partial(self._requests.send, session.request, timeout=_SECONDS, **trusted)  # type: ignore[method-assign]
        session.hooks["response"].append(_bounded_on_its_host)
        if not session.headers["X-Iceberg-Access-Delegation"]:
            del session.headers["X-Iceberg-Access-Delegation"]

    def _create_session(self) -> requests.Session:
        session = super()._create_session()
        if self._signing is not None:
            session.auth = self._signing
        return session

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """Return a table; what its files are read and written with is what the server lends, if it does."""
        name, location = ".".join(identifier_tuple), table_response.metadata.location
        lent = Lent.of(table_response.config, table_response.storage_credentials, location, self._access)
        if lent is not None:
            self._lent[name] = lent
        self._require_room(name, table_response.metadata)
        return DataOnlyTable(
            identifier_tuple,
            table_response.metadata,
            str(table_response.metadata_location),
            S3FileIO((self._access if lent is None else lent.access).client("s3")),
            self,
            # Not its config: a token in it would become that of the requests about all tables.
        )

    def _require_room(self, name: str, metadata: TableMetadata) -> None:
        """Raise ConfigError if the catalog is about to refuse the table's metadata, which every commit makes larger."""
        # A snapshot takes about a thousand bytes: most tables need not be measured.
        limit = self._limits.metadata_bytes
        if limit is None or len(metadata.snapshots) < limit / 5000:
            return
        size = len(metadata.model_dump_json().encode())
        if size > limit * _FULL:
            raise ConfigError(
                f"The metadata of table {name} is {size:,} bytes long, and the catalog takes {limit:,}. Have snapshots "
                "expire: by the table's properties history.expire.*, by its maintenance, or by an engine."
            )

    def access_of(self, identifier: Identifier) -> AwsAccess:
        """Return the access to the files of a table. Of lent credentials, at least a third of their time is left.

        It is the options' if the server lends none, or if the table was not loaded before. Raises ConnectorError.
        """
        lent = self._lent.get(".".join(identifier))
        if lent is None:
            return self._access
        if lent.is_due(time.time()):
            lent = self._renewed(identifier, lent)
        return lent.access

    def _renewed(self, identifier: Identifier, lent: Lent) -> Lent:
        with _explained(self.uri):
            if Capability.V1_LOAD_CREDENTIALS not in self._supported_endpoints:
                _retried(super().load_table, identifier)
                return self._lent[".".join(identifier)]
            credentials = _retried(self._load_credentials, identifier).storage_credentials
        renewed = Lent.of({}, credentials, lent.location, self._access) or lent
        self._lent[".".join(identifier)] = renewed
        return renewed

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do nothing: metadata files are the server's."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table's present state. Raises NoSuchTableError, and ConnectorError."""
        with _explained(self.uri):
            table: Table = _retried(super().load_table, identifier)
        return table

    def create_table(self, identifier: str | Identifier, *arguments: Any, **more: Any) -> Table:
        """Create the table. Raises TableAlreadyExistsError, also if it is ours by a lost answer, and ConnectorError."""
        with _explained(self.uri):
            try:
                table: Table = _retried(super().create_table, identifier, *arguments, **more)
            except _UNKNOWN as error:
                with suppress(NoSuchTableError):
                    super().load_table(identifier)
                    raise TableAlreadyExistsError(f"Table {identifier} exists by now") from error
                raise
        return table

    def find_table(self, identifier: str | Identifier) -> Table | None:
        """Return the table's present state; None if there is no such table, or namespace. Raises ConnectorError."""
        try:
            return self.load_table(identifier)
        except NoSuchTableError:
            return None

    def tables(self, namespace: str) -> Iterator[Table]:
        """Yield all tables of a namespace: each is loaded. Raises ConnectorError."""
        with _explained(self.uri):
            identifiers = super().list_tables(namespace)
        for identifier in identifiers:
            if (table := self.find_table(identifier)) is not None:  # It was dropped meanwhile.
                yield table

    def namespaces(self) -> Iterator[tuple[str, Properties]]:
        """Yield all namespaces of the first level, with their properties. Raises ConnectorError."""
        with _explained(self.uri):
            names = [identifier[0] for identifier in super().list_namespaces() if len(identifier) == 1]
        for name in names:
            with _explained(self.uri):
                properties = super().load_namespace_properties(name)
            yield name, properties

    def ensure_namespace(self, namespace: str, properties: Properties) -> None:
        """Create the namespace with these properties unless it exists. Raises ConnectorError."""
        with _explained(self.uri):
            if not super().namespace_exists(namespace):
                with suppress(NamespaceAlreadyExistsError):
                    super().create_namespace(namespace, properties)

    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop the table with its files. Raises NoSuchTableError, and ConnectorError."""
        with _explained(self.uri):
            super().purge_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Commit updates that were planned on `table`, with all that `fence.requirements` requires of it.

        Raises CommitFailedException if another writer has committed since: this commit was not made and never will be.
        Raises CommitStateUnknownException if it may have been made, and ConnectorError.
        """
        background_writes(table).wait()
        commit = _Commit.of(updates)
        with _explained(self.uri):
            try:
                return self._post(table, requirements, commit.updates)
            except (CommitFailedException, *_UNKNOWN) as error:
                # A refusal too: a proxy may have sent what was accepted a second time.
                return self._settled(commit, table, requirements, error)

    def _post(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        with self._requests.with_one_key():
            response: CommitTableResponse = _retried(super().commit_table, table, requirements, updates)
        return response

    def _settled(
        self, commit: _Commit, table: Table, requirements: tuple[TableRequirement, ...], error: Exception
    ) -> CommitTableResponse:
        """Find out whether a commit was made; if not, see to it that it never is, and raise CommitFailedException."""
        was_refused = isinstance(error, CommitFailedException)
        for _ in range(_LOOKS):
            try:
                now = _retried(super().load_table, table.name())
                if commit.is_in(now.metadata):
                    return CommitTableResponse(metadata=now.metadata, **{"metadata-location": now.metadata_location})
                if not was_refused and _hold(requirements, now.metadata):
                    self._change_state(now)
                break
            except (CommitFailedException, *_UNKNOWN):
                continue  # Another commit came before the change, or another answer was lost.
        else:
            raise CommitStateUnknownException(f"It is unknown whether a commit to {table.name()} was made") from error
        raise CommitFailedException("The commit was not made: another one was") from error

    def _change_state(self, table: Table) -> None:
        """Commit a change without content, after which no commit planned on this state is accepted."""
        change = SharingTransaction(table)
        set_property(COMMIT_PROPERTY, uuid.uuid4().hex, change)
        fence(table, change, whole=False)
        self._post(table, change.requirements, change.updates)


# --- credentials that a server lends ----------------------------------------------------------------------------------


_LIFETIME_SECONDS = 900
"""How long credentials last that do not say it: the least that STS gives."""


@dataclass(frozen=True, slots=True)
class Lent:
    """The access that a server lends to a table's files, from `since` to `ends` (seconds since 1970)."""

    access: AwsAccess
    location: str
    since: float
    ends: float

    @classmethod
    def of(
        cls, config: Properties, credentials: Sequence[StorageCredential], location: str, own: AwsAccess
    ) -> Self | None:
        """Return what a server lends for a location, that of the longest prefix; None if it lends nothing.

        A server may name the region, and an endpoint of AWS. Raises ConnectorError if it names another endpoint, which
        is not that of the options either, or wants to sign requests itself.
        """
        fitting = [each for each in credentials if location.startswith(each.prefix)]
        best = max(fitting, key=lambda each: len(each.prefix), default=None)
        said = allowed({**config, **(best.config if best is not None else {})}, SERVER_KEYS)
        keys = [said.get(f"s3.{name}") for name in ("access-key-id", "secret-access-key", "session-token")]
        if None in keys:
            if said.get("s3.remote-signing-enabled", "").lower() == "true":
                raise ConfigError(
                    "The Iceberg catalog signs requests to S3 itself (remote signing), which the connector does not "
                    "use. Have it vend credentials, or set catalog.vended_credentials to false."
                )
            return None
        endpoint, own_endpoint = said.get("s3.endpoint"), own.client("s3").meta.endpoint_url
        if endpoint is not None and origin(endpoint) != origin(own_endpoint) and not _is_of_aws(endpoint):
            raise ConfigError(
                f"The Iceberg catalog refers to {endpoint} for files of tables, and the connector is "
                f"configured for {own_endpoint}. If you trust that server, set endpoint_url to its address."
            )
        session = AccessKeys(*map(str, keys))
        register_secrets(session.access_key_id, session.secret_access_key, session.session_token)
        access = replace(
            own,
            identity=session,
            region=said.get("client.region") or said.get("s3.region") or own.region,
            endpoint_url=own.endpoint_url or endpoint,
        )
        now, end = time.time(), said.get("s3.session-token-expires-at-ms", "")
        return cls(access, location, now, int(end) / 1000 if end.isdecimal() else now + _LIFETIME_SECONDS)

    def is_due(self, now: float) -> bool:
        """Whether less than a third of the time is left."""
        return self.ends - now < (self.ends - self.since) / 3


# --- commits ----------------------------------------------------------------------------------------------------------


_UNKNOWN = (CommitStateUnknownException, requests.ConnectionError, requests.Timeout, ServerError)
"""Errors after which it is unknown whether the server acted on a request."""

_NOT_YET = (ServiceUnavailableError, TooManyRequestsError)
"""Errors by which the server did not act on a request: it may be sent again (Iceberg REST specification: 429, 503)."""


class _Requests:
    """What is sent to a server, and what of its configuration is read.

    A server that supports idempotency keys answers a repeated request, also one that a proxy repeats, like the first:
    only such servers get keys (Iceberg REST specification: Idempotency-Key, CatalogConfig).
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._takes_keys = False
        self._key: ContextVar[str | None] = ContextVar("key", default=None)

    @contextmanager
    def with_one_key(self) -> Iterator[None]:
        """Send one key with all requests of the block, which are attempts at the same."""
        token = self._key.set(_uuid7() if self._takes_keys else None)
        try:
            yield
        finally:
            self._key.reset(token)

    def send(self, request: Callable[..., requests.Response], method: str, url: str, **more: Any) -> requests.Response:
        """Send a request, with its key if it has one; of a server's configuration, return what is read of it."""
        if (key := self._key.get()) is not None:
            more["headers"] = {**more["headers"], "Idempotency-Key": key}
        response = request(method, url, **more)
        if response.ok and url == f"{self._uri}/v1/config":
            self._restrict(response)
        return response

    def _restrict(self, response: requests.Response) -> None:
        # Read as PyIceberg does, which then reads nothing else.
        config = ConfigResponse.model_validate_json(response.text)
        with suppress(ValueError, RecursionError):  # PyIceberg drops this entry.
            self._takes_keys = "idempotency-key-lifetime" in response.json()
        known = allowed({**(config.defaults or {}), **(config.overrides or {})}, SERVER_KEYS)
        if origin(known.get("uri", self._uri)) != origin(self._uri):
            _refuse(self._uri, known["uri"])
        endpoints = [str(endpoint) for endpoint in config.endpoints or ()]
        response._content = json.dumps({"overrides": known, "endpoints": endpoints}).encode()
        response.encoding = "utf-8"


def _uuid7() -> str:
    """Return a UUID of version 7 (RFC 9562)."""
    octets = bytearray((time.time_ns() // 1_000_000).to_bytes(6, "big") + os.urandom(10))
    octets[6] = (octets[6] & 0x0F) | 0x70
    octets[8] = (octets[8] & 0x3F) | 0x80
    return str(uuid.UUID(bytes=bytes(octets)))


def _retried(call: Callable[_Arguments, _Result], *arguments: _Arguments.args, **more: _Arguments.kwargs) -> _Result:
    return retry_on(_NOT_YET, partial(call, *arguments, **more))


@dataclass(frozen=True, slots=True)
class _Commit:
    """The updates of a commit, and how it is recognised in a table's metadata: by its snapshots, or its id."""

    updates: tuple[TableUpdate, ...]
    snapshots: frozenset[int]
    id: str

    @classmethod
    def of(cls, updates: tuple[TableUpdate, ...]) -> Self:
        snapshots = frozenset(each.snapshot.snapshot_id for each in updates if isinstance(each, AddSnapshotUpdate))
        id_ = uuid.uuid4().hex
        told = () if snapshots else (SetPropertiesUpdate(updates={COMMIT_PROPERTY: id_}),)
        return cls((*updates, *told), snapshots, id_)

    def is_in(self, metadata: TableMetadata) -> bool:
        if not self.snapshots:
            return metadata.properties.get(COMMIT_PROPERTY) == self.id
        return any(metadata.snapshot_by_id(each) is not None for each in self.snapshots)


def _hold(requirements: tuple[TableRequirement, ...], metadata: TableMetadata) -> bool:
    """Whether all of them hold, so that a commit which requires them is accepted if it arrives now."""
    try:
        for each in requirements:
            each.validate(metadata)
    except CommitFailedException:
        return False
    return True


def _authorities(certificates: str | None) -> IO[bytes] | None:
    """Return a file with the user's certificates and all public ones, for as long as it is referred to."""
    if certificates is None:
        return None
    file = tempfile.NamedTemporaryFile(prefix="destination-datalake-", suffix=".pem")  # noqa: SIM115
    file.write(Path(DEFAULT_CA_BUNDLE_PATH).read_bytes() + b"\n" + certificates.encode())
    file.flush()
    return file


# --- hosts ------------------------------------------------------------------------------------------------------------


MAX_ANSWER_BYTES = 256 * 1024**2
"""How long the body of an answer may be, decompressed. The metadata of a table is the longest that servers send."""

_OF_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def _bounded_on_its_host(response: requests.Response, **_: object) -> None:
    """Read an answer's body. Raises ConfigError for a long one, and for a redirect to another host.

    requests repeats the body at a redirect's target, which has the client's secret.
    """
    try:
        if response.is_redirect:
            target = urljoin(response.url, response.headers["Location"])
            if origin(target) != origin(response.url):
                _refuse(response.url, target)
        body = bytearray()
        for part in response.iter_content(64 * 1024):
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise ConfigError(
                    f"The Iceberg catalog at {response.url} answers with more than {MAX_ANSWER_BYTES:,} "
                    "bytes, which is the limit. Check catalog.uri."
                )
        response._content = bytes(body)
    finally:
        response.close()


def _is_of_aws(url: str) -> bool:
    match origin(url):
        case "https", str(host), 443:
            return host.endswith(_OF_AWS)
    return False


def _refuse(asked: str, named: str) -> NoReturn:
    """Raise ConfigError for an address of another host that a server names in place of the one that was asked."""
    raise ConfigError(
        f"The Iceberg catalog at {asked} refers to {named}, which is another server. Secrets are "
        "sent to configured servers only. If you trust that one, set catalog.uri (or catalog.oauth2_server_uri, where "
        "tokens are issued) to its address."
    )


# --- errors -----------------------------------------------------------------------------------------------------------


_CREDENTIALS = "Check catalog.client_id and catalog.client_secret, or catalog.token, and that they are not expired."
_RIGHTS = "Give the connector's principal the right to create and write tables there."
_SERVER = "Run the sync again; if that does not help, look into the catalog's own log."
_RULES: Sequence[tuple[tuple[type[Exception], ...], str, str, FailureType]] = (
    ((OAuthError, UnauthorizedError, AuthorizationExpiredError), "it does not know us", _CREDENTIALS, "config_error"),
    ((ForbiddenError,), "it is not permitted", _RIGHTS, "config_error"),
    (
        (requests.exceptions.SSLError,),
        "its certificate is not trusted",
        "If it is from an authority of your own, set catalog.ca_certificates.",
        "config_error",
    ),
    (
        (requests.ConnectionError, requests.Timeout),
        "it does not answer",
        "Check catalog.uri, that the server is up, and that this machine reaches it; then try again.",
        "transient_error",
    ),
    ((*_NOT_YET, ServerError), "it is out of order", _SERVER, "transient_error"),
    ((InvalidAnswer,), "what answers there is none", "Check catalog.uri.", "config_error"),
    ((requests.RequestException,), "it cannot be asked", "Check catalog.uri.", "config_error"),
    (
        (RESTError,),
        "it refuses the request",
        "Check catalog.uri and catalog.warehouse.",
        "config_error",
    ),
)


@contextmanager
def _explained(uri: str) -> Iterator[None]:
    """Raise ConnectorError for what a server, or the way to it, answers to requests that are right."""
    try:
        yield
    except CommitStateUnknownException:
        raise
    except (RESTError, requests.RequestException, InvalidAnswer) as error:
        for kinds, reason, remedy, type_ in _RULES:
            if isinstance(error, kinds):
                text = printable(mask_secrets(str(error)))
                # Of a server that does not answer, the text is Python's.
                said = "" if isinstance(error, requests.ConnectionError | requests.Timeout) else text[:_SHOWN]
                message = f"The Iceberg catalog at {uri}: {reason}. {remedy}{said and f' It said: {said}'}"
                detail = f"{type(error).__name__}: {text}"
                raise ConnectorError(Failure(message, detail, type_)) from error
        raise


_SHOWN = 500
"""Characters of a server's answer that a message has."""
