"""The base of all option models."""

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
"""The patterns of an IAM role's ARN and of a region's code."""


@dataclass(frozen=True, slots=True)
class Form:
    """The entry of an option in `form.toml`: its texts in Airbyte's form, and a description of valid values.

    The comments of `form.toml` explain the keys.
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
    """An immutable object of options with strict types."""

    # `allow`, not `forbid`: of the unknown options, only misspelt ones are rejected (`parsing.unknown_options`).
    # Some patterns use look-ahead, which Python's regular expressions support and pydantic's own do not.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")

    fields_in_form: ClassVar[Sequence[str]] = ()
    """The options that the form shows, in order. If empty, the form shows all options."""

    @classmethod
    def form(cls, option: str) -> Form | None:
        """Return an option's table in `form.toml`; None for the constant that identifies one model of a union."""
        tables = (form_tables().get(model.__name__, {}).get(option) for model in cls.__mro__)
        return next((Form(**table) for table in tables if table), None)


@cache
def form_tables() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of `form.toml`, by model and option."""
    import tomllib  # Not needed for a valid configuration.

    return tomllib.loads(Path(__file__).with_name("form.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Entries:
    """An annotation of a mapping that forms write as a list of `model`: objects with `name` and a value.

    Airbyte's forms cannot express an object with arbitrary keys. Both an object and a list are valid, unless the list
    repeats a name. The property is `name`, not `key`, because Airbyte treats `key` as a secret; entries with `key` are
    accepted too.
    """

    model: type[Options]

    @property
    def value(self) -> str:
        """The name of the option next to `name`."""
        return next(name for name in self.model.model_fields if name != "name")

    def as_list(self, entries: object) -> object:
        """Return a mapping, or a list with `key`, as the list that forms write; return anything else unchanged."""
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
        """Validate a list as a mapping."""
        return core_schema.no_info_before_validator_function(self._mapping, handler(source))

    def _mapping(self, entries: object) -> object:
        if not isinstance(entries, list):
            return entries
        named = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
        mapping = {entry["name"]: entry.get(self.value) for entry in named}
        return mapping if len(mapping) == len(entries) else entries


@dataclass(frozen=True, slots=True)
class AnyCase:
    """An annotation of an option that also accepts capital letters where its pattern has lower-case ones."""


def secrets(options: Options) -> Iterator[str]:
    """Yield the values of secret options, including those in nested objects."""
    for _, value in options:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Options):
            yield from secrets(value)


def choices(annotation: object) -> Sequence[str]:
    """Return the values of an enumeration; an empty sequence for any other type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def models(annotation: object) -> Iterator[type[Options]]:
    """Yield the option models in a type annotation: an object's, a list item's, or all members of a union."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)
