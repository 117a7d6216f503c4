"""Encode results on executors as MessagePack, and decode them on the driver, without pickle.

The driver does not trust a Spark Connect server, and unpickling the server's data could run code. The driver therefore
decodes only values of the classes in the return annotation of the job's function. MessagePack has only plain values.
This module encodes a value of any other class as an array that contains the class name and the parts of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache, partial
from types import EllipsisType, NoneType
from typing import Any, get_args, get_type_hints

import msgspec

from destination_datalake.spark.backend import Consume, Result

_PLAIN = frozenset((NoneType, bool, int, float, bytes, str))
_BUILT_IN: Mapping[Any, tuple[Callable[[Any], Iterable[Any]], Callable[..., Any]]] = {
    dict: (dict.items, lambda *items: dict(items)),
    frozenset: (iter, lambda *members: frozenset(members)),
    list: (iter, lambda *members: list(members)),
    tuple: (iter, lambda *members: members),
    str: (lambda text: [text.encode("utf-8", "surrogatepass")], lambda data: str(data, "utf-8", "surrogatepass")),
    Decimal: (lambda value: [str(value)], Decimal),
    date: (lambda value: [str(value)], date.fromisoformat),
    datetime: (lambda value: [str(value)], datetime.fromisoformat),
    time: (lambda value: [str(value)], time.fromisoformat),
    EllipsisType: (lambda _: [], lambda: ...),
}
"""For each built-in class: a function that returns the parts of a value, and a function that creates a value from its
parts."""


class InvalidResults(Exception):
    """Raised if a job succeeded, but the server returned data that are not valid results."""


def answers(work: Callable[[Iterable[Any]], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[bytes]:
    """Run `work` on the tasks, and yield all results in one encoded value. Runs on an executor.

    Yields nothing if there are no results.
    """
    results = list(work(tasks))
    if results:
        yield encode(results)


def consume_partitions(
    consume: Consume[Result], partitions: Iterable[tuple[int, Iterator[bytes]]]
) -> Iterator[tuple[int, bytes]]:
    """Run `consume` on partitions of a shuffle. Yield the number and the encoded results of each partition.

    Runs on an executor.
    """
    for number, payloads in partitions:
        yield number, encode(list(consume(number, payloads)))


def encode(results: Sequence[Any]) -> bytes:
    """Return the results as MessagePack. Raises TypeError if a result contains a value of an unsupported class."""
    return msgspec.msgpack.encode([_encoded(result) for result in results])


def decode(data: bytes, kind: Any) -> list[Any]:
    """Decode results, which must be instances of `kind`, a class or a union. Return them. Raises InvalidResults."""
    try:
        classes = _classes_in(kind)
        results = [_decoded(value, classes) for value in msgspec.msgpack.decode(data, type=list)]
    except Exception as error:
        raise InvalidResults(f"Spark returned an unexpected result of a job: {error}") from error
    if not all(isinstance(result, kind) for result in results):
        raise InvalidResults("Spark returned results of an unexpected type.")
    return results


def result_type(work: Callable[..., Any]) -> Any:
    """Return the type of one result of `work`, from its return annotation. For `Iterator[int]`, the type is `int`.

    `work` may be a `partial` of a function such as `metered`, whose first argument is another function and whose return
    annotation is generic. The type then contains the result type of the other function.
    """
    function, arguments = (work.func, work.args) if isinstance(work, partial) else (work, ())
    (kind,) = get_args(get_type_hints(function)["return"])
    return kind[result_type(arguments[0])] if getattr(kind, "__parameters__", ()) else kind


def _encoded(value: Any) -> Any:
    # The exact class: an instance of a subclass would come back as an instance of the base class.
    kind: Any = type(value)
    # MessagePack's strings are UTF-8, which has no lone surrogates. `_BUILT_IN` encodes all strings that could contain
    # them.
    if kind in _PLAIN and (kind is not str or value.isascii()):
        return value
    if (names := _fields_of(kind)) is not None:
        parts: Iterable[Any] = (getattr(value, name) for name in names)
    elif kind in _BUILT_IN:
        parts = _BUILT_IN[kind][0](value)
    else:
        raise TypeError(f"{kind.__qualname__} cannot be part of a result")
    return [_name(kind), *map(_encoded, parts)]


def _decoded(value: Any, classes: Mapping[str, Callable[..., Any]]) -> Any:
    if type(value) in _PLAIN:
        return value
    name, *parts = value
    return classes[name](*(_decoded(part, classes) for part in parts))


@cache
def _classes_in(kind: Any) -> Mapping[str, Callable[..., Any]]:
    """Return the constructors of all classes that values of this type may contain. Keys are class names."""
    constructors, kinds = {_name(built_in): create for built_in, (_, create) in _BUILT_IN.items()}, [kind]
    while kinds:
        part = kinds.pop()
        kinds += get_args(part)
        # Skip known classes, because classes can refer to each other.
        if _fields_of(part) is not None and _name(part) not in constructors:
            constructors[_name(part)] = part
            kinds += get_type_hints(part).values()
    return constructors


@cache
def _fields_of(kind: Any) -> tuple[str, ...] | None:
    """Return the field names of a dataclass or named tuple class, or None for other classes."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else getattr(kind, "_fields", None)


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
