"""What both are asked for: the template and the module, and a parameter of one as a variable of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from integration_tests.infra.template import Template
from unit_tests.infra.resolved import KEY_ARN, READER, REQUIRED
from unit_tests.infra.terraform.counterparts import snake
from unit_tests.infra.terraform.module import Module, Planned, files
from unit_tests.repository.files import ROOT

TEMPLATE = Template.read(ROOT / "infra/cloudformation/datalake.yaml")
MODULE = Module(files())

GOVERNED = {"ReaderPrincipalArn": READER, "LFTagKey": "team", "LFTagValues": "internal,public"}
EXTRAS = {"CreateAthenaWorkGroup": "true", "CreateEventStream": "true"}
OWN = {"CreateBucket": "false", "ExistingKeyArn": KEY_ARN}
CHOICES: Mapping[str, dict[str, str]] = {
    "nothing but what is required": {},
    "other names": {"BucketPrefix": "a/b", "DatabaseName": "sales", "MaxSessionDuration": "7200"},
    "an encryption header": {"RequireEncryptionHeader": "true"},
    "a bucket and a key of one's own": OWN,
    "extras": EXTRAS,
    "extras in a bucket of one's own": {**OWN, **EXTRAS, "EventTableName": "clicks"},
    **{f"{mode}": {"LakeFormationMode": mode} for mode in ("hybrid", "managed")},
    **{f"{mode}, everything": {"LakeFormationMode": mode, **GOVERNED, **EXTRAS} for mode in ("hybrid", "managed")},
    "an LF-Tag of one's own": {"LakeFormationMode": "hybrid", **GOVERNED, "CreateLFTag": "false"},
    "managed, all one's own": {"LakeFormationMode": "managed", **GOVERNED, **OWN, "CreateLFTag": "false"},
}

SWITCHES: Mapping[str, tuple[str, ...]] = {
    name: tuple(declaration["AllowedValues"])
    for name, declaration in TEMPLATE.sections["Parameters"].items()
    if "AllowedValues" in declaration
} | {"ExistingKeyArn": ("", KEY_ARN), "ReaderPrincipalArn": ("", READER), "LFTagKey": ("", "team")}
"""The values of each parameter that decides what there is."""


def planned(parameters: Mapping[str, str], module: Module = MODULE) -> Planned:
    """The module with the variables that these parameters are."""
    given = {**REQUIRED, **parameters}
    return Planned(module, {snake(name): as_variable(name, text) for name, text in given.items()})


def as_variable(parameter: str, text: object) -> Any:
    """A parameter's value as Terraform's type has it."""
    declaration = TEMPLATE.sections["Parameters"][parameter]
    if declaration.get("AllowedValues") == ["true", "false"]:
        return text == "true"
    match declaration["Type"]:
        case "Number":
            return int(str(text))
        case "CommaDelimitedList":
            return str(text).split(",")
    return text


def as_terraform(text: str) -> str:
    """A text of the template with the names of parameters and outputs as the module has them."""
    names = {*TEMPLATE.sections["Parameters"], *TEMPLATE.sections["Outputs"]}
    return re.sub(r"\w+", lambda word: snake(word[0]) if word[0] in names else word[0], text)
