"""The Python of executors on other machines: select it, send work to it, and explain differences from the driver's."""

from __future__ import annotations

import inspect
import json
import pickle
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from destination_datalake.spark.executors import preflight

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

MINOR_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
"""Python's minor version, such as "3.12". The driver and the executors must have the same minor version, because Spark
pickles functions."""

FOLDER = "destination-datalake"
"""The folder, in the executor's working directory, into which Spark unpacks the archive of packages."""

WORKER_ENVIRONMENT: Mapping[str, str] = {
    # Workers allocate the same amounts of memory for each block and file. If allocators returned the memory to the
    # operating system after each use, the system would clear the same pages repeatedly. This takes a tenth of the
    # encoding time.
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
    "MALLOC_MMAP_THRESHOLD_": str(64 * 1024 * 1024),
    "MIMALLOC_PURGE_DELAY": "-1",
}
"""Default environment variables of Python workers. If the cluster sets one of these variables, the cluster's value
applies."""


@dataclass(frozen=True, slots=True)
class ExecutorPython:
    """The Python that executors run. `python` is the value of the option `spark.python`:

    - "same": the interpreter at the driver's path.
    - "pack": the executor's own Python of the driver's minor version, with the driver's packages, which the driver
      sends as an archive (`executors.archive`).
    - Any other value: the path of an interpreter on the executors.
    """

    python: Literal["same", "pack"] | str = "same"

    @property
    def is_packed(self) -> bool:
        """Whether the driver must send its packages to executors as an archive."""
        return self.python == "pack"

    @property
    def interpreter(self) -> str:
        """The command with which executors start Python.

        Spark resolves a relative path in the folder of unpacked archives, which is the working directory of the
        executor or, with Spark Connect, of the session.
        """
        if self.python == "same":
            return sys.executable
        return f"./{FOLDER}/bin/python" if self.is_packed else self.python


def _version() -> str:
    from importlib import metadata

    return metadata.version("destination-datalake")


def shipped(
    work: Callable[[Iterable[_Task]], Iterable[_Result]], python: ExecutorPython
) -> Callable[[Iterable[_Task]], Iterable[_Result]]:
    """Return `work` in a form that Spark can send to any Python, even if the connector is missing there.

    `work` is a function at the top level of a module, or a `functools.partial` of such a function. Executors find the
    function by its name. If an executor's Python differs from the driver's, the job fails, and `difference` explains
    Spark's error message.
    """
    return Shipped(preflight.check_then_run, pickle.dumps(work), expected(python))


_SCOPE = "destination_datalake_on_executors"
_LOADER = (
    "(lambda scope: (exec(source, scope), __import__('functools').partial(scope[name], *arguments))[1])"
    f"({{'__name__': {_SCOPE!r}}})"
)


class Shipped:
    """A function of a module, with its first arguments. A pickle of this object contains the source code of the module.

    Any version of Python and PySpark can load such a pickle. PySpark itself would pickle the function with its own copy
    of cloudpickle, and older versions of PySpark cannot read pickles of newer versions: Spark 3.5, which AWS's services
    run, fails on pickles of Spark 4. The module must import nothing outside Python's standard library when it is
    loaded.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self, argument: Any) -> Any:
        """Call the function in this process, with `argument` as its last argument."""
        return self._function(*self._arguments, argument)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        source = inspect.getsource(sys.modules[self._function.__module__])
        return eval, (_LOADER, {"source": source, "name": self._function.__name__, "arguments": self._arguments})


def expected(python: ExecutorPython) -> dict[str, str]:
    """Return the facts about the driver that `preflight.check` compares with an executor.

    These facts are the connector's version and, if the driver sends its packages, the ABI of the packages.
    """
    facts = {"version": _version()}
    return facts | {"abi": str(sysconfig.get_config_var("SOABI"))} if python.is_packed else facts


def difference(text: str, python: ExecutorPython) -> str | None:
    """Return a message for the user if Spark's error text shows that executors differ from the driver, otherwise None.

    Recognises error texts of Spark's PythonWorkerFactory, of `pyspark.worker`, of Python's option `-m`, and of
    `preflight.check`.
    """
    if (facts := _facts(text)) is not None:
        return _message_of(facts, python)
    if match := _OTHER_PYTHON.search(text):
        return _other_python(match[1], python)
    if match := _NO_INTERPRETER.search(text):
        return f"Executors cannot start {match[1]}: {match[2]}. {_interpreter_remedy(python)}"
    if match := _NO_MODULE.search(text):
        cause = "the packed archive is not unpacked" if python.is_packed else f"the package {match[1]} is missing"
        # With Spark Connect, the server's configuration selects the Python, regardless of the driver's path.
        interpreter = "their Python" if python.python == "same" else python.interpreter
        return f"Executors cannot run the connector in {interpreter}: {cause}. {_install(python)}"
    if match := _NOT_STARTED.search(text):
        return f"Executors cannot start Python: {match[1].strip()}. {_interpreter_remedy(python)}"
    return None


_OTHER_PYTHON = re.compile(r"Python in worker has different version:? \(?([0-9]+(?:\.|, )[0-9]+)")
_NO_INTERPRETER = re.compile(r'Cannot run program "([^"]*)"[^\n]*?error=[0-9]+, ([^\n]*)')
_NO_MODULE = re.compile(
    r"(?:No module named '|PACKAGE_NOT_INSTALLED\] )((?i:destination_datalake|pyarrow|numpy|msgspec|boto3|pandas)\b)"
)
_NOT_STARTED = re.compile(r"Error from python worker:\s*\n([^\n]*)")


def _facts(text: str) -> dict[str, str] | None:
    start = text.find(preflight.MARK + "{")
    if start < 0:
        return None
    try:
        facts, _ = json.JSONDecoder().raw_decode(text, start + len(preflight.MARK))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in facts.items()}


def _message_of(facts: dict[str, str], python: ExecutorPython) -> str:
    where = f"{facts.get('interpreter', python.interpreter)} on {facts.get('host', 'an executor')}"
    version = _version()
    match facts:
        case {"version": other}:
            return (
                f"Executors run another version of the connector: {where} uses {other}, but the driver uses {version}. "
                f"{_install(python)}"
            )
        case {"missing": _}:
            return f"Executors cannot run the connector: it is not installed in {where}. {_install(python)}"
        case {"abi": abi}:
            return (
                "Executors cannot use the packages that the connector sends with spark.python: pack. The packages are "
                f"built for {sysconfig.get_config_var('SOABI')}, but {where} needs {abi}. Run the connector on the "
                "same kind of machine as the executors. Or install the connector on the executors, and set "
                "spark.python to the path of its interpreter."
            )
        case {"unusable": error}:
            return (
                f"Executors cannot load the connector in {where}: {error}. Install the connector on the executors "
                "with packages for their operating system, and set spark.python to the path of its interpreter."
            )
    return f"Executors cannot run the connector in {where}. {_install(python)}"


def _other_python(version: str, python: ExecutorPython) -> str:
    remedy = (
        f"Install Python {MINOR_VERSION} on the executors"
        if python.is_packed
        else f"Set spark.python to the path of Python {MINOR_VERSION} on the executors"
    )
    executors = version.replace(", ", ".")
    return (
        f"Executors run Python {executors}, but the connector runs Python {MINOR_VERSION}. Spark needs the same minor "
        f"version on both sides. {remedy}, or run the connector with Python {executors}."
    )


def _install(python: ExecutorPython) -> str:
    version = _version()
    if python.is_packed:
        return "See the executors' logs for the cause."
    return (
        f"Install destination-datalake {version} on the executors, or set spark.python to the path of an interpreter "
        "that contains this version. Or set spark.python to pack, which sends the connector's packages to executors "
        f"with Python {MINOR_VERSION}."
    )


def _interpreter_remedy(python: ExecutorPython) -> str:
    if python.is_packed:
        return (
            f"Executors need /bin/sh and Python {MINOR_VERSION}. Add this Python to the executors' PATH, or set "
            "PYSPARK_PYTHON to its path."
        )
    return "Set spark.python to the path of the connector's interpreter on the executors, or to pack."
