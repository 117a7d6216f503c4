"""File descriptors: as many as this process may have."""

from __future__ import annotations

import resource

ENOUGH = 65_536
"""More only makes those programs slow that look at every possible one of them."""


def raise_limit() -> None:
    """Raise the soft limit, often 1,024, to the hard one: each stream's connections and files take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def share(wanted: int) -> int:
    """So many, or a quarter of the process's limit if that is less: connections and Spark need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 4))
