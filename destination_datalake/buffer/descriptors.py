"""File descriptors: how many this process may have open."""

from __future__ import annotations

import resource

MAX_DESCRIPTORS = 65_536
"""With a higher limit, programs that close every possible descriptor before an exec become slow."""


def raise_limit() -> None:
    """Raise the soft limit, often 1,024, to the hard one: the connections and files of each stream take some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def share_of_limit(wanted: int) -> int:
    """Return `wanted`, or a quarter of the process's limit if that is less: connections and Spark need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(1, min(wanted, soft // 4))
