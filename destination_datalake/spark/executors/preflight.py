"""The first code that runs on an executor: compare the executor with the driver before importing the connector.

This module is sent as source, because the connector may be missing on executors. It uses only Python's standard
library, and its functions import modules themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MARK = "destination-datalake executor: "
"""The prefix of the errors of `check`. A JSON object with the executor's facts follows."""


def check_then_run(work: bytes, expected: dict[str, str], tasks: Iterable[Any]) -> Iterable[Any]:
    """Compare this executor with the driver, then run the pickled `work` on the tasks.

    `tasks` are iterated afterwards, because unpickling them may need the connector. Raises RuntimeError as `check`
    does.
    """
    import pickle

    check(expected)
    results: Iterable[Any] = pickle.loads(work)(tasks)
    return results


def check(expected: dict[str, str]) -> None:
    """Raise RuntimeError with `MARK` and this executor's facts if its Python cannot run the driver's work.

    `expected` has the connector's version and, if the driver has sent its own packages, their ABI, which names Python's
    minor version, the machine's architecture and the C library.
    """
    import json
    import platform
    import socket
    import sys
    import sysconfig
    from importlib import metadata

    facts = {"host": socket.gethostname(), "interpreter": sys.executable}
    abi = str(sysconfig.get_config_var("SOABI"))
    if expected.get("abi", abi) != abi:
        facts["abi"] = abi
    else:
        try:
            version = metadata.version("destination-datalake")
            if version != expected["version"]:
                facts["version"] = version
            else:
                import pyarrow  # noqa: F401

                import destination_datalake.files.encode  # noqa: F401

                return
        except metadata.PackageNotFoundError:
            facts["missing"] = "destination-datalake"
        except ImportError as error:
            facts["unusable"] = f"{error} ({platform.machine()}, {' '.join(platform.libc_ver()).strip()})"
    raise RuntimeError(MARK + json.dumps(facts))
