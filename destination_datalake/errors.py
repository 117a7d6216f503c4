"""Failures in the protocol's terms. Without the CDK, whose import would cost executors and `spec` seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something failed, as in a TRACE ERROR (protocol: AirbyteErrorTraceMessage).

    `message` is for the user: what, where, why, and what to do. `detail` is for the log. `type` says what can help: a
    change by the user (config_error), one by the developers (system_error), or a retry (transient_error).
    """

    message: str
    detail: str
    type: FailureType


class ConnectorError(Exception):
    """An error whose failure is known; its text is the failure's message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ConfigError(ConnectorError):
    """The configuration is not valid. `message` has a sentence for each problem and quotes no secret."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure(message, message, "config_error"))


class SyncRefused(ConnectorError):
    """A sync that cannot work, refused before anything is read. `message` says what is wrong and what to do."""

    def __init__(self, message: str, type: FailureType = "config_error") -> None:
        super().__init__(Failure(message, message, type))
