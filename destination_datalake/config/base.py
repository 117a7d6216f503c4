"""The base class of all option models."""

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
"""`ROLE_ARN` is the pattern of an IAM role's ARN. `REGION` is the pattern of a region code."""


@dataclass(frozen=True, slots=True)
class Form:
    """The entry of an option in `form.toml`: the texts that Airbyte's form shows, and a description of valid values.

    The comments in `form.toml` explain the keys of an entry.
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
    """The base of option models: an immutable object with strict types."""

    # Use `allow` instead of `forbid`, because unknown options are only rejected if they are misspelt
    # (`parsing.unknown_options`). Use Python's regex engine, because some patterns use look-ahead, which pydantic's own
    # engine does not support.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")

    fields_in_form: ClassVar[Sequence[str]] = ()
    """The names of the options that Airbyte's form shows, in order. If empty, the form shows all options of the
    model."""

    @classmethod
    def form(cls, option: str) -> Form | None:
        """Return an option's entry in `form.toml`, or None if there is no entry.

        Discriminators, the constants that identify one model of a union, have no entry.
        """
        tables = (form_tables().get(model.__name__, {}).get(option) for model in cls.__mro__)
        return next((Form(**table) for table in tables if table), None)


@cache
def form_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the entries of `form.toml`, by the names of the model and the option."""
    import tomllib  # The module is not needed for a valid configuration.

    return tomllib.loads(Path(__file__).with_name("form.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Entries:
    """An annotation for an option that is a mapping, but that Airbyte's form writes as a list.

    Airbyte's forms cannot express an object with arbitrary keys. They write a list instead, whose items are objects of
    `model`, with the property `name` and one other property for the value. Both an object and a list are valid, unless
    the list repeats a name. The property is called `name` instead of `key`, because Airbyte treats `key` as a secret.
    Entries with `key` are accepted too.
    """

    model: type[Options]

    @property
    def value(self) -> str:
        """The name of the property that contains the value of an entry."""
        return next(name for name in self.model.model_fields if name != "name")

    def as_list(self, entries: object) -> object:
        """Convert a mapping, or a list whose entries use `key`, to the form's list of entries with `name`.

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
        """Return a schema that accepts a list where a mapping is expected."""
        return core_schema.no_info_before_validator_function(self._mapping, handler(source))

    def _mapping(self, entries: object) -> object:
        if not isinstance(entries, list):
            return entries
        named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        mapping = {entry["name"]: entry.get(self.value) for entry in named}
        return mapping if len(mapping) == len(entries) else entries


@dataclass(frozen=True, slots=True)
class AnyCase:
    """An annotation for an option that also accepts upper-case letters where its pattern contains lower-case ones."""


def secrets(options: Options) -> Iterator[str]:
    """Yield the values of all secret options, including options of nested objects."""
    for _, value in options:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Options):
            yield from secrets(value)


def choices(annotation: object) -> Sequence[str]:
    """Return the values of an enumeration type. Return an empty sequence for any other type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def models(annotation: object) -> Iterator[type[Options]]:
    """Yield the option models in a type annotation: those of an object, of a list's items, or of a union's members."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)
