"""The credentials that this process has signed requests with, masked in every text that leaves it.

Temporary credentials are renewed during a sync; every generation of them is kept. AWS's error texts may contain them (a
canonical request contains the session token).
"""

from __future__ import annotations

import threading

_MASK = "****"
_MIN_LENGTH = 16
"""Characters of the shortest valid access key id (IAM API: AccessKey); nothing shorter is treated as a secret."""

_lock = threading.Lock()
_secrets: tuple[str, ...] = ()


def register_secrets(*secrets: str | None) -> None:
    """Mask these from now on. Thread-safe."""
    global _secrets
    new = {secret for secret in secrets if secret is not None and len(secret) >= _MIN_LENGTH}
    if new.issubset(_secrets):
        return
    with _lock:
        # The longest first: a secret that contains another one must not leave its tail behind.
        _secrets = tuple(sorted({*_secrets, *new}, key=lambda secret: (-len(secret), secret)))


def known_secrets() -> tuple[str, ...]:
    """Return all registered secrets, the longest first."""
    return _secrets


def mask_secrets(text: str) -> str:
    """Return the text with `****` in place of every registered secret."""
    for secret in _secrets:
        text = text.replace(secret, _MASK)
    return text
