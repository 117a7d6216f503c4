"""The repository's files, as its own tests read them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")
