"""Functions on their way to executors, as source: any Python and any PySpark can read it.

PySpark would pickle them with its own copy of cloudpickle, whose pickles an older one does not read: that of Spark 3.5,
which AWS's services run, fails on those of Spark 4.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

_SCOPE = "destination_datalake_on_executors"
_LOADER = (
    "(lambda scope: (exec(source, scope), __import__('functools').partial(scope[name], *arguments))[1])"
    f"({{'__name__': {_SCOPE!r}}})"
)


class Shipped:
    """A function of a module, and its first arguments. It is pickled as the module's source.

    Such modules import Python's standard library alone, and each thing inside the function that needs it.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._function = function
        self._arguments = arguments

    def __call__(self, rest: Any) -> Any:
        """Call the function here."""
        return self._function(*self._arguments, rest)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, dict[str, Any]]]:
        source = inspect.getsource(sys.modules[self._function.__module__])
        return eval, (_LOADER, {"source": source, "name": self._function.__name__, "arguments": self._arguments})
