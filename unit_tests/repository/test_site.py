"""The documentation's site: every page is in its navigation, and what a reader would miss fails the build."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from unit_tests.repository.files import PAGES, ROOT, text

SITE = str(ROOT / "mkdocs.yml")


def pages_in(entry: Any) -> Iterator[str]:
    """Every page of a navigation's entry."""
    match entry:
        case str():
            yield entry
        case dict():
            yield from pages_in(list(entry.values()))
        case _:
            for child in entry:
                yield from pages_in(child)


def test_the_navigation_has_every_page_once() -> None:
    in_repository = [page.relative_to(ROOT).as_posix() for page in [*PAGES, ROOT / "infra/README.md"]]
    expected = {
        page.removeprefix("docs/") if page.startswith("docs/") else f"repository/{page}" for page in in_repository
    }
    listed = list(pages_in(load_config(SITE)["nav"]))

    assert sorted(listed) == sorted(expected - {"repository/README.md"})


@pytest.mark.parametrize(
    ("name", "page"),
    [("index.md", "[a page](missing.md)"), ("index.md", "[a heading](#missing)"), ("outside.md", "")],
    ids=["link to no page", "link to no heading", "page outside the navigation"],
)
def test_the_build_fails_for_what_a_reader_would_miss(name: str, page: str, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").touch()
    (docs / name).write_text(page)
    folders = {"docs_dir": str(docs), "site_dir": str(tmp_path / "site")}

    with pytest.raises(Abort, match="strict mode"):
        build(load_config(SITE, strict=True, hooks=[], theme={"name": "mkdocs"}, nav=["index.md"], **folders))


def test_make_builds_strictly_and_lint_builds() -> None:
    assert "mkdocs build --strict" in text("Makefile")
    assert "lint: setup docs " in text("Makefile")
