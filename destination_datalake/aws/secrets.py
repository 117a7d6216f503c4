"""The credentials that this process has signed with, so that no text that leaves it shows them.

Those of a role or an instance are replaced as long as a sync lasts; each generation of them is remembered. AWS's own
error texts may hold them (a canonical request names the session token).
"""

from __future__ import annotations

import threading

_MASK = "****"
_SHORTEST = 16
"""Characters of the shortest access key id there is (IAM API: AccessKey); nothing shorter is taken for a secret."""

_lock = threading.Lock()
_used: tuple[str, ...] = ()


def register_secrets(*secrets: str | None) -> None:
    """Mask these from now on."""
    global _used
    new = {secret for secret in secrets if secret is not None and len(secret) >= _SHORTEST}
    if new.issubset(_used):
        return
    with _lock:
        # The longest first: a secret that contains another one must not leave its tail behind.
        _used = tuple(sorted({*_used, *new}, key=lambda secret: (-len(secret), secret)))


def known_secrets() -> tuple[str, ...]:
    """Return what was remembered, the longest first."""
    return _used


def mask_secrets(text: str) -> str:
    """Return the text with `****` in the place of whatever was remembered."""
    for secret in _used:
        text = text.replace(secret, _MASK)
    return text
