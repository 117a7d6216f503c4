"""A few of the histories of `make chaos ARGS="--histories 2000"`, which are forked from a process without threads."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_tables_of_any_layout_have_what_was_sent_whatever_happens_to_syncs_and_schemas(seed: int) -> None:
    command = [sys.executable, "-m", "integration_tests.chaos", "--seed", str(seed), "--histories", "12", "--jobs", "1"]

    played = subprocess.run(command, capture_output=True, text=True, check=False)

    assert played.returncode == 0, played.stdout + played.stderr
