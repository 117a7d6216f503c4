"""The module's variables are the template's parameters: names, types, defaults, descriptions, and what they accept."""

from __future__ import annotations

import re
from typing import Any

import hcl2
import pytest

from integration_tests.infra.template import accepts
from unit_tests.infra.resolved import KEY_ARN, READER
from unit_tests.infra.terraform.choices import MODULE, TEMPLATE, as_terraform, as_variable, planned
from unit_tests.infra.terraform.counterparts import snake
from unit_tests.infra.terraform.hcl import HclError, value
from unit_tests.infra.terraform.module import Planned
from unit_tests.repository.files import text

PARAMETERS: dict[str, dict[str, Any]] = TEMPLATE.sections["Parameters"]

TEXTS = (
    *("", "a", "ab", "abc", "A", "Ab-1", "a_b", "a.b", "a..b", "xn--abc", "-a", "a-", "a b", "é", "a\n"),
    *(
        "a/b",
        "/a",
        "a/",
        "a//b",
        ".a",
        "_a",
        "workspace=1,2",
        "key:value",
        "a%b",
        "none",
        "hybrid",
        "managed",
        "Managed",
    ),
    *("a" * length for length in (63, 64, 128, 129, 200, 201, 255, 256, 1224, 1225)),
    *(KEY_ARN, KEY_ARN.replace("key/", "alias/"), READER, f"{READER}\n", READER.replace("role", "user")),
    *("arn:aws:iam::123456789012:root", "arn:aws-cn:iam::123456789012:role/a/b", "arn:aws:iam::1:role/a"),
    "arn:aws:iam::123456789012:group/a",
)
NUMBERS = (0, 3599, 3600, 43200, 43201)


def nothing(name: str) -> object:
    raise AssertionError(f"a constant, so nothing is looked up, not even {name}")


def is_text(parameter: str) -> bool:
    return bool(MODULE.variables[snake(parameter)]["type"] == "string")


def test_there_is_a_variable_for_each_parameter() -> None:
    # The stack's name is not one of its parameters.
    assert MODULE.variables.keys() == {*map(snake, PARAMETERS), "name"}


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_a_variable_says_what_the_parameter_says(parameter: str) -> None:
    declaration, block = PARAMETERS[parameter], MODULE.variables[snake(parameter)]
    described = as_terraform(declaration["Description"])

    assert value(block["description"], nothing) == described.replace(", separated by commas", "").strip()
    assert block["type"] == variable_type(declaration)
    if "Default" in declaration:
        assert value(block["default"], nothing) == as_variable(parameter, declaration["Default"])
    else:
        assert "default" not in block


def variable_type(declaration: dict[str, Any]) -> str:
    if declaration.get("AllowedValues") == ["true", "false"]:
        return "bool"
    return {"String": "string", "Number": "number", "CommaDelimitedList": "${list(string)}"}[declaration["Type"]]


@pytest.mark.parametrize(
    "parameter", [name for name in PARAMETERS if MODULE.variables[snake(name)]["type"] == "string"]
)
def test_a_text_is_accepted_by_both_or_by_neither(parameter: str) -> None:
    accepted = [text for text in TEXTS if accepts(PARAMETERS[parameter], text)]

    # A rule about several parameters is another test's.
    with_mode = {"LakeFormationMode": "hybrid"}
    assert [text for text in TEXTS if is_planned(with_mode | {parameter: text})] == accepted
    assert accepted
    assert len(accepted) < len(TEXTS)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_accepted_by_both_or_by_neither(number: int) -> None:
    accepted = accepts(PARAMETERS["MaxSessionDuration"], number)

    assert is_planned({"MaxSessionDuration": str(number)}) == accepted


def is_planned(parameters: dict[str, str]) -> bool:
    try:
        planned(parameters)
    except HclError:
        return False
    return True


def test_the_example_of_the_page_is_accepted() -> None:
    [example] = re.findall(r"```hcl\n(.*?)```", text("infra/terraform/README.md"), re.DOTALL)
    [[arguments]] = [block.values() for block in hcl2.loads(example)["module"]]

    given = {name: value(each, nothing) for name, each in arguments.items() if name in MODULE.variables}
    assert arguments.keys() - given.keys() <= {"source", "__is_block__"}
    assert Planned(MODULE, given).outputs["bucket_name"] == "example-lake"
