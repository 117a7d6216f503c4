"""The base class of all option models, annotations for options, and functions that inspect models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, SecretStr
from pydantic_core import CoreSchema, core_schema

ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/.+$"
REGION = r"^[a-z]{2,4}(-[a-z]+)+-[0-9]+$"
"""The regular expressions for the ARN of an IAM role (`ROLE_ARN`) and for the code of an AWS region (`REGION`)."""


@dataclass(frozen=True, slots=True)
class Form:
    """The properties of one option in Airbyte's form and in error messages, as read from `form.toml`.

    Each attribute is a key of the option's entry in `form.toml`. The comments in this file explain the keys.
    """

    description: str
    title: str | None = None
    expects: str | None = None
    examples: Sequence[object] = ()
    group: str | None = None
    always_show: bool = False
    hidden: bool = False
    secret: bool | None = None


class Options(BaseModel):
    """The base class of option models. Instances are immutable. Types are strict: "1" is not accepted as a number."""

    # `allow`: models accept unknown options. `parsing.unknown_options` finds them, and `Config.parse` rejects misspelt
    # ones. `python-re`: some patterns use look-ahead, which pydantic's own regex engine does not support.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")

    fields_in_form: ClassVar[Sequence[str]] = ()
    """The names of the options that Airbyte's form shows, in this order. If empty, the form shows all options of the
    model."""

    @classmethod
    def form(cls, option: str) -> Form | None:
        """Return the entry for `option` in `form.toml`, or None if the file contains no entry.

        For an inherited option, returns the entry of the base class. Discriminators, which are constants such as `type`
        that identify one model of a union, have no entry.
        """
        tables = (form_tables().get(model.__name__, {}).get(option) for model in cls.__mro__)
        return next((Form(**table) for table in tables if table), None)


@cache
def form_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of `form.toml`, by model name and option name. Read the file only once."""
    import tomllib  # The module is not needed for a valid configuration.

    return tomllib.loads(Path(__file__).with_name("form.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Entries:
    """An annotation for a mapping option that Airbyte's form writes as a list.

    Airbyte's forms cannot express an object with arbitrary keys. The form therefore writes a list of objects of the
    type `model`, such as `{"name": "team", "values": ["sales"]}`. The property `name` of such an object contains a key
    of the mapping, and one other property contains the value. The option accepts an object or a list. A list that
    contains the same name twice is invalid.

    The property is called `name` instead of `key`, because Airbyte treats a property `key` as a secret. The option also
    accepts entries with `key`.
    """

    model: type[Options]

    @property
    def value(self) -> str:
        """The name of the property of an entry that contains the value, such as `values`."""
        return next(name for name in self.model.model_fields if name != "name")

    def as_list(self, entries: object) -> object:
        """Return a list of entries: convert a mapping to a list, and rename `key` to `name` in the entries of a list.

        Returns any other value unchanged.
        """
        match entries:
            case dict():
                return [{"name": name, self.value: value} for name, value in entries.items()]
            case list():
                return [
                    {"name" if key == "key" and "name" not in entry else key: value for key, value in entry.items()}
                    if isinstance(entry, dict)
                    else entry
                    for entry in entries
                ]
            case _:
                return entries

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a pydantic schema that converts a list of entries to a mapping before validation."""
        return core_schema.no_info_before_validator_function(self._mapping, handler(source))

    def _mapping(self, entries: object) -> object:
        if not isinstance(entries, list):
            return entries
        named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        mapping = {entry["name"]: entry.get(self.value) for entry in named}
        # After a duplicate or invalid entry, return the list. pydantic then rejects it, because it is not a mapping.
        return mapping if len(mapping) == len(entries) else entries


@dataclass(frozen=True, slots=True)
class AnyCase:
    """An annotation for an option whose value users may write in any letter case.

    If a value does not match the option's pattern, but the value in lower case does, `parsing.normalised` converts the
    value to lower case.
    """


def secrets(options: Options) -> Iterator[str]:
    """Yield the values of all secret options as plain strings, including options in nested objects."""
    for _, value in options:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Options):
            yield from secrets(value)


def choices(annotation: object) -> Sequence[str]:
    """Return the values of all Literal types in a type annotation, or an empty sequence if it contains no Literal."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def models(annotation: object) -> Iterator[type[Options]]:
    """Yield every option model in a type annotation, for example each member of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)
