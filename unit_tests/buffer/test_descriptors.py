"""File descriptors: as many as this process may have."""

from __future__ import annotations

import resource

from destination_datalake.buffer.descriptors import ENOUGH, raise_limit, share


def test_the_soft_limit_becomes_the_hard_one_within_reason() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = ENOUGH if before[1] == resource.RLIM_INFINITY else min(before[1], ENOUGH)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        raise_limit()

        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
        raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_segments_take_no_more_than_a_quarter_of_what_the_process_may_have() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
        assert share(256) == 256
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, before[1]))
        assert share(256) == 32
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
