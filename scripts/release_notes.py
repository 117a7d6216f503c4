"""Print the release notes of a version: its section of CHANGELOG.md. Usage: release_notes.py VERSION"""

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def release_notes(version: str, changelog: str) -> str:
    """Return the section of a version. Raises SystemExit if the changelog has no such section, or an empty one."""
    sections = re.split(r"^## \[([^]]+)\][^\n]*\n", changelog, flags=re.MULTILINE)
    notes = dict(zip(sections[1::2], sections[2::2], strict=True)).get(version, "").strip()
    if not notes:
        raise SystemExit(
            f"CHANGELOG.md has no section for version {version}. Add the section, and tag the commit again."
        )
    return notes


if __name__ == "__main__":
    sys.stdout.write(f"{release_notes(sys.argv[1], CHANGELOG.read_text(encoding='utf-8'))}\n")
