"""Install Lake Formation's operations instead of moto's. Operations that are not in this module remain moto's.

https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_Operations.html
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from moto.core.utils import camelcase_to_underscores
from moto.lakeformation import urls
from moto.lakeformation.responses import LakeFormationResponse

from emulated_aws.lake_formation import assignments, grants, lf_tags, listing, locations, opt_ins, settings
from emulated_aws.lake_formation.model.authorization import require
from emulated_aws.lake_formation.model.call import Call, Json
from emulated_aws.lake_formation.model.state import lock

OPERATIONS: Mapping[str, Callable[[Call], Json]] = {
    "AddLFTagsToResource": assignments.add_lf_tags_to_resource,
    "BatchGrantPermissions": grants.batch_grant_permissions,
    "BatchRevokePermissions": grants.batch_revoke_permissions,
    "CreateLFTag": lf_tags.create_lf_tag,
    "CreateLakeFormationOptIn": opt_ins.create_lake_formation_opt_in,
    "DeleteLFTag": lf_tags.delete_lf_tag,
    "DeleteLakeFormationOptIn": opt_ins.delete_lake_formation_opt_in,
    "DeregisterResource": locations.deregister_resource,
    "DescribeResource": locations.describe_resource,
    "GetLFTag": lf_tags.get_lf_tag,
    "GetResourceLFTags": assignments.get_resource_lf_tags,
    "GetDataLakeSettings": settings.get_data_lake_settings,
    "GrantPermissions": grants.grant_permissions,
    "ListLFTags": lf_tags.list_lf_tags,
    "ListLakeFormationOptIns": opt_ins.list_lake_formation_opt_ins,
    "ListPermissions": listing.list_permissions,
    "ListResources": locations.list_resources,
    "PutDataLakeSettings": settings.put_data_lake_settings,
    "RegisterResource": locations.register_resource,
    "RemoveLFTagsFromResource": assignments.remove_lf_tags_from_resource,
    "RevokePermissions": grants.revoke_permissions,
    "UpdateLFTag": lf_tags.update_lf_tag,
    "UpdateResource": locations.update_resource,
}

_OF_MOTO = ("ListDataCellsFilter",)


def serve_lake_formation() -> None:
    """Make moto route requests to Lake Formation to the operations in this module."""
    methods = {camelcase_to_underscores(name): _method(name, operation) for name, operation in OPERATIONS.items()}
    service: Any = type("LakeFormation", (LakeFormationResponse,), methods)
    urls.url_paths = {f"{{0}}/{name}$": service.dispatch for name in (*OPERATIONS, *_OF_MOTO)}


def _method(name: str, operation: Callable[[Call], Json]) -> Callable[[LakeFormationResponse], str]:
    def answer(request: LakeFormationResponse) -> str:
        call = Call(request.current_account, request.region, json.loads(request.body or "{}"))
        with lock:
            require(name, call)
            return json.dumps(operation(call))

    return answer
