"""What both are asked for: the template and the module, and a parameter of one as a variable of the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from integration_tests.infra.template import Template
from unit_tests.infra.resolved import KEY_ARN, READER, REQUIRED, REQUIRED_OF_A_NAMESPACE
from unit_tests.infra.terraform.counterparts import snake
from unit_tests.infra.terraform.module import Module, Planned, files
from unit_tests.repository.files import ROOT

LAKE = {"ReaderPrincipalArn": READER, "LFTagKey": "team", "LFTagValues": "internal,public"}
EXTRAS = {"CreateAthenaWorkGroup": "true", "CreateEventStream": "true"}
OWN = {"CreateBucket": "false", "ExistingKeyArn": KEY_ARN}
NAMESPACE = {"ReaderPrincipalArn": READER, "LFTagKey": "team", "LFTagValue": "public"}


@dataclass(frozen=True)
class Pair:
    """A template and the module that makes the same, and parameters to ask both for."""

    template: Template
    module: Module
    required: Mapping[str, str]
    """The parameters that have no default."""
    choices: Mapping[str, Mapping[str, str]]

    @property
    def parameters(self) -> Mapping[str, Mapping[str, Any]]:
        """The declarations of the template's parameters."""
        found: Mapping[str, Mapping[str, Any]] = self.template.sections["Parameters"]
        return found

    @property
    def switches(self) -> Mapping[str, tuple[str, ...]]:
        """The values of each parameter that decides what there is."""
        listed = {
            name: tuple(each["AllowedValues"]) for name, each in self.parameters.items() if "AllowedValues" in each
        }
        given = {"ExistingKeyArn": KEY_ARN, "ReaderPrincipalArn": READER, "LFTagKey": "team"}
        return listed | {name: ("", each) for name, each in given.items() if name in self.parameters}

    def planned(self, parameters: Mapping[str, str]) -> Planned:
        """The module with the variables that these parameters are, and with the stack's name."""
        given = {**self.required, **parameters}
        variables = {snake(name): self.as_variable(name, text) for name, text in given.items()}
        return Planned(self.module, {"name": "lake", **variables})

    def as_variable(self, parameter: str, text: object) -> Any:
        """A parameter's value as Terraform's type has it."""
        declaration = self.parameters[parameter]
        if declaration.get("AllowedValues") == ["true", "false"]:
            return text == "true"
        match declaration["Type"]:
            case "Number":
                return int(str(text))
            case "CommaDelimitedList":
                return str(text).split(",")
        return text

    def as_terraform(self, text: str) -> str:
        """A text of the template with the names of parameters and outputs as the module has them."""
        names = {*self.parameters, *self.template.sections["Outputs"]}
        return re.sub(r"\w+", lambda word: snake(word[0]) if word[0] in names else word[0], text)


def _template(name: str) -> Template:
    return Template.read(ROOT / "infra/cloudformation" / name)


PAIRS: Mapping[str, Pair] = {
    "lake": Pair(
        _template("datalake.yaml"),
        Module(files("")),
        REQUIRED,
        {
            "nothing but what is required": {},
            "other names": {"BucketPrefix": "a/b", "DatabaseName": "sales", "MaxSessionDuration": "7200"},
            "an encryption header": {"RequireEncryptionHeader": "true"},
            "a bucket and a key of one's own": OWN,
            "extras": EXTRAS,
            "extras in a bucket of one's own": {**OWN, **EXTRAS, "EventTableName": "clicks"},
            "hybrid": {"LakeFormationMode": "hybrid"},
            "managed": {"LakeFormationMode": "managed"},
            "hybrid, everything": {"LakeFormationMode": "hybrid", **LAKE, **EXTRAS},
            "managed, everything": {"LakeFormationMode": "managed", **LAKE, **EXTRAS},
            "an LF-Tag of one's own": {"LakeFormationMode": "hybrid", **LAKE, "CreateLFTag": "false"},
            "managed, all one's own": {"LakeFormationMode": "managed", **LAKE, **OWN, "CreateLFTag": "false"},
        },
    ),
    "namespace": Pair(
        _template("namespace.yaml"),
        Module(files("namespace")),
        REQUIRED_OF_A_NAMESPACE,
        {
            "nothing but what is required": {},
            "other names": {"BucketPrefix": "a/b", "DatabaseName": "sales"},
            "hybrid": {"LakeFormationMode": "hybrid", **NAMESPACE},
            "managed": {"LakeFormationMode": "managed", **NAMESPACE},
        },
    ),
}
