"""The command `write` as platforms call it, which does without the CDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

from destination_datalake.write import WriteArguments, write_arguments


@pytest.mark.parametrize(
    "arguments",
    [
        ["write", "--config", "a.json", "--catalog", "b.json"],
        ["write", "--catalog", "b.json", "--config", "a.json"],
        ["write", "--config=a.json", "--catalog=b.json"],
    ],
)
def test_a_write_with_its_two_files_is_understood(arguments: list[str]) -> None:
    assert write_arguments(arguments) == WriteArguments("a.json", "b.json")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["check", "--config", "a.json"],
        ["check", "--config", "a.json", "--catalog", "b.json"],
        ["write", "--config", "a.json"],
        ["write", "--config", "a.json", "--catalog"],
        ["write", "--conf", "a.json", "--catalog", "b.json"],
        ["write", "--config", "a.json", "--catalog", "b.json", "--state", "c.json"],
        ["write", "--config", "a.json", "--catalog", "b.json", "more"],
        ["write", "--help"],
        ["--config", "a.json", "--catalog", "b.json"],
    ],
)
def test_every_other_command_line_is_left_to_the_cdk(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert write_arguments(arguments) is None
    assert capfd.readouterr() == ("", ""), "the CDK says what is wrong, once"


def test_what_a_write_imports_is_without_the_cdk() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, destination_datalake.cli, destination_datalake.write, destination_datalake.sync.conductor,"
            " destination_datalake.tables.iceberg.table, destination_datalake.tables.hive.table;"
            " print({'airbyte_cdk'} & set(sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert loaded.stdout == "set()\n"
