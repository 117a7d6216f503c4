"""msgspec: JSON that it rejects because of a value that is not decoded, and types that two threads decode first."""

from __future__ import annotations

import signal
import subprocess
import sys

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


FIRST_USE = """
import threading, msgspec

def decode():
    msgspec.json.decode(b'{"first": {}, "second": 1}', type=Outer)

def annotation():  # msgspec evaluates it while the description of Outer is incomplete.
    thread = threading.Thread(target=decode)
    thread.start()
    thread.join()
    return int

class Inner(msgspec.Struct):
    value: "annotation()" = 0

class Outer(msgspec.Struct):
    first: Inner
    second: int

msgspec.json.Decoder(Outer)
"""


def test_decoding_a_type_that_another_thread_prepares_crashes() -> None:
    assert subprocess.run([sys.executable, "-c", FIRST_USE]).returncode == -signal.SIGSEGV
