"""The Data Catalog that requests are for, where it is not the default one of the caller's account.

Every request whose input has a member for a catalog's id gets it, unless it has one. Lake Formation's inputs name the
catalog once more in each resource that they contain. Glue's nested structures are left alone: a catalog id in them
belongs to something else, such as the database that a resource link points to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from botocore.session import Session

_MEMBERS = ("CatalogId", "TableCatalogId")
_CATALOG_ITSELF = "CatalogResource"
"""Lake Formation's structure whose `Id` is the catalog's."""


def name_catalog(session: Session, catalog_id: str) -> None:
    """Have the Glue and Lake Formation clients that the session makes from now on name this catalog."""

    def name_in_input(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            event["params"].update({**dict.fromkeys(_members(shape), catalog_id), **event["params"]})

    def name_everywhere(**event: Any) -> None:
        if (shape := event["model"].input_shape) is not None:
            # Only `params` is this request's own: the structures in it are the caller's.
            event["params"].update(_named(event["params"], shape, catalog_id))

    session.register("before-parameter-build.glue", name_in_input)
    session.register("before-parameter-build.lakeformation", name_everywhere)


def _named(value: Any, shape: Any, catalog_id: str) -> Any:
    """Return a copy of `value` in which each structure that has a member for a catalog's id has that member."""
    if isinstance(value, dict) and shape.type_name == "structure":
        # botocore refuses members that the shape does not have, later and with a message.
        known = {
            name: _named(inner, shape.members[name], catalog_id) if name in shape.members else inner
            for name, inner in value.items()
        }
        return {**dict.fromkeys(_members(shape), catalog_id), **known}
    if isinstance(value, (list, tuple)) and shape.type_name == "list":
        return [_named(inner, shape.member, catalog_id) for inner in value]
    return value


def _members(shape: Any) -> tuple[str, ...]:
    """Return the members of a structure that are a catalog's id."""
    if shape.name == _CATALOG_ITSELF:
        return ("Id",)
    return tuple(name for name in _MEMBERS if name in shape.members)
