"""The catalog: its operations, and the metadata files that it alone writes."""

import json
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, unquote
from uuid import UUID, uuid4

import msgspec
from emulated_aws.account import Account
from pydantic import TypeAdapter, ValidationError
from pyiceberg.exceptions import ValidationError as InvalidMetadata
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataV1, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate

from integration_tests.catalogs.access import Tokens, Vendor, check_signature
from integration_tests.catalogs.behaviour import Behaviour, OAuth, SigV4
from integration_tests.catalogs.interference import Interference
from integration_tests.catalogs.metadata import require, updated
from integration_tests.catalogs.refusal import Refused, bad_request
from integration_tests.harness.loopback import Answer, LoopbackServer, Request

Name = tuple[str, ...]
"""Of a namespace: its levels. Of a table: those of its namespace, and its own."""

OPERATIONS: Mapping[str, str] = {
    "listNamespaces": "GET /v1/{prefix}/namespaces",
    "createNamespace": "POST /v1/{prefix}/namespaces",
    "loadNamespaceMetadata": "GET /v1/{prefix}/namespaces/{namespace}",
    "namespaceExists": "HEAD /v1/{prefix}/namespaces/{namespace}",
    "dropNamespace": "DELETE /v1/{prefix}/namespaces/{namespace}",
    "updateProperties": "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "listTables": "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "createTable": "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "registerTable": "POST /v1/{prefix}/namespaces/{namespace}/register",
    "loadTable": "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "tableExists": "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "updateTable": "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "dropTable": "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "loadCredentials": "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials",
}
"""What the server says that it can, by `operationId`. Besides there are `getConfig` and `getToken`."""

_REQUIREMENTS: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])
_UPDATES: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])
_DEFAULTS = {"write.parquet.compression-codec": "zstd"}
"""Properties that a client has not sent: servers may have their own, and the reference implementation has this one."""
_SEPARATOR = "\x1f"
_JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class _Table:
    metadata: TableMetadata
    metadata_location: str


@dataclass(frozen=True)
class _Call:
    """A request for an operation, with what stands in its path and its query."""

    request: Request
    operation: str
    namespace: Name
    table: str
    query: Mapping[str, str]

    @property
    def name(self) -> Name:
        return (*self.namespace, self.table)

    def body(self) -> Any:
        try:
            return json.loads(self.request.body)
        except ValueError as error:
            raise bad_request(f"Malformed request: {error}") from error


class CatalogServer(LoopbackServer):
    """`endpoint_url` is the catalog's URI. Tables lie in a bucket of an account, which `account_url` leads to.

    `requests` counts them by `operationId`.
    """

    def __init__(self, account_url: str, bucket: str, behaviour: Behaviour | None = None) -> None:
        self.behaviour = behaviour if behaviour is not None else Behaviour()
        self.requests: Counter[str] = Counter()
        self._bucket = bucket
        self._s3 = Account(account_url).client("s3")
        self._vendor = Vendor(account_url) if self.behaviour.delegates == "vended-credentials" else None
        authorization = self.behaviour.authorization
        self._tokens = Tokens(authorization) if isinstance(authorization, OAuth) else None
        self._namespaces: dict[Name, dict[str, str]] = {}
        self._tables: dict[Name, _Table] = {}
        self._answers: dict[str, tuple[bytes, Answer]] = {}
        self._interferences: dict[tuple[str, int], Interference] = {}
        self._lock = threading.RLock()
        self._routes = self._known_routes()

    # What tests see and do

    def metadata(self, *name: str) -> TableMetadata:
        """Return a table's current metadata. Raises KeyError."""
        return self._tables[name].metadata

    def metadata_location(self, *name: str) -> str:
        """Return the URI of a table's current metadata file. Raises KeyError."""
        return self._tables[name].metadata_location

    def interfere(self, operation: str, how: Interference, number: int = 1) -> None:
        """Let something become of one request for an operation, by its number from now on."""
        assert operation in (*OPERATIONS, "getConfig", "getToken"), operation
        with self._lock:
            self._interferences[operation, self.requests[operation] + number] = how

    def end_tokens(self) -> None:
        """Let all access tokens be expired that have been issued."""
        assert self._tokens is not None, "the catalog has no OAuth"
        self._tokens.end()

    def end_credentials(self) -> None:
        """Let AWS refuse all credentials that have been vended."""
        assert self._vendor is not None, "the catalog vends no credentials"
        self._vendor.end()

    @property
    def keys(self) -> Sequence[str]:
        """The values of Idempotency-Key that were answered, in order."""
        return tuple(self._answers)

    @property
    def vended(self) -> Sequence[str]:
        """The ids of all access keys that have been vended, in order."""
        return self._vendor.issued if self._vendor is not None else ()

    # How requests are answered

    def answer(self, request: Request) -> Answer:
        """Answer a request, unless a test interferes."""
        call = self._call(request)
        with self._lock:
            self.requests[call.operation] += 1
            interference = self._interferences.pop((call.operation, self.requests[call.operation]), None)
        if interference is None:
            return self._answer(call)
        return interference(request, lambda _: self._answer(call))

    def _answer(self, call: _Call) -> Answer:
        try:
            if call.operation == "getToken" and self._tokens is not None:
                return self._tokens.issue(call.request)
            self._authorize(call.request)
            with self._lock:
                return self._once(call)
        except Refused as refused:
            return refused.answer()
        except Exception:
            # A mistake in this server: nobody else can tell.
            return Refused(500, "InternalServerError", traceback.format_exc()).answer()

    def _known_routes(self) -> Sequence[tuple[str, str, re.Pattern[str]]]:
        ways = self.behaviour
        endpoints = {**OPERATIONS, "getConfig": "GET /v1/config"}
        if isinstance(ways.authorization, OAuth):
            endpoints["getToken"] = f"POST {ways.authorization.path}"
        if self._vendor is None:
            del endpoints["loadCredentials"]
        routes = []
        for operation, endpoint in endpoints.items():
            method, _, path = endpoint.partition(" ")
            path = path.replace("/{prefix}", f"/{re.escape(ways.prefix)}" if ways.prefix else "")
            path = path.replace("{namespace}", "(?P<namespace>[^/]+)").replace("{table}", "(?P<table>[^/]+)")
            routes.append((operation, method, re.compile(path)))
        return routes

    def _call(self, request: Request) -> _Call:
        path, _, query = request.path.partition("?")
        for operation, method, pattern in self._routes:
            if method == request.method and (match := pattern.fullmatch(path)):
                names = {name: unquote(value) for name, value in match.groupdict().items()}
                namespace = tuple(names["namespace"].split(_SEPARATOR)) if "namespace" in names else ()
                return _Call(request, operation, namespace, names.get("table", ""), dict(parse_qsl(query)))
        return _Call(request, f"{request.method} {path}", (), "", {})

    def _authorize(self, request: Request) -> None:
        ways = self.behaviour
        for name, value in ways.headers.items():
            if request.header(name) != value:
                raise Refused(401, "NotAuthorizedException", f"The header {name} is missing, or has another value")
        if self._tokens is not None:
            self._tokens.check(request)
        if isinstance(ways.authorization, SigV4):
            check_signature(request, f"{self.endpoint_url}{request.path}", ways.authorization)

    def _once(self, call: _Call) -> Answer:
        """Carry out an operation, or answer as before if its `Idempotency-Key` is one that was used for it."""
        key = call.request.header("Idempotency-Key")
        if not key or self.behaviour.idempotency_lifetime is None:
            return self._perform(call)
        try:
            is_time_ordered = UUID(key).version == 7
        except ValueError:
            is_time_ordered = False
        if not is_time_ordered:
            raise bad_request(f"Idempotency-Key is no UUIDv7: {key}")
        digest = sha256(f"{call.request.method} {call.request.path} ".encode() + call.request.body).digest()
        if key in self._answers:
            before, answer = self._answers[key]
            if before != digest:
                raise Refused(422, "UnprocessableEntityException", "Idempotency-Key was used for another request")
            return answer
        try:
            answer = self._perform(call)
        except Refused as refused:
            answer = refused.answer()
        self._answers[key] = digest, answer
        return answer

    def _perform(self, call: _Call) -> Answer:
        operations: Mapping[str, Callable[[_Call], Answer]] = {
            "getConfig": self._get_config,
            "listNamespaces": self._list_namespaces,
            "createNamespace": self._create_namespace,
            "loadNamespaceMetadata": lambda call: _answer(_namespace(call.namespace, self._properties(call))),
            "namespaceExists": lambda call: _nothing(self._properties(call)),
            "dropNamespace": self._drop_namespace,
            "updateProperties": self._update_properties,
            "listTables": self._list_tables,
            "createTable": self._create_table,
            "registerTable": self._register_table,
            "loadTable": self._load_table,
            "tableExists": lambda call: _nothing(self._table(call)),
            "updateTable": self._update_table,
            "dropTable": self._drop_table,
            "loadCredentials": self._load_credentials,
        }
        if call.operation not in operations:
            raise Refused(404, "NotFoundException", f"No route for request: {call.operation}")
        return operations[call.operation](call)

    # Configuration

    def _get_config(self, call: _Call) -> Answer:
        ways = self.behaviour
        if ways.warehouse and call.query.get("warehouse") != ways.warehouse:
            raise bad_request(f"Unknown warehouse: {call.query.get('warehouse')}")
        endpoints = [OPERATIONS[operation] for operation, _, _ in self._routes if operation in OPERATIONS]
        config: dict[str, object] = {"defaults": {}, "overrides": {}, "endpoints": endpoints}
        if ways.prefix:
            config["overrides"] = {"prefix": ways.prefix}
        if ways.idempotency_lifetime is not None:
            config["idempotency-key-lifetime"] = ways.idempotency_lifetime
        return _answer(config)

    # Namespaces

    def _properties(self, call: _Call) -> dict[str, str]:
        if call.namespace not in self._namespaces:
            raise _no_namespace(call.namespace)
        return self._namespaces[call.namespace]

    def _list_namespaces(self, call: _Call) -> Answer:
        parent = tuple(call.query["parent"].split(_SEPARATOR)) if call.query.get("parent") else ()
        if parent and parent not in self._namespaces:
            raise _no_namespace(parent)
        depth = len(parent) + 1
        namespaces = sorted(name for name in self._namespaces if len(name) == depth and name[:-1] == parent)
        return self._page("namespaces", namespaces, call)

    def _create_namespace(self, call: _Call) -> Answer:
        body = call.body()
        name = tuple(body.get("namespace") or ())
        if not name or (len(name) > 1 and not self.behaviour.nested_namespaces):
            raise bad_request(f"Invalid namespace: {name}")
        for level in name:
            self._check_name(level)
        if name in self._namespaces:
            raise _already_exists(f"Namespace already exists: {'.'.join(name)}")
        if name[:-1] and name[:-1] not in self._namespaces:
            raise _no_namespace(name[:-1])
        self._namespaces[name] = dict(body.get("properties") or {})
        return _answer(_namespace(name, self._namespaces[name]))

    def _drop_namespace(self, call: _Call) -> Answer:
        self._properties(call)
        depth = len(call.namespace)
        if any(len(name) > depth and name[:depth] == call.namespace for name in (*self._namespaces, *self._tables)):
            raise Refused(409, "NamespaceNotEmptyException", f"Namespace is not empty: {'.'.join(call.namespace)}")
        del self._namespaces[call.namespace]
        return _nothing()

    def _update_properties(self, call: _Call) -> Answer:
        properties, body = self._properties(call), call.body()
        updates, removals = body.get("updates") or {}, body.get("removals") or []
        if conflicts := sorted(set(updates) & set(removals)):
            raise Refused(422, "UnprocessableEntityException", f"Both updated and removed: {conflicts}")
        removed = [name for name in removals if properties.pop(name, None) is not None]
        properties.update(updates)
        missing = [name for name in removals if name not in removed]
        return _answer({"updated": list(updates), "removed": removed, "missing": missing})

    # Tables

    def _table(self, call: _Call) -> _Table:
        if call.name not in self._tables:
            raise Refused(404, "NoSuchTableException", f"Table does not exist: {'.'.join(call.name)}")
        return self._tables[call.name]

    def _list_tables(self, call: _Call) -> Answer:
        self._properties(call)
        names = sorted(name[-1] for name in self._tables if name[:-1] == call.namespace)
        return self._page("identifiers", [{"namespace": call.namespace, "name": name} for name in names], call)

    def _create_table(self, call: _Call) -> Answer:
        ways, body = self.behaviour, call.body()
        name, stages = self._free_name(call, body), bool(body.get("stage-create"))
        if stages and not ways.stages_creation:
            raise bad_request("stage-create is not supported")
        if ways.assigns_locations and body.get("location"):
            raise bad_request("The location of a table is the server's to choose")
        properties = _DEFAULTS | {key: str(value) for key, value in (body.get("properties") or {}).items()}
        if (version := int(properties.get("format-version", 2))) not in ways.format_versions:
            raise bad_request(f"Unsupported format version: {version}")
        try:
            metadata = new_table_metadata(
                Schema.model_validate(body.get("schema")),
                PartitionSpec.model_validate(body.get("partition-spec") or UNPARTITIONED_PARTITION_SPEC),
                SortOrder.model_validate(body.get("write-order") or UNSORTED_SORT_ORDER),
                (body.get("location") or self._new_location(name)).rstrip("/"),
                properties,
            )
        except (ValueError, InvalidMetadata) as error:
            raise bad_request(f"Invalid table: {error}") from error
        return self._loaded(_Table(metadata, "") if stages else self._written(name, metadata), call)

    def _register_table(self, call: _Call) -> Answer:
        body = call.body()
        name = self._free_name(call, body, overwrites=bool(body.get("overwrite")))
        location = str(body.get("metadata-location"))
        try:
            bucket, _, key = location.removeprefix("s3://").partition("/")
            text = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
            self._tables[name] = _Table(TableMetadataUtil.parse_raw(text), location)
        except (self._s3.exceptions.ClientError, ValueError, InvalidMetadata) as error:
            raise bad_request(f"Cannot read metadata file {location}: {error}") from error
        return self._loaded(self._tables[name], call)

    def _load_table(self, call: _Call) -> Answer:
        table = self._table(call)
        if call.request.header("If-None-Match") == _etag(table, call):
            return Answer(304, {"ETag": _etag(table, call)}, b"")
        return self._loaded(table, call)

    def _update_table(self, call: _Call) -> Answer:
        body = call.body()
        try:
            requirements = _REQUIREMENTS.validate_python(body.get("requirements"))
            updates = _UPDATES.validate_python(body.get("updates"))
        except ValidationError as error:
            raise bad_request(f"Unknown or malformed requirements or updates: {error}") from error
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            return self._commit_creation(call, requirements, updates)
        table = self._table(call)
        for requirement in requirements:
            require(requirement, table.metadata)
        metadata = updated(table.metadata, table.metadata_location, updates, self.behaviour)
        if metadata is not table.metadata:
            table = self._written(call.name, metadata, replaced=table)
        return _answer(_metadata(table), {"ETag": _etag(table, call)})

    def _commit_creation(
        self, call: _Call, requirements: Sequence[TableRequirement], updates: Sequence[TableUpdate]
    ) -> Answer:
        self._properties(call)
        if not self.behaviour.stages_creation or len(requirements) > 1:
            raise bad_request(f"Invalid create requirements: {requirements}")
        if call.name in self._tables:
            raise Refused(409, "CommitFailedException", "Requirement failed: table already exists")
        # As PyIceberg begins: the first update raises the version to the one that the client wants.
        empty = TableMetadataV1.model_construct(last_column_id=-1, schema=Schema())
        table = self._written(call.name, updated(empty, "", updates, self.behaviour))
        return _answer(_metadata(table), {"ETag": _etag(table, call)})

    def _drop_table(self, call: _Call) -> Answer:
        table, purges = self._table(call), call.query.get("purgeRequested", "false").lower() == "true"
        if self.behaviour.drops_only_with_purge and not purges:
            raise bad_request("Tables are only dropped with purgeRequested=true")
        if purges:
            bucket, _, folder = table.metadata.location.removeprefix("s3://").partition("/")
            prefix = f"{folder}/" if folder else ""
            for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
                for item in page.get("Contents", ()):
                    self._s3.delete_object(Bucket=bucket, Key=item["Key"])
        del self._tables[call.name]
        return _nothing()

    def _load_credentials(self, call: _Call) -> Answer:
        return _answer({"storage-credentials": self._storage_credentials(self._table(call))})

    # What the server decides

    def _check_name(self, name: str) -> None:
        if not re.fullmatch(self.behaviour.names, name):
            raise bad_request(f"Invalid name: {name!r} is not {self.behaviour.names}")

    def _free_name(self, call: _Call, body: Any, *, overwrites: bool = False) -> Name:
        """Return the name of a table to create, which nothing has. Raises Refused."""
        self._properties(call)
        self._check_name(str(body.get("name") or ""))
        name = (*call.namespace, body["name"])
        if name in self._tables and not overwrites:
            raise _already_exists(f"Table already exists: {'.'.join(name)}")
        return name

    def _new_location(self, name: Name) -> str:
        if not self.behaviour.assigns_locations:
            return "/".join((f"s3://{self._bucket}/warehouse", *name))
        # A bucket for each table, as S3 Tables has it.
        bucket = f"{uuid4()}--table-s3"
        self._s3.create_bucket(Bucket=bucket)
        return f"s3://{bucket}"

    def _written(self, name: Name, metadata: TableMetadata, replaced: _Table | None = None) -> _Table:
        """Write a metadata file and let it be the table's. Raises Refused if it is larger than the catalog takes."""
        body, limit = metadata.model_dump_json().encode(), self.behaviour.max_metadata_bytes
        if limit is not None and len(body) > limit:
            raise bad_request(f"The metadata of the table is larger than {limit} bytes: {len(body)}")
        version = int(replaced.metadata_location.rpartition("/")[2].partition("-")[0]) + 1 if replaced else 0
        folder = metadata.properties.get("write.metadata.path", f"{metadata.location}/metadata")
        table = _Table(metadata, f"{folder}/{version:05}-{uuid4()}.metadata.json")
        bucket, _, key = table.metadata_location.removeprefix("s3://").partition("/")
        self._s3.put_object(Bucket=bucket, Key=key, Body=body)
        self._tables[name] = table
        if replaced and metadata.properties.get("write.metadata.delete-after-commit.enabled", "").lower() == "true":
            kept = {entry.metadata_file for entry in metadata.metadata_log}
            for entry in replaced.metadata.metadata_log:
                if entry.metadata_file not in kept:
                    bucket, _, key = entry.metadata_file.removeprefix("s3://").partition("/")
                    self._s3.delete_object(Bucket=bucket, Key=key)
        return table

    def _loaded(self, table: _Table, call: _Call) -> Answer:
        """Return a `LoadTableResult`."""
        result = {**_metadata(table, call.query.get("snapshots", "all")), "config": dict(self.behaviour.table_config)}
        if self.behaviour.delegates == "remote-signing":
            signer = {"s3.remote-signing-enabled": "true", "s3.signer.uri": self.endpoint_url}
            result["config"] = {**self.behaviour.table_config, **signer}
        asked = [mechanism.strip() for mechanism in call.request.header("X-Iceberg-Access-Delegation").split(",")]
        if self._vendor is not None and "vended-credentials" in asked:
            result["storage-credentials"] = self._storage_credentials(table)
        return _answer(result, {"ETag": _etag(table, call)} if table.metadata_location else {})

    def _storage_credentials(self, table: _Table) -> Sequence[object]:
        """Return the credentials for a table's location, and before them some for a shorter prefix that are no good."""
        assert self._vendor is not None
        location = table.metadata.location
        useless = {"s3.access-key-id": "AKIANOBODYSKEY000000", "s3.secret-access-key": "nobody's"}
        return [
            {"prefix": location.rpartition("/")[0], "config": useless},
            {"prefix": location, "config": self._vendor.vend(location)},
        ]

    def _page(self, name: str, entries: Sequence[object], call: _Call) -> Answer:
        size, start = self.behaviour.page_size, int(call.query.get("pageToken") or 0)
        if size is None:
            return _answer({name: entries})
        end = start + size
        return _answer({name: entries[start:end], "next-page-token": str(end) if end < len(entries) else None})


def _answer(value: object, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(200, {**_JSON, **(headers or {})}, msgspec.json.encode(value))


def _nothing(_: object = None) -> Answer:
    return Answer(204, {}, b"")


def _namespace(name: Name, properties: Mapping[str, str]) -> object:
    return {"namespace": name, "properties": properties}


def _metadata(table: _Table, snapshots: str = "all") -> dict[str, object]:
    metadata = table.metadata
    if snapshots == "refs":
        referred = {ref.snapshot_id for ref in metadata.refs.values()}
        kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in referred]
        metadata = metadata.model_copy(update={"snapshots": kept})
    location = {"metadata-location": table.metadata_location} if table.metadata_location else {}
    return {**location, "metadata": msgspec.Raw(metadata.model_dump_json().encode())}


def _etag(table: _Table, call: _Call) -> str:
    """Return what tells versions of a table apart, and what of them is answered (`etag`)."""
    told = f"{table.metadata_location} {call.query.get('snapshots', 'all')}"
    return f'"{sha256(told.encode()).hexdigest()[:32]}"'


def _no_namespace(name: Name) -> Refused:
    return Refused(404, "NoSuchNamespaceException", f"Namespace does not exist: {'.'.join(name)}")


def _already_exists(message: str) -> Refused:
    return Refused(409, "AlreadyExistsException", message)
