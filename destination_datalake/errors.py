"""Failures with the fields of the Airbyte protocol, and the exceptions that contain them.

This module does not import the CDK (Airbyte's connector development kit). The import would delay executors and the
`spec` command by seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FailureType = Literal["config_error", "system_error", "transient_error"]
ErrorClass = Literal["insufficient_permissions", "invalid_settings", "internal"]
"""The class of an error, by its remedy: grant permissions, change options, or neither of them."""


_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with control, formatting and surrogate characters escaped, except tabs and line feeds."""
    return _UNPRINTABLE.sub(lambda match: repr(match[0])[1:-1], text)


def quoted(name: str) -> str:
    """Return a name for a message: unchanged if it is one plain word, otherwise quoted as a Python literal."""
    return name if re.fullmatch(r"[\w.$*\[\]…-]+", name) else repr(name)


def counted(number: int, noun: str, ending: str = "s") -> str:
    """Return a number followed by a noun. The noun is in the plural unless the number is 1.

    `ending` is the plural ending: `counted(2, "file")` is "2 files", and `counted(2, "batch", "es")` is "2 batches".
    """
    return f"{number:,} {noun}{'' if number == 1 else ending}"


@dataclass(frozen=True, slots=True)
class MissingPermission:
    """A permission that AWS denied.

    `action` is an IAM action such as "s3:PutObject", or a Lake Formation permission such as "CREATE_TABLE". `resource`
    is the ARN or name of the resource, or None if AWS did not name it.
    """

    action: str
    resource: str | None = None

    @property
    def in_iam(self) -> bool:
        """Whether `action` is an IAM action. Otherwise it is a Lake Formation permission."""
        return ":" in self.action


@dataclass(frozen=True, slots=True)
class Failure:
    """The content of a TRACE ERROR message (protocol: AirbyteErrorTraceMessage).

    `message` describes the problem, the affected object, the cause and the remedy to the user. `detail` is for the log.
    `missing` is the denied permission if AWS denied a request, or else None. `type` states who can correct the failure:

    - config_error: the user, by changing the configuration.
    - system_error: the developers, by changing the software.
    - transient_error: nobody needs to; a later sync may succeed.
    """

    message: str
    detail: str
    type: FailureType
    missing: MissingPermission | None = None

    @property
    def advice(self) -> str:
        """The message for the user. If a permission is missing, also names the command that prints all permissions."""
        if self.missing is None or "iam-policy" in self.message:
            return self.message
        option = "" if self.missing.in_iam else " --grants"
        return (
            f"{self.message} Run `destination-datalake iam-policy --config FILE{option}` to print all permissions that "
            "this configuration needs."
        )

    @property
    def error_class(self) -> ErrorClass:
        """The error's class.

        insufficient_permissions if a permission is missing, invalid_settings for any other config_error, otherwise
        internal.
        """
        if self.missing is not None:
            return "insufficient_permissions"
        return "invalid_settings" if self.type == "config_error" else "internal"


class ConnectorError(Exception):
    """Raised for an error with a known cause. `failure` describes the error. `str` returns the failure's message."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class ConfigError(ConnectorError):
    """Raised for an invalid configuration or catalog.

    `message` contains one line per problem and no secrets. The failure's type is config_error.
    """

    def __init__(self, message: str) -> None:
        super().__init__(Failure(message, message, "config_error"))
