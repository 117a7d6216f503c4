"""What all models of options have in common."""

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
"""The patterns of an IAM role's ARN, and of the codes of regions."""


@dataclass(frozen=True, slots=True)
class Form:
    """How Airbyte's form shows an option, and what it must be: one table of `form.toml`, which says what is what."""

    description: str
    title: str | None = None
    expects: str | None = None
    examples: Sequence[object] = ()
    group: str | None = None
    in_sight: bool = False
    hidden: bool = False
    secret: bool | None = None


class Options(BaseModel):
    """An object of options: immutable, and strict about types."""

    # `allow`, not `forbid`: only unknown options that are misspelt ones are refused (`config.unknown`).
    # Python's regular expressions have look-ahead, which some patterns use; pydantic's own have not.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", regex_engine="python-re")

    fields_in_form: ClassVar[Sequence[str]] = ()
    """The options that the form shows, in their order; all of them if there are none."""

    @classmethod
    def form(cls, option: str) -> Form | None:
        """Return how the form shows an option of this model; None for the constant that tells one model of several."""
        found = (texts().get(each.__name__, {}).get(option) for each in cls.__mro__)
        return next((Form(**each) for each in found if each), None)


@cache
def texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the tables of `form.toml`, by model and option."""
    import tomllib  # A valid configuration needs no texts.

    return tomllib.loads(Path(__file__).with_name("form.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Entries:
    """An annotation of a mapping that forms write as a list of `model`, each with `name` and a value.

    Forms have no objects of any keys. Both are valid, but for a list that has a name twice. The name is not called
    `key`, by which Airbyte would take it for a secret; entries with `key` are accepted.
    """

    model: type[Options]

    @property
    def value(self) -> str:
        """The name of the option beside `name`."""
        return next(name for name in self.model.model_fields if name != "name")

    def listed(self, given: object) -> object:
        """Return a mapping, or a list with `key`, as the list that forms write; anything else as it is."""
        match given:
            case dict():
                return [{"name": name, self.value: value} for name, value in given.items()]
            case list():
                return [
                    {"name" if key == "key" and "name" not in each else key: value for key, value in each.items()}
                    if isinstance(each, dict)
                    else each
                    for each in given
                ]
            case _:
                return given

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate a list as the mapping that it means."""
        return core_schema.no_info_before_validator_function(self._mapping, handler(source))

    def _mapping(self, given: object) -> object:
        if not isinstance(given, list):
            return given
        entries = [each for each in given if isinstance(each, dict) and isinstance(each.get("name"), str)]
        found = {each["name"]: each.get(self.value) for each in entries}
        return found if len(found) == len(given) else given


@dataclass(frozen=True, slots=True)
class AnyCase:
    """An annotation of an option that may be written in capitals where its pattern has small letters."""


def secrets(options: Options) -> Iterator[str]:
    """Yield the values of secret options, inside objects too."""
    for _, value in options:
        if isinstance(value, SecretStr):
            yield value.get_secret_value()
        elif isinstance(value, Options):
            yield from secrets(value)


def choices(annotation: object) -> Sequence[str]:
    """Return the values of an enumeration; nothing for any other type."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return [choice for inner in get_args(annotation) for choice in choices(inner)]


def models(annotation: object) -> Iterator[type[Options]]:
    """Yield the models in a type: that of an object, of a list's items, or those of all choices."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        yield annotation
    for inner in get_args(annotation):
        yield from models(inner)
