"""The definitions of LF-Tags: their keys and values.

"Tags keys and values are converted to all lower case when they are stored". There are at most 1,000 LF-Tags, with at
most 1,000 values each: https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-notes.html
A request contains at most 50 values: https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_LFTag.html
"""

from collections.abc import Sequence

from emulated_aws.caller import caller_arn
from emulated_aws.lake_formation.grants import give
from emulated_aws.lake_formation.model.call import Call, Json, Refused, invalid, not_found
from emulated_aws.lake_formation.model.resources import LFTag

OF_CREATOR = ("ALTER", "ASSOCIATE", "DESCRIBE", "DROP")
"""The permissions of the creator of an LF-Tag:
https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-creating-tags.html"""

PER_CALL = 50
PER_LF_TAG = 1000
LF_TAGS = 1000


def create_lf_tag(call: Call) -> Json:
    tags, key, values = call.lake.lf_tags, _key(call), _values(call, "TagValues")
    if key in tags:
        # The service model of this operation contains no AlreadyExistsException.
        raise invalid("Tag key already exists")
    if sum(catalog == call.catalog for catalog, _ in tags) >= LF_TAGS:
        raise Refused("ResourceNumberLimitExceededException", f"No more than {LF_TAGS} LF-Tags")
    tags[key] = values
    creator = caller_arn.get()
    if creator is not None:
        give(call.lake, creator, LFTag(*key, frozenset({"*"})), OF_CREATOR, OF_CREATOR)
    return {}


def get_lf_tag(call: Call) -> Json:
    return _wire(_key(call), _defined(call))


def list_lf_tags(call: Call) -> Json:
    tags = [_wire(key, values) for key, values in call.lake.lf_tags.items() if key[0] == call.catalog]
    return call.page("LFTags", tags)


def update_lf_tag(call: Call) -> Json:
    """Delete values, then add values.

    "If any value in the delete key values is attached to a resource, then API errors out with a 400 Exception -
    'Update not allowed'": https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_UpdateLFTag.html
    """
    defined, deleted, added = _defined(call), _values(call, "TagValuesToDelete"), _values(call, "TagValuesToAdd")
    catalog, key = _key(call)
    assigned = {tags.get(key) for resource, tags in call.lake.assigned.items() if resource.catalog == catalog}
    if assigned.intersection(deleted):
        raise invalid("Update not allowed")
    if not set(deleted).issubset(defined):
        raise not_found("Tag or tag value does not exist.")
    values = list(dict.fromkeys([*(value for value in defined if value not in deleted), *added]))
    if len(values) > PER_LF_TAG:
        raise invalid(f"No more than {PER_LF_TAG} values")
    call.lake.lf_tags[catalog, key] = values
    return {}


def delete_lf_tag(call: Call) -> Json:
    """Delete the definition of an LF-Tag, and its assignments to resources.

    https://docs.aws.amazon.com/lake-formation/latest/APIReference/API_DeleteLFTag.html
    """
    _defined(call)
    catalog, key = _key(call)
    del call.lake.lf_tags[catalog, key]
    for resource, tags in call.lake.assigned.items():
        if resource.catalog == catalog:
            tags.pop(key, None)
    return {}


def _key(call: Call) -> tuple[str, str]:
    return call.catalog, call.body["TagKey"].lower()


def _defined(call: Call) -> list[str]:
    try:
        return call.lake.lf_tags[_key(call)]
    except KeyError:
        raise not_found("Tag key does not exist.") from None


def _values(call: Call, member: str) -> list[str]:
    values: Sequence[str] = call.body.get(member) or ()
    if len(values) > PER_CALL:
        raise invalid(f"{member} has more than {PER_CALL} members")
    return list(dict.fromkeys(value.lower() for value in values))


def _wire(key: tuple[str, str], values: list[str]) -> Json:
    return {"CatalogId": key[0], "TagKey": key[1], "TagValues": values}
