"""make's targets and what CI runs."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from integration_tests.harness.table_kinds import TABLE_KINDS
from unit_tests.repository.files import ROOT, text


@pytest.mark.parametrize(
    "target",
    [
        "setup",
        "demo",
        "docs",
        "test",
        "test-slow",
        "test-all",
        "test-unit",
        "test-engines",
        "test-cluster",
        "test-clients",
        "test-catalogs",
        "conformance",
        "coverage",
        "fuzz",
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


@pytest.mark.parametrize("source", ["build.sh", "decoder.c", "messages.c", "text.h", "arrow.h"])
def test_make_setup_compiles_the_native_library_for_every_architecture_after_a_change(source: str) -> None:
    command = ["make", "--dry-run", "--assume-old", ".venv/.synced", "--assume-new", f"native/{source}", "setup"]

    plan = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=plain_environment())

    compiled = {Path(word).name for word in plan.stdout.split() if word.endswith(".so")}
    assert compiled == {"_native.aarch64.so", "_native.x86_64.so"}


@pytest.mark.parametrize(
    "script",
    [".ci/run", "native/build.sh", "native/fuzz.sh", "scripts/setup.sh", "scripts/jdk.sh", "scripts/apt-package.sh"],
)
def test_a_script_can_be_run_and_stops_at_its_first_failure(script: str) -> None:
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR
    assert "set -euo pipefail" in text(script)


def test_ci_runs_tests_then_lint_types_a_slice_of_slow_tests_and_the_acceptance_suite() -> None:
    commands = [line.strip() for line in text(".ci/run").splitlines()]
    steps = [line for line in commands if line.startswith(("make ", ".venv/bin/pytest "))]

    assert [step.split()[1] for step in steps] == [
        "test",
        "lint",
        "types",
        "test-slow",
        "integration_tests/acceptance",
    ]
    assert "--durations" in steps[0], "which tests are slow is in the log of every run"


def test_github_runs_what_ci_runs_on_the_oldest_python_and_java() -> None:
    [job] = yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"].values()
    versions = {name: value for step in job["steps"] for name, value in step.get("with", {}).items()}

    assert job["runs-on"] == "ubuntu-latest"
    assert (versions["python-version"], versions["java-version"]) == ("3.11", "17")
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_an_issue_form_asks_questions_with_distinct_names(form: str) -> None:
    parsed = yaml.safe_load(text(f".github/ISSUE_TEMPLATE/{form}.yml"))
    questions = [field["id"] for field in parsed["body"] if field["type"] != "markdown"]

    assert {"name", "description", "body"} <= set(parsed)
    assert len(questions) == len(set(questions)) > 1


@pytest.mark.slow
def test_make_test_runs_each_scenario_with_one_kind_of_table_and_each_kind_has_its_turn() -> None:
    def scenarios(marks: str) -> list[tuple[str, str]]:
        kinds = "|".join(kind.name for kind in TABLE_KINDS)
        listing = collected("unit_tests/tables/behaviour/test_commits.py", marks, EXAMPLES="few")
        matches = re.findall(rf"^(.*)\[({kinds})(.*)\]$", "\n".join(listing), re.MULTILINE)
        return [(f"{test}{parameters}", kind) for test, kind, parameters in matches]

    quick, every = scenarios("not slow"), scenarios("slow or not slow")

    assert sorted(test for test, _ in quick) == sorted({test for test, _ in every})
    assert {kind for _, kind in quick} == {kind.name for kind in TABLE_KINDS}


@pytest.mark.slow
def test_make_test_slow_runs_each_slow_test_with_a_share_of_its_parameters_that_the_commit_decides() -> None:
    module = "unit_tests/files/test_archived.py"
    slow = collected(module, "slow or law", EXAMPLES="few")

    commits = ("3f1c2aa", "3f1c2aa", "90b4d17")
    draws = [collected(module, "slow or law", EXAMPLES="more", DRAW=commit) for commit in commits]

    assert draws[0] == draws[1] != draws[2]
    for drawn in draws:
        assert set(drawn) < set(slow)
        assert {test.partition("[")[0] for test in drawn} == {test.partition("[")[0] for test in slow}


def collected(module: str, marks: str, **environment: str) -> list[str]:
    """Return the names of the module's tests that are run."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marks, module]
    listing = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env={**os.environ, "SLICES": "1", **environment}
    )
    return [line for line in listing.stdout.splitlines() if line.startswith(module)]
