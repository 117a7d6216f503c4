"""Failures in the protocol's terms, without the CDK: executors and `spec` must not wait seconds for its import."""

from __future__ import annotations

from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]


class SyncRefused(Exception):
    """A sync that cannot be, found before anything is read. `message` says to the user what is wrong and what to do."""

    def __init__(self, message: str, failure_type: FailureType = "config_error") -> None:
        super().__init__(message)
        self.message = message
        self.failure_type = failure_type
