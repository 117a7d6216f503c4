"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Return text as inline code, escaped for a table's cell."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the lines of a table; cells are Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
