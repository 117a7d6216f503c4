"""What importing a library brings along, and what Python's environment does to threads."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

IMPORT = "import sys, awswrangler; print('pandas' in sys.modules)"


def test_awswrangler_imports_pandas() -> None:
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORT], capture_output=True, text=True, timeout=60)

    assert ended.stdout == "True\n", ended.stderr


def test_iterating_over_the_environment_fails_when_a_variable_is_removed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LAST_OF_ALL", "1")
    variables = iter(os.environ.items())
    next(variables)

    monkeypatch.delenv("LAST_OF_ALL")

    with pytest.raises(KeyError):
        list(variables)
