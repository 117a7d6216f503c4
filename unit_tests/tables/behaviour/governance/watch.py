"""Looks at a table after each request that may change it: is a row visible in a column that is not tagged?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from unit_tests.cloud import during
from unit_tests.tables.behaviour.shop import Shop

ANALYST = "arn:aws:iam::123456789012:role/analyst"
EMAIL = {"id": {"type": "integer"}, "email": {"type": "string"}}
GOVERNED: dict[str, Any] = {
    "lake_formation": {
        "mode": "managed",
        "tags": {"domain": ["sales"]},
        "table_tags": [
            {"table": "orders", "tags": {"layer": ["raw"]}},
            {"table": "*", "columns": ["email"], "tags": {"pii": ["yes"]}},
        ],
        "grants": [{"principal": ANALYST, "permissions": ["DESCRIBE"], "table": "orders"}],
    }
}

_CHANGES = ("glue.CreateTable", "glue.UpdateTable", "s3.CompleteMultipartUpload", "s3.CopyObject")


def tags(shop: Shop) -> dict[str, dict[str, str]]:
    """Return the LF-Tags that are assigned: to the table under its name, to columns under theirs."""
    resource: Any = {"Table": {"DatabaseName": shop.name.database, "Name": shop.name.table}}
    client = shop.access.client("lakeformation")
    answer = client.get_resource_lf_tags(Resource=resource, ShowAssignedLFTags=True)
    assigned: dict[str, Any] = {column["Name"]: column["LFTags"] for column in answer.get("LFTagsOnColumns", [])}
    assigned |= {"orders": answer.get("LFTagsOnTable", []), "database": answer.get("LFTagOnDatabase", [])}
    return {name: {pair["TagKey"]: pair["TagValues"][0] for pair in pairs} for name, pairs in assigned.items() if pairs}


def untag(shop: Shop, column: str) -> None:
    """Remove a column's LF-Tags, as Lake Formation does when the column is dropped."""
    table: Any = {"DatabaseName": shop.name.database, "Name": shop.name.table, "ColumnNames": [column]}
    pairs: Any = [{"TagKey": key, "TagValues": [value]} for key, value in tags(shop)[column].items()]
    client = shop.access.client("lakeformation")
    client.remove_lf_tags_from_resource(Resource={"TableWithColumns": table}, LFTags=pairs)


def granted(shop: Shop) -> set[str]:
    """Return the permissions of the analyst on the table."""
    resource: Any = {"Table": {"DatabaseName": shop.name.database, "Name": shop.name.table}}
    answer = shop.access.client("lakeformation").list_permissions(Resource=resource, MaxResults=1000)
    return {
        permission
        for grant in answer["PrincipalResourcePermissions"]
        if grant["Principal"]["DataLakePrincipalIdentifier"] == ANALYST
        for permission in grant["Permissions"]
    }


@contextmanager
def watched(shop: Shop, column: str = "email") -> Iterator[list[int]]:
    """Look after each change by the shop's clients; lend the numbers of visible rows that have the column.

    Fails if a row is visible before the table has LF-Tags and grants, or in the column before that has its LF-Tags.
    """
    seen: list[int] = []

    def look(**_: Any) -> None:
        rows = shop.rows_if_any()
        with_value = sum(row.get(column) is not None for row in rows)
        assigned = tags(shop) if rows else {}
        if rows:
            assert assigned.get("orders") == {"layer": "raw"}, (
                f"{len(rows)} rows are visible in a table without LF-Tags"
            )
            assert granted(shop) == {"DESCRIBE"}, f"{len(rows)} rows are visible in a table without grants"
        assert not with_value or assigned.get(column) == {"pii": "yes"}, f"{with_value} values are visible in {column}"
        seen.append(with_value)

    with ExitStack() as stack:
        for change in _CHANGES:
            stack.enter_context(during(shop.access, f"after-call.{change}", look))
        yield seen
