"""The Terraform module as Terraform reads it with these variables, without a resource being made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import hcl2
from hcl2.utils import SerializationOptions

from unit_tests.infra.resolved import KEY_ARN
from unit_tests.infra.terraform.hcl import HclError, value
from unit_tests.repository.files import ROOT

FOLDER = ROOT / "infra/terraform"
_OPTIONS = SerializationOptions(with_comments=False, explicit_blocks=False)
_META = ("count", "depends_on", "lifecycle")

Attributes = dict[str, Any]


def files(folder: str) -> Mapping[str, str]:
    """Return the texts of a module's files by name; the folder is one below that of the lake's."""
    return {file.name: file.read_text(encoding="utf-8") for file in sorted((FOLDER / folder).glob("*.tf"))}


class Module:
    """Blocks of all files: resources and data by type and name, variables, locals and outputs by name."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """Read the texts of files, by name. The order of files and of blocks has no meaning."""
        self.resources: dict[tuple[str, str], Attributes] = {}
        self.data: dict[tuple[str, str], Attributes] = {}
        self.variables: dict[str, Attributes] = {}
        self.outputs: dict[str, Attributes] = {}
        self.locals: Attributes = {}
        for text in files.values():
            blocks = hcl2.loads(text, serialization_options=_OPTIONS)
            self.resources |= _two_labels(blocks.get("resource", []))
            self.data |= _two_labels(blocks.get("data", []))
            self.variables |= _one_label(blocks.get("variable", []))
            self.outputs |= _one_label(blocks.get("output", []))
            for each in blocks.get("locals", []):
                self.locals |= each


class Planned:
    """A module with these variables: resources and outputs, everything that AWS decides as in `Resolved`.

    Raises HclError for variables that a validation refuses, and for a reference to a resource that there is not.
    """

    def __init__(self, module: Module, variables: Mapping[str, Any]) -> None:
        self._module = module
        self.variables = {
            name: variables[name] if name in variables else value(block["default"], self._name)
            for name, block in module.variables.items()
        }
        for name, block in module.variables.items():
            for rule in block.get("validation", []):
                if not value(rule["condition"], self._name):
                    raise HclError(f"{name}: {value(rule['error_message'], self._name)}")

    @cached_property
    def resources(self) -> Mapping[tuple[str, str], Attributes]:
        """The attributes of each resource that is made; blocks are lists."""
        return {key: self._attributes(block) for key, block in self._module.resources.items() if self._is_made(block)}

    @cached_property
    def outputs(self) -> Mapping[str, Any]:
        """The outputs that are not null."""
        found = {name: value(block["value"], self._name) for name, block in self._module.outputs.items()}
        return {name: each for name, each in found.items() if each is not None}

    def _is_made(self, block: Attributes) -> bool:
        return bool(value(block.get("count", 1), self._name))

    def _attributes(self, block: Attributes) -> Attributes:
        found: Attributes = {}
        for name, each in block.items():
            if name == "dynamic":
                for labelled in each:
                    [(label, dynamic)] = _one_label([labelled]).items()
                    if value(dynamic["for_each"], self._name):
                        found.setdefault(label, []).extend(map(self._attributes, dynamic["content"]))
            elif name not in _META:
                found[name] = self._attribute(each)
        return found

    def _attribute(self, each: Any) -> Any:
        if isinstance(each, list) and each and isinstance(each[0], dict):
            return [self._attributes(block) for block in each]
        return value(each, self._name)

    def _name(self, name: str) -> Any:
        match name:
            case "var":
                return self.variables
            case "local":
                return _Lazy(lambda local: value(self._module.locals[local], self._name))
            case "data":
                return _Lazy(lambda kind: _Lazy(lambda each: self._data(kind, each)))
        return _Lazy(lambda each: self._resource(name, each))

    def _data(self, kind: str, name: str) -> Any:
        block = self._module.data[kind, name]
        if kind == "aws_iam_policy_document":
            found: Any = {"json": [*_statements(self._attributes(block))]} if self._is_made(block) else None
            return ([found] if found else []) if "count" in block else found
        return {
            "aws_caller_identity": {"account_id": "123456789012"},
            "aws_partition": {"partition": "aws", "dns_suffix": "amazonaws.com"},
            "aws_region": {"region": "us-east-1"},
        }[kind]

    def _resource(self, kind: str, name: str) -> Any:
        block = self._module.resources[kind, name]
        made = _Lazy(lambda attribute: self._made(kind, name, attribute))
        if "count" not in block:
            return made
        return [made] if self._is_made(block) else []

    def _made(self, kind: str, name: str, attribute: str) -> Any:
        """An attribute of a resource: AWS's decision, or else what the block says."""
        logical = "".join(map(str.capitalize, name.split("_")))
        decided = {
            ("aws_kms_key", "arn"): KEY_ARN,
            ("aws_kms_key", "key_id"): KEY_ARN.rpartition("/")[2],
            ("aws_iam_role", "arn"): f"arn:aws:iam::123456789012:role/lake-{logical}",
            ("aws_iam_role", "id"): f"lake-{logical}",
            ("aws_kinesis_stream", "arn"): f"arn:aws:kinesis:us-east-1:123456789012:stream/{logical}",
            ("aws_kinesis_stream", "name"): logical,
            ("aws_cloudwatch_log_group", "name"): logical,
            ("aws_athena_workgroup", "name"): logical,
        }
        if (kind, attribute) in decided:
            return decided[kind, attribute]
        attributes = self._module.resources[kind, name]
        match kind, attribute:
            case "aws_s3_bucket", "id":
                return value(attributes["bucket"], self._name)
            case "aws_s3_bucket", "arn":
                return f"arn:aws:s3:::{value(attributes['bucket'], self._name)}"
            case "aws_cloudformation_stack", "outputs":
                return {"Name": self.variables["database_name"]}
        return value(attributes[attribute], self._name)


class _Lazy:
    """Something that is looked up when it is asked for."""

    def __init__(self, look_up: Any) -> None:
        self._look_up = look_up

    def __getitem__(self, key: str) -> Any:
        return self._look_up(key)


def _statements(document: Attributes) -> Iterator[Attributes]:
    """A data source's statements as `policies.statement` has them."""
    for block in document["statement"]:
        condition: dict[str, dict[str, list[str]]] = {}
        for each in block.get("condition", []):
            condition.setdefault(each["test"], {})[each["variable"]] = each["values"]
        yield {
            "Sid": block.get("sid"),
            "Effect": block.get("effect", "Allow"),
            "Action": sorted(block["actions"]),
            "Resource": sorted(block.get("resources", [])),
            "Principal": {each["type"]: sorted(each["identifiers"]) for each in block.get("principals", [])},
            "Condition": condition,
        }


def _two_labels(blocks: list[Attributes]) -> dict[tuple[str, str], Attributes]:
    return {
        (kind.strip('"'), name.strip('"')): block
        for labelled in blocks
        for kind, named in labelled.items()
        for name, block in named.items()
    }


def _one_label(blocks: list[Attributes]) -> dict[str, Attributes]:
    return {name.strip('"'): block for labelled in blocks for name, block in labelled.items()}
