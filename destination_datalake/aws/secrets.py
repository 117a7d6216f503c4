"""The secrets of this process, and those in URLs, masked in every text that leaves it.

They are those of the options, and the credentials that requests were signed with. Temporary credentials are renewed
during a sync; every generation of them is kept. AWS's error texts may contain them (a canonical request contains the
session token), and so may those of a server that repeats what it was sent.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote

_MASK = "****"
_MIN_LENGTH = 6
"""Characters of the shortest password that Java's key tool accepts; nothing shorter is treated as a secret."""

_ORDINARY = re.compile(
    r"[-+.,:\d]{1,15}\s?[a-z]{0,3}"  # numbers and durations, shorter than any key
    r"|true|false|default|enabled|disabled|required|optional|always|simple|static|custom|kerberos|anonymous|bearer"
    r"|(?-i:[a-z]\w*(\.[a-z]\w*)+\.[A-Z][\w$]*)",  # a Java class
    re.IGNORECASE,
)
"""Values of settings with a secretive name that are no secrets: masking them would take words out of every message."""

# AWS's error texts may quote requests of other processes, such as executors, whose tokens are not registered here.
_SESSION_TOKEN = re.compile(r"(x-amz-security-token[\"']?\s*[:=]\s*[\"']?)[^\s\"'&<>,;\\]+", re.IGNORECASE)

_URL = re.compile(r"\b(?!s3[an]?:)([a-z][a-z0-9+.-]*://)([^\s/?#\"<>]*@)?([^\s?#\"<>]*)(\?[^\s#\"<>]*)?", re.IGNORECASE)
"""Scheme, user, host with path, and query. Keys in S3 have neither: `@` and `?` are characters like others there."""

_PARAMETER = re.compile(r"([?&])([^=&]*=)?[^&]*")

_lock = threading.Lock()
_secrets: frozenset[str] = frozenset()
_spellings: tuple[str, ...] = ()


def register_secrets(*secrets: str | None) -> None:
    """Mask these from now on, in every spelling. Thread-safe. Texts too short or too common for a secret are not."""
    global _secrets, _spellings
    new = {secret for secret in secrets if secret is not None and _may_be_secret(secret)}
    if new.issubset(_secrets):
        return
    with _lock:
        _secrets = _secrets | new
        # The longest first: a secret that contains another one must not leave its tail behind.
        spellings = {spelling for secret in _secrets for spelling in _spelled(secret)}
        _spellings = tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling)))


def mask_secrets(text: str) -> str:
    """Return the text with `****` in place of secrets.

    They are every registered secret, session tokens behind their name, users and passwords in URLs, and the values of
    parameters in URLs.
    """
    for spelling in _spellings:
        text = text.replace(spelling, _MASK)
    text = _SESSION_TOKEN.sub(rf"\g<1>{_MASK}", text)
    return _URL.sub(_mask_url, text) if "://" in text else text


def _mask_url(found: re.Match[str]) -> str:
    scheme, user, address, query = found.groups("")
    user = f"{_MASK}@" if user else ""
    return scheme + user + address + _PARAMETER.sub(rf"\g<1>\g<2>{_MASK}", query)


def _may_be_secret(text: str) -> bool:
    return len(text) >= _MIN_LENGTH and _ORDINARY.fullmatch(text) is None


def _spelled(secret: str) -> Iterator[str]:
    """Yield the secret as texts may have it: as it is, in JSON, in Python's and in an URL."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield quote(secret.encode("utf-8", "surrogatepass"), safe="")
