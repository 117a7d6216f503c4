"""A request to Lake Formation, and the errors and pages of responses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.models import GlueBackend, glue_backends

from emulated_aws.lake_formation.model.state import Lake, lake_of

Json = dict[str, Any]

PAGE, LARGEST_PAGE = 10, 100
"""The default and the maximum number of items per page. The numbers are small, so that clients must read several pages.

`MaxResults` is "the maximum number of results to return". AWS may return fewer results, with a `NextToken`.
"""


class Refused(JsonRESTError):
    """An error of Lake Formation, with an error code of its service model."""

    def __init__(self, error: str, text: str) -> None:
        super().__init__(error, text)
        self.error, self.text = error, text

    def detail(self) -> Json:
        """Return the error in the form of an item of `Failures`."""
        return {"ErrorCode": self.error, "ErrorMessage": self.text}


def invalid(text: str) -> Refused:
    return Refused("InvalidInputException", text)


def not_found(text: str) -> Refused:
    return Refused("EntityNotFoundException", text)


@dataclass(frozen=True)
class Call:
    """A request: the account, the region, and the members of the request's input."""

    account: str
    region: str
    body: Mapping[str, Any]

    @property
    def catalog(self) -> str:
        """The ID of the catalog. By default, this is the ID of the caller's account."""
        return str(self.body.get("CatalogId") or self.account)

    @cached_property
    def lake(self) -> Lake:
        """The state of Lake Formation in this account and region."""
        return lake_of(self.account, self.region)

    @property
    def glue(self) -> GlueBackend:
        """The Glue Data Catalog of this account and region."""
        return glue_backends[self.account][self.region]

    @property
    def principal(self) -> str | None:
        """The member `Principal` of the request, or None if the request contains no principal."""
        named = self.body.get("Principal")
        return None if named is None else str(named["DataLakePrincipalIdentifier"])

    def page(self, member: str, items: Sequence[Any]) -> Json:
        """Return a response with the page of items that `MaxResults` and `NextToken` select."""
        begin, size = int(self.body.get("NextToken") or 0), min(int(self.body.get("MaxResults") or PAGE), LARGEST_PAGE)
        end = begin + size
        return {member: list(items[begin:end])} | ({"NextToken": str(end)} if end < len(items) else {})
