"""Calls of Lake Formation: what it has, read as far as it matters for what is desired, and changes to it.

Every list is read to its last page. Each call that changes something is idempotent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, assert_never

from destination_datalake.lake_formation.difference import AddLfTagValues, Change, CreateLfTag, described
from destination_datalake.lake_formation.state import (
    ALL,
    AllTables,
    Catalog,
    Columns,
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
    from_answer,
    to_request,
    whole,
)

if TYPE_CHECKING:
    from mypy_boto3_lakeformation import LakeFormationClient


class NotRead(Exception):
    """A state could not be read: what of which resource, AWS's operation, code and text. The cause is botocore's."""

    def __init__(self, what: str, of: Resource, operation: str, code: str, text: str) -> None:
        super().__init__(f"{what} of {of}: {code}: {text}")
        self.what = what
        self.of = of
        self.operation = operation
        self.code = code
        self.text = text


_PAGE = 1000
"""The most that Lake Formation lists in one answer."""
_PAGES = 5
"""How much of a list is read that can be as long as the catalog."""


@dataclass(frozen=True, slots=True)
class Held:
    """Permissions that somebody has on a resource, and which of them with the right to grant them to others."""

    permissions: frozenset[str]
    grantable: frozenset[str]

    def lacks(self, permissions: Iterable[str], *, grantable: bool) -> frozenset[str]:
        """Return those that are missing; ALL includes every other."""
        held = self.grantable if grantable else self.permissions
        return frozenset() if ALL in held else frozenset(permissions) - held


def read(desired: Desired, client: LakeFormationClient) -> Present:
    """Return what there is of each kind that is desired. Raises what the client raises.

    Each kind of state costs calls only if something of that kind is desired.
    """
    tagged = {whole(tag.resource) for tag in desired.tags}
    granted = {whole(grant.resource) for grant in desired.grants}
    enforced = {opt_in.resource for opt_in in desired.opt_ins}
    return Present(
        frozenset(_registrations(client) if desired.registration else ()),
        dict(_definitions(desired.tag_values, client)),
        frozenset(tag for resource in tagged for tag in _tags(resource, client)),
        frozenset(grant for resource in granted for grant in _grants(resource, client)),
        frozenset(opt_in for resource in enforced for opt_in in _opt_ins(resource, client)),
    )


def effective_permissions(principal: str, resource: Resource, client: LakeFormationClient) -> Held:
    """Return the permissions that a principal has on a resource, however they were granted. Raises as `read` does.

    That is what ListPermissions answers if it is asked for both
    (https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_ListPermissions.html). Permissions that an
    administrator has implicitly are not among them.
    """
    request = {"Principal": {"DataLakePrincipalIdentifier": principal}, "Resource": to_request(resource)}
    found: set[str] = set()
    grantable: set[str] = set()
    with _reading("the permissions", resource), suppress(client.exceptions.EntityNotFoundException):
        for page in _pages(client.list_permissions, request):
            for each in page["PrincipalResourcePermissions"]:
                grantable |= {*each.get("PermissionsWithGrantOption", [])}
                found |= {*each.get("Permissions", []), *grantable}
    return Held(frozenset(found), frozenset(grantable))


def tables_granted_to(principal: str, database: str, client: LakeFormationClient) -> list[Resource]:
    """Return the tables of a database, or all of them as one, on which a principal has permissions.

    Reads only the first pages of a long list.
    """
    found: dict[Resource, None] = {}
    with _reading("the permissions on tables", Database(database)):
        for page in islice(_pages(client.list_permissions, {"ResourceType": "TABLE"}), _PAGES):
            for each in page["PrincipalResourcePermissions"]:
                if each["Principal"]["DataLakePrincipalIdentifier"] == principal:
                    found |= dict.fromkeys(from_answer(each["Resource"]))
    return [each for each in found if isinstance(each, Table | AllTables) and each.database == database]


def _registrations(client: LakeFormationClient) -> Iterator[Registration]:
    with _reading("the registered data locations", Catalog()):
        for page in _pages(client.list_resources, {}):
            for found in page["ResourceInfoList"]:
                yield Registration(found["ResourceArn"], found.get("RoleArn"), found.get("HybridAccessEnabled", False))


def _definitions(keys: Iterable[str], client: LakeFormationClient) -> Iterator[tuple[str, frozenset[str]]]:
    for key in keys:
        with _reading("the values", LfTag(key, ("*",))), suppress(client.exceptions.EntityNotFoundException):
            yield key, frozenset(client.get_lf_tag(TagKey=key)["TagValues"])


def _tags(resource: Resource, client: LakeFormationClient) -> Iterator[Tag]:
    """Yield what is assigned to a database, or to a table and to its columns, and not inherited."""
    with _reading("the LF-Tags", resource):
        answer = client.get_resource_lf_tags(Resource=to_request(resource), ShowAssignedLFTags=True)
    if isinstance(resource, Table):
        yield from _assigned(resource, answer.get("LFTagsOnTable", []))
        for column in answer.get("LFTagsOnColumns", []):
            columns = Columns(resource.database, resource.name, (column["Name"].lower(),))
            yield from _assigned(columns, column["LFTags"])
    else:
        yield from _assigned(resource, answer.get("LFTagOnDatabase", []))


def _assigned(resource: Resource, pairs: Iterable[Any]) -> Iterator[Tag]:
    return (Tag(resource, pair["TagKey"], value) for pair in pairs for value in pair["TagValues"])


def _grants(resource: Resource, client: LakeFormationClient) -> Iterator[Grant]:
    """Yield what is granted on a resource. For a table that includes its columns (Lake Formation: ListPermissions).

    A data location that is not registered does not exist for Lake Formation.
    """
    with _reading("the permissions", resource), suppress(client.exceptions.EntityNotFoundException):
        for page in _pages(client.list_permissions, {"Resource": to_request(resource)}):
            for found in page["PrincipalResourcePermissions"]:
                principal = found["Principal"]["DataLakePrincipalIdentifier"]
                grantable = {*found.get("PermissionsWithGrantOption", [])}
                for each in from_answer(found["Resource"]):
                    for permission in {*found.get("Permissions", []), *grantable}:
                        yield Grant(principal, each, permission, permission in grantable)


def _opt_ins(resource: Resource, client: LakeFormationClient) -> Iterator[OptIn]:
    with _reading("the opt-ins", resource):
        for page in _pages(client.list_lake_formation_opt_ins, {"Resource": to_request(resource)}):
            for found in page["LakeFormationOptInsInfoList"]:
                for each in from_answer(found["Resource"]):
                    yield OptIn(found["Principal"]["DataLakePrincipalIdentifier"], each)


def _pages(operation: Any, request: dict[str, Any]) -> Iterator[Any]:
    """Yield the pages of an answer; botocore has no paginators for most of these operations."""
    token: dict[str, str] = {}
    while True:
        page = operation(**request, MaxResults=_PAGE, **token)
        yield page
        if not (following := page.get("NextToken")):
            return
        token = {"NextToken": following}


@contextmanager
def _reading(what: str, of: Resource) -> Iterator[None]:
    """Say in an error what was to be read."""
    from botocore.exceptions import ClientError

    try:
        yield
    except ClientError as error:
        detail = error.response.get("Error", {})
        code, text = detail.get("Code", ""), detail.get("Message", "")
        raise NotRead(what, of, str(error.operation_name), code, text) from error


_VALUES = 50
"""Values of an LF-Tag in one call (Lake Formation API: LFTag)."""


class NotApplied(Exception):
    """A change could not be made: AWS's operation, code and text. The cause is an error of botocore.

    What was applied before it stays.
    """

    def __init__(self, operation: str, change: Change, code: str, text: str) -> None:
        super().__init__(f"{described(change).done}: {code}: {text}")
        self.operation = operation
        self.change = change
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API, and the change that it makes: of several, which differ in columns or permissions, one."""

    operation: str
    request: Mapping[str, Any]
    change: Change


def apply(changes: Iterable[Change], client: LakeFormationClient) -> None:
    """Make the changes, in order. Raises NotApplied, or what botocore raises without an answer."""
    for call in calls(changes):
        _send(call, client)


def calls(changes: Iterable[Change]) -> list[Call]:
    """Return the calls that make the changes, in order.

    One grants all that a principal gets on a resource, and one assigns an LF-Tag to all columns of a table.
    """
    together: dict[object, list[Change]] = defaultdict(list)
    for change in changes:
        match change:
            case Tag(Columns() as columns, key, value):
                together[whole(columns), key, value].append(change)
            case Grant(principal, Columns() as columns, grantable=grantable):
                together[whole(columns), principal, grantable].append(change)
            case Grant(principal, resource):
                together[resource, principal].append(change)
            case _:
                together[change].append(change)
    return [call for each in together.values() for call in _calls(each)]


def _calls(changes: Sequence[Change]) -> Iterator[Call]:
    match change := changes[0]:
        case Registration(arn, role_arn, hybrid):
            request: dict[str, Any] = {"ResourceArn": arn, "RoleArn": role_arn, "HybridAccessEnabled": hybrid}
            yield Call("RegisterResource", request, change)
        case CreateLfTag(key, values):
            yield Call("CreateLFTag", {"TagKey": key, "TagValues": [*values[:_VALUES]]}, change)
            yield from _additions(key, values[_VALUES:], change)
        case AddLfTagValues(key, values):
            yield from _additions(key, values, change)
        case Tag(resource, key, value):
            request = {"Resource": _combined(changes), "LFTags": [{"TagKey": key, "TagValues": [value]}]}
            yield Call("AddLFTagsToResource", request, change)
        case Grant(principal, resource):
            grants = [each for each in changes if isinstance(each, Grant)]
            request = {
                "Principal": _principal(principal),
                "Resource": _combined(changes),
                "Permissions": sorted({each.permission for each in grants}),
                "PermissionsWithGrantOption": sorted({each.permission for each in grants if each.grantable}),
            }
            yield Call("GrantPermissions", request, change)
        case OptIn(principal, resource):
            request = {"Principal": _principal(principal), "Resource": to_request(resource)}
            yield Call("CreateLakeFormationOptIn", request, change)
        case _:
            assert_never(change)


def _additions(key: str, values: Sequence[str], change: Change) -> Iterator[Call]:
    for start in range(0, len(values), _VALUES):
        yield Call("UpdateLFTag", {"TagKey": key, "TagValuesToAdd": [*values[start : start + _VALUES]]}, change)


def _combined(changes: Iterable[Change]) -> Any:
    """Return the resource of the changes as a request has it; that of several are columns of one table."""
    resource, *others = dict.fromkeys(each.resource for each in changes if isinstance(each, Tag | Grant))
    names = [name for each in others if isinstance(each, Columns) for name in each.names]
    return to_request(replace(resource, names=(*resource.names, *names)) if isinstance(resource, Columns) else resource)


def _principal(identifier: str) -> dict[str, str]:
    return {"DataLakePrincipalIdentifier": identifier}


def _send(call: Call, client: LakeFormationClient) -> None:
    """Make one call. What it answers in `Failures` counts as much as an error."""
    from botocore import xform_name
    from botocore.exceptions import ClientError

    try:
        for failure in getattr(client, xform_name(call.operation))(**call.request).get("Failures", []):
            refused = failure.get("Error", {})
            code, text = refused.get("ErrorCode", ""), refused.get("ErrorMessage", "")
            raise ClientError({"Error": {"Code": code, "Message": text}}, call.operation)
    except ClientError as error:
        detail = error.response.get("Error", {})
        raise NotApplied(call.operation, call.change, detail.get("Code", ""), detail.get("Message", "")) from error
