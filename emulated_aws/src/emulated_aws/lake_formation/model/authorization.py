"""Authorize callers of Lake Formation's operations, in addition to IAM. Unknown callers may call all operations.

https://docs.aws.amazon.com/lake-formation/latest/dg/lf-permissions-reference.html,
https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html (Requirements)
"""

from collections.abc import Callable, Mapping

from emulated_aws.caller import caller_arn
from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.call import Call, Refused
from emulated_aws.lake_formation.model.entities import resources_of
from emulated_aws.lake_formation.model.resources import LFTag, Resource
from emulated_aws.lake_formation.model.standing import Standing

TO_TAG_A_DATABASE = frozenset({"DESCRIBE", "CREATE_TABLE", "ALTER", "DROP"})
TO_TAG_A_TABLE = frozenset({"DESCRIBE", "ALTER", "DROP", "INSERT", "SELECT", "DELETE"})


def require(operation: str, call: Call) -> None:
    """Raise AccessDeniedException if the caller may not call an operation.

    The error message is AWS's, as clients quote it.
    """
    caller, rule = caller_arn.get(), _RULES.get(operation)
    if caller is None or rule is None:
        return
    standing = Standing(call.lake, call.catalog, caller)
    if not standing.administers and not rule(standing, call):
        raise Refused(
            "AccessDeniedException",
            "Resource does not exist or requester is not authorized to access requested permissions.",
        )


def _creates_tags(standing: Standing, call: Call) -> bool:
    return "CREATE_LF_TAG" in standing.permissions(resources.Catalog(call.catalog))


def _alters_tag(standing: Standing, call: Call) -> bool:
    return "ALTER" in standing.permissions(_tag(call))


def _drops_tag(standing: Standing, call: Call) -> bool:
    return "DROP" in standing.permissions(_tag(call))


def _tags(standing: Standing, call: Call) -> bool:
    """Return whether the caller may tag the resources of a request.

    This requires ASSOCIATE on the LF-Tags, and all permissions on the resources with the grant option.
    """
    wanted = [
        LFTag(str(pair.get("CatalogId") or call.catalog), pair["TagKey"].lower(), _folded(pair["TagValues"]))
        for pair in call.body["LFTags"]
    ]
    may_associate = all("ASSOCIATE" in standing.permissions(tag) for tag in wanted)
    return may_associate and all(_owns(standing, resource) for resource in resources_of(call))


def _owns(standing: Standing, resource: Resource) -> bool:
    if isinstance(resource, resources.Database):
        return standing.grantable(resource) >= TO_TAG_A_DATABASE
    if isinstance(resource, resources.Column | resources.Columns):
        resource = resources.Table(resource.catalog, resource.database, resource.table)
    return standing.grantable(resource) >= TO_TAG_A_TABLE


def _passes_on(standing: Standing, call: Call) -> bool:
    """Return whether the caller has every permission in the request itself, with the grant option."""
    permissions = frozenset(call.body.get("Permissions") or ())
    return all(permissions <= standing.grantable(resource) for resource in resources_of(call))


def _administers(_standing: Standing, _call: Call) -> bool:
    return False


def _tag(call: Call) -> LFTag:
    return LFTag(call.catalog, call.body["TagKey"].lower(), frozenset({"*"}))


def _folded(values: list[str]) -> frozenset[str]:
    return frozenset(value.lower() for value in values)


_RULES: Mapping[str, Callable[[Standing, Call], bool]] = {
    "AddLFTagsToResource": _tags,
    "CreateLFTag": _creates_tags,
    "CreateLakeFormationOptIn": _administers,
    "DeleteLFTag": _drops_tag,
    "DeleteLakeFormationOptIn": _administers,
    "GrantPermissions": _passes_on,
    "RemoveLFTagsFromResource": _tags,
    "RevokePermissions": _passes_on,
    "UpdateLFTag": _alters_tag,
}
"""The rules by operation. PutDataLakeSettings and the operations on data locations require only IAM permissions. Batch
operations apply the rule to each of their entries."""
