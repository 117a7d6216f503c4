"""Names of streams and fields as identifiers of a catalog.

Whatever the style, an identifier is lower-case, made of letters, digits and `_`, not empty and at most 255 bytes of
UTF-8 long: what the Glue Data Catalog, Iceberg, Hive and Athena all take. A dot in particular is in none of them, so
that dotted paths, in which Parquet and Iceberg name nested fields, are never ambiguous. (Databases that another
connector named have their own rule: see `AWS_DATALAKE`.)
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from types import MappingProxyType

from anyascii import anyascii

METADATA_NAMES = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")
"""The columns this connector writes before a stream's own, in their order."""

_RESERVED = frozenset(
    {
        *METADATA_NAMES,
        # Iceberg's metadata columns (Iceberg spec: reserved field ids). Spark refuses a table that has one of its own.
        "_file",
        "_pos",
        "_deleted",
        "_spec_id",
        "_partition",
        "_row_id",
        "_last_updated_sequence_number",
        "_change_type",
        "_change_ordinal",
        "_commit_snapshot_id",
    }
)
"""Names that a stream's column cannot have: this connector or an engine means something else by them."""

MAX_BYTES = 255
"""Bytes of the longest name that Glue takes for a database, table or column, and of the longest comment."""

Spelling = Callable[[str], str]
"""A name from a source as a style spells it, however long; empty if it leaves nothing of the name."""

_RUN = re.compile(r"[A-Za-z0-9]+")
# Two places where a run of letters and digits is cut: "camelCase" before the C, "HTTPServer" before the S.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# And with `split_numbers` where digits begin and end.
_WORD_OR_NUMBER = re.compile(rf"{_WORD.pattern}|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_LEADING_UNDERSCORES = re.compile("_*")
_NOT_IN_A_LINE = re.compile("[\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]")
"""What Glue's "single-line string pattern" leaves out."""
_SUFFIX_DIGITS = 8
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Naming:
    """A style of identifiers: how it spells a name, and how inside a struct, whose type Hive and Spark must parse.

    `style` is what tables remember it by.
    """

    style: str
    spelling: Spelling
    spelling_inside: Spelling
    spelling_of_databases: Spelling | None = None
    """Where a database's name is spelled otherwise than a table's."""

    def identifier(self, source: str) -> str:
        """The identifier of a table or a column.

        A source that leaves nothing becomes `unnamed_` and a hash of the source; one that leaves more than 255 bytes is
        cut and ends in such a hash.
        """
        return _identifier(self.spelling, source)

    def database(self, namespace: str) -> str:
        """The identifier of a database, with the same two exceptions."""
        return _identifier(self.spelling_of_databases or self.spelling, namespace)

    def identifiers(self, sources: Sequence[str], there: Mapping[str, str] = _NOTHING) -> tuple[str, ...]:
        """One identifier for each column of a table, no two alike, none reserved by this connector or an engine.

        Where several sources meet in one identifier, the one that is spelled like it keeps it and the others get a
        suffix from a hash of their own spelling. A source's identifier therefore depends on which others are present,
        never on their order. It does not depend on which come later: what a table has `there`, the sources of its
        columns by their names, stays with them. Raises ValueError if two sources are the same text.
        """
        return _distinct(sources, [self.identifier(source) for source in sources], there)

    @property
    def inside(self) -> Naming:
        """The naming of a struct's fields."""
        return Naming(self.style, self.spelling_inside, self.spelling_inside)


def _snake_case(text: str, cut: re.Pattern[str]) -> str:
    """Romanise, join the words by `_`, keep leading underscores, put one before a leading digit."""
    words = "_".join(cut.sub("_", run) for run in _RUN.findall(anyascii(text))).lower()
    underscores = _LEADING_UNDERSCORES.match(text)
    assert underscores is not None
    return (underscores[0] or "_" * words[:1].isdigit()) + words if words else ""


def _preserved(text: str) -> str:
    """Lower the letters and keep them with digits and combining marks of all scripts; all else becomes `_`."""
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    kept = "".join(c if unicodedata.category(c) in _LETTERS_DIGITS_MARKS else "_" for c in lowered)
    return kept if any(unicodedata.category(c) in _LETTERS_DIGITS for c in kept) else ""


def _preserved_inside(text: str) -> str:
    """The same with only those characters that Hive's type language takes, and no leading digit, for Spark's sake.

    Hive (TypeInfoUtils.isTypeChar), and Athena like it, take letters and digits of one UTF-16 unit and no marks. Spark
    would read `1e5` in `struct<1e5:int>` as a number.
    """
    kept = "".join(c if c <= "\uffff" and unicodedata.category(c) in _LETTERS_DIGITS else "_" for c in _preserved(text))
    if not kept.strip("_"):
        return ""
    return f"_{kept}" if kept[0].isdigit() else kept


def _sanitised(text: str) -> str:
    """Drop accents, lower the letters; each run of anything but a-z, 0-9 and `_` becomes one `_`.

    As awswrangler's `sanitize_table_name`, `sanitize_column_name` (3.7.1 and since); importing it takes seconds.
    """
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return _NOT_ASCII_WORD.sub("_", plain).lower()


def _lowered(text: str) -> str:
    """Lower the letters, as Glue does with a database's name, and keep what an S3 URI can have in a folder's name."""
    kept = "".join(c if c in "- " or unicodedata.category(c) in _LETTERS_DIGITS_MARKS else "_" for c in text.lower())
    return kept if any(unicodedata.category(c) in _LETTERS_DIGITS for c in kept) else ""


_NOT_ASCII_WORD = re.compile("[^A-Za-z0-9_]+")
_LETTERS_DIGITS = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"})
_LETTERS_DIGITS_MARKS = _LETTERS_DIGITS | {"Mn", "Mc", "Me"}


def _snake_case_words(text: str) -> str:
    return _snake_case(text, _WORD)


def _snake_case_numbers(text: str) -> str:
    return _snake_case(text, _WORD_OR_NUMBER)


SNAKE_CASE = Naming("snake_case", _snake_case_words, _snake_case_words)
"""`camelCase` is cut into words, digits stay with the letters before them, letters outside ASCII are romanised."""

SNAKE_CASE_NUMBERS = Naming("snake_case, split_numbers", _snake_case_numbers, _snake_case_numbers)
"""The same, and numbers are words of their own."""

PRESERVE = Naming("preserve", _preserved, _preserved_inside)
"""Letters and digits of every script stay as they are, in lower case."""

AWS_DATALAKE = Naming("aws_datalake", _sanitised, _preserved_inside, _lowered)
"""As Airbyte's AWS Datalake destination named: awswrangler's names, databases as Glue stores their namespaces."""

STYLES: Mapping[str, Naming] = {
    naming.style: naming for naming in (SNAKE_CASE, SNAKE_CASE_NUMBERS, PRESERVE, AWS_DATALAKE)
}
"""Every naming there is."""


def suffixed(name: str, suffix: str) -> str:
    """`name_suffix`, with the name cut, between two characters, so that the whole is at most 255 bytes of UTF-8."""
    return f"{_cut(name, MAX_BYTES - len(suffix.encode()) - 1)}_{suffix}"


def bounded(name: str, source: str) -> str:
    """The name itself, or, if it is longer than 255 bytes, its beginning and a hash of the source."""
    return name if len(name.encode()) <= MAX_BYTES else suffixed(name, _hash(source))


def comment_of(source: str) -> str:
    """The source as Glue takes it for a comment: one line of at most 255 bytes, an ellipsis where it is cut."""
    line = _NOT_IN_A_LINE.sub("\ufffd", source)
    return line if len(line.encode()) <= MAX_BYTES else f"{_cut(line, MAX_BYTES - len('…'.encode()))}…"


def _distinct(sources: Sequence[str], plain: Sequence[str], there: Mapping[str, str]) -> tuple[str, ...]:
    if len(set(sources)) != len(sources):
        repeated = sorted(source for source, times in Counter(sources).items() if times > 1)
        raise ValueError(f"the same name is given twice: {', '.join(map(repr, repeated))}")
    takers = Counter(plain)
    meeting = set(zip(sources, plain, strict=True))

    def keeps(source: str, name: str) -> bool:
        holder = there.get(name)
        if name in METADATA_NAMES or there.get(suffixed(name, _hash(source))) == source:
            return False
        if name in _RESERVED:
            # A column that is there already stays: a second one beside it would help nobody.
            return holder == source
        if holder is not None and (holder, name) in meeting:
            return holder == source
        return takers[name] == 1 or source == name

    # A suffixed name can meet a source that is spelled just so; hashing again parts them.
    for rounds in count(1):
        names = tuple(
            name if keeps(source, name) else suffixed(name, _hash(source, rounds))
            for source, name in zip(sources, plain, strict=True)
        )
        if len(set(names)) == len(names):
            return names
    raise AssertionError("unreachable")


def _identifier(spelling: Spelling, source: str) -> str:
    spelled = spelling(source)
    return bounded(spelled, source) if spelled else f"unnamed_{_hash(source)}"


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _hash(text: str, rounds: int = 1) -> str:
    """Eight hex digits that say `text` (which may hold lone surrogates) again on every machine and in every sync."""
    digest = text.encode("utf-8", "surrogatepass")
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:_SUFFIX_DIGITS]
