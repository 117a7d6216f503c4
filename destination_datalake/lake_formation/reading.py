"""What Lake Formation has, read as far as it matters for what is desired. Every list is read to its last page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from destination_datalake.lake_formation.resources import (
    AllTables,
    Catalog,
    Columns,
    Database,
    LfTag,
    Resource,
    Table,
    from_answer,
    to_request,
)
from destination_datalake.lake_formation.state import ALL, Desired, Grant, OptIn, Present, Registration, Tag

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
    tagged = {_whole(tag.resource) for tag in desired.tags}
    granted = {_whole(grant.resource) for grant in desired.grants}
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


def _whole(resource: Resource) -> Resource:
    """Return what requests ask about: tags and permissions of columns are read with those of their table."""
    return Table(resource.database, resource.table) if isinstance(resource, Columns) else resource


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
