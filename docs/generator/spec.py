"""Generates `spec.json`, the connector's specification, from the models of its options.

Airbyte's form is built from it, by rules of its own:
https://docs.airbyte.com/platform/connector-development/connector-specification-reference
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from destination_datalake.config.base import Entries, Form, Options, form_tables
from destination_datalake.config.options import Config

SPEC = Path(__file__).parents[2] / "destination_datalake" / "spec.json"

_DEPENDENT = frozenset(
    {"format", "table_type", "numeric_types", "compression_codec", "partitioning", "partition_source"}
)
"""Options whose defaults depend on others: a form would send a default as the user's choice."""

_SCALARS: Mapping[object, str] = {str: "string", SecretStr: "string", bool: "boolean", int: "integer", float: "number"}

_Schema = dict[str, Any]


def specification() -> _Schema:
    """Return the connector's specification."""
    fields = Config.model_fields
    groups = form_tables()["groups"]
    cards = list(groups)
    required = [name for name, field in fields.items() if _is_required(name, field)]

    def place(name: str) -> tuple[int, bool, bool, bool]:
        """Where an option stands: its card; then required, in sight, folded; of each, objects last."""
        form = _form(Config, name)
        schema = _schema_of(fields[name], form)
        is_large = "object" in (schema["type"], schema.get("items", {}).get("type"))
        return cards.index(form.group), name not in required, not form.always_show, is_large

    properties = {}
    for order, name in enumerate(sorted(fields, key=place)):
        form = _form(Config, name)
        shown = {"always_show": True} if form.always_show else {"airbyte_hidden": True} if form.hidden else {}
        properties[name] = {**_property(Config, name, order), "group": form.group, **shown}
    return {
        "protocol_version": "0.18.0",
        "documentationUrl": "https://docs.airbyte.com/integrations/custom-connectors",
        "supportsIncremental": True,
        "supportsNormalization": False,
        "supportsDBT": False,
        "supported_destination_sync_modes": ["overwrite", "append", "append_dedup"],
        "connectionSpecification": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Data Lake on AWS",
            "type": "object",
            "required": required,
            "additionalProperties": True,
            "groups": [{"id": group, "title": title} for group, title in groups.items()],
            "properties": properties,
        },
    }


def spec_text() -> str:
    """Return the text of `spec.json`."""
    return json.dumps(specification(), indent=2, ensure_ascii=False) + "\n"


def _property(model: type[Options], name: str, order: int) -> _Schema:
    """Return an option: how it is shown, its rules, its default."""
    field = model.model_fields[name]
    if (constant := _constant(field)) is not None:
        return {"title": _words(name), "type": "string", "const": constant, "order": order}
    form = _form(model, name)
    shown: _Schema = {"title": form.title or _words(name), "description": form.description}
    schema: _Schema = {**shown, **_schema_of(field, form)}
    if form.examples:
        schema["examples"] = list(form.examples)
    if form.secret is not None:
        schema["airbyte_secret"] = form.secret
    if field.default not in (None, PydanticUndefined):
        schema["default"] = field.default
    if name == "compression_codec" and "ZSTD" not in schema["enum"]:
        schema["default"] = "UNCOMPRESSED"
    return {**schema, "order": order}


def _schema_of(field: FieldInfo, form: Form) -> _Schema:
    return _schema(field.annotation, tuple(field.metadata), form.expects)


def _schema(annotation: Any, metadata: tuple[object, ...], expects: str | None) -> _Schema:
    """Return type and rules of values; `metadata` are the annotations of their type."""
    if (entries := next((item for item in metadata if isinstance(item, Entries)), None)) is not None:
        return {"type": "array", "items": _object(entries.model)}
    kind, arguments = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _schema(arguments[0], (*arguments[1:], *metadata), expects)
    if kind is Literal:
        return {"type": "string", "enum": list(arguments)}
    if kind is list:
        return {"type": "array", "items": _schema(arguments[0], (), expects)}
    if len(models := [type_ for type_ in arguments if isinstance(type_, type) and issubclass(type_, Options)]) > 1:
        return {"type": "object", "oneOf": [_variant(model) for model in models]}
    if arguments and type(None) in arguments:
        # `X | None` is an option that may be left out; the specification says so by not requiring it.
        types = tuple(argument for argument in arguments if argument is not type(None))
        return _schema(Union[types], metadata, expects)  # noqa: UP007
    if annotation in _SCALARS:
        secret = {"airbyte_secret": True} if annotation is SecretStr else {}
        return {"type": _SCALARS[annotation], **_rules(metadata, expects), **secret}
    return _object(annotation)


def _rules(metadata: tuple[object, ...], expects: str | None) -> _Schema:
    """Return the limits of a scalar. What must match a pattern has a description of it."""
    rules: _Schema = {}
    for item in metadata:
        match item:
            case Ge(ge=limit):
                rules["minimum"] = limit
            case Le(le=limit):
                rules["maximum"] = limit
            case MinLen(min_length=limit):
                rules["minLength"] = limit
            case MaxLen(max_length=limit):
                rules["maxLength"] = limit
            case _ if (pattern := getattr(item, "pattern", None)) is not None:
                rules["pattern"] = pattern
    if "pattern" in rules:
        rules["pattern_descriptor"] = expects
    return rules


def _variant(model: type[Options]) -> _Schema:
    """Return one choice of several: an object with a constant that tells which."""
    title = model.model_config.get("title") or next(filter(None, map(_constant, model.model_fields.values())))
    return {"title": title, "description": _summary(model), **_object(model)}


def _object(model: type[Options]) -> _Schema:
    fields = model.model_fields
    names = model.fields_in_form or sorted(fields, key=lambda name: _constant(fields[name]) is None)
    schema: _Schema = {"type": "object"}
    if required := [name for name in names if _is_required(name, fields[name])]:
        schema["required"] = required
    return {**schema, "properties": {name: _property(model, name, i) for i, name in enumerate(names)}}


def _is_required(name: str, field: FieldInfo) -> bool:
    return field.is_required() and name not in _DEPENDENT


def _constant(field: FieldInfo) -> str | None:
    """Return the only value of an option that tells one choice of several; None for any other."""
    values = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return str(values[0]) if len(values) == 1 else None


def _form(model: type[Options], name: str) -> Form:
    if (form := model.form(name)) is None:
        raise AssertionError(f"form.toml has no {model.__name__}.{name}")
    return form


def _words(name: str) -> str:
    return name.replace("_", " ").title()


def _summary(model: type[Options]) -> str:
    """Return the first paragraph of the model's description."""
    return " ".join(inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].split())
