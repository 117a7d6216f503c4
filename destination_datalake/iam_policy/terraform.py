"""The policy and the grants as Terraform's HCL, laid out as `terraform fmt` does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from destination_datalake.config.options import Config
from destination_datalake.iam_policy.grants import LakeFormationGrant
from destination_datalake.iam_policy.policy import Statement
from destination_datalake.lake_formation.resources import AllTables, Catalog, Database, DataLocation, LfTag, Resource

_Lines = Iterator[str]


def policy_documents(parts: Sequence[Sequence[Statement]]) -> str:
    """Return a data source `aws_iam_policy_document` for each part of a policy."""
    names = ["connector", *(f"connector_{number}" for number in range(2, len(parts) + 1))]
    return "\n\n".join(
        "\n".join(_block(f'data "aws_iam_policy_document" "{name}"', _joined(map(_statement, part))))
        for name, part in zip(names, parts, strict=True)
    )


def permissions(grants: Sequence[LakeFormationGrant], principal: str, config: Config) -> str:
    """Return a resource `aws_lakeformation_permissions` for all that is granted on one thing to one principal.

    Lake Formation lists it as one, too: two resources would each see the other's permissions as drift.
    """
    granted: dict[Resource, list[LakeFormationGrant]] = {}
    for grant in grants:
        granted.setdefault(grant.resource, []).append(grant)
    names = _unique([_name(resource) for resource in granted])
    return "\n\n".join(
        "\n".join(
            _block(
                f'resource "aws_lakeformation_permissions" "{name}"', _permissions(resource, each, principal, config)
            )
        )
        for name, (resource, each) in zip(names, granted.items(), strict=True)
    )


def _statement(statement: Statement) -> _Lines:
    def body() -> _Lines:
        yield f"sid = {_text(statement.sid)}"
        yield ""
        yield from _list("actions", statement.actions)
        yield ""
        yield from _list("resources", statement.resources)
        for operator, keys in statement.condition.items():
            for key, values in keys.items():
                yield ""
                arguments = {"test": _text(operator), "variable": _text(key), "values": _texts(values)}
                yield from _block("condition", _aligned(arguments))

    return _block("statement", body())


def _permissions(of: Resource, grants: Sequence[LakeFormationGrant], principal: str, config: Config) -> _Lines:
    held = sorted({permission for grant in grants for permission in grant.permissions})
    passed_on = sorted({permission for grant in grants if grant.grantable for permission in grant.permissions})
    arguments = {"principal": _text(principal), "permissions": _texts(held)}
    if passed_on:
        arguments["permissions_with_grant_option"] = _texts(passed_on)
    if config.glue_catalog_id is not None:
        arguments["catalog_id"] = _text(config.glue_catalog_id)
    if config.glue_region not in (None, config.region):
        arguments["region"] = _text(config.glue_region or "")
    resource = _resource(of)
    if resource is None:
        yield from _aligned({**arguments, "catalog_resource": "true"})
        return
    name, described = resource
    yield from _aligned(arguments)
    yield ""
    yield from _block(name, _aligned(described))


def _resource(resource: Resource) -> tuple[str, Mapping[str, str]] | None:
    """Return the block of `aws_lakeformation_permissions` that names a resource; the catalog has none."""
    match resource:
        case Catalog():
            return None
        case DataLocation(arn):
            return "data_location", {"arn": _text(arn)}
        case Database(name):
            return "database", {"name": _text(name)}
        case AllTables(database):
            return "table", {"database_name": _text(database), "wildcard": "true"}
        case LfTag(key, values):
            return "lf_tag", {"key": _text(key), "values": _texts(values)}
    raise TypeError(f"no permission of the connector's is on {resource}")


def _block(header: str, body: _Lines) -> _Lines:
    yield f"{header} {{"
    for line in body:
        yield f"  {line}" if line else ""
    yield "}"


def _joined(blocks: Iterator[_Lines]) -> _Lines:
    for number, block in enumerate(blocks):
        if number:
            yield ""
        yield from block


def _aligned(arguments: Mapping[str, str]) -> _Lines:
    width = max(map(len, arguments))
    return (f"{name:{width}} = {value}" for name, value in arguments.items())


def _list(name: str, values: Sequence[str]) -> _Lines:
    yield f"{name} = ["
    for value in values:
        yield f"  {_text(value)},"
    yield "]"


def _texts(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]"


def _text(value: str) -> str:
    """Return a string in quotes; what HCL would take for a template is escaped."""
    return json.dumps(value, ensure_ascii=False).replace("${", "$${").replace("%{", "%%{")


def _name(of: Resource) -> str:
    """Return a name in Terraform for the permissions on a resource; it need not be unique."""
    match of:
        case DataLocation(arn):
            words = ["location", arn.rpartition(":")[2]]
        case Database(name):
            words = ["database", name]
        case AllTables(database):
            words = ["tables", database]
        case LfTag(key):
            words = ["lf_tag", key]
        case _:
            words = ["catalog"]
    return re.sub(r"\W+", "_", "_".join(["connector", *words]), flags=re.ASCII).lower()


def _unique(names: Sequence[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name}_{seen[name]}"
