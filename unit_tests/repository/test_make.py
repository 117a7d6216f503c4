"""make's targets and what CI runs."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest

from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.repository.files import ROOT, text


@pytest.mark.parametrize(
    "target",
    [
        "setup",
        "demo",
        "test",
        "test-slow",
        "test-unit",
        "test-engines",
        "test-cluster",
        "test-clients",
        "test-catalogs",
        "conformance",
        "laws",
        "coverage",
        "lint",
        "types",
        "bench",
        "archive",
        "clean",
        "help",
    ],
)
def test_make_without_a_target_lists_every_target(target: str) -> None:
    listing = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True, env=plain_environment())

    assert re.search(rf"^  make {target} +\S", listing.stdout, re.MULTILINE)


def plain_environment() -> dict[str, str]:
    """This process's environment without what an outer make hands to an inner one."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}


@pytest.mark.parametrize("script", [".ci/run", "scripts/setup.sh", "scripts/jdk.sh", "scripts/apt-package.sh"])
def test_a_script_can_be_run_and_stops_at_its_first_failure(script: str) -> None:
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
    assert "set -euo pipefail" in text(script)


def test_ci_runs_tests_then_lint_types_and_the_acceptance_suite() -> None:
    commands = [line.strip() for line in text(".ci/run").splitlines()]
    steps = [line for line in commands if line.startswith(("make ", ".venv/bin/pytest "))]

    assert [step.split()[1] for step in steps] == [
        "test",
        "lint",
        "types",
        "integration_tests/acceptance",
    ]
    assert "--durations" in steps[0], "which tests are slow is in the log of every run"


@pytest.mark.slow
def test_make_test_runs_each_scenario_with_one_kind_of_table_and_each_kind_has_its_turn() -> None:
    def scenarios(marks: str) -> list[tuple[str, str]]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks, "unit_tests/tables/behaviour"]
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        kinds = "|".join(kind.name for kind in TABLE_KINDS)
        found = re.findall(rf"^(.*test_commits\.py.*)\[({kinds})(.*)\]$", listing, re.MULTILINE)
        return [(f"{test}{others}", kind) for test, kind, others in found]

    quick, every = scenarios("not slow"), scenarios("slow or not slow")

    assert sorted(test for test, _ in quick) == sorted({test for test, _ in every})
    assert {kind for _, kind in quick} == {kind.name for kind in TABLE_KINDS}
