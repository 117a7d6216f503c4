"""The page on Lake Formation: its commands are run by a test, and what they do not show is tested by name."""

from __future__ import annotations

import re

import pytest

from integration_tests.documentation.shell import steps
from unit_tests.repository.files import ROOT, text

PAGE = text("docs/lake-formation.md")
TESTS = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
ROWS = re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), TESTS, ids=[test for _, test in TESTS])
def test_a_named_test_exists(file: str, test: str) -> None:
    assert re.search(rf"^def {test}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)


def test_every_row_of_a_table_of_statements_names_a_test() -> None:
    heads = [number for number, row in enumerate(ROWS) if row.endswith("| tested by |")]
    tables = [ROWS[head + 2 : following] for head, following in zip(heads, [*heads[1:], None], strict=True)]

    assert [row for table in tables for row in table if "::test_" not in row] == []
    assert sum(map(len, tables)) == len(TESTS)


def test_every_block_is_run_or_is_the_output_of_one_that_is() -> None:
    languages = re.findall(r"^```(.*)$", PAGE, re.MULTILINE)[::2]

    assert [language for language in languages if language not in ("sh", "text", "json")] == []
    assert languages.count("sh") == len(steps(PAGE))
    assert len(languages) == len(steps(PAGE)) + sum(step.printed is not None for step in steps(PAGE))
