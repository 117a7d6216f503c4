"""The modules' variables are the templates' parameters: names, types, defaults, descriptions, and what they accept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import hcl2
import pytest

from integration_tests.infra.template import accepts
from unit_tests.infra.resolved import KEY_ARN, READER
from unit_tests.infra.terraform.choices import PAIRS, Pair
from unit_tests.infra.terraform.counterparts import snake
from unit_tests.infra.terraform.hcl import HclError, value
from unit_tests.infra.terraform.module import Planned
from unit_tests.repository.files import text

LAKE = PAIRS["lake"]
EACH = [pytest.param(pair, each, id=f"{name}-{each}") for name, pair in PAIRS.items() for each in pair.parameters]

TEXTS = (
    *("", "a", "ab", "abc", "A", "Ab-1", "a_b", "a.b", "a..b", "xn--abc", "-a", "a-", "a b", "é", "a\n"),
    *("a/b", "/a", "a/", "a//b", ".a", "_a", "workspace=1,2", "key:value", "a%b", "none", "hybrid", "managed"),
    *("a" * length for length in (63, 64, 128, 129, 200, 201, 255, 256, 257, 1224, 1225)),
    *(KEY_ARN, KEY_ARN.replace("key/", "alias/"), READER, f"{READER}\n", READER.replace("role", "user")),
    *("arn:aws:iam::123456789012:root", "arn:aws-cn:iam::123456789012:role/a/b", "arn:aws:iam::1:role/a"),
    "arn:aws:iam::123456789012:group/a",
)
NUMBERS = (0, 3599, 3600, 43200, 43201)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=[*PAIRS])
def test_there_is_a_variable_for_each_parameter(pair: Pair) -> None:
    # The stack's name is not one of its parameters.
    assert pair.module.variables.keys() == {*map(snake, pair.parameters), "name"}


@pytest.mark.parametrize(("pair", "parameter"), EACH)
def test_a_variable_says_what_the_parameter_says(pair: Pair, parameter: str) -> None:
    declaration, block = pair.parameters[parameter], pair.module.variables[snake(parameter)]
    described = pair.as_terraform(declaration["Description"])

    assert value(block["description"], nothing) == described.replace(", separated by commas", "").strip()
    assert block["type"] == variable_type(declaration)
    if "Default" in declaration:
        assert value(block["default"], nothing) == pair.as_variable(parameter, declaration["Default"])
    else:
        assert "default" not in block


def nothing(name: str) -> object:
    raise AssertionError(f"a constant, so nothing is looked up, not even {name}")


def variable_type(declaration: Mapping[str, Any]) -> str:
    if declaration.get("AllowedValues") == ["true", "false"]:
        return "bool"
    return {"String": "string", "Number": "number", "CommaDelimitedList": "${list(string)}"}[declaration["Type"]]


@pytest.mark.parametrize(("pair", "parameter"), EACH)
def test_a_text_is_accepted_by_both_or_by_neither(pair: Pair, parameter: str) -> None:
    declaration = pair.parameters[parameter]
    if variable_type(declaration) == "string":
        texts = [text for text in TEXTS if "AllowedPattern" in declaration or "\n" not in text]
        accepted = [text for text in texts if accepts(declaration, text)]

        # A rule about several parameters is another test's.
        hybrid = {"LakeFormationMode": "hybrid"}
        assert [text for text in texts if is_planned(pair, hybrid | {parameter: text})] == accepted
        assert 0 < len(accepted) < len(texts)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_accepted_by_both_or_by_neither(number: int) -> None:
    accepted = accepts(LAKE.parameters["MaxSessionDuration"], number)

    assert is_planned(LAKE, {"MaxSessionDuration": str(number)}) == accepted


def is_planned(pair: Pair, parameters: Mapping[str, str]) -> bool:
    try:
        pair.planned(parameters)
    except HclError:
        return False
    return True


def test_the_example_of_the_page_is_accepted() -> None:
    [example] = re.findall(r"```hcl\n(.*?)```", text("infra/terraform/README.md"), re.DOTALL)
    [[arguments]] = [block.values() for block in hcl2.loads(example)["module"]]

    given = {name: value(each, nothing) for name, each in arguments.items() if name in LAKE.module.variables}
    assert arguments.keys() - given.keys() <= {"source", "__is_block__"}
    assert Planned(LAKE.module, given).outputs["bucket_name"] == "example-lake"
