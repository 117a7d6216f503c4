"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Text in the type of code, as a table's cell can hold it."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The lines of a table, its cells in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
