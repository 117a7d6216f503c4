"""Identifiers in catalogs for the names of streams and fields.

In every style, an identifier is lower-case, consists of letters, digits and `_`, and is 1 to 255 bytes of UTF-8 long:
the Glue Data Catalog, Iceberg, Hive and Athena all allow it. None contains a dot, so that the dotted paths of nested
fields in Parquet and Iceberg are unambiguous. (Databases of `AWS_DATALAKE` have their own rule.)
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from anyascii import anyascii

METADATA_NAMES = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")
"""The names of the metadata columns, in order (Airbyte protocol)."""

_RESERVED = frozenset(
    {
        *METADATA_NAMES,
        # Iceberg's metadata columns (Iceberg spec: reserved field ids). Spark refuses tables that have such a column.
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
"""Names that a stream's column never gets, because they have another meaning here or to an engine."""

MAX_BYTES = 255
"""The longest database, table or column name that Glue allows, and the longest comment, in bytes of UTF-8."""

Path = tuple[str, ...]
"""The keys that lead from a record's data to a value, at least one."""

Spelling = Callable[[str], str]
"""A style's spelling of a source, of any length; empty if no character of the source is left."""

_RUN = re.compile(r"[A-Za-z0-9]+")
# Where a run of letters and digits is split into words: "camelCase" before the C, "HTTPServer" before the S.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# With `split_numbers`, also where digits begin and end.
_WORD_OR_NUMBER = re.compile(rf"{_WORD.pattern}|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_LEADING_UNDERSCORES = re.compile("_*")
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(rf"\.({_PLAIN_KEY.pattern})|\['((?:[^'\\]|\\['\\])*)'\]", re.DOTALL)
_JSON_PATH = re.compile(rf"\$(?:{_STEP.pattern})+", re.DOTALL)
_ESCAPED = re.compile(r"\\(['\\])")
_NOT_SINGLE_LINE = re.compile("[\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that Glue's "single-line string pattern" excludes (Glue API)."""
_SUFFIX_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Naming:
    """A style of identifiers: its spelling of columns and tables, of fields inside structs, and of databases.

    Hive and Spark parse the types of structs, so fewer characters are allowed there. `style` is the name that tables
    record (see `tables.ownership`).
    """

    style: str
    spelling: Spelling
    spelling_inside: Spelling
    spelling_of_databases: Spelling | None = None
    """The spelling of databases; None if it is that of tables."""

    def identifier(self, source: str) -> str:
        """Return the identifier of a table or a column.

        An empty spelling becomes `unnamed_` and a hash of the source; one of more than 255 bytes is cut and ends in
        such a hash.
        """
        return _identifier(self.spelling, source)

    def database(self, namespace: str) -> str:
        """Return the identifier of a database, with the same two exceptions."""
        return _identifier(self.spelling_of_databases or self.spelling, namespace)

    def identifiers(self, sources: Sequence[str]) -> tuple[str, ...]:
        """Return distinct identifiers for the fields of an object, none of them reserved.

        If sources collide in one identifier, the one that is spelled like it gets it and the others get a suffix, a
        hash of the source. An identifier therefore depends on the other sources, but not on their order. Raises
        ValueError for duplicate sources.
        """
        return _distinct(sources, [self.identifier(source) for source in sources], {})

    def identifiers_of_paths(self, paths: Sequence[Path], existing: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return distinct identifiers for columns of which some are fields of objects, as `identifiers` does.

        `paths` are the keys that lead to each; the identifiers of several are joined by `_`. Columns that a table has
        already stay with their paths: `existing` has what it records of them, as `origin_of` has it, by name. A name
        with None, as that of a partition key, is given to no column.
        """
        return _distinct([*map(origin_of, paths)], [self.identifier_of_path(path) for path in paths], existing)

    def identifier_of_path(self, path: Path) -> str:
        """Return the identifiers of the keys joined by `_`, cut to 255 bytes as `identifier` cuts."""
        name = "_".join(map(self.identifier, path))
        return name if len(path) == 1 else bounded(name, origin_of(path))

    @property
    def inside(self) -> Naming:
        """The naming of fields inside structs."""
        return Naming(self.style, self.spelling_inside, self.spelling_inside)


def _snake_case(text: str, cut: re.Pattern[str]) -> str:
    """Romanise, join words with `_`, keep leading underscores, put one before a leading digit."""
    words = "_".join(cut.sub("_", run) for run in _RUN.findall(anyascii(text))).lower()
    underscores = _LEADING_UNDERSCORES.match(text)
    assert underscores is not None
    return (underscores[0] or "_" * words[:1].isdigit()) + words if words else ""


def _preserved(text: str) -> str:
    """Lower-case, keep letters, digits and combining marks of all scripts, replace other characters by `_`."""
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    kept = "".join(c if unicodedata.category(c) in _LETTERS_DIGITS_MARKS else "_" for c in lowered)
    return kept if any(unicodedata.category(c) in _LETTERS_DIGITS for c in kept) else ""


def _preserved_inside(text: str) -> str:
    """Spell as `_preserved` with only the characters of Hive's type language and no leading digit.

    Hive (TypeInfoUtils.isTypeChar) and Athena allow letters and digits of one UTF-16 unit and no marks. Spark parses
    `1e5` in `struct<1e5:int>` as a number.
    """
    kept = "".join(c if c <= "\uffff" and unicodedata.category(c) in _LETTERS_DIGITS else "_" for c in _preserved(text))
    if not kept.strip("_"):
        return ""
    return f"_{kept}" if kept[0].isdigit() else kept


def _sanitised(text: str) -> str:
    """Drop accents, replace each run of other characters than a-z, 0-9 and `_` by one `_`, lower-case.

    Equals awswrangler's `sanitize_table_name` and `sanitize_column_name` (3.7.1 and later), whose import takes seconds.
    """
    without_accents = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return _NOT_ASCII_WORD.sub("_", without_accents).lower()


def _lowered(text: str) -> str:
    """Lower-case, as Glue does with database names, and keep the characters that a folder in an S3 URI can have."""
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
"""`camelCase` is split into words, digits stay with the letters before them, other letters than ASCII are romanised."""

SNAKE_CASE_NUMBERS = Naming("snake_case, split_numbers", _snake_case_numbers, _snake_case_numbers)
"""As `SNAKE_CASE`, with numbers as words of their own."""

PRESERVE = Naming("preserve", _preserved, _preserved_inside)
"""Letters and digits of every script are kept, in lower case."""

AWS_DATALAKE = Naming("aws_datalake", _sanitised, _preserved_inside, _lowered)
"""The names of Airbyte's AWS Datalake destination: awswrangler's, and databases as Glue stores namespaces."""

STYLES: Mapping[str, Naming] = {
    naming.style: naming for naming in (SNAKE_CASE, SNAKE_CASE_NUMBERS, PRESERVE, AWS_DATALAKE)
}
"""Every naming, by its style."""


def suffixed(name: str, suffix: str) -> str:
    """Return `name_suffix`, with the name cut so that the whole is at most 255 bytes of UTF-8."""
    return f"{_cut(name, MAX_BYTES - len(suffix.encode()) - 1)}_{suffix}"


def bounded(name: str, source: str) -> str:
    """Return the name; if it is longer than 255 bytes, its beginning and a hash of the source."""
    return name if len(name.encode()) <= MAX_BYTES else suffixed(name, _hash(source))


def comment_of(source: str) -> str:
    """Return the source as a comment that Glue allows: one line of at most 255 bytes, with an ellipsis if it is cut."""
    line = _NOT_SINGLE_LINE.sub("\ufffd", source)
    return line if len(line.encode()) <= MAX_BYTES else f"{_cut(line, MAX_BYTES - len('…'.encode()))}…"


def origin_of(path: Path) -> str:
    """Return how a catalog records a path beside the column's name; different paths differ.

    A key by itself is recorded as it is, several keys as JSONPath, `$.address.city` (RFC 9535; normalized for odd
    keys). A key that looks like JSONPath is one as well.
    """
    if len(path) == 1 and not path[0].startswith(("$.", "$[")):
        return path[0]
    return "$" + "".join(f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{_quoted(key)}]" for key in path)


def path_of(origin: str) -> Path:
    """Return the path that a catalog records so; one that was cut is a key that no record has."""
    steps = _STEP.findall(origin, 1) if _JSON_PATH.fullmatch(origin) else []
    if not steps:
        return (origin,)
    return tuple(plain or _ESCAPED.sub(r"\1", quoted) for plain, quoted in steps)


def _quoted(key: str) -> str:
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _distinct(sources: Sequence[str], spelled: Sequence[str], existing: Mapping[str, str | None]) -> tuple[str, ...]:
    if len(set(sources)) != len(sources):
        repeated = sorted(source for source, times in Counter(sources).items() if times > 1)
        raise ValueError(f"the same name is given twice: {', '.join(map(repr, repeated))}")
    uses = Counter(spelled)
    candidates = set(zip(sources, spelled, strict=True))

    def keeps(source: str, name: str) -> bool:
        """Whether the source gets the name without a suffix."""
        existing_source = existing.get(name)
        if name in METADATA_NAMES or (existing_source is None and name in existing):
            return False
        if existing.get(suffixed(name, _hash(source))) == source:
            return False
        if name in _RESERVED:
            # An existing column keeps a reserved name: a second column beside it would not help.
            return existing_source == source
        if existing_source is not None and (existing_source, name) in candidates:
            return existing_source == source
        return uses[name] == 1 or source == name

    # A suffixed name can collide with a source of that very spelling: then all suffixes are hashed again.
    for rounds in count(1):
        names = tuple(
            name if keeps(source, name) else suffixed(name, _hash(source, rounds))
            for source, name in zip(sources, spelled, strict=True)
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
    """Return eight hex digits that depend on `text` alone, which may hold lone surrogates."""
    digest = text.encode("utf-8", "surrogatepass")
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:_SUFFIX_DIGITS]
