"""Why executors cannot do the driver's work, found in the text of Spark's error: what differs, and what helps."""

from __future__ import annotations

import json
import re
import sysconfig
from importlib import metadata

from destination_datalake.spark.executors.arrival import MARK
from destination_datalake.spark.executors.python import MINOR_VERSION, ExecutorPython


def difference(text: str, python: ExecutorPython) -> str | None:
    """Return a message for the user; None if the text of the error is of something else.

    The texts are those of Spark and Python: PythonWorkerFactory, `pyspark.worker`, Python's `-m`, and `arrival`.
    """
    if (facts := _facts(text)) is not None:
        return _told(facts, python)
    if found := _OTHER_PYTHON.search(text):
        return _other_python(found[1], python)
    if found := _NO_INTERPRETER.search(text):
        return f"Executors cannot start {found[1]}: {found[2]}. {_interpreter_remedy(python)}"
    if found := _NO_MODULE.search(text):
        where = "its archive is not unpacked" if python.is_packed else f"{found[1]} is missing there"
        # With Spark Connect the server says which Python it is, whatever path the driver's has.
        which = "the Python that they run" if python.python == "same" else python.interpreter
        return f"Executors have no connector in {which}: {where}. {_install(python)}"
    if found := _NOT_STARTED.search(text):
        return f"Executors cannot start Python: {found[1].strip()}. {_interpreter_remedy(python)}"
    return None


_OTHER_PYTHON = re.compile(r"Python in worker has different version:? \(?([0-9]+(?:\.|, )[0-9]+)")
_NO_INTERPRETER = re.compile(r'Cannot run program "([^"]*)"[^\n]*?error=[0-9]+, ([^\n]*)')
_NO_MODULE = re.compile(
    r"(?:No module named '|PACKAGE_NOT_INSTALLED\] )((?i:destination_datalake|pyarrow|numpy|msgspec|boto3|pandas)\b)"
)
_NOT_STARTED = re.compile(r"Error from python worker:\s*\n([^\n]*)")


def _facts(text: str) -> dict[str, str] | None:
    start = text.find(MARK + "{")
    if start < 0:
        return None
    try:
        facts, _ = json.JSONDecoder().raw_decode(text, start + len(MARK))
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in facts.items()}


def _told(facts: dict[str, str], python: ExecutorPython) -> str:
    where = f"{facts.get('interpreter', python.interpreter)} on {facts.get('host', 'an executor')}"
    version = metadata.version("destination-datalake")
    match facts:
        case {"version": other}:
            return (
                f"Executors run another version of the connector: {where} has {other}, and this is {version}. "
                f"{_install(python)}"
            )
        case {"missing": _}:
            return f"Executors have no connector: {where} does not have it. {_install(python)}"
        case {"abi": abi}:
            return (
                f"Executors cannot use this connector's packages, which spark.python: pack sends them: these are "
                f"built for {sysconfig.get_config_var('SOABI')}, and {where} is {abi}. Run the connector on the same "
                "kind of machine, or install it on the executors and set spark.python to its interpreter's path."
            )
        case {"unusable": error}:
            return (
                f"Executors cannot load the connector: {where} says {error}. Install the connector on the executors "
                "with packages for their operating system, and set spark.python to its interpreter's path."
            )
    return f"Executors cannot run the connector in {where}. {_install(python)}"


def _other_python(theirs: str, python: ExecutorPython) -> str:
    what = (
        f"Install Python {MINOR_VERSION} on them" if python.is_packed else "Set spark.python to the path of one on them"
    )
    return (
        f"Executors run Python {theirs.replace(', ', '.')} and the connector Python {MINOR_VERSION}, but Spark needs "
        f"the same minor version. {what}, or run the connector with theirs."
    )


def _install(python: ExecutorPython) -> str:
    version = metadata.version("destination-datalake")
    if python.is_packed:
        return "The executors' logs say why."
    return (
        f"Install destination-datalake {version} there, set spark.python to the path of an interpreter that has it, "
        "or set it to pack, which sends the connector's packages to executors that have Python "
        f"{MINOR_VERSION}."
    )


def _interpreter_remedy(python: ExecutorPython) -> str:
    if python.is_packed:
        return f"Executors need /bin/sh and Python {MINOR_VERSION}, found by PYSPARK_PYTHON or PATH."
    return "Set spark.python to the path of the connector's interpreter on executors, or to pack."
