"""A request to Lake Formation, and what an answer is made of: errors and pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.models import GlueBackend, glue_backends

from emulated_aws.lake_formation.model.state import Lake, lake_of

Json = dict[str, Any]

PAGE, LARGEST_PAGE = 10, 100
"""How many items a list has at most, if the caller does not say and if it does: few, so that clients ask for more.

`MaxResults` is "the maximum number of results to return"; AWS may return fewer, and then has a `NextToken`.
"""


class Refused(JsonRESTError):
    """An error of Lake Formation, with the code that its service model has."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error, self.text = error, text

    def detail(self) -> Json:
        """Return it as an item of `Failures` has it."""
        return {"ErrorCode": self.error, "ErrorMessage": self.text}


def invalid(text: str) -> Refused:
    return Refused("InvalidInputException", text)


def not_found(text: str) -> Refused:
    return Refused("EntityNotFoundException", text)


@dataclass(frozen=True)
class Call:
    """A request: whose account and region, and the members of its input."""

    account: str
    region: str
    body: Mapping[str, Any]

    @property
    def catalog(self) -> str:
        """The catalog's ID, the caller's account unless the request names one."""
        return str(self.body.get("CatalogId") or self.account)

    @cached_property
    def lake(self) -> Lake:
        """What Lake Formation knows in this account and region."""
        return lake_of(self.account, self.region)

    @property
    def glue(self) -> GlueBackend:
        """The Glue Data Catalog of this account and region."""
        return glue_backends[self.account][self.region]

    @property
    def principal(self) -> str | None:
        """The request's `Principal`, if it has one."""
        named = self.body.get("Principal")
        return None if named is None else str(named["DataLakePrincipalIdentifier"])

    def page(self, member: str, items: Sequence[Any]) -> Json:
        """Return an answer with the items that `MaxResults` and `NextToken` ask for."""
        begin, size = int(self.body.get("NextToken") or 0), min(int(self.body.get("MaxResults") or PAGE), LARGEST_PAGE)
        end = begin + size
        return {member: list(items[begin:end])} | ({"NextToken": str(end)} if end < len(items) else {})
