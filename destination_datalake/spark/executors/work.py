"""Work functions made ready for executors on other machines."""

from __future__ import annotations

import pickle
import sysconfig
from collections.abc import Callable, Iterable
from functools import partial
from importlib import metadata
from typing import TypeVar

from destination_datalake.spark.executors import arrival
from destination_datalake.spark.executors.python import ExecutorPython

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def on_executors(
    work: Callable[[Iterable[_Task]], Iterable[_Result]], python: ExecutorPython
) -> Callable[[Iterable[_Task]], Iterable[_Result]]:
    """Return `work` such that PySpark can send it to a Python without the connector, which is told apart there.

    `work` is a function of a module, or a `functools.partial` of one: executors find it by its name. An executor that
    differs from the driver fails the job; `executors.failure` finds its facts in the text of Spark's error.
    """
    from pyspark.cloudpickle import register_pickle_by_value

    register_pickle_by_value(arrival)  # type: ignore[no-untyped-call]
    return partial(arrival.arrive, pickle.dumps(work), expected(python))


def expected(python: ExecutorPython) -> dict[str, str]:
    """Return what `arrival.compare` compares an executor with."""
    facts = {"version": metadata.version("destination-datalake")}
    return facts | {"abi": str(sysconfig.get_config_var("SOABI"))} if python.is_packed else facts
