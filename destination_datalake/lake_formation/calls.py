"""Calls of Lake Formation: what it has, read as far as it matters for what is desired, and changes to it.

Every list is read to its last page. Changes take as few calls as there can be, and each call is idempotent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from destination_datalake.lake_formation.difference import AddLfTagValues, Change, CreateLfTag, describe
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


_ENTRIES = 20
"""Grants in one call (Lake Formation API: BatchGrantPermissions)."""
_VALUES = 50
"""Values of an LF-Tag in one call, and LF-Tags on a resource (Lake Formation API: LFTag, AddLFTagsToResource)."""

_Item = TypeVar("_Item")


class NotApplied(Exception):
    """A change could not be made: AWS's operation, code and text. The cause is an error of botocore.

    What was applied before it stays; of a batch, others may have been applied, too.
    """

    def __init__(self, operation: str, change: Change, code: str, text: str) -> None:
        super().__init__(f"{describe(change)}: {code}: {text}")
        self.operation = operation
        self.change = change
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the API, and the changes that it makes."""

    operation: str
    request: Mapping[str, Any]
    changes: tuple[Change, ...]


def apply(changes: Iterable[Change], client: LakeFormationClient) -> None:
    """Make the changes, in order. Raises NotApplied, or what botocore raises without an answer."""
    for call in calls(changes):
        _send(call, client)


def calls(changes: Iterable[Change]) -> list[Call]:
    """Return the calls that make the changes: first registration and definitions, then what refers to them."""
    tags: list[Tag] = []
    grants: list[Grant] = []
    found: list[Call] = []
    opt_ins: list[Call] = []
    for change in changes:
        match change:
            case Registration(arn, role_arn, hybrid):
                request: dict[str, Any] = {"ResourceArn": arn, "RoleArn": role_arn, "HybridAccessEnabled": hybrid}
                found.append(Call("RegisterResource", request, (change,)))
            case CreateLfTag(key, values):
                first, *rest = _chunks(values, _VALUES)
                found.append(Call("CreateLFTag", {"TagKey": key, "TagValues": first}, (change,)))
                found += _additions(key, rest, change)
            case AddLfTagValues(key, values):
                found += _additions(key, _chunks(values, _VALUES), change)
            case Tag():
                tags.append(change)
            case Grant():
                grants.append(change)
            case OptIn(principal, resource):
                request = {"Principal": _principal(principal), "Resource": to_request(resource)}
                opt_ins.append(Call("CreateLakeFormationOptIn", request, (change,)))
            case _:
                assert_never(change)
    return [*found, *_assignments(tags), *_batches(grants), *opt_ins]


def _additions(key: str, chunks: Iterable[list[str]], change: Change) -> list[Call]:
    return [Call("UpdateLFTag", {"TagKey": key, "TagValuesToAdd": chunk}, (change,)) for chunk in chunks]


def _assignments(tags: Iterable[Tag]) -> Iterator[Call]:
    """Yield one call for each resource, and one for all columns of a table that get the same LF-Tags."""
    by_resource: dict[Resource, list[Tag]] = defaultdict(list)
    for tag in tags:
        by_resource[tag.resource].append(tag)
    merged: dict[tuple[object, ...], list[Tag]] = defaultdict(list)
    for resource, assigned in by_resource.items():
        table = (resource.database, resource.table) if isinstance(resource, Columns) else (resource,)
        merged[(*table, *((tag.key, tag.value) for tag in assigned))] += assigned
    for together in merged.values():
        pairs = dict.fromkeys((tag.key, tag.value) for tag in together)
        resource = to_request(_combined(tag.resource for tag in together))
        for chunk in _chunks([*pairs], _VALUES):
            request = {"Resource": resource, "LFTags": [{"TagKey": key, "TagValues": [value]} for key, value in chunk]}
            yield Call("AddLFTagsToResource", request, tuple(together))


def _batches(grants: Iterable[Grant]) -> Iterator[Call]:
    """Yield calls of at most 20 entries: one for each principal and resource, with all columns of a table in one."""
    by_entry: dict[tuple[object, ...], list[Grant]] = defaultdict(list)
    for grant in grants:
        resource = grant.resource
        what = (resource.database, resource.table, grant.grantable) if isinstance(resource, Columns) else (resource,)
        by_entry[(grant.principal, *what)].append(grant)
    for chunk in _chunks([*by_entry.values()], _ENTRIES):
        entries = [_entry(str(number), together) for number, together in enumerate(chunk)]
        yield Call(
            "BatchGrantPermissions", {"Entries": entries}, tuple(each for together in chunk for each in together)
        )


def _entry(id_: str, grants: Sequence[Grant]) -> dict[str, Any]:
    return {
        "Id": id_,
        "Principal": _principal(grants[0].principal),
        "Resource": to_request(_combined(grant.resource for grant in grants)),
        "Permissions": sorted({grant.permission for grant in grants}),
        "PermissionsWithGrantOption": sorted({grant.permission for grant in grants if grant.grantable}),
    }


def _combined(resources: Iterable[Resource]) -> Resource:
    """Return the one resource that these are, or the columns of the one table that they are in."""
    first, *rest = dict.fromkeys(resources)
    if not isinstance(first, Columns):
        return first
    names = {name: None for each in (first, *rest) if isinstance(each, Columns) for name in each.names}
    return Columns(first.database, first.table, tuple(names))


def _principal(identifier: str) -> dict[str, str]:
    return {"DataLakePrincipalIdentifier": identifier}


def _send(call: Call, client: LakeFormationClient) -> None:
    """Make one call. What it answers in `Failures` counts as much as an error."""
    from botocore import xform_name
    from botocore.exceptions import ClientError

    try:
        answer = getattr(client, xform_name(call.operation))(**call.request)
    except ClientError as error:
        detail = error.response.get("Error", {})
        code, text = detail.get("Code", ""), detail.get("Message", "")
        raise NotApplied(call.operation, call.changes[0], code, text) from error
    for failure in answer.get("Failures", []):
        detail = failure.get("Error", {})
        code, text = detail.get("ErrorCode", ""), detail.get("ErrorMessage", "")
        cause = ClientError({"Error": {"Code": code, "Message": text}}, call.operation)
        raise NotApplied(call.operation, _failed(call, failure), code, text) from cause


def _failed(call: Call, failure: Mapping[str, Any]) -> Change:
    """Return a change that a member of `Failures` is about."""
    for change in call.changes:
        match change, failure:
            case Tag(), {"LFTag": {"TagKey": str(key)}} if change.key.lower() == key.lower():
                return change
            case Grant(principal, resource), {"RequestEntry": {"Id": id_}}:
                entry = call.request["Entries"][int(id_)]
                if entry["Principal"] == _principal(principal) and _is_in(resource, entry["Resource"]):
                    return change
    return call.changes[0]


def _is_in(resource: Resource, request: Mapping[str, Any]) -> bool:
    if isinstance(resource, Columns):
        table = request.get("TableWithColumns", {})
        same_table = (table.get("DatabaseName"), table.get("Name")) == (resource.database, resource.table)
        return same_table and set(resource.names) <= set(table["ColumnNames"])
    return bool(to_request(resource) == request)


def _chunks(items: Sequence[_Item], size: int) -> list[list[_Item]]:
    return [[*items[start : start + size]] for start in range(0, len(items), size)]
