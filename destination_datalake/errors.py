"""Failures as the Airbyte protocol reports them.

This module does not import the CDK, whose import would delay executors and the `spec` command by seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]
ErrorClass = Literal["insufficient_permissions", "invalid_settings", "internal"]
"""The class of an error. The class depends on the remedy: to grant permissions, to change options, or neither."""


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with control characters escaped, except line feeds and tabs."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def quoted(name: str) -> str:
    """Return an external name for use in a message: unchanged if it is one word, otherwise as a Python literal."""
    return name if re.fullmatch(r"[\w.$*\[\]…-]+", name) else repr(name)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun: `counted(2, "file")` is "2 files", `counted(1, "batch", "es")` is "1 batch"."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """A denied permission.

    `action` is an IAM action ("s3:PutObject") or a Lake Formation permission ("CREATE_TABLE"). `resource` is the ARN or
    name of the resource, or None if AWS does not report it.
    """

    action: str
    resource: str | None = None

    @property
    def in_iam(self) -> bool:
        """Whether the permission is an IAM action, not a Lake Formation permission."""
        return ":" in self.action


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure with its cause, as reported in a TRACE ERROR (protocol: AirbyteErrorTraceMessage).

    `message` is for the user and states the problem, the affected object, the cause and the remedy. `detail` is for the
    log. `type` is the kind of remedy: a change by the user (config_error), a change by the developers (system_error),
    or a retry (transient_error). `missing` is the denied permission, if a denial caused the failure.
    """

    message: str
    detail: str
    type: FailureType
    missing: MissingPermission | None = None

    @property
    def advice(self) -> str:
        """The message for the user.

        For a missing permission, also names the command that prints all required permissions.
        """
        if self.missing is None or "iam-policy" in self.message:
            return self.message
        option = "" if self.missing.in_iam else " --grants"
        return (
            f"{self.message} `destination-datalake iam-policy --config FILE{option}` prints all permissions that this "
            "configuration needs."
        )

    @property
    def error_class(self) -> ErrorClass:
        """The class of the failure, derived from its remedy."""
        if self.missing is not None:
            return "insufficient_permissions"
        return "invalid_settings" if self.type == "config_error" else "internal"


class ConnectorError(Exception):
    """An error with a known cause, `failure`. The text of the exception is the failure's message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ConfigError(ConnectorError):
    """Raised for an invalid configuration or catalog. `message` contains a line for each problem, but no secrets."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure(message, message, "config_error"))
