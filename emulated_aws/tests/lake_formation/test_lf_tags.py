"""LF-Tags behave as AWS documents. `lf_tags.py` and `assignments.py` cite AWS's pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.lake_formation.conftest import ORDERS, SHOP, columns, refusal

if TYPE_CHECKING:
    from mypy_boto3_lakeformation import LakeFormationClient

pytestmark = pytest.mark.share(3)


def tag(key: str, *values: str) -> Any:
    return {"TagKey": key, "TagValues": values}


@pytest.fixture
def tags(lf: LakeFormationClient) -> LakeFormationClient:
    """Lake Formation with two LF-Tags: `team` with the values sales and ops, and `pii` with the values yes and no."""
    lf.create_lf_tag(TagKey="team", TagValues=["sales", "ops"])
    lf.create_lf_tag(TagKey="pii", TagValues=["yes", "no"])
    return lf


def assigned(lf: LakeFormationClient, resource: Any, **asked: Any) -> dict[str, dict[str, str]]:
    """Return the LF-Tags of each resource in the response: "database", "table", and columns by name."""
    answer = lf.get_resource_lf_tags(Resource=resource, **asked)
    tags = {"database": answer.get("LFTagOnDatabase", []), "table": answer.get("LFTagsOnTable", [])}
    tags |= {column["Name"]: column["LFTags"] for column in answer.get("LFTagsOnColumns", [])}
    return {name: {pair["TagKey"]: pair["TagValues"][0] for pair in pairs} for name, pairs in tags.items() if pairs}


def test_keys_and_values_are_stored_in_lower_case(lf: LakeFormationClient) -> None:
    lf.create_lf_tag(TagKey="Team", TagValues=["Sales", "OPS"])

    assert lf.get_lf_tag(TagKey="TEAM")["TagValues"] == ["sales", "ops"]


def test_a_key_is_defined_once(tags: LakeFormationClient) -> None:
    assert refusal(tags.create_lf_tag, TagKey="TEAM", TagValues=["hr"]) == "InvalidInputException"


@pytest.mark.parametrize("operation", ["get_lf_tag", "delete_lf_tag", "update_lf_tag"])
def test_a_key_that_is_not_defined_is_not_found(lf: LakeFormationClient, operation: str) -> None:
    assert refusal(getattr(lf, operation), TagKey="team") == "EntityNotFoundException"


def test_an_update_deletes_and_adds_values(tags: LakeFormationClient) -> None:
    tags.update_lf_tag(TagKey="team", TagValuesToDelete=["ops"], TagValuesToAdd=["hr", "sales"])

    assert tags.get_lf_tag(TagKey="team")["TagValues"] == ["sales", "hr"]


def test_a_value_that_a_resource_has_cannot_be_deleted(tags: LakeFormationClient) -> None:
    tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("team", "sales")])

    assert refusal(tags.update_lf_tag, TagKey="team", TagValuesToDelete=["sales"]) == "InvalidInputException"


def test_a_call_takes_50_values_and_a_key_1000(lf: LakeFormationClient) -> None:
    assert refusal(lf.create_lf_tag, TagKey="n", TagValues=[str(n) for n in range(51)]) == "InvalidInputException"
    lf.create_lf_tag(TagKey="n", TagValues=[str(n) for n in range(50)])
    for begin in range(50, 1000, 50):
        lf.update_lf_tag(TagKey="n", TagValuesToAdd=[str(n) for n in range(begin, begin + 50)])

    assert refusal(lf.update_lf_tag, TagKey="n", TagValuesToAdd=["1000"]) == "InvalidInputException"


def test_definitions_are_listed_page_by_page(lf: LakeFormationClient) -> None:
    for number in range(12):
        lf.create_lf_tag(TagKey=f"key{number}", TagValues=["a"])

    first = lf.list_lf_tags()
    pages = lf.get_paginator("list_lf_tags").paginate()

    assert "NextToken" in first
    assert [pair["TagKey"] for page in pages for pair in page["LFTags"]] == [f"key{number}" for number in range(12)]


def test_another_value_overrides_that_key_alone(tags: LakeFormationClient) -> None:
    tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("team", "sales"), tag("pii", "no")])
    tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("Team", "OPS")])

    assert assigned(tags, SHOP) == {"database": {"team": "ops", "pii": "no"}}


@pytest.mark.parametrize("wrong", [tag("team", "hr"), tag("cost", "low")])
def test_a_tag_that_is_not_defined_is_a_failure_and_nothing_is_assigned(tags: LakeFormationClient, wrong: Any) -> None:
    answer = tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("pii", "no"), wrong])

    assert [(failure["LFTag"]["TagKey"], failure["Error"]["ErrorCode"]) for failure in answer["Failures"]] == [
        (wrong["TagKey"], "EntityNotFoundException")
    ]
    assert assigned(tags, SHOP) == {}


@pytest.mark.parametrize(
    ("pairs", "sentence"),
    [
        ([tag("team", "sales", "ops")], "input tag value list has size not equal to 1"),
        ([tag("team", "*")], "Tag value wild card was found"),
        ([tag("team", "sales"), tag("Team", "ops")], "duplicate tag key"),
    ],
)
def test_a_resource_has_one_value_of_a_key(tags: LakeFormationClient, pairs: Any, sentence: str) -> None:
    with pytest.raises(ClientError, match=sentence) as raised:
        tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=pairs)

    assert raised.value.response["Error"]["Code"] == "InvalidInputException"


@pytest.mark.parametrize(
    "missing",
    [
        {"Database": {"Name": "nowhere"}},
        {"Table": {"DatabaseName": "shop", "Name": "nothing"}},
        columns("id", "phone"),
    ],
)
def test_what_is_tagged_has_to_exist(tags: LakeFormationClient, missing: Any) -> None:
    asked = {"Resource": missing, "LFTags": [tag("team", "sales")]}

    assert refusal(tags.add_lf_tags_to_resource, **asked) == "EntityNotFoundException"
    assert refusal(tags.get_resource_lf_tags, Resource=missing) == "EntityNotFoundException"


def test_a_table_without_tags_has_none(tags: LakeFormationClient) -> None:
    assert assigned(tags, ORDERS) == {}


def test_tags_are_inherited_and_overridden_on_the_way_to_the_columns(tags: LakeFormationClient) -> None:
    tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("team", "sales"), tag("pii", "no")])
    tags.add_lf_tags_to_resource(Resource=ORDERS, LFTags=[tag("team", "ops")])
    tags.add_lf_tags_to_resource(Resource=columns("email"), LFTags=[tag("pii", "yes")])

    database, table = {"team": "sales", "pii": "no"}, {"team": "ops", "pii": "no"}
    assert assigned(tags, ORDERS) == {
        "database": database,
        "table": table,
        "id": table,
        "email": {"team": "ops", "pii": "yes"},
        "day": table,
    }
    assert assigned(tags, columns("email")) == {
        "database": database,
        "table": table,
        "email": {"team": "ops", "pii": "yes"},
    }
    assert assigned(tags, ORDERS, ShowAssignedLFTags=True) == {
        "database": database,
        "table": {"team": "ops"},
        "email": {"pii": "yes"},
    }


def test_a_tag_is_removed_from_where_it_was_assigned(tags: LakeFormationClient) -> None:
    tags.add_lf_tags_to_resource(Resource=ORDERS, LFTags=[tag("team", "sales"), tag("pii", "no")])

    answer = tags.remove_lf_tags_from_resource(Resource=ORDERS, LFTags=[tag("team", "sales"), tag("pii", "yes")])

    assert [failure["LFTag"]["TagKey"] for failure in answer["Failures"]] == ["pii"]
    assert assigned(tags, ORDERS)["table"] == {"pii": "no"}


def test_a_deleted_key_is_taken_from_resources(tags: LakeFormationClient) -> None:
    tags.add_lf_tags_to_resource(Resource=SHOP, LFTags=[tag("team", "sales")])

    tags.delete_lf_tag(TagKey="team")

    assert assigned(tags, SHOP) == {}
