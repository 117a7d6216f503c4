"""The fenced blocks of pages, by the section in which they stand; a block in a list is indented on its page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import dedent

from integration_tests.documentation.shell import Step
from unit_tests.repository.files import text

_HEADING_OR_BLOCK = re.compile(
    r"^#+ (?P<heading>[^\n]+)$|^(?P<indent> *)```(?P<language>[\w-]*)\n(?P<body>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    section: str
    """The nearest heading above it."""
    language: str
    body: str
    line: int
    """Where it stands on its page, from 1."""

    @property
    def step(self) -> Step:
        """The block as commands for a shell; it runs Python as a script."""
        if self.language == "python":
            return Step(self.line, f"python <<'SCRIPT'\n{self.body}SCRIPT\n")
        assert self.language == "sh", self.language
        return Step(self.line, self.body)

    @property
    def statements(self) -> Sequence[str]:
        """The statements of a block of SQL, without semicolons and comments in lines of their own."""
        code = re.sub(r"^\s*--.*\n", "", self.body, flags=re.MULTILINE)
        return [statement.strip() for statement in code.split(";") if statement.strip()]


def blocks(page: str, section: str | None = None, language: str | None = None) -> Sequence[Block]:
    """Return the blocks of a page, in order: all of them, or those of a section or a language.

    `page` is a path in the repository.
    """
    content, heading, matching = text(page), "", []
    for match in _HEADING_OR_BLOCK.finditer(content):
        if match["heading"]:
            heading = match["heading"]
        elif section in (None, heading) and language in (None, match["language"]):
            line = content.count("\n", 0, match.start()) + 1
            matching.append(Block(heading, match["language"], dedent(match["body"]), line))
    return matching


def block(page: str, section: str, language: str) -> Block:
    """Return the only block of this language in a section."""
    [only_block] = blocks(page, section, language)
    return only_block
