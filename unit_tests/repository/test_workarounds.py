"""The page about workarounds: each has a test, each test is on the page, and the files that it names exist."""

from __future__ import annotations

import re

from unit_tests.repository.files import ROOT, text

PAGE = "docs/code/workarounds.md"
FOLDER = "unit_tests/libraries"


def named_tests() -> set[tuple[str, str]]:
    references = re.findall(r"`([\w/]+\.py)::(\w+)`", text(PAGE))
    return {(file if "/" in file else f"{FOLDER}/{file}", test) for file, test in references}


def written_tests() -> set[tuple[str, str]]:
    files = [*(ROOT / FOLDER).glob("test_*.py"), ROOT / "integration_tests/spark/test_spark.py"]
    return {
        (str(file.relative_to(ROOT)), test)
        for file in files
        for test in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }


def test_every_workaround_has_a_test_and_every_such_test_is_on_the_page() -> None:
    assert named_tests() == written_tests()


def test_every_row_names_a_test() -> None:
    rows = [line for line in text(PAGE).splitlines() if line.startswith("| ") and not line.startswith("| what it does")]

    assert [row for row in rows if "::test_" not in row] == []


def test_every_file_of_a_workaround_exists() -> None:
    roots = (ROOT, ROOT / "destination_datalake")
    files = re.findall(r"`((?:\w+/)+\w+\.py)`", text(PAGE))

    assert [file for file in files if not any((root / file).exists() for root in roots)] == []
