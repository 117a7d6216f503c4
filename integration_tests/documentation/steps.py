"""The commands of a page, and what the page says that they print.

A page that is executed has its commands in blocks of `sh`. What a block prints stands in the next block, if that is one
of `text` or `json`; there `…` stands for any text. Other blocks are for reading only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_PRINTED = ("text", "json")


@dataclass(frozen=True)
class Step:
    """One block of commands."""

    line: int
    """Where the block stands on its page, from 1."""
    commands: str
    printed: str | None = None
    """What the page says that the commands print; None if it says nothing."""

    def explains(self, output: str) -> bool:
        """Tell whether this is what the page says, white space at the ends of lines apart."""
        if self.printed is None:
            return True
        pattern = ".*?".join(map(re.escape, _trimmed(self.printed).split("…")))
        return re.fullmatch(pattern, _trimmed(output), re.DOTALL) is not None


def steps(page: str) -> Sequence[Step]:
    """Return the blocks of commands in a page's text, in order."""
    found: list[Step] = []
    follows = False
    for block in _BLOCK.finditer(page):
        if block["language"] == "sh":
            found.append(Step(page.count("\n", 0, block.start()) + 1, block["body"]))
        elif follows and block["language"] in _PRINTED:
            found[-1] = replace(found[-1], printed=block["body"])
        follows = block["language"] == "sh"
    return found


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
