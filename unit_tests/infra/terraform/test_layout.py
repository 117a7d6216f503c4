"""The module's files are laid out as `terraform fmt` does it, whether Terraform is here or not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from unit_tests.infra.terraform.layout import formatted
from unit_tests.infra.terraform.module import FOLDER


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.tf")), ids=lambda file: file.name)
def test_a_file_is_laid_out_by_the_rules(file: Path) -> None:
    text = file.read_text(encoding="utf-8")

    assert text == formatted(text)


def test_terraform_itself_would_change_nothing() -> None:
    terraform = shutil.which("terraform")
    command = [terraform, "fmt", "-check", "-recursive", str(FOLDER)] if terraform else ["true"]

    assert subprocess.run(command, capture_output=True, text=True, check=False).stdout == ""


def test_the_rules_are_those_of_terraform() -> None:
    as_written = "\n".join(
        [
            'resource "x" "y" {',
            "a = 1",
            "    long_name=[ ",
            '"${var.a}",   ',
            "    ]",
            "",
            "b = 2",
            "   # = {",
            "  cd = 3",
            "  efg = 4",
            "}",
        ]
    )

    assert formatted(as_written).splitlines() == [
        'resource "x" "y" {',
        "  a = 1",
        "  long_name = [",
        '    "${var.a}",',
        "  ]",
        "",
        "  b = 2",
        "  # = {",
        "  cd  = 3",
        "  efg = 4",
        "}",
    ]
