"""The limit of file descriptors, and the share of it for segments."""

from __future__ import annotations

import resource

from destination_datalake.buffer.descriptors import MAX_DESCRIPTORS, raise_limit, share_of_limit


def test_the_soft_limit_is_raised_to_the_hard_one_up_to_a_maximum() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_DESCRIPTORS if before[1] == resource.RLIM_INFINITY else min(before[1], MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raise_limit()

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_share_is_a_quarter_of_the_limit_at_most() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
        assert share_of_limit(256) == 256
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        assert share_of_limit(256) == 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
