"""The first code that runs on an executor: compare the executor with the driver before importing the connector.

The driver sends this module as source code, because executors may lack the connector. The module uses only Python's
standard library. Functions import modules when they run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

MARK = "destination-datalake executor: "
"""The prefix of the error message that `check` raises. A JSON object with facts about the executor follows the
prefix."""


def check_then_run(work: bytes, expected: dict[str, str], tasks: Iterable[Any]) -> Iterable[Any]:
    """Verify this executor with `check`, then run the pickled function `work` on the tasks. Return the results.

    Iterates over `tasks` only after the verification, because unpickling the tasks may require the connector. Raises
    the RuntimeError of `check`.
    """
    import pickle

    check(expected)
    results: Iterable[Any] = pickle.loads(work)(tasks)
    return results


def check(expected: dict[str, str]) -> None:
    """Raise RuntimeError if this executor's Python cannot run the driver's work.

    The message of the error is `MARK`, followed by a JSON object with facts about the executor. `expected` contains the
    connector's version. If the driver has sent its own packages, `expected` also contains the ABI of these packages:
    Python's minor version, the machine's architecture and the C library.
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
        except (ImportError, AttributeError, TypeError, ValueError) as error:
            # A library of another version can lack a name, or reject an argument, while it is imported.
            facts["unusable"] = f"{error} ({platform.machine()}, {' '.join(platform.libc_ver()).strip()})"
    raise RuntimeError(MARK + json.dumps(facts))
