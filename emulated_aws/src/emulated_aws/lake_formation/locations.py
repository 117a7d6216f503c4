"""Data locations: buckets and prefixes that are registered with Lake Formation.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_RegisterResource.html
"""

import re
from datetime import UTC, datetime

from emulated_aws.lake_formation.model.call import Call, Json, Refused, invalid, not_found
from emulated_aws.lake_formation.model.state import Location

SERVICE_LINKED_ROLE = (
    "arn:aws:iam::{}:role/aws-service-role/lakeformation.amazonaws.com/AWSServiceRoleForLakeFormationDataAccess"
)
"""https://docs.aws.amazon.com/lake-formation/latest/dg/service-linked-roles.html"""

_FLAGS = ("HybridAccessEnabled", "WithFederation", "WithPrivilegedAccess", "ExpectedResourceOwnerAccount")
_BUCKET = re.compile(r"arn:aws[\w-]*:s3:::[a-z0-9.-]{3,63}(/.*)?")
_ROLE = re.compile(r"arn:aws[\w-]*:iam::\d{12}:role/\S+")


def register_resource(call: Call) -> Json:
    arn, role = _arn(call), call.body.get("RoleArn")
    if not _BUCKET.fullmatch(arn):
        raise invalid(f"Invalid resource ARN {arn}")
    if (role is None) != bool(call.body.get("UseServiceLinkedRole")):
        raise invalid("Exactly one of RoleArn and UseServiceLinkedRole must be set.")
    if arn in call.lake.locations:
        raise Refused("AlreadyExistsException", "Resource is already registered")
    call.lake.locations[arn] = Location(arn, _role(role), _flags(call), datetime.now(UTC))
    return {}


def update_resource(call: Call) -> Json:
    """Change the role and the flags of a location that is registered with a role of the user.

    https://docs.aws.amazon.com/lake-formation/latest/dg/hybrid-access-mode-update.html: "If the location was
    registered with a service linked role, you can't update the location parameters and enable hybrid access mode."
    """
    known = _registered(call)
    if known.role is None:
        raise invalid("A location that is registered with a service-linked role cannot be updated.")
    role = _role(call.body["RoleArn"])
    call.lake.locations[known.arn] = Location(known.arn, role, {**known.flags, **_flags(call)}, datetime.now(UTC))
    return {}


def describe_resource(call: Call) -> Json:
    return {"ResourceInfo": _wire(call, _registered(call))}


def list_resources(call: Call) -> Json:
    """Return the locations that satisfy all filter conditions."""
    infos = [_wire(call, location) for location in call.lake.locations.values()]
    for condition in call.body.get("FilterConditionList") or ():
        infos = [info for info in infos if _holds(condition, info)]
    return call.page("ResourceInfoList", infos)


def deregister_resource(call: Call) -> Json:
    del call.lake.locations[_registered(call).arn]
    return {}


def _arn(call: Call) -> str:
    return str(call.body["ResourceArn"]).rstrip("/")


def _role(arn: str | None) -> str | None:
    if arn is not None and not _ROLE.fullmatch(arn):
        raise invalid(f"Invalid role ARN {arn}")
    return arn


def _flags(call: Call) -> Json:
    return {flag: call.body[flag] for flag in _FLAGS if call.body.get(flag) is not None}


def _registered(call: Call) -> Location:
    try:
        return call.lake.locations[_arn(call)]
    except KeyError:
        raise not_found("Entity not found") from None


def _wire(call: Call, location: Location) -> Json:
    role = location.role or SERVICE_LINKED_ROLE.format(call.account)
    info = {"ResourceArn": location.arn, "RoleArn": role, "LastModified": location.modified.timestamp()}
    return info | {"HybridAccessEnabled": False} | location.flags


def _holds(condition: Json, info: Json) -> bool:
    values = condition.get("StringValueList") or [""]
    field = {"RESOURCE_ARN": "ResourceArn", "ROLE_ARN": "RoleArn"}.get(condition["Field"])
    if field is None:
        raise invalid("Only RESOURCE_ARN and ROLE_ARN are known to the tests' AWS.")
    value = info[field]
    match condition["ComparisonOperator"]:
        case "EQ":
            return bool(value == values[0])
        case "NE":
            return bool(value != values[0])
        case "IN":
            return value in values
        case "CONTAINS":
            return values[0] in value
        case "NOT_CONTAINS":
            return values[0] not in value
        case "BEGINS_WITH":
            return bool(value.startswith(values[0]))
    raise invalid(f"{condition['ComparisonOperator']} does not compare ARNs.")
