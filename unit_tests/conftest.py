"""What all unit tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from unit_tests.examples import PLAIN

if TYPE_CHECKING:
    from unit_tests.cloud import Cloud

# Laws are tried on new examples at every run; where a run decides whether a change lands, on the same ones each time.
# How long a busy machine takes for an example says nothing.
settings.register_profile("connector", deadline=None, derandomize="CI" in os.environ, max_examples=PLAIN)
settings.load_profile("connector")


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """An AWS account inside the test's own process, with an empty bucket."""
    from unit_tests.cloud import cloud as account  # Most tests need no AWS, and moto takes a while to import.

    with account() as lent:
        yield lent
