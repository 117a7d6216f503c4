"""Options that the connector does not know: misspelt ones, and those of other connectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from pydantic.fields import FieldInfo

from destination_datalake.config.base import Entries, Options, models
from destination_datalake.config.normalisation import chosen

_SIMILAR = 0.7
_MISSPELT = 0.8
"""How much of two names is equal (`difflib`), so that the one reminds of the other, or is a slip of it."""


class UnknownOption(NamedTuple):
    """An option that the connector does not know, by its dotted name, and the one that may be meant.

    It is misspelt if it is much like one that is not given: what the user wanted would silently not happen.
    """

    name: str
    meant: str | None
    is_misspelt: bool

    def __str__(self) -> str:
        what = "is no option of this connector" if self.is_misspelt else "is no option of this connector and is ignored"
        return f"{self.name} {what}.{f' Is {self.meant} meant?' if self.meant else ''}"


def unknown_options(given: Mapping[str, Any], model: type[Options], path: str = "") -> Iterator[UnknownOption]:
    """Yield the unknown options among those of `model` that are given, in canonical form, inside objects too."""
    fields = model.model_fields
    for name, value in given.items():
        if name in fields:
            for inner, each, kind in _objects(value, fields[name], f"{path}{name}"):
                yield from unknown_options(each, kind, f"{inner}.")
        else:
            yield _unknown(path, name, sorted(fields), given)


def _unknown(path: str, name: str, known: Sequence[str], given: Mapping[str, Any]) -> UnknownOption:
    similar, meant = max((SequenceMatcher(None, name.lower(), each).ratio(), each) for each in known)
    if similar < _SIMILAR or meant in given:
        return UnknownOption(f"{path}{name}", None, is_misspelt=False)
    return UnknownOption(f"{path}{name}", f"{path}{meant}", is_misspelt=similar >= _MISSPELT)


def _objects(value: Any, field: FieldInfo, path: str) -> Iterator[tuple[str, dict[str, Any], type[Options]]]:
    """Yield the objects in an option's value, each with its path and its model."""
    entries = [item.model for item in field.metadata if isinstance(item, Entries)]
    candidates = entries or list(models(field.annotation))
    for each, where in [(value, path)] if isinstance(value, dict) else _numbered(value, path):
        if isinstance(each, dict) and (model := chosen(each, candidates)) is not None:
            yield where, each, model


def _numbered(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    if isinstance(value, list):
        yield from ((each, f"{path}.{number}") for number, each in enumerate(value))
