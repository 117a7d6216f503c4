"""Opt-ins of principals on resources in hybrid access mode.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_CreateLakeFormationOptIn.html
"""

from datetime import UTC, datetime

from emulated_aws.lake_formation.model import resources
from emulated_aws.lake_formation.model.call import Call, Json, invalid, not_found
from emulated_aws.lake_formation.model.entities import resources_of
from emulated_aws.lake_formation.model.resources import Resource
from emulated_aws.lake_formation.model.state import EVERYBODY


def create_lake_formation_opt_in(call: Call) -> Json:
    """Opt a principal in. Has no effect if the principal has already opted in."""
    call.lake.opt_ins.setdefault(_asked(call), datetime.now(UTC))
    return {}


def delete_lake_formation_opt_in(call: Call) -> Json:
    if call.lake.opt_ins.pop(_asked(call), None) is None:
        raise not_found("Opt-in does not exist.")
    return {}


def list_lake_formation_opt_ins(call: Call) -> Json:
    """Return the opt-ins, filtered by the principal and the resource in the request, if any."""
    wanted = resources.read(call.body["Resource"], call.catalog)[0] if "Resource" in call.body else None
    opt_ins = [
        {
            "Resource": resource.wire(),
            "Principal": {"DataLakePrincipalIdentifier": principal},
            "LastModified": modified.timestamp(),
        }
        for (principal, resource), modified in call.lake.opt_ins.items()
        if call.principal in (None, principal) and wanted in (None, resource)
    ]
    return call.page("LakeFormationOptInsInfoList", opt_ins)


def _asked(call: Call) -> tuple[str, Resource]:
    if call.principal in (None, "", EVERYBODY):
        raise invalid("Invalid principal")
    requested = resources_of(call)
    if len(requested) != 1 or not isinstance(requested[0], resources.Catalog | resources.Database | resources.Table):
        raise invalid("Only catalogs, databases and tables can be opted in.")
    return str(call.principal), requested[0]
