"""A CloudFormation template without CloudFormation: parameters, conditions, intrinsic functions, order of resources.

It knows the functions that our templates use, and fails on others. What each does: AWS, "Intrinsic function reference",
https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/intrinsic-function-reference.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Self

import yaml

_NO_VALUE = "AWS::NoValue"
_VARIABLE = re.compile(r"\$\{(!?)([^}]+)\}")


class _Loader(yaml.CSafeLoader):
    """YAML with the short forms of functions, and without dates: a policy's version is a text."""

    def long_form(self, name: str, node: yaml.Node) -> dict[str, Any]:
        """Return the function that a tag such as `!GetAtt` is short for."""
        match node:
            case yaml.ScalarNode():
                argument: Any = self.construct_scalar(node)
            case yaml.SequenceNode():
                argument = self.construct_sequence(node, deep=True)
            case _:
                raise TemplateError(f"!{name} has neither a text nor a list")
        if name == "GetAtt" and isinstance(argument, str):
            argument = argument.split(".", 1)
        return {name if name in ("Ref", "Condition") else f"Fn::{name}": argument}


_Loader.add_multi_constructor("!", _Loader.long_form)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


class TemplateError(Exception):
    """CloudFormation would refuse the template or the parameters."""


class RuleBroken(TemplateError):
    """The parameters contradict each other, by a rule of the template."""


@dataclass(frozen=True)
class Made:
    """A resource that exists: what Ref and what Fn::GetAtt return."""

    ref: str
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Template:
    """The sections of a template, as plain values; functions in their long form."""

    sections: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a template in YAML; functions may have their short forms."""
        return cls.parse(path.read_text(encoding="utf-8"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """As `read`, from the template's text."""
        return cls(yaml.load(text, _Loader))

    @property
    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        """The resources by logical name, whatever their conditions."""
        resources: Mapping[str, Mapping[str, Any]] = self.sections["Resources"]
        return resources

    def with_defaults(self, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return every parameter's value. Raises TemplateError for one that is missing, unknown or not accepted."""
        parameters = self.sections["Parameters"]
        if unknown := given.keys() - parameters.keys():
            raise TemplateError(f"unknown parameters: {sorted(unknown)}")
        values = {name: given.get(name, parameter.get("Default")) for name, parameter in parameters.items()}
        if refused := [name for name, value in values.items() if not accepts(parameters[name], value)]:
            raise TemplateError(f"values that are not accepted: {refused}")
        return {name: str(value) for name, value in values.items()}


def accepts(parameter: Mapping[str, Any], value: object) -> bool:
    """Whether a parameter takes a value, by the declaration of its type and limits."""
    if value is None:
        return False
    text = str(value)
    if parameter["Type"] == "Number":
        return text.isdecimal() and parameter["MinValue"] <= int(text) <= parameter["MaxValue"]
    in_limits = parameter.get("MinLength", 0) <= len(text) <= parameter.get("MaxLength", len(text))
    # The whole of a value has to match: "Parameters section", AllowedPattern.
    return (
        in_limits
        and re.fullmatch(parameter.get("AllowedPattern", ".*"), text) is not None
        and text in map(str, parameter.get("AllowedValues", [text]))
    )


class Resolver:
    """One template with the values of its parameters and of the resources that exist, which are added as they are made.

    `pseudo` has the pseudo parameters, such as AWS::Region. Raises TemplateError.
    """

    def __init__(self, template: Template, parameters: Mapping[str, str], pseudo: Mapping[str, str]) -> None:
        self.made: dict[str, Made] = {}
        self._template = template
        self._values = {**template.with_defaults(parameters), **pseudo}
        for rule in template.sections.get("Rules", {}).values():
            for assertion in rule["Assertions"]:
                if not self.resolve(assertion["Assert"]):
                    raise RuleBroken(assertion["AssertDescription"])

    def exists(self, element: Mapping[str, Any]) -> bool:
        """Whether the condition of a resource or an output holds."""
        return "Condition" not in element or self.condition(element["Condition"])

    def condition(self, name: str) -> bool:
        """Whether a named condition holds."""
        return bool(self.resolve(self._template.sections["Conditions"][name]))

    def order(self) -> list[str]:
        """The logical names of the resources to make, each after those that it refers to or depends on."""
        wanted = {name: resource for name, resource in self._template.resources.items() if self.exists(resource)}
        needs = {name: {*self._references(resource.get("Properties", {}))} for name, resource in wanted.items()}
        for name, resource in wanted.items():
            explicit = resource.get("DependsOn", [])
            needs[name] |= {explicit} if isinstance(explicit, str) else {*explicit}
            if missing := needs[name] - wanted.keys():
                raise TemplateError(f"{name} needs {sorted(missing)}, which do not exist under these parameters")
        return [*TopologicalSorter(needs).static_order()]

    def properties(self, name: str) -> dict[str, Any]:
        """The properties of a resource, resolved; what they refer to has to exist."""
        properties: dict[str, Any] = self.resolve(self._template.resources[name].get("Properties", {}))
        return properties

    def outputs(self) -> dict[str, str]:
        """The values of the outputs whose conditions hold."""
        outputs = self._template.sections["Outputs"]
        return {name: str(self.resolve(output["Value"])) for name, output in outputs.items() if self.exists(output)}

    def resolve(self, value: Any) -> Any:
        """Return the value with every function in it replaced by its result."""
        match value:
            case dict() if (function := _function(value)) is not None:
                return self._functions()[function](value[function])
            case dict():
                return {key: self.resolve(member) for key, member in value.items() if not self._is_nothing(member)}
            case list():
                return [self.resolve(element) for element in value if not self._is_nothing(element)]
            case _:
                return value

    def _functions(self) -> Mapping[str, Callable[[Any], Any]]:
        return {
            "Ref": self._ref,
            "Condition": self.condition,
            "Fn::GetAtt": lambda arguments: self.made[arguments[0]].attributes[arguments[1]],
            "Fn::Sub": self._sub,
            "Fn::If": lambda arguments: self.resolve(arguments[1 if self.condition(arguments[0]) else 2]),
            "Fn::Join": lambda arguments: str(arguments[0]).join(self.resolve(arguments[1])),
            "Fn::Select": lambda arguments: self.resolve(arguments[1])[int(arguments[0])],
            "Fn::Split": lambda arguments: str(self.resolve(arguments[1])).split(arguments[0]),
            "Fn::Equals": lambda arguments: self.resolve(arguments[0]) == self.resolve(arguments[1]),
            "Fn::Not": lambda arguments: not self.resolve(arguments[0]),
            "Fn::And": lambda arguments: all(self.resolve(condition) for condition in arguments),
            "Fn::Or": lambda arguments: any(self.resolve(condition) for condition in arguments),
        }

    def _ref(self, name: str) -> Any:
        if name in self._values:
            parameter = self._template.sections["Parameters"].get(name, {})
            is_list = parameter.get("Type") == "CommaDelimitedList"
            return [part.strip() for part in self._values[name].split(",")] if is_list else self._values[name]
        return self.made[name].ref

    def _sub(self, argument: str | list[Any]) -> str:
        text, variables = (argument, {}) if isinstance(argument, str) else argument

        def value(match: re.Match[str]) -> str:
            literal, name = match.groups()
            if literal:
                return f"${{{name}}}"
            if name in variables:
                return str(self.resolve(variables[name]))
            resource, _, attribute = name.partition(".")
            return str(self.made[resource].attributes[attribute] if attribute else self._ref(name))

        return _VARIABLE.sub(value, text)

    def _is_nothing(self, value: Any) -> bool:
        """Whether a value is, or is decided to be, AWS::NoValue: its key or item is then left out."""
        if value == {"Ref": _NO_VALUE}:
            return True
        if isinstance(value, dict) and [*value] == ["Fn::If"]:
            name, yes, no = value["Fn::If"]
            return self._is_nothing(yes if self.condition(name) else no)
        return False

    def _references(self, value: Any) -> Iterator[str]:
        """Yield the logical names of the resources that a value refers to, in the branches that are taken."""
        match value:
            case {"Ref": str(name)} if name in self._template.resources:
                yield name
            case {"Fn::GetAtt": [str(name), _]}:
                yield name
            case {"Fn::If": [name, yes, no]}:
                yield from self._references(yes if self.condition(name) else no)
            case {"Fn::Sub": of}:
                text, variables = (of, {}) if isinstance(of, str) else of
                yield from self._references(variables)
                names = {name.partition(".")[0] for literal, name in _VARIABLE.findall(text) if not literal}
                yield from names & (self._template.resources.keys() - variables.keys())
            case dict():
                for part in value.values():
                    yield from self._references(part)
            case list():
                for part in value:
                    yield from self._references(part)


def _function(value: Mapping[str, Any]) -> str | None:
    """The name of the function that a mapping is a call of."""
    if len(value) != 1:
        return None
    (key, argument), *_ = value.items()
    # A policy's Condition is a mapping, a reference to a condition is a name.
    is_call = key in ("Ref",) or key.startswith("Fn::") or (key == "Condition" and isinstance(argument, str))
    return key if is_call else None
