"""Results as data: executors encode them, and the driver makes values of the classes that the work declares, alone.

A server sends what it likes, and a pickle runs code. MessagePack has values alone; one that it has no type for is an
array of the name of its class and its parts.
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
"""By class: the parts of a value, and what makes the value of them."""


class InvalidResults(Exception):
    """A job has ended well, and what it has sent are not the results that it was asked for."""


def answers(work: Callable[[Iterable[Any]], Iterable[Any]], tasks: Iterable[Any]) -> Iterator[bytes]:
    """Run the work on the tasks, on an executor; yield its results, encoded together."""
    results = list(work(tasks))
    if results:
        yield encode(results)


def consume_partitions(
    consume: Consume[Result], partitions: Iterable[tuple[int, Iterator[bytes]]]
) -> Iterator[tuple[int, bytes]]:
    """Consume the partitions of a shuffle, on an executor; yield the results of each, encoded."""
    for number, payloads in partitions:
        yield number, encode(list(consume(number, payloads)))


def encode(results: Sequence[Any]) -> bytes:
    """Return the results as MessagePack. Raises TypeError for a value of a class that has no encoding."""
    return msgspec.msgpack.encode([_encoded(result) for result in results])


def decode(data: bytes, kind: Any) -> list[Any]:
    """Return the results, each of which is of the class `kind`, or of one in the union. Raises InvalidResults."""
    try:
        classes = _classes_in(kind)
        results = [_decoded(value, classes) for value in msgspec.msgpack.decode(data, type=list)]
    except Exception as error:
        raise InvalidResults(f"Spark's answer is not the result of the job: {error}") from error
    if not all(isinstance(result, kind) for result in results):
        raise InvalidResults("Spark's answer has other values than the results of the job.")
    return results


def result_type(work: Callable[..., Any]) -> Any:
    """Return the type of one result, from the annotation of the work: `Iterator[int]` is of ints.

    That of a partial of work within other work, such as `metered`, is generic in that of the inner one.
    """
    function, given = (work.func, work.args) if isinstance(work, partial) else (work, ())
    (kind,) = get_args(get_type_hints(function)["return"])
    return kind[result_type(given[0])] if getattr(kind, "__parameters__", ()) else kind


def _encoded(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _PLAIN and (kind is not str or value.isascii()):
        return value
    if (names := _fields_of(kind)) is not None:
        parts: Iterable[Any] = (getattr(value, name) for name in names)
    elif kind in _BUILT_IN:
        parts = _BUILT_IN[kind][0](value)
    else:
        raise TypeError(f"{kind.__qualname__} cannot be a part of a result")
    return [_name(kind), *map(_encoded, parts)]


def _decoded(value: Any, classes: Mapping[str, Callable[..., Any]]) -> Any:
    if type(value) in _PLAIN:
        return value
    name, *parts = value
    return classes[name](*(_decoded(part, classes) for part in parts))


@cache
def _classes_in(kind: Any) -> Mapping[str, Callable[..., Any]]:
    """Return what makes the values that one of this type may consist of, by the names of their classes."""
    found, kinds = {_name(each): make for each, (_, make) in _BUILT_IN.items()}, [kind]
    while kinds:
        each = kinds.pop()
        kinds += get_args(each)
        if _fields_of(each) is not None and _name(each) not in found:
            found[_name(each)] = each
            kinds += get_type_hints(each).values()
    return found


@cache
def _fields_of(kind: Any) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass or of a class of named tuples; None of anything else."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else getattr(kind, "_fields", None)


def _name(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
