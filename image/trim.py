"""Remove from a site-packages folder what `unneeded.txt` lists: `python image/trim.py SITE_PACKAGES`.

Runs on any Python, before there is an environment to run in.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

LIST = Path(__file__).with_name("unneeded.txt")


def patterns() -> Iterator[str]:
    """Yield the patterns of the list."""
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


def trim(packages: Path) -> int:
    """Remove what the list names; return its size in bytes. Raises SystemExit for a pattern that matches nothing."""
    freed = 0
    for pattern in patterns():
        matches = sorted(packages.glob(pattern))
        if not matches:
            raise SystemExit(f"{LIST}: no file matches {pattern}")
        for path in matches:
            # Other matches may have been in a folder that was just removed.
            if path.is_dir():
                freed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                shutil.rmtree(path)
            elif path.exists():
                freed += path.stat().st_size
                path.unlink()
    return freed


if __name__ == "__main__":
    sys.stdout.write(f"{trim(Path(sys.argv[1])) // 2**20} MiB removed\n")
