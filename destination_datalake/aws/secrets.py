"""Masking of secrets of this process, and of secrets in URLs, in all output.

The secrets are those of the options and the credentials of signed requests, including all generations of renewed
temporary credentials. Error texts may contain them: AWS quotes canonical requests, which contain the session token, and
a server may quote the request.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from urllib.parse import quote

_MASK = "****"
_MIN_LENGTH = 6
"""The minimum length of a secret: that of passwords of Java's key tool."""

_ORDINARY = re.compile(
    r"[-+.,:\d]{1,15}\s?[a-z]{0,3}"  # numbers and durations, shorter than any key
    r"|true|false|default|enabled|disabled|required|optional|always|simple|static|custom|kerberos|anonymous|bearer"
    r"|(?-i:[a-z]\w*(\.[a-z]\w*)+\.[A-Z][\w$]*)",  # a Java class
    re.IGNORECASE,
)
"""Values that are not secrets even in settings with a secret's name. Masking them would remove words from messages."""

# AWS's error texts may quote requests of other processes, such as executors, with tokens that are not registered here.
_SESSION_TOKEN = re.compile(r"(x-amz-security-token[\"']?\s*[:=]\s*[\"']?)[^\s\"'&<>,;\\]+", re.IGNORECASE)

_URL = re.compile(r"\b(?!s3[an]?:)([a-z][a-z0-9+.-]*://)([^\s/?#\"<>]*@)?([^\s?#\"<>]*)(\?[^\s#\"<>]*)?", re.IGNORECASE)
"""Scheme, user, host with path, and query. S3 addresses are excluded: in keys, `@` and `?` have no special meaning."""

_PARAMETER = re.compile(r"([?&])([^=&]*=)?[^&]*")

_lock = threading.Lock()
_secrets: frozenset[str] = frozenset()
_spellings: tuple[str, ...] = ()


def register_secrets(*secrets: str | None) -> None:
    """Mask these secrets from now on, in all spellings. Thread-safe. Short and common texts are ignored."""
    global _secrets, _spellings
    new = {secret for secret in secrets if secret is not None and _may_be_secret(secret)}
    if new.issubset(_secrets):
        return
    with _lock:
        _secrets = _secrets | new
        # Longest first, because a secret may contain another one.
        spellings = {spelling for secret in _secrets for spelling in _spelled(secret)}
        _spellings = tuple(sorted(spellings, key=lambda spelling: (-len(spelling), spelling)))


def mask_secrets(text: str) -> str:
    """Return the text with secrets replaced by `****`.

    This covers registered secrets, session tokens after their name, and users, passwords and parameter values in URLs.
    """
    for spelling in _spellings:
        text = text.replace(spelling, _MASK)
    text = _SESSION_TOKEN.sub(rf"\g<1>{_MASK}", text)
    return _URL.sub(_mask_url, text) if "://" in text else text


def _mask_url(match: re.Match[str]) -> str:
    scheme, user, address, query = match.groups("")
    user = f"{_MASK}@" if user else ""
    return scheme + user + address + _PARAMETER.sub(rf"\g<1>\g<2>{_MASK}", query)


def _may_be_secret(text: str) -> bool:
    return len(text) >= _MIN_LENGTH and _ORDINARY.fullmatch(text) is None


def _spelled(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret in texts: plain, in JSON, as a Python literal, and in a URL."""
    yield secret
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    yield repr(secret)[1:-1]
    yield quote(secret.encode("utf-8", "surrogatepass"), safe="")
