"""Convert the names of streams and fields to identifiers in catalogs.

Identifiers consist of letters in lower case, digits and `_`, and have 1 to 255 bytes in UTF-8. The Glue Data Catalog,
Iceberg, Hive and Athena accept such identifiers. Identifiers contain no dots, so the dotted paths of nested fields in
Parquet and Iceberg are unambiguous. There are two exceptions: in the style `PRESERVE`, letters may have combining
marks, and in the style `AWS_DATALAKE`, names of databases may also contain combining marks, hyphens and spaces.
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

RAW_ID = "_airbyte_raw_id"
EXTRACTED_AT = "_airbyte_extracted_at"
META = "_airbyte_meta"
GENERATION_ID = "_airbyte_generation_id"

METADATA_NAMES = (RAW_ID, EXTRACTED_AT, META, GENERATION_ID)
"""The names of the metadata columns that the Airbyte protocol defines, in order."""

_RESERVED = frozenset(
    {
        *METADATA_NAMES,
        # Iceberg's metadata columns (Iceberg spec: reserved field IDs). Spark rejects tables with such columns.
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
"""Names that the connector gives to no new column of a stream, because the connector or an engine uses them."""

MAX_BYTES = 255
"""Maximum length, in bytes of UTF-8, of column comments and of the names of databases, tables and columns in Glue."""

Path = tuple[str, ...]
"""The keys that lead from a record's data to a value, outermost first. Never empty."""

Spelling = Callable[[str], str]
"""A function that spells a source's name in a naming style.

The result may have any length. The result is an empty string if the style allows none of the name's characters.
"""

_RUN = re.compile(r"[A-Za-z0-9]+")
# Splits a run of letters and digits into words: before the C in "camelCase", and before the S in "HTTPServer".
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# The option `split_numbers` also splits before and after digits.
_WORD_OR_NUMBER = re.compile(rf"{_WORD.pattern}|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_LEADING_UNDERSCORES = re.compile("_*")
_PLAIN_KEY = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_STEP = re.compile(rf"\.({_PLAIN_KEY.pattern})|\['((?:[^'\\]|\\['\\])*)'\]", re.DOTALL)
_JSON_PATH = re.compile(rf"\$(?:{_STEP.pattern})+", re.DOTALL)
_ESCAPED = re.compile(r"\\(['\\])")
_NOT_SINGLE_LINE = re.compile("[\x00-\x08\x0a-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that Glue does not allow in comments (Glue API: single-line string pattern)."""
_SUFFIX_DIGITS = 8


@dataclass(frozen=True, slots=True)
class AssignedNames:
    """The names that the connector has already assigned in a table or in a struct.

    `names` maps each source, such as a key in the records, to its name. `taken` contains these names, and all other
    names that a new field must not get.
    """

    names: Mapping[str, str]
    taken: frozenset[str]


NO_NAMES = AssignedNames(MappingProxyType({}), frozenset())


@dataclass(frozen=True, slots=True)
class Naming:
    """A naming style: the rules for spelling the names of tables, columns, struct fields and databases.

    The spelling for struct fields, `spelling_inside`, allows fewer characters, because Hive and Spark parse the names
    as part of a type's text. `style` is the name of the style. Each table's parameters contain this name
    (`tables.naming.TableOwner`).
    """

    style: str
    spelling: Spelling
    spelling_inside: Spelling
    spelling_of_databases: Spelling | None = None
    """The spelling for databases, or None to use the spelling for tables."""
    spelling_in_words: Spelling | None = None
    """The spelling that replaces signs by words, such as `+` by `plus`, or None if the style has no such spelling.

    This spelling applies only to names that would otherwise need a hash as a suffix.
    """

    def identifier(self, source: str) -> str:
        """Return the identifier of a table or column.

        If the style allows no character of `source`, returns `unnamed_` and a hash of `source`. If the identifier would
        exceed 255 bytes, truncates the identifier and appends the hash.
        """
        return _identifier(self.spelling, source)

    def database(self, namespace: str) -> str:
        """Return the identifier of a database. The rules of `identifier` for empty and long names apply here too."""
        return _identifier(self.spelling_of_databases or self.spelling, namespace)

    def identifiers(
        self,
        sources: Sequence[str],
        existing: Mapping[str, str | None] = MappingProxyType({}),
        assigned: AssignedNames = NO_NAMES,
    ) -> tuple[str, ...]:
        """Return a distinct identifier for each source: each key of an object in the records.

        - A source in `assigned` keeps its assigned name.
        - If several sources have the same identifier, the source that equals the identifier gets the identifier. The
          others get identifiers with words for their signs (`plus_1`). If a source has no signs, or if the identifier
          with words is not available, the source gets its identifier with a hash as a suffix.
        - `existing` maps the names of a table's columns to their origins (`origin_of`). A source keeps the column whose
          origin it equals. If a name maps to None, such as the name of a partition key, no source gets this name.
        - No source gets the name of a metadata column. A source gets another reserved identifier only if the table
          already has a column with this name for the source.

        The order of the sources does not matter. Raises ValueError for duplicate sources.
        """
        return self._distinct(sources, [(source,) for source in sources], existing, assigned)

    def identifiers_of_paths(
        self, paths: Sequence[Path], existing: Mapping[str, str | None], assigned: AssignedNames = NO_NAMES
    ) -> tuple[str, ...]:
        """Return a distinct identifier for the column at each path, by the rules of `identifiers`.

        If a path has several keys, `_` joins their identifiers. In `existing` and `assigned`, the path's origin
        (`origin_of`) is the source.
        """
        return self._distinct([*map(origin_of, paths)], paths, existing, assigned)

    def identifier_of_path(self, path: Path) -> str:
        """Return the identifiers of a path's keys, joined by `_`.

        If the result would exceed 255 bytes, truncates the result and appends a hash of the path.
        """
        name = "_".join(map(self.identifier, path))
        return name if len(path) == 1 else bounded(name, origin_of(path))

    @property
    def inside(self) -> Naming:
        """The naming style for struct fields."""
        words = self.spelling_in_words
        return Naming(self.style, self.spelling_inside, self.spelling_inside, spelling_in_words=words)

    def may_name(self, source: str, name: str) -> bool:
        """Return whether this style can give `name` to `source`: plain, with a hash, or with words for signs."""
        own = self.identifier(source)
        return name in (own, suffixed(own, _hash(source)), self.in_words((source,)))

    def in_words(self, path: Path) -> str | None:
        """Return the identifiers of a path's keys, with words instead of signs, joined by `_`.

        Returns None if the keys contain no signs, or if the style does not support words.
        """
        if (spelling := self.spelling_in_words) is None or not any(map(_SIGN.search, path)):
            return None
        return bounded("_".join(_identifier(spelling, key) for key in path), origin_of(path))

    def _distinct(
        self, sources: Sequence[str], paths: Sequence[Path], existing: Mapping[str, str | None], assigned: AssignedNames
    ) -> tuple[str, ...]:
        if len(set(sources)) != len(sources):
            repeated = sorted(source for source, times in Counter(sources).items() if times > 1)
            raise ValueError(f"duplicate names: {', '.join(map(repr, repeated))}")
        spelled = [self.identifier_of_path(path) for path in paths]
        in_words = {source: word for source, path in zip(sources, paths, strict=True) if (word := self.in_words(path))}
        recorded = {s: word for s, word in in_words.items() if existing.get(word) == s and word not in assigned.taken}
        assigned = AssignedNames({**recorded, **assigned.names}, assigned.taken.union(recorded.values()))
        uses = Counter(spelled)
        candidates = set(zip(sources, spelled, strict=True))

        def keeps(source: str, name: str) -> bool:
            """Return whether the source can get this name unchanged, without words for signs or a suffix."""
            existing_source = existing.get(name)
            if name in METADATA_NAMES or name in assigned.taken or (existing_source is None and name in existing):
                return False
            # The source has a column with a suffix already, and keeps it.
            if existing.get(suffixed(name, _hash(source))) is not None:
                return False
            if name in _RESERVED:
                # Keep the reserved name of an existing column. A second column would not remove the first.
                return existing_source == source
            if existing_source is not None and (existing_source, name) in candidates:
                # The stream still sends the source of this column, so no other source may have the name.
                return existing_source == source
            return uses[name] == 1 or source == name

        kept = {s: name for s, name in candidates if s not in assigned.names and keeps(s, name)}
        words = {
            source: in_words[source]
            # Only sources that do not keep their plain name.
            for source, name in zip(sources, spelled, strict=True)
            if source in in_words
            and source not in assigned.names
            and (kept.get(source) != name or (name == f"unnamed_{_hash(source)}" and name not in existing))
            and suffixed(name, _hash(source)) not in existing
        }
        times = Counter(words.values())
        unavailable = {*spelled, *assigned.taken, *existing, *_RESERVED}
        kept |= {s: word for s, word in words.items() if times[word] == 1 and word not in unavailable}

        # If a name with a suffix equals the name of another source, hash all suffixes again.
        for rounds in count(1):
            new = {
                source: kept.get(source) or suffixed(name, _hash(source, rounds))
                for source, name in zip(sources, spelled, strict=True)
                if source not in assigned.names
            }
            names = tuple(assigned.names.get(source) or new[source] for source in sources)
            if len(set(names)) == len(names) and assigned.taken.isdisjoint(new.values()):
                return names
        raise AssertionError("unreachable")


def _snake_case(text: str, cut: re.Pattern[str]) -> str:
    """Romanise the text and join its words by `_`. Keep leading underscores, and add one before a leading digit."""
    words = "_".join(cut.sub("_", run) for run in _RUN.findall(anyascii(text))).lower()
    underscores = _LEADING_UNDERSCORES.match(text)
    assert underscores is not None
    # In SQL, a name with a leading digit would need quotes.
    return (underscores[0] or "_" * words[:1].isdigit()) + words if words else ""


def _in_words(text: str) -> str:
    """Replace signs by words. A leading hyphen is a minus sign. All other hyphens stay."""
    return _SIGN.sub(lambda sign: f" {_SIGNS[sign[0]]} ", text)


_SIGNS = {
    "+": "plus",
    "-": "minus",
    "%": "percent",
    "#": "number",
    "&": "and",
    "@": "at",
    "<": "less",
    ">": "greater",
    "=": "equal",
}
_SIGN = re.compile("^-|[+%#&@<>=]")


def _preserved(text: str) -> str:
    """Convert the text to lower case. Replace all characters except letters, digits and combining marks by `_`."""
    # Lower case may decompose a character, so normalise again.
    lowered = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    kept = "".join(c if unicodedata.category(c) in _LETTERS_DIGITS_MARKS else "_" for c in lowered)
    return kept if any(unicodedata.category(c) in _LETTERS_DIGITS for c in kept) else ""


def _preserved_inside(text: str) -> str:
    """Spell like `_preserved`, but as Hive's type language requires: without combining marks, or a digit at the start.

    Hive (TypeInfoUtils.isTypeChar) and Athena allow only letters and digits that consist of one UTF-16 code unit. Spark
    parses `1e5` in `struct<1e5:int>` as a number.
    """
    kept = "".join(c if c <= "\uffff" and unicodedata.category(c) in _LETTERS_DIGITS else "_" for c in _preserved(text))
    if not kept.strip("_"):
        return ""
    return f"_{kept}" if kept[0].isdigit() else kept


def _sanitised(text: str) -> str:
    """Convert the text to lower case, without accents.

    Replace each run of characters other than ASCII letters, ASCII digits and `_` by one `_`.

    The result equals that of awswrangler's functions `sanitize_table_name` and `sanitize_column_name` (3.7.1 and
    later). This module does not call these functions, because importing awswrangler takes seconds.
    """
    without_accents = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    return _NOT_ASCII_WORD.sub("_", without_accents).lower()


def _lowered(text: str) -> str:
    """Convert the text to lower case, as Glue does with database names. Replace unsafe characters by `_`.

    Letters, digits, combining marks, hyphens and spaces are safe in the names of S3 folders.
    """
    kept = "".join(c if c in "- " or unicodedata.category(c) in _LETTERS_DIGITS_MARKS else "_" for c in text.lower())
    return kept if any(unicodedata.category(c) in _LETTERS_DIGITS for c in kept) else ""


_NOT_ASCII_WORD = re.compile("[^A-Za-z0-9_]+")
_LETTERS_DIGITS = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nd"})
_LETTERS_DIGITS_MARKS = _LETTERS_DIGITS | {"Mn", "Mc", "Me"}


def _snake_case_words(text: str) -> str:
    return _snake_case(text, _WORD)


def _snake_case_numbers(text: str) -> str:
    return _snake_case(text, _WORD_OR_NUMBER)


SNAKE_CASE = Naming(
    "snake_case",
    _snake_case_words,
    _snake_case_words,
    spelling_in_words=lambda text: _snake_case_words(_in_words(text)),
)
"""The style `snake_case`.

Splits `camelCase` into words, keeps digits with the letters before them, and romanises other scripts.
"""

SNAKE_CASE_NUMBERS = Naming(
    "snake_case, split_numbers",
    _snake_case_numbers,
    _snake_case_numbers,
    spelling_in_words=lambda text: _snake_case_numbers(_in_words(text)),
)
"""The style `snake_case` with the option `split_numbers`. Treats numbers as separate words."""

PRESERVE = Naming(
    "preserve",
    _preserved,
    _preserved_inside,
    spelling_in_words=lambda text: _preserved_inside(" ".join(_in_words(text).split())),
)
"""The style `preserve`. Keeps letters and digits of all scripts, in lower case."""

AWS_DATALAKE = Naming("aws_datalake", _sanitised, _preserved_inside, _lowered)
"""The style `aws_datalake`, which gives the same names as Airbyte's AWS Datalake destination.

That destination names tables and columns with the library awswrangler. It creates a database with the namespace's name,
which Glue converts to lower case.
"""

STYLES: Mapping[str, Naming] = {
    naming.style: naming for naming in (SNAKE_CASE, SNAKE_CASE_NUMBERS, PRESERVE, AWS_DATALAKE)
}
"""All naming styles, by name."""


def suffixed(name: str, suffix: str) -> str:
    """Return `<name>_<suffix>`. Truncates the name so that the result has at most 255 bytes."""
    return f"{_cut(name, MAX_BYTES - len(suffix.encode()) - 1)}_{suffix}"


def bounded(name: str, source: str) -> str:
    """Return the name. If it has more than 255 bytes, return its beginning and a hash of `source`."""
    return name if len(name.encode()) <= MAX_BYTES else suffixed(name, _hash(source))


def comment_of(source: str) -> str:
    """Return the source as a Glue comment: a single line of at most 255 bytes. A truncated line ends with `…`."""
    line = _NOT_SINGLE_LINE.sub("\ufffd", source)
    return line if len(line.encode()) <= MAX_BYTES else f"{_cut(line, MAX_BYTES - len('…'.encode()))}…"


def origin_of(path: Path) -> str:
    """Return the string that represents a column's path in catalogs. Different paths have different strings.

    If the path has only one key, and this key does not look like JSONPath, return the key unchanged. Otherwise return
    the path as JSONPath (RFC 9535), such as `$.address.city` or `$['first name'].x`.
    """
    if len(path) == 1 and not path[0].startswith(("$.", "$[")):
        return path[0]
    return "$" + "".join(f".{key}" if _PLAIN_KEY.fullmatch(key) else f"[{_quoted(key)}]" for key in path)


def path_of(origin: str) -> Path:
    """Return the path for which `origin_of` returns `origin`.

    If a catalog has truncated `origin`, the result does not match any key in the records.
    """
    steps = _STEP.findall(origin, 1) if _JSON_PATH.fullmatch(origin) else []
    if not steps:
        return (origin,)
    return tuple(plain or _ESCAPED.sub(r"\1", quoted) for plain, quoted in steps)


def _quoted(key: str) -> str:
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _identifier(spelling: Spelling, source: str) -> str:
    spelled = spelling(source)
    return bounded(spelled, source) if spelled else f"unnamed_{_hash(source)}"


def _cut(text: str, size: int) -> str:
    # The cut may split a character. `ignore` drops the incomplete bytes.
    return text.encode()[:size].decode(errors="ignore")


def _hash(text: str, rounds: int = 1) -> str:
    """Hash the text with SHA-256 `rounds` times, and return the first eight hex digits.

    The text may contain lone surrogates.
    """
    digest = text.encode("utf-8", "surrogatepass")
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return digest.hex()[:_SUFFIX_DIGITS]
