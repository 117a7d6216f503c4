"""What becomes of a request between a catalog and its client."""

from collections.abc import Callable
from dataclasses import replace

from integration_tests.catalogs.refusal import Refused
from integration_tests.harness.loopback import Answer, HungUp, Request

Catalog = Callable[[Request], Answer]
Interference = Callable[[Request, Catalog], Answer]
"""Answers a request in a catalog's place, which it may ask, or not, or twice. Raises HungUp for no answer at all."""


def before(action: Callable[[], object]) -> Interference:
    """Act when the request has come, before the catalog sees it."""

    def interfere(request: Request, catalog: Catalog) -> Answer:
        action()
        return catalog(request)

    return interfere


def after(action: Callable[[], object]) -> Interference:
    """Act when the catalog has done what it was asked for, before the client knows."""

    def interfere(request: Request, catalog: Catalog) -> Answer:
        answer = catalog(request)
        action()
        return answer

    return interfere


def lost(status: int | None = None) -> Interference:
    """Lose the catalog's answer: a gateway says 500, 502 or 504 instead, or the connection is reset."""

    def interfere(request: Request, catalog: Catalog) -> Answer:
        catalog(request)
        if status is None:
            raise HungUp
        return Refused(status, "CommitStateUnknownException", "The answer of the server is lost").answer()

    return interfere


def cut(request: Request, catalog: Catalog) -> Answer:
    """Let the connection end in the middle of the catalog's answer."""
    return replace(catalog(request), is_cut=True)


def garbled(request: Request, catalog: Catalog) -> Answer:
    """Replace the catalog's answer by one that no client understands."""
    return replace(catalog(request), body=b"<html>Welcome</html>")


def refused(status: int) -> Interference:
    """Refuse the request, which the catalog has not seen."""
    return lambda _request, _catalog: Refused(status, "RefusedException", "Not for you").answer()


def unavailable(_request: Request, _catalog: Catalog) -> Answer:
    """Say that the catalog is busy, which has not seen the request."""
    return Refused(503, "SlowDownException", "Slow down").answer()


def sent_twice(request: Request, catalog: Catalog) -> Answer:
    """Lose the first answer, and repeat the request without the client, as proxies do."""
    catalog(request)
    return catalog(request)
