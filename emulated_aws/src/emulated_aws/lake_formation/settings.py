"""Data lake settings: administrators, and what new databases and tables are granted to.

A new account grants ALL on them to IAM_ALLOWED_PRINCIPALS, so that IAM alone decides; without these grants, Lake
Formation does: https://docs.aws.amazon.com/lake-formation/latest/dg/change-settings.html
"""

from emulated_aws.lake_formation.model.call import Call, Json, invalid
from emulated_aws.lake_formation.model.state import EVERYBODY

_DEFAULTS = ("CreateDatabaseDefaultPermissions", "CreateTableDefaultPermissions")
_OPEN = [{"Principal": {"DataLakePrincipalIdentifier": EVERYBODY}, "Permissions": ["ALL"]}]


def get_data_lake_settings(call: Call) -> Json:
    return {"DataLakeSettings": call.lake.settings[call.catalog]}


def put_data_lake_settings(call: Call) -> Json:
    """Replace all settings.

    "The only permitted values are an empty array or an array that contains a single JSON object that grants ALL to
    IAM_ALLOWED_PRINCIPALS": https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_DataLakeSettings.html
    """
    settings = call.body["DataLakeSettings"]
    for member in _DEFAULTS:
        if settings.setdefault(member, []) not in ([], _OPEN):
            raise invalid(f"Only ALL for {EVERYBODY} is allowed in {member}")
    call.lake.settings[call.catalog] = {"DataLakeAdmins": [], **settings}
    return {}
