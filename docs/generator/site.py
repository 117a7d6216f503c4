"""Hooks of MkDocs: adds files from outside docs/ to the site, and points links at their place there."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = Path(__file__).parents[2]
_ADDED = {
    f"repository/{path}": path
    for path in (
        "CHANGELOG.md",
        "CODE_OF_CONDUCT.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "destination_datalake/reports/report.schema.json",
        "infra/README.md",
    )
}
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=(?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that stand outside docs/."""
    for uri, path in _ADDED.items():
        files.append(File.generated(config, uri, abs_src_path=str(_ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the page with links as the site has them, and with Markdown inside `<details>`, as on GitHub."""
    page_path = page.file.src_uri

    def moved(link: re.Match[str]) -> str:
        target = os.path.normpath(_ROOT / Path(_repository_path(page_path)).parent / link[1])
        return os.path.relpath(_site_uri(os.path.relpath(target, _ROOT)), Path(page_path).parent)

    return _LINK.sub(moved, markdown).replace("<details>", '<details markdown="1">')


def _repository_path(uri: str) -> str:
    return _ADDED.get(uri, f"docs/{uri}")


def _site_uri(path: str) -> str:
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"
