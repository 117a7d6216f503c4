"""Results as data: executors encode them, and the driver decodes them by the type that the work declares.

A server sends what it likes, and a pickle runs code. MessagePack has values alone; one of a class is an array of the
class's name and its fields, and is read where the declared type has that class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from functools import cache, partial
from types import EllipsisType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from destination_datalake.spark.backend import Consume, Result

_PLAIN = frozenset((NoneType, bool, int, float, bytes))


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
    """Return the results, each of which is a value of the type `kind`. Raises InvalidResults."""
    try:
        values = msgspec.msgpack.decode(data, ext_hook=_special)
        return [_reader(kind)(value) for value in _array(values)]
    except (msgspec.MsgspecError, ArithmeticError, ValueError) as error:
        raise InvalidResults(f"Spark's answer is not the result of the job: {error}") from error


def result_type(work: Callable[..., Any]) -> Any:
    """Return the type of one result, from the annotation of the work: `Iterator[int]` is of ints.

    That of a partial of work within other work, such as `metered`, is generic in that of the inner one.
    """
    function, given = (work.func, work.args) if isinstance(work, partial) else (work, ())
    (kind,) = get_args(get_type_hints(function)["return"])
    return kind[result_type(given[0])] if getattr(kind, "__parameters__", ()) else kind


def _encoded(value: Any) -> Any:
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is str:
        return value if value.isascii() else _text(value)
    if (names := _fields_of(kind)) is not None:
        return [kind.__name__, *(_encoded(getattr(value, name)) for name in names)]
    if isinstance(value, Mapping):
        return [[_encoded(key), _encoded(each)] for key, each in value.items()]
    if isinstance(value, tuple | list | frozenset):
        return [_encoded(each) for each in value]
    if (code := _CODES.get(kind)) is not None:
        return msgspec.msgpack.Ext(code, _SPECIAL[code][1](value).encode())
    raise TypeError(f"{kind.__qualname__} cannot be a part of a result")


def _text(value: str) -> str | msgspec.msgpack.Ext:
    """Return the text, or as it stands in Python if UTF-8 has none of its characters: half a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return msgspec.msgpack.Ext(_SURROGATES, value.encode("utf-8", "surrogatepass"))
    return value


_SURROGATES = 0
_SPECIAL: Mapping[int, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    1: (Decimal, str, Decimal),
    2: (datetime, datetime.isoformat, datetime.fromisoformat),
    3: (date, date.isoformat, date.fromisoformat),
    4: (time, time.isoformat, time.fromisoformat),
    5: (EllipsisType, lambda _: "", lambda _: ...),
}
"""What MessagePack has no type for, by the code of its extension: the type, its text, and how that is read."""

_CODES: Mapping[type, int] = {kind: code for code, (kind, _, _) in _SPECIAL.items()}
_SCALARS = _PLAIN | {str, *_CODES}


def _special(code: int, data: memoryview) -> Any:
    if code == _SURROGATES:
        return str(data, "utf-8", "surrogatepass")
    if code not in _SPECIAL:
        raise InvalidResults(f"Spark's answer has an extension {code}.")
    return _SPECIAL[code][2](str(data, "utf-8"))


@cache
def _fields_of(kind: Any) -> tuple[str, ...] | None:
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else None


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what checks a decoded value against a type, and makes the values of classes. It raises InvalidResults."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _of_union(parts)
    if origin is Literal:
        return lambda value: value if value in parts else _refuse(value)
    if kind is Any:
        return _of_scalars(_SCALARS)
    if kind in _SCALARS:
        return _of_scalars(frozenset((kind, int)) if kind is float else frozenset((kind,)))
    if _fields_of(kind) is not None:
        return _of_class(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _of_tuple([get_type_hints(kind)[name] for name in kind._fields], lambda values: kind(*values))
    if origin is tuple and parts[-1] is not ...:
        return _of_tuple(parts, tuple)
    if origin in (tuple, list, frozenset):
        read = _reader(parts[0])
        return lambda value: origin([read(each) for each in _array(value)])
    if isinstance(origin, type) and issubclass(origin, Mapping):
        pair = _of_tuple(parts, tuple)
        return lambda value: dict(pair(each) for each in _array(value))
    raise TypeError(f"{kind} cannot be a part of a result")


def _of_scalars(kinds: frozenset[type]) -> Callable[[Any], Any]:
    return lambda value: value if type(value) in kinds else _refuse(value)


def _of_class(kind: type) -> Callable[[Any], Any]:
    name, readers = kind.__name__, list[Callable[[Any], Any]]()
    count = len(_fields_of(kind) or ()) + 1

    def read(value: Any) -> Any:
        if type(value) is not list or len(value) != count or value[0] != name:
            _refuse(value)
        if len(readers) < count:
            # Not before the first value: types of columns contain each other.
            hints = get_type_hints(kind)
            readers[:] = [_refuse, *(_reader(hints[each]) for each in _fields_of(kind) or ())]
        return kind(*[readers[place](value[place]) for place in range(1, count)])

    return read


def _of_union(parts: Sequence[Any]) -> Callable[[Any], Any]:
    classes = {part.__name__: _reader(part) for part in parts if _fields_of(part) is not None}
    scalars = frozenset(part for part in parts if part in _SCALARS)
    others = [_reader(part) for part in parts if part not in scalars and _fields_of(part) is None]

    def read(value: Any) -> Any:
        if type(value) in scalars:
            return value
        if type(value) is list and value and type(value[0]) is str and value[0] in classes:
            return classes[value[0]](value)
        return others[0](value) if others else _refuse(value)

    return read


def _of_tuple(parts: Sequence[Any], make: Callable[[Iterable[Any]], Any]) -> Callable[[Any], Any]:
    readers = [_reader(part) for part in parts]

    def read(value: Any) -> Any:
        if len(_array(value)) != len(readers):
            _refuse(value)
        return make(each(given) for each, given in zip(readers, value, strict=True))

    return read


def _array(value: Any) -> list[Any]:
    return value if type(value) is list else _refuse(value)


def _refuse(value: Any) -> Any:
    raise InvalidResults(f"Spark's answer has a {type(value).__name__} where the result of the job has something else.")
