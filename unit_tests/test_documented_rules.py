"""The pages that show the rules show the rules there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import generate


@pytest.mark.parametrize("page", sorted(generate.PAGES.glob("*.md")), ids=lambda page: page.name)
def test_a_page_has_the_tables_that_the_rules_make(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert generate.with_tables(text) == text, "run python -m docs.generate"


def test_every_table_stands_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in generate.PAGES.glob("*.md"))

    assert [name for name in generate.TABLES if f"<!-- table: {name} -->" not in pages] == []
