"""Names of streams and fields as identifiers of a catalog.

An identifier is made of `a`–`z`, `0`–`9` and `_`, never starts with a digit and is at most 255 bytes long: what the
Glue Data Catalog, Iceberg, Athena and Spark all accept without quoting.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

from anyascii import anyascii

METADATA_NAMES = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")
"""The columns this connector writes before a stream's own, in their order."""

LONGEST = 255
"""Bytes of the longest name that Glue takes for a database, table or column."""

Naming = Callable[[Sequence[str]], tuple[str, ...]]
"""From the distinct sources of one level (a table's fields, a struct's) to as many distinct identifiers."""

_RUN = re.compile(r"[A-Za-z0-9]+")
# Two places where a run of letters and digits is cut: "camelCase" before the C, "HTTPServer" before the S.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SUFFIX_DIGITS = 8


def identifier(text: str) -> str:
    """The snake_case identifier for a name from a source.

    Runs of letters and digits are joined by `_`, camelCase is cut into words, digits stay with the letters before
    them, leading underscores are kept, a leading digit gets a `_`. Letters outside ASCII are romanised (`spécial`
    becomes `special`, `京都` `jing_dou`). Words that SQL reserves are left as they
    are: Glue and Iceberg take them. A text that leaves nothing becomes `unnamed_` and a hash of the text; one that
    leaves more than 255 bytes is cut and ends in a hash of the text.
    """
    latin = anyascii(text)
    words = "_".join(_WORD.sub("_", run) for run in _RUN.findall(latin)).lower()
    if not words:
        return f"unnamed_{_hash(text)}"
    underscores = len(text) - len(text.lstrip("_"))
    prefix = "_" * underscores or ("_" if words[0].isdigit() else "")
    return bounded(prefix + words, text)


def unique_identifiers(sources: Sequence[str]) -> tuple[str, ...]:
    """One identifier for each source, no two alike, none the name of a metadata column.

    Where several sources meet in one identifier, the one that is spelled like it keeps it and the others get a suffix
    from a hash of their own spelling. A source's identifier therefore depends on which others are present, never on
    their order. Raises ValueError if two sources are the same text.
    """
    if len(set(sources)) != len(sources):
        repeated = sorted(source for source, times in Counter(sources).items() if times > 1)
        raise ValueError(f"the same name is given twice: {', '.join(map(repr, repeated))}")
    plain = [identifier(source) for source in sources]
    takers = Counter(plain)

    def keeps(source: str, name: str) -> bool:
        return name not in METADATA_NAMES and (takers[name] == 1 or source == name)

    # A suffixed name can meet a source that is spelled just so; hashing again parts them.
    for rounds in count(1):
        names = tuple(
            name if keeps(source, name) else suffixed(name, _hash(source, rounds))
            for source, name in zip(sources, plain, strict=True)
        )
        if len(set(names)) == len(names):
            return names
    raise AssertionError("unreachable")


def suffixed(name: str, suffix: str) -> str:
    """`name_suffix`, with the name cut so that the whole is at most 255 bytes."""
    return f"{name[: LONGEST - len(suffix) - 1]}_{suffix}"


def bounded(name: str, source: str) -> str:
    """The name itself, or, if it is longer than 255 bytes, its beginning and a hash of the source."""
    return name if len(name) <= LONGEST else suffixed(name, _hash(source))


def _hash(text: str, rounds: int = 1) -> str:
    """Eight hex digits that say `text` (which may hold lone surrogates) again on every machine and in every sync."""
    digest = text.encode("utf-8", "surrogatepass")
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:_SUFFIX_DIGITS]
