"""Failures in the protocol's terms. Does not import the CDK, which would delay executors and `spec` by seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]
ErrorClass = Literal["insufficient_permissions", "invalid_settings", "internal"]
"""The remedy: a change of permissions, a change of options, or neither."""


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with control characters escaped, except line feeds and tabs."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def quoted(name: str) -> str:
    """Return an external name for a message: unchanged if it is one word, otherwise as a Python literal."""
    return name if re.fullmatch(r"[\w.$*\[\]…-]+", name) else repr(name)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with a noun: `counted(2, "file")` is "2 files", `counted(1, "batch", "es")` is "1 batch"."""
    return f"{number:,} {noun}{'' if number == 1 else ending}"


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """A denied permission: `action` is an IAM action ("s3:PutObject") or a Lake Formation permission ("CREATE_TABLE").

    `resource` is the ARN or name of the resource; None if AWS does not report it.
    """

    action: str
    resource: str | None = None

    @property
    def in_iam(self) -> bool:
        """Whether it is a permission of IAM, not of Lake Formation."""
        return ":" in self.action


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of a failure, as in a TRACE ERROR (protocol: AirbyteErrorTraceMessage).

    `message` is for the user and has the problem, the place, the cause and the remedy. `detail` is for the log. `type`
    is the kind of remedy: a change by the user (config_error), a change by the developers (system_error), or a retry
    (transient_error). `missing` is the denied permission, if that is the cause.
    """

    message: str
    detail: str
    type: FailureType
    missing: MissingPermission | None = None

    @property
    def advice(self) -> str:
        """The message and, for a missing permission, the command that prints all required permissions."""
        if self.missing is None or "iam-policy" in self.message:
            return self.message
        option = "" if self.missing.in_iam else " --grants"
        return (
            f"{self.message} `destination-datalake iam-policy --config FILE{option}` prints all permissions that this "
            "configuration needs."
        )

    @property
    def error_class(self) -> ErrorClass:
        """The class of the error, by its remedy."""
        if self.missing is not None:
            return "insufficient_permissions"
        return "invalid_settings" if self.type == "config_error" else "internal"


class ConnectorError(Exception):
    """An error with a known failure. Its text is the failure's message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ConfigError(ConnectorError):
    """An invalid configuration or catalog. `message` has a line for each problem, without secrets."""

    def __init__(self, message: str) -> None:
        super().__init__(Failure(message, message, "config_error"))
