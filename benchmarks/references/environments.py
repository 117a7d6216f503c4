"""Environments of references whose requirements contradict the connector's."""

from functools import cache
from pathlib import Path

from integration_tests.clients.environments import make
from unit_tests.repository.files import ROOT


@cache
def dlt_python() -> Path:
    """Return the Python that has dlt. The first call downloads what dlt.txt pins."""
    return make(ROOT / ".references" / "dlt", Path(__file__).with_name("dlt.txt"))
