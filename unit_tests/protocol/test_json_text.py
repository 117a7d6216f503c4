"""JSON text taken apart with every value as received, also where decoders refuse it."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.protocol.json_text import (
    TooDeep,
    decode,
    elements_or_none,
    members,
    members_or_none,
    object_of,
    readable,
    string_or_none,
)

DEEP = b"[" * 100_000 + b"]" * 100_000
IRREGULAR = [b"NaN", b"-Infinity", b'"\\ud83d"', b'{"\\udc00":1}', b"1" * 5_000, b"1e400"]
MALFORMED = [b"", b"{", b'{"a":1', b'{"a":1}}', b'{"a" 1}', b'{"a":1,}', b'{"a":yes}', b'{"a":[1}', b'{"a":"\x01"}']

_text = st.text(st.characters())
_keys = st.text(st.characters(), max_size=5)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=10,
)
_spelling = st.fixed_dictionaries(
    {"ensure_ascii": st.just(True), "separators": st.sampled_from([(",", ":"), (" ,\t", "\n: ")])}
)
"""Lone surrogates have no UTF-8, so they are sent as escapes; NaN and the infinities are sent by name."""


class Named(msgspec.Struct):
    name: str


# --- Messages


@pytest.mark.parametrize("value", IRREGULAR)
def test_a_named_member_is_decoded_whatever_stands_beside_it(value: bytes) -> None:
    assert decode(b'{"a":' + value + b',"name":"orders"}', Named).name == "orders"


@pytest.mark.parametrize("value", IRREGULAR)
def test_a_member_of_the_wrong_type_is_a_validation_error_whatever_stands_beside_it(value: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$\.name`"):
        decode(b'{"a":' + value + b',"name":7}', Named)


@pytest.mark.parametrize("read", [readable, members, lambda text: decode(text, dict)])
@pytest.mark.parametrize("text", [*MALFORMED, b"\xff"])
def test_malformed_text_is_a_decode_error(read: Callable[[bytes], object], text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read(text)


@pytest.mark.parametrize("text", [b"[]", b"null", b'"a"', b"[NaN]"])
def test_members_of_anything_but_an_object_are_a_validation_error(text: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `object`"):
        members(text)


@pytest.mark.parametrize("value", [b"1.50", b'"\\u00e9\\/"', b'{ "a" : [ 1 ] }', *IRREGULAR])
def test_members_have_their_bytes_as_received(value: bytes) -> None:
    text = b'{"id":7,"a":' + value + b',"b":null}'

    texts = members(text)

    assert {key: bytes(raw) for key, raw in texts.items()} == {"id": b"7", "a": value, "b": b"null"}
    assert object_of(texts) == text


@pytest.mark.parametrize("read", [readable, members, lambda text: decode(text, dict)])
def test_a_text_nested_too_deeply_is_refused(read: Callable[[bytes], object]) -> None:
    with pytest.raises(TooDeep, match="nested too deeply"):
        read(b'{"a":' + DEEP + b"}")


def test_a_key_without_utf_8_is_written_as_an_escape() -> None:
    text = b'{"\\ud83d":1,"\xc3\xa9":2}'

    assert object_of(members(text)) == text


@given(value=_values, spelling=_spelling)
def test_a_readable_text_has_the_same_shape_and_is_decoded_by_msgspec(
    value: object, spelling: dict[str, object]
) -> None:
    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {without_surrogates(key): shape(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        if isinstance(value, str):
            return without_surrogates(value)
        return value if value is None or isinstance(value, bool) else "a number"

    def numbers_replaced(value: object) -> object:
        if isinstance(value, dict):
            return {key: numbers_replaced(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [numbers_replaced(inner) for inner in value]
        return "a number" if isinstance(value, int) and not isinstance(value, bool) else value

    text = json.dumps(value, **spelling).encode()  # type: ignore[arg-type]

    assert numbers_replaced(msgspec.json.decode(readable(text))) == shape(value)


def without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- Values of records


@given(value=st.dictionaries(_keys, _values), spelling=_spelling)
def test_members_are_those_of_python_s_decoder(value: dict[str, object], spelling: dict[str, object]) -> None:
    texts = members_or_none(json.dumps(value, **spelling).encode())  # type: ignore[arg-type]

    assert texts is not None
    assert list(texts) == list(value)
    assert [repr(json.loads(text)) for text in texts.values()] == [repr(inner) for inner in value.values()]


@given(value=st.lists(_values), spelling=_spelling)
def test_elements_are_those_of_python_s_decoder(value: list[object], spelling: dict[str, object]) -> None:
    texts = elements_or_none(json.dumps(value, **spelling).encode())  # type: ignore[arg-type]

    assert texts is not None
    assert [repr(json.loads(text)) for text in texts] == [repr(inner) for inner in value]


def test_the_last_of_equal_keys_counts() -> None:
    assert members_or_none(b'{"a":1,"a":NaN}') == members_or_none(b'{"a":NaN}') == {"a": b"NaN"}
    assert members_or_none(b'{"a":1,"a":2}') == {"a": b"2"}


def test_bytes_that_are_not_utf_8_are_kept() -> None:
    assert members_or_none(b'{"a":"\xff"}') == {"a": b'"\xff"'}
    assert elements_or_none(b'["\xff",1]') == [b'"\xff"', b"1"]
    assert string_or_none(b'"\xff"') is None


@pytest.mark.parametrize("text", [*MALFORMED, b"[]", b"1", b'{"a":' + DEEP + b"}"])
def test_other_texts_than_objects_have_no_members(text: bytes) -> None:
    assert members_or_none(text) is None


@pytest.mark.parametrize("text", [b"", b"[", b"[1", b"[1]]", b"[1,]", b"[NaN,]", b"{}", b"1", DEEP])
def test_other_texts_than_arrays_have_no_elements(text: bytes) -> None:
    assert elements_or_none(text) is None


@pytest.mark.parametrize(
    ("text", "content"),
    [(b'"\\u00e9\\n"', "é\n"), (b'""', ""), (b'"\\ud83d"', None), (b"1", None), (b'"a', None), (b"", None)],
)
def test_a_string_has_its_content_if_utf_8_can_encode_it(text: bytes, content: str | None) -> None:
    assert string_or_none(text) == content
