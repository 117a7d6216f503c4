"""Call the Lake Formation API: read the present state of the configured settings, and apply changes.

Functions read all pages of a list, unless their docstring states otherwise. All changes are idempotent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, assert_never

from destination_datalake.lake_formation.state import (
    ALL,
    AddLfTagValues,
    AllTables,
    Catalog,
    Change,
    Column,
    CreateLfTag,
    Database,
    Desired,
    Grant,
    LfTag,
    OptIn,
    Present,
    Registration,
    Resource,
    Table,
    Tag,
    containing_table,
    describe_change,
    from_answer,
    to_request,
)

if TYPE_CHECKING:
    from mypy_boto3_lakeformation import LakeFormationClient


class ReadError(Exception):
    """Lake Formation rejected a request to read a property of a resource.

    The exception contains the operation, the error code and AWS's error text. Its `__cause__` is the error of botocore.
    """

    def __init__(self, property_name: str, resource: Resource, operation: str, code: str, text: str) -> None:
        super().__init__(f"{property_name} of {resource}: {code}: {text}")
        self.property_name = property_name
        self.resource = resource
        self.operation = operation
        self.code = code
        self.text = text


_MAX_PAGE_SIZE = 1000
"""The maximum page size of Lake Formation's lists, in entries."""
_MAX_PAGES = 5
"""The number of pages after which `tables_granted_to` stops reading, because a catalog may contain many tables."""


@dataclass(frozen=True, slots=True)
class EffectivePermissions:
    """The permissions of a principal on a resource.

    `grantable` contains the permissions that the principal may grant to others.
    """

    permissions: frozenset[str]
    grantable: frozenset[str]

    def missing(self, permissions: Iterable[str], *, grantable: bool) -> frozenset[str]:
        """Return those of `permissions` that the principal lacks or, with `grantable`, may not grant to others.

        The permission ALL includes all other permissions.
        """
        effective = self.grantable if grantable else self.permissions
        return frozenset() if ALL in effective else frozenset(permissions) - effective


def read(desired: Desired, client: LakeFormationClient) -> Present:
    """Return the present state of the resources and LF-Tags in `desired`.

    Reads only the kinds of settings that `desired` contains. Raises ReadError if AWS rejects a request, and botocore's
    errors if AWS does not respond.
    """
    tagged = {containing_table(tag.resource) for tag in desired.tags}
    granted = {containing_table(grant.resource) for grant in desired.grants}
    opted_in = {opt_in.resource for opt_in in desired.opt_ins}
    # A role may lack the permission to read settings that the options do not use, so do not read them.
    return Present(
        frozenset(_registrations(client) if desired.registration else ()),
        dict(_definitions(desired.tag_values, client)),
        frozenset(tag for resource in tagged for tag in _tags(resource, client)),
        frozenset(grant for resource in granted for grant in _grants(resource, client)),
        frozenset(opt_in for resource in opted_in for opt_in in _opt_ins(resource, client)),
    )


def effective_permissions(principal: str, resource: Resource, client: LakeFormationClient) -> EffectivePermissions:
    """Return the permissions that a principal has on a resource, directly, by LF-Tags or otherwise.

    Excludes the implicit permissions of data lake administrators. Raises the same errors as `read`. Sends a
    ListPermissions request with both a principal and a resource
    (https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_ListPermissions.html).
    """
    # Only with both a principal and a resource does AWS include permissions by LF-Tags.
    request = {"Principal": {"DataLakePrincipalIdentifier": principal}, "Resource": to_request(resource)}
    permissions: set[str] = set()
    grantable: set[str] = set()
    with _reading("the permissions", resource), suppress(client.exceptions.EntityNotFoundException):
        for page in _pages(client.list_permissions, request):
            for entry in page["PrincipalResourcePermissions"]:
                grantable |= {*entry.get("PermissionsWithGrantOption", [])}
                # A permission with grant option includes the permission itself.
                permissions |= {*entry.get("Permissions", []), *grantable}
    return EffectivePermissions(frozenset(permissions), frozenset(grantable))


def tables_granted_to(principal: str, database: str, client: LakeFormationClient) -> list[Resource]:
    """Return the tables of a database on which a principal has permissions. The result may include AllTables.

    Reads only the first _MAX_PAGES pages of permissions, so tables may be missing from the result.
    """
    resources: dict[Resource, None] = {}
    with _reading("the permissions on tables", Database(database)):
        for page in islice(_pages(client.list_permissions, {"ResourceType": "TABLE"}), _MAX_PAGES):
            for entry in page["PrincipalResourcePermissions"]:
                if entry["Principal"]["DataLakePrincipalIdentifier"] == principal:
                    resources |= dict.fromkeys(from_answer(entry["Resource"]))
    return [table for table in resources if isinstance(table, Table | AllTables) and table.database == database]


def _registrations(client: LakeFormationClient) -> Iterator[Registration]:
    with _reading("the registered data locations", Catalog()):
        for page in _pages(client.list_resources, {}):
            for entry in page["ResourceInfoList"]:
                yield Registration(entry["ResourceArn"], entry.get("RoleArn"), entry.get("HybridAccessEnabled", False))


def _definitions(keys: Iterable[str], client: LakeFormationClient) -> Iterator[tuple[str, frozenset[str]]]:
    for key in keys:
        # An LF-Tag without a definition is not an error: the difference then creates it.
        with _reading("the values", LfTag(key, ("*",))), suppress(client.exceptions.EntityNotFoundException):
            yield key, frozenset(client.get_lf_tag(TagKey=key)["TagValues"])


def _tags(resource: Resource, client: LakeFormationClient) -> Iterator[Tag]:
    """Yield the LF-Tags that are assigned directly to a database, or to a table and its columns.

    Omits LF-Tags that a resource inherits. Yields nothing if AWS answers EntityNotFoundException, because Lake
    Formation may not see a table yet that the sync has just created.
    """
    with _reading("the LF-Tags", resource):
        try:
            answer = client.get_resource_lf_tags(Resource=to_request(resource), ShowAssignedLFTags=True)
        except client.exceptions.EntityNotFoundException:
            return
    if isinstance(resource, Table):
        yield from _assigned(resource, answer.get("LFTagsOnTable", []))
        for column in answer.get("LFTagsOnColumns", []):
            tagged = Column(resource.database, resource.name, column["Name"].lower())
            yield from _assigned(tagged, column["LFTags"])
    else:
        yield from _assigned(resource, answer.get("LFTagOnDatabase", []))


def _assigned(resource: Resource, pairs: Iterable[Any]) -> Iterator[Tag]:
    return (Tag(resource, pair["TagKey"], value) for pair in pairs for value in pair["TagValues"])


def _grants(resource: Resource, client: LakeFormationClient) -> Iterator[Grant]:
    """Yield the grants on a resource. For a table, also yield the grants on its columns (API: ListPermissions).

    Yields nothing if AWS answers EntityNotFoundException, for example for a data location that is not registered.
    """
    with _reading("the permissions", resource), suppress(client.exceptions.EntityNotFoundException):
        for page in _pages(client.list_permissions, {"Resource": to_request(resource)}):
            for entry in page["PrincipalResourcePermissions"]:
                principal = entry["Principal"]["DataLakePrincipalIdentifier"]
                grantable = {*entry.get("PermissionsWithGrantOption", [])}
                for granted in from_answer(entry["Resource"]):
                    for permission in {*entry.get("Permissions", []), *grantable}:
                        yield Grant(principal, granted, permission, permission in grantable)


def _opt_ins(resource: Resource, client: LakeFormationClient) -> Iterator[OptIn]:
    with _reading("the opt-ins", resource):
        for page in _pages(client.list_lake_formation_opt_ins, {"Resource": to_request(resource)}):
            for entry in page["LakeFormationOptInsInfoList"]:
                for opted_in in from_answer(entry["Resource"]):
                    yield OptIn(entry["Principal"]["DataLakePrincipalIdentifier"], opted_in)


def _pages(operation: Any, request: dict[str, Any]) -> Iterator[Any]:
    """Request the pages of a list, and yield each page. botocore has no paginator for most of these operations."""
    token: dict[str, str] = {}
    while True:
        # Pages may be empty but still have a token, so only the token ends the list.
        page = operation(**request, MaxResults=_MAX_PAGE_SIZE, **token)
        yield page
        if not (next_token := page.get("NextToken")):
            return
        token = {"NextToken": next_token}


@contextmanager
def _reading(property_name: str, resource: Resource) -> Iterator[None]:
    """Convert an error that AWS returns to a request in the `with` block to ReadError."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        detail = error.response.get("Error", {})
        code, text = detail.get("Code", ""), detail.get("Message", "")
        raise ReadError(property_name, resource, str(error.operation_name), code, text) from error


_MAX_VALUES = 50
"""The maximum number of LF-Tag values per call (Lake Formation API: LFTag)."""


class ChangeError(Exception):
    """Lake Formation rejected a change. All earlier changes remain applied.

    The exception contains the operation, the error code and AWS's error text. Its `__cause__` is the error of botocore.
    """

    def __init__(self, operation: str, change: Change, code: str, text: str) -> None:
        super().__init__(f"{describe_change(change).outcome}: {code}: {text}")
        self.operation = operation
        self.change = change
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the Lake Formation API.

    `change` is the change that the call makes. If the call combines several grants, `change` is the first grant.
    """

    operation: str
    request: Mapping[str, Any]
    change: Change


def apply(changes: Iterable[Change], client: LakeFormationClient) -> None:
    """Apply the changes in order.

    Raises ChangeError if AWS rejects a change, and botocore's errors if AWS does not respond.
    """
    for call in calls(changes):
        _send(call, client)


def calls(changes: Iterable[Change]) -> list[Call]:
    """Return the API calls that make the changes, in order.

    One call can grant several permissions to a principal on a resource.
    """
    groups: dict[object, list[Change]] = defaultdict(list)
    for change in changes:
        # Grants to one principal on one resource share a call. Every other change is a group of its own.
        groups[(change.principal, change.resource) if isinstance(change, Grant) else change].append(change)
    return [call for group in groups.values() for call in _calls(group)]


def _calls(changes: Sequence[Change]) -> Iterator[Call]:
    match change := changes[0]:
        case Registration(arn, role_arn, hybrid):
            request: dict[str, Any] = {"ResourceArn": arn, "RoleArn": role_arn, "HybridAccessEnabled": hybrid}
            yield Call("RegisterResource", request, change)
        case CreateLfTag(key, values):
            # One request may not contain more values, so the definition is created with the first ones and then
            # extended.
            yield Call("CreateLFTag", {"TagKey": key, "TagValues": [*values[:_MAX_VALUES]]}, change)
            yield from _additions(key, values[_MAX_VALUES:], change)
        case AddLfTagValues(key, values):
            yield from _additions(key, values, change)
        case Tag(resource, key, value):
            request = {"Resource": to_request(resource), "LFTags": [{"TagKey": key, "TagValues": [value]}]}
            yield Call("AddLFTagsToResource", request, change)
        case Grant(principal, resource):
            grants = [grant for grant in changes if isinstance(grant, Grant)]
            request = {
                "Principal": _principal(principal),
                "Resource": to_request(resource),
                "Permissions": sorted({grant.permission for grant in grants}),
                "PermissionsWithGrantOption": sorted({grant.permission for grant in grants if grant.grantable}),
            }
            yield Call("GrantPermissions", request, change)
        case OptIn(principal, resource):
            request = {"Principal": _principal(principal), "Resource": to_request(resource)}
            yield Call("CreateLakeFormationOptIn", request, change)
        case _:
            assert_never(change)


def _additions(key: str, values: Sequence[str], change: Change) -> Iterator[Call]:
    for start in range(0, len(values), _MAX_VALUES):
        yield Call("UpdateLFTag", {"TagKey": key, "TagValuesToAdd": [*values[start : start + _MAX_VALUES]]}, change)


def _principal(identifier: str) -> dict[str, str]:
    return {"DataLakePrincipalIdentifier": identifier}


def _send(call: Call, client: LakeFormationClient) -> None:
    """Send one call. Raises ChangeError if AWS rejects the call, or if the response contains `Failures`."""
    from botocore import xform_name
    from botocore.exceptions import ClientError

    try:
        # A response with status 200 may still report failures, for example for some of the LF-Tags.
        for failure in getattr(client, xform_name(call.operation))(**call.request).get("Failures", []):
            detail = failure.get("Error", {})
            code, text = detail.get("ErrorCode", ""), detail.get("ErrorMessage", "")
            # Raise the same error as for a rejected request, so that one handler is enough.
            raise ClientError({"Error": {"Code": code, "Message": text}}, call.operation)
    except ClientError as error:
        detail = error.response.get("Error", {})
        raise ChangeError(call.operation, call.change, detail.get("Code", ""), detail.get("Message", "")) from error
