"""The pages that show the rules show the rules there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.generator import pages


@pytest.mark.parametrize("page", sorted(pages.PAGES.rglob("*.md")), ids=lambda page: page.name)
def test_a_page_has_the_tables_that_the_rules_make(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert pages.with_tables(text) == text, "run python -m docs.generator"


def test_every_table_stands_on_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in pages.PAGES.rglob("*.md"))

    assert [name for name in pages.TABLES if f"<!-- table: {name} -->" not in text] == []
