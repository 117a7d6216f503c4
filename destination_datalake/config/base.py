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
"""`ROLE_ARN` is the regular expression for the ARN of an IAM role, and `REGION` for an AWS region code."""


@dataclass(frozen=True, slots=True)
class Form:
    """The texts about one option in Airbyte's form and in error messages, read from `form.toml`.

    Each attribute is a key of the option's entry in `form.toml`. The comments in the file explain the keys.
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

    # `allow`: models accept unknown options. `parsing.unknown_options` finds them, and misspelt ones are rejected.
    # `python-re`: some patterns use look-ahead, which pydantic's own regex engine does not support.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")

    fields_in_form: ClassVar[Sequence[str]] = ()
    """The names of the options that Airbyte's form shows, in order. If empty, the form shows all options of the
    model."""

    @classmethod
    def form(cls, option: str) -> Form | None:
        """Return the entry for `option` in `form.toml`, or None if there is no entry.

        An inherited option uses the entry of the base class. Discriminators (constants such as `type` that identify one
        model of a union) have no entry.
        """
        tables = (form_tables().get(model.__name__, {}).get(option) for model in cls.__mro__)
        return next((Form(**table) for table in tables if table), None)


@cache
def form_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of `form.toml`, by model name and option name. The file is read once."""
    import tomllib  # The module is not needed for a valid configuration.

    return tomllib.loads(Path(__file__).with_name("form.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Entries:
    """An annotation for a mapping option that Airbyte's form writes as a list.

    Airbyte's forms cannot express an object with arbitrary keys. The form therefore writes a list of objects of the
    type `model`, such as `{"name": "team", "values": ["sales"]}`. The property `name` contains the key of the mapping,
    and one other property contains the value. The option accepts an object or a list. A list that repeats a name is
    invalid.

    The property is not called `key`, because Airbyte treats `key` as a secret. Entries with `key` are accepted too.
    """

    model: type[Options]

    @property
    def value(self) -> str:
        """The name of the entry property that contains the value, such as `values`."""
        return next(name for name in self.model.model_fields if name != "name")

    def as_list(self, entries: object) -> object:
        """Return a mapping as a list of entries, and rename `key` to `name` in the entries of a list.

        Any other value is returned unchanged.
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
        return mapping if len(mapping) == len(entries) else entries


@dataclass(frozen=True, slots=True)
class AnyCase:
    """An annotation for an option whose value may be written in any letter case.

    If a value does not match the option's pattern but its lower-case form does, the lower-case form is used.
    """


def secrets(options: Options) -> Iterator[str]:
    """Yield the values of all secret options, including those in nested objects, as plain text."""
    for _, value in options:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Options):
            yield from secrets(value)


def choices(annotation: object) -> Sequence[str]:
    """Return the values of the Literal types in a type annotation. Return an empty sequence if there are none."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def models(annotation: object) -> Iterator[type[Options]]:
    """Yield every option model that occurs in a type annotation, for example the members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)
