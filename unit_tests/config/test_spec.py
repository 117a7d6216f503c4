"""spec.json is generated from the options, and obeys the rules of Airbyte's form, which is built from it.

Tests import the CDK themselves: it takes seconds, which each worker of a run would spend to collect them.
https://docs.airbyte.com/platform/connector-development/connector-specification-reference
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from typing import Any

import jsonschema
import pytest

from destination_datalake.cli import spec_message
from destination_datalake.config.base import Options, form_tables
from destination_datalake.config.options import Config
from destination_datalake.config.parsing import normalised
from docs.generator.spec import spec_text
from unit_tests.config.examples import options

TEXT = (resources.files("destination_datalake") / "spec.json").read_text("utf-8")
SPEC: dict[str, Any] = json.loads(TEXT)
CONNECTION: dict[str, Any] = SPEC["connectionSpecification"]
TOP: dict[str, dict[str, Any]] = CONNECTION["properties"]
NEWCOMERS = {"bucket_prefix", "table_prefix", "table_type", "partitioning", "partition_source", "format"}
LEGACY = {"glue_catalog_float_as_decimal", "lakeformation_governed_tables"}
SCALARS = {"string", "integer", "number", "boolean"}

Schema = dict[str, Any]


def objects(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every object with properties, by its path: the top level, options, choices, items of lists."""
    if "properties" in schema:
        yield path, schema
    for choice in schema.get("oneOf", []):
        yield from objects(choice, f"{path}[{choice['title']}]")
    for name, option in schema.get("properties", {}).items():
        yield from objects(option.get("items", option), f"{path}.{name}")


def every_model(model: type[Options]) -> Iterator[type[Options]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from every_model(subclass)


def every_option() -> Iterator[tuple[str, Schema]]:
    for path, schema in objects(CONNECTION):
        for name, option in schema["properties"].items():
            yield f"{path}.{name}", option


def is_large(option: Schema) -> bool:
    return "object" in (option["type"], option.get("items", {}).get("type"))


def filled_in(schema: Schema) -> Any:
    """What a form sends of which only that is filled in which must be: constants, examples, and every default."""
    if "const" in schema:
        return schema["const"]
    if "default" in schema:
        return schema["default"]
    match schema["type"]:
        case "object" if "oneOf" in schema:
            return filled_in(schema["oneOf"][0])
        case "object":
            required = schema.get("required", ())
            sent = {
                name: option
                for name, option in schema["properties"].items()
                if name in required or "default" in option or "properties" in option
            }
            return {name: filled_in(option) for name, option in sent.items()}
        case "array":
            items = schema["items"]
            return [filled_in(items)] if "properties" in items else list(schema.get("examples") or items["enum"])[:1]
        case _:
            values: list[Any] = schema.get("examples") or schema.get("enum") or ["orders"]
            return values[0]


def test_the_file_is_generated_from_the_options() -> None:
    assert spec_text() == TEXT, "run python -m docs.generator"


def test_texts_are_those_of_options_that_exist() -> None:
    options = {model.__name__: model.model_fields.keys() for model in every_model(Options)}
    described = {model: names for model, names in form_tables().items() if model != "groups"}

    assert described.keys() <= options.keys()
    assert [f"{model}.{name}" for model in described for name in described[model] if name not in options[model]] == []


def test_every_option_can_be_filled_in() -> None:
    for path, option in every_option():
        match option["type"]:
            case "array":
                items = option["items"]
                assert items["type"] in SCALARS or items.get("properties"), path
            case "object":
                assert bool(option.get("properties")) != bool(option.get("oneOf")), path
            case kind:
                assert kind in SCALARS, path


def test_every_option_has_a_title_and_says_what_it_means() -> None:
    for path, option in every_option():
        assert option["title"], path
        assert option.get("description") or "const" in option, path
        assert ("pattern" in option) == ("pattern_descriptor" in option), path
    for path, schema in objects(CONNECTION):
        assert path == "" or "[" not in path[-1:] or schema["description"], path


def test_choices_are_objects_with_a_constant_of_one_name_that_tells_them_apart() -> None:
    for path, option in every_option():
        if (choices := option.get("oneOf")) is None:
            continue
        constants = [
            [(name, option["const"]) for name, option in choice["properties"].items() if "const" in option]
            for choice in choices
        ]
        assert {len(pairs) for pairs in constants} == {1}, path
        assert len({name for [(name, _)] in constants}) == 1, path
        assert len({value for [(_, value)] in constants}) == len(choices), path
        for choice, [(name, _)] in zip(choices, constants, strict=True):
            assert choice["type"] == "object", path
            assert choice["title"], path
            assert choice["description"], path
            assert next(iter(choice["properties"])) == name, path
    assert not any(f'"{keyword}"' in TEXT for keyword in ("anyOf", "allOf", "$ref", "$defs"))


def test_options_have_a_place_of_their_own_in_their_object_and_cards_only_at_the_top() -> None:
    for path, schema in objects(CONNECTION):
        orders = [option["order"] for option in schema["properties"].values()]
        assert orders == list(range(len(orders))), path
        assert path == "" or all("group" not in option for option in schema["properties"].values()), path
    cards = [card["id"] for card in CONNECTION["groups"]]
    assert list(dict.fromkeys(option["group"] for option in TOP.values())) == cards


def test_on_a_card_what_is_required_comes_first_and_objects_last() -> None:
    def place(name: str) -> tuple[bool, bool, bool]:
        return name not in CONNECTION["required"], not TOP[name].get("always_show", False), is_large(TOP[name])

    for card in CONNECTION["groups"]:
        places = [place(name) for name, option in TOP.items() if option["group"] == card["id"]]
        assert places == sorted(places), card


def test_what_newcomers_need_is_in_sight_and_no_card_is_long() -> None:
    shown = [option for name, option in TOP.items() if name in CONNECTION["required"] or option.get("always_show")]
    inside = [inner for option in shown for inner in option.get("oneOf", [{}])[0].get("properties", {})]

    assert {name for name, option in TOP.items() if option.get("always_show")} == NEWCOMERS
    assert len(shown) + len(inside) <= 20
    cards = Counter(option["group"] for option in TOP.values() if not option.get("airbyte_hidden"))
    assert max(cards.values()) <= 6, cards


def test_every_description_is_short_and_names_the_default() -> None:
    for path, schema in objects(CONNECTION):
        for name, option in schema["properties"].items():
            if (description := option.get("description")) is None:
                continue
            assert 1 <= len(re.findall(r"[.!?](?= |$)", description)) <= 3, (path, name, description)
            assert "same name" not in description, (path, name)
            if name not in schema.get("required", ()):
                assert re.search("[Dd]efault", description), (path, name, description)


def test_older_names_are_hidden_and_accepted() -> None:
    assert {name for name, option in TOP.items() if option.get("airbyte_hidden")} == LEGACY
    assert Config.parse(options(glue_catalog_float_as_decimal=True)).numeric_types == "int/decimal"
    assert Config.parse(options(lakeformation_governed_tables=True)).lake_formation.mode == "managed"


CHOICES = [
    pytest.param(name, choice, id=f"{name}: {choice['title']}")
    for name, option in TOP.items()
    for choice in option.get("oneOf", [])
]
ENUMERATIONS = [pytest.param(name, value, id=f"{name}: {value}") for name in TOP for value in TOP[name].get("enum", [])]


@pytest.mark.parametrize(("name", "choice"), CHOICES)
def test_no_default_contradicts_a_choice(name: str, choice: Schema) -> None:
    """A form sends the defaults of all options, whatever the user chooses of one."""
    form = {**filled_in(CONNECTION), name: filled_in(choice)}

    jsonschema.validate(form, CONNECTION)
    assert Config.parse(form)
    assert Config.parse(form).unknown_options() == ()


@pytest.mark.parametrize(("name", "value"), ENUMERATIONS)
def test_no_default_contradicts_a_value(name: str, value: str) -> None:
    needs = {"table_type": "HIVE"} if name == "catalog_partitions" else {}

    assert Config.parse({**filled_in(CONNECTION), **needs, name: value})


def test_a_form_with_everything_filled_in_is_accepted() -> None:
    lists = {name: filled_in(option) for name, option in TOP.items() if option["type"] == "array"}
    governance = {name: filled_in(option) for name, option in TOP["lake_formation"]["properties"].items()}
    form = {**filled_in(CONNECTION), **lists, "lake_formation": {**governance, "mode": "managed"}}

    jsonschema.validate(form, CONNECTION)
    config = Config.parse(form)

    assert config.lake_formation.tags
    assert config.lake_formation.table_tags
    assert config.streams


def test_the_spec_is_a_valid_schema_with_its_secrets_marked() -> None:
    from airbyte_cdk.test.standard_tests._spec_lint import find_secret_marking_errors

    jsonschema.Draft7Validator.check_schema(CONNECTION)

    assert find_secret_marking_errors(CONNECTION) == []
    secret = {path for path, option in every_option() if option.get("airbyte_secret")}
    assert {path.rpartition(".")[2] for path in secret} == {
        "api_key",
        "aws_access_key_id",
        "aws_secret_access_key",
        "client_secret",
        "token",
    }


# Airbyte, connector_acceptance_test/tests/test_spec.py: secret_property_names and test_secret_is_properly_marked.
NAMES_OF_SECRETS = {
    *("client_token", "access_token", "api_token", "refresh_token", "token", "secret", "client_secret", "password"),
    *("key", "service_account_info", "service_account", "tenant_id", "certificate", "jwt", "credentials"),
    *("app_id", "appid"),
}


def test_a_name_that_airbyte_takes_for_a_secret_is_one() -> None:
    for path, option in every_option():
        if path.rpartition(".")[2].lower() in NAMES_OF_SECRETS and option["type"] in SCALARS - {"boolean"}:
            assert option.get("airbyte_secret") is True, path


def test_the_spec_names_sync_modes_documentation_and_protocol_version() -> None:
    assert SPEC["supported_destination_sync_modes"] == ["overwrite", "append", "append_dedup"]
    assert SPEC["supportsIncremental"] is True
    assert SPEC["documentationUrl"].startswith("https://")
    assert SPEC["protocol_version"].count(".") == 2


def test_the_spec_message_is_that_of_the_cdk_s_class() -> None:
    from airbyte_cdk import AirbyteMessage, Type
    from airbyte_cdk.models.airbyte_protocol_serializers import AirbyteMessageSerializer

    from destination_datalake.destination import DestinationDatalake

    answer = DestinationDatalake().spec(logging.getLogger(__name__))

    assert json.loads(spec_message()) == AirbyteMessageSerializer.dump(AirbyteMessage(type=Type.SPEC, spec=answer))


@pytest.mark.parametrize(
    "given_options",
    [
        {},
        {"bucket_prefix": "/a/b/", "aws_account_id": "", "region": " EU-west-1 "},
        {"format": {"format_type": "jsonl", "compression_codec": "gzip"}, "endpoint_url": None},
        {"partitioning": "no partitioning", "lakeformation_governed_tables": False, "colour": "green"},
        {"partitioning": "YEAR/MONTH/DAY", "partition_source": "created_at"},
        {"table_type": "hive", "path_layout": "Segment", "timezone": "Europe/Berlin", "catalog_partitions": "both"},
        {"streams": [{"stream": "orders", "partition_by": [{"source": "id", "transform": "Bucket[16]"}]}]},
        {"lakeformation_governed_tables": True, "encryption": {"encryption_type": "sse-s3"}},
        {"lake_formation": {"mode": "hybrid", "tags": {"a": ["b"]}, "grants": []}, "glue_catalog_id": "123456789012"},
        {"spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}}},
        {"spark": {"remote": "sc://lake", "token": "t0k3n"}},
        {"spark": {"conf": {"spark.jars": ""}}},
        {"spark": {"conf": [{"key": "spark.jars", "value": ""}]}},
        {"credentials": {"credentials_title": "default chain"}},
        {"table_prefix": "Raw_", "database_strategy": "single", "naming": {"style": "preserve"}},
        {"table_prefix": "", "naming": {"split_numbers": True}},
        {"dedup": {"deletes": "merge_on_read", "cdc_deletion": "soft"}},
    ],
)
def test_options_that_the_configuration_accepts_are_valid_by_the_spec(given_options: dict[str, Any]) -> None:
    given = options(**given_options)
    Config.parse(given)

    canonical = normalised(given, Config)

    jsonschema.validate(canonical, CONNECTION)
    assert normalised(canonical, Config) == canonical
    assert Config.parse(canonical) == Config.parse(given)
