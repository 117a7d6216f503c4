"""The data lake settings: administrators, and default permissions on new databases and tables.

In a new account, the default permissions grant ALL to IAM_ALLOWED_PRINCIPALS, so that IAM alone controls access.
Without these grants, Lake Formation controls access:
https://docs.aws.amazon.com/lake-formation/latest/dg/change-settings.html
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
