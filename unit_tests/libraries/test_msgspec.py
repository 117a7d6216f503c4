"""msgspec: JSON that it rejects because of a value that is not decoded."""

from __future__ import annotations

import msgspec
import pytest

pytestmark = pytest.mark.slow


class Wanted(msgspec.Struct):
    wanted: int


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b"NaN", msgspec.DecodeError),
        (b'"\\ud800"', msgspec.DecodeError),
        (b"[" * 2000 + b"]" * 2000, RecursionError),
    ],
    ids=["NaN", "lone surrogate", "deep nesting"],
)
def test_a_message_is_refused_for_a_value_that_is_skipped(value: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        msgspec.json.decode(b'{"skipped":%b,"wanted":1}' % value, type=Wanted)


def test_text_that_is_not_utf_8_raises_no_decode_error() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        msgspec.json.decode(b'"\xff"')

    assert not isinstance(caught.value, msgspec.DecodeError)


def test_a_lone_surrogate_cannot_be_encoded() -> None:
    with pytest.raises(UnicodeEncodeError):
        msgspec.json.encode("\ud800")
