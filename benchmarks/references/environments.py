"""Create environments for references whose requirements conflict with the connector's."""

from functools import cache
from pathlib import Path

from integration_tests.clients.environments import make
from unit_tests.repository.files import ROOT


@cache
def dlt_python() -> Path:
    """Return the path of the Python interpreter with dlt. The first call downloads the packages pinned in dlt.txt."""
    return make(ROOT / ".references" / "dlt", Path(__file__).with_name("dlt.txt"))
