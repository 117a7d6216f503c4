"""The command line: `spec`, help, and what is said of one that makes no sense."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.runs.platform import Platform

pytestmark = pytest.mark.share(6)


def test_spec_answers_with_exactly_one_message(container: Platform) -> None:
    run = container.spec()

    assert run.exit_code == 0
    assert [message.type for message in run.messages] == ["SPEC"]
    assert set(run.spec["supported_destination_sync_modes"]) == {"overwrite", "append", "append_dedup"}


@pytest.mark.parametrize(
    "arguments", [["spec"], [], ["--help"], ["--version"], ["check", "--help"], ["write", "--help"], ["frobnicate"]]
)
def test_what_only_answers_loads_neither_the_cdk_nor_spark_nor_aws(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, *arguments], capture_output=True, text=True, check=False
    )
    loaded = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}

    assert "destination_datalake" in loaded
    assert loaded.isdisjoint(
        {"airbyte_cdk", "pydantic", "pyspark", "py4j", "boto3", "botocore", "pandas", "pyarrow", "pyiceberg", "numpy"}
    )


@pytest.mark.parametrize(("arguments", "exit_code"), [([], 1), (["--help"], 0)])
def test_help_names_every_command(arguments: list[str], exit_code: int) -> None:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)

    assert done.returncode == exit_code
    output = done.stdout if exit_code == 0 else done.stderr
    for command in ("spec", "check", "write", "iam-policy", "maintain"):
        assert f"\n    {command}" in output
    assert "Traceback" not in done.stdout + done.stderr


def test_the_connector_runs_from_a_checkout_as_from_its_package() -> None:
    main = Path(__file__).parents[2] / "main.py"

    done = subprocess.run([sys.executable, str(main), "spec"], capture_output=True, check=True)

    assert json.loads(done.stdout)["type"] == "SPEC"


def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout == f"destination-datalake {version('destination-datalake')}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["invalid choice: 'frobnicate'", "iam-policy"]),
        (["check"], ["required: --config"]),
        (["write", "--config", "c.json"], ["required: --catalog"]),
        (["write", "--config", "c.json", "--catalog", "s.json", "--state", "t.json"], ["arguments: --state t.json"]),
        (["write", "--config", "c.json", "--catalog", "s", "--catalog", "t"], ["argument --catalog: is set twice"]),
    ],
)
def test_a_command_line_that_makes_no_sense_says_nothing_on_stdout_and_explains_itself_on_stderr(
    arguments: list[str], words: list[str]
) -> None:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (2, "")
    assert not [word for word in words if word not in done.stderr]


@pytest.mark.parametrize(
    ("closed", "exit_code", "words"),
    [
        ("<&-", 1, "Standard input is closed"),
        (">&-", 1, "Standard output is closed"),
        ("2>&-", 1, "cannot be read: No such file"),
    ],
)
def test_a_closed_descriptor_is_named_and_no_file_takes_its_place(closed: str, exit_code: int, words: str) -> None:
    command = f"exec {COMMAND!r} write --config /no/such/file --catalog /no/such/file {closed}"

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)

    assert done.returncode == exit_code
    assert words in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "unexpected" not in done.stdout


@pytest.mark.parametrize("arguments", ["spec", "--version", "check --config /no/such/file"])
def test_an_answer_that_nobody_reads_ends_the_command_quietly(arguments: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND!r} {arguments} | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
        # Otherwise a buffer may fail at the end of the process alone.
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )

    assert (done.returncode, done.stderr) == (141, "")
