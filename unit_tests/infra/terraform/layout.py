"""The layout of HCL, by the rules of `terraform fmt`, for files that are written as the module's are.

Two spaces for each open bracket; the equals signs of attributes on neighbouring lines stand below each other; nothing
at the end of a line (developer.hashicorp.com/terraform/language/style#code-formatting).
"""

from __future__ import annotations

import re
from itertools import groupby

_ATTRIBUTE = re.compile(r'([\w-]+|"[^"]*") *= *(?!=)(.*)')
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')


def formatted(text: str) -> str:
    """Return a file's text as it should be laid out."""
    depth, lines = 0, []
    for raw in text.splitlines():
        line = raw.strip()
        bare = "" if line.startswith("#") else _TEXT.sub('""', line)
        opened, closed = len(re.findall(r"[\[{(]", bare)), len(re.findall(r"[\]})]", bare))
        # A line is indented by the brackets that are open before it, less those with whose ends it begins.
        indent = depth - (1 if re.match(r"[\]})]", bare) else 0)
        depth += max(-1, min(1, opened - closed))
        attribute = _ATTRIBUTE.fullmatch(line) if bare else None
        # The value of the last attribute of a group may not go on in the next line.
        group = None if attribute is None or opened > closed else indent
        lines.append((group, indent, f"{attribute[1]} = {attribute[2]}" if attribute else line))
    return "".join(f"{line}\n" for line in _aligned(lines)).rstrip("\n") + "\n"


def _aligned(lines: list[tuple[int | None, int, str]]) -> list[str]:
    found = []
    for group, members in groupby(lines, key=lambda line: line[0]):
        rows = [*members]
        width = max(len(row.partition(" = ")[0]) for _, _, row in rows)
        for _, indent, row in rows:
            if group is not None:
                name, _, rest = row.partition(" = ")
                row = f"{name:{width}} = {rest}"
            found.append(f"{'  ' * indent}{row}".rstrip())
    return found
