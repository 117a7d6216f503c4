"""The assignment of LF-Tags to databases, tables and columns.

A resource has one value for each key. Tables inherit the LF-Tags of their database, and columns those of their table. A
resource can override inherited values:
https://docs.aws.amazon.com/lake-formation/latest/dg/lf-tag-considerations.html,
https://docs.aws.amazon.com/lake-formation/latest/dg/TBAC-assigning-tags.html
"""

from emulated_aws.lake_formation.model.call import Call, Json, Refused, invalid
from emulated_aws.lake_formation.model.effective import tags_of
from emulated_aws.lake_formation.model.entities import columns_of, require_tag, resources_of
from emulated_aws.lake_formation.model.resources import Column, Columns, Database, Table

PER_RESOURCE = 50


def add_lf_tags_to_resource(call: Call) -> Json:
    """Assign LF-Tags to resources, and keep the values of other keys.

    If an LF-Tag is not defined, return a failure for it, and assign nothing.
    """
    wanted, targets = _pairs(call), _targets(call)
    failures = []
    for (catalog, key), value in wanted.items():
        try:
            require_tag(call, catalog, key, frozenset({value}))
        except Refused as refusal:
            failures.append(_failure(catalog, key, value, refusal))
    if failures:
        return {"Failures": failures}
    for target in targets:
        tags = call.lake.assigned.setdefault(target, {})
        if len({*tags, *(key for _, key in wanted)}) > PER_RESOURCE:
            raise invalid(f"No more than {PER_RESOURCE} LF-Tags can be assigned to a resource")
        tags.update({key: value for (_, key), value in wanted.items()})
    return {"Failures": []}


def remove_lf_tags_from_resource(call: Call) -> Json:
    """Remove LF-Tags from resources. Return a failure for each LF-Tag that is not assigned to a resource directly."""
    wanted, targets = _pairs(call), _targets(call)
    failures = []
    for (catalog, key), value in wanted.items():
        for target in targets:
            tags = call.lake.assigned.get(target, {})
            if tags.get(key) == value:
                del tags[key]
            else:
                missing = Refused("EntityNotFoundException", "Tag is not assigned to the resource.")
                failures.append(_failure(catalog, key, value, missing))
    return {"Failures": failures}


def get_resource_lf_tags(call: Call) -> Json:
    """Return the LF-Tags of a resource, and of the database and table that contain it.

    With ShowAssignedLFTags, omits inherited LF-Tags.
    """
    targets = _targets(call)
    catalog, (database, table) = targets[0].catalog, _where(targets[0])
    answer = {"LFTagOnDatabase": _shown(call, Database(catalog, database))}
    if table is not None:
        answer["LFTagsOnTable"] = _shown(call, Table(catalog, database, table))
        named = {target.name for target in targets if isinstance(target, Column)}
        columns = [
            {"Name": name, "LFTags": _shown(call, Column(catalog, database, table, name))}
            for name in columns_of(call, database, table)
            if name in named or not named
        ]
        answer["LFTagsOnColumns"] = [column for column in columns if column["LFTags"]]
    # Omit empty members, because the lists in the service model have at least one item.
    return {member: items for member, items in answer.items() if items}


def _shown(call: Call, resource: Database | Table | Column) -> list[Json]:
    own = call.body.get("ShowAssignedLFTags")
    tags = call.lake.assigned.get(resource, {}) if own else tags_of(call.lake, resource)
    return [{"CatalogId": resource.catalog, "TagKey": key, "TagValues": [value]} for key, value in tags.items()]


def _targets(call: Call) -> tuple[Database | Table | Column, ...]:
    targets: list[Database | Table | Column] = []
    for resource in resources_of(call):
        if isinstance(resource, Columns) and resource.table is not None and not resource.excluded:
            names = columns_of(call, resource.database, resource.table)
            targets += [Column(resource.catalog, resource.database, resource.table, name) for name in names]
        elif isinstance(resource, Database | Column) or (isinstance(resource, Table) and resource.name is not None):
            targets.append(resource)
        else:
            raise invalid("Only database, table, or tableWithColumns resource are allowed.")
    return tuple(targets)


def _where(target: Database | Table | Column) -> tuple[str, str | None]:
    match target:
        case Database(_, name):
            return name, None
        case Table(_, database, name):
            return database, name
        case Column(_, database, table, _):
            return database, table


def _pairs(call: Call) -> dict[tuple[str, str], str]:
    """Return the single value of each LF-Tag in a request, by catalog and key.

    The error messages are AWS's, as quoted in https://github.com/hashicorp/terraform-provider-aws/issues/32172
    """
    pairs: dict[tuple[str, str], str] = {}
    for tag in call.body["LFTags"]:
        values = [value.lower() for value in tag["TagValues"]]
        if len(values) != 1 or "*" in values:
            raise invalid("Tag value wild card was found or input tag value list has size not equal to 1")
        key = (str(tag.get("CatalogId") or call.catalog), tag["TagKey"].lower())
        if key in pairs:
            raise invalid("Provided list of tags contains duplicate tag key")
        pairs[key] = values[0]
    return pairs


def _failure(catalog: str, key: str, value: str, refusal: Refused) -> Json:
    return {"LFTag": {"CatalogId": catalog, "TagKey": key, "TagValues": [value]}, "Error": refusal.detail()}
