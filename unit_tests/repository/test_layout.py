"""The house's own measures: files and folders small enough to be taken in at a glance."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit_tests.repository.files import ROOT

LINES = 600
FILES = 10
TREES = ("destination_datalake", "unit_tests", "integration_tests", "benchmarks", "demo", "docs", "image")


@pytest.mark.parametrize("tree", TREES)
def test_no_file_is_longer_than_one_idea_needs(tree: str) -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / tree).rglob("*.py")}

    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > LINES} == {}


@pytest.mark.parametrize("tree", TREES)
def test_no_folder_holds_more_files_than_a_newcomer_can_oversee(tree: str) -> None:
    counts = {folder: count(folder) for folder in (ROOT / tree, *(ROOT / tree).rglob("*")) if folder.is_dir()}

    assert {str(folder.relative_to(ROOT)): files for folder, files in counts.items() if files > FILES} == {}


def count(folder: Path) -> int:
    return sum(path.is_file() and path.suffix != ".pyc" for path in folder.iterdir())
