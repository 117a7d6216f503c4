"""Identifiers: how each style spells a name, what bounds it, and how colliding names are distinguished."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from random import Random

import pytest
from awswrangler.catalog import sanitize_column_name, sanitize_table_name
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.names import (
    AWS_DATALAKE,
    METADATA_NAMES,
    PRESERVE,
    SNAKE_CASE,
    SNAKE_CASE_NUMBERS,
    Naming,
    bounded,
    comment_of,
    suffixed,
)

STYLES = (SNAKE_CASE, SNAKE_CASE_NUMBERS, PRESERVE, AWS_DATALAKE)
style = pytest.mark.parametrize("naming", STYLES, ids=lambda naming: naming.style)
own_style = pytest.mark.parametrize("naming", STYLES[:3], ids=lambda naming: naming.style)


def continued(naming: Naming, sources: Sequence[str], existing: Mapping[str, str]) -> tuple[str, ...]:
    """The identifiers of columns in a table that has some already."""
    return naming.identifiers_of_paths([(source,) for source in sources], existing)


any_text = (
    st.text()
    | st.text(alphabet=st.characters(), max_size=5)
    | st.text("aB_9 é-", max_size=6)
    | st.text("京İςßΣǅ\u0301ि०𠮷🎉ſ", max_size=6)
    | st.integers(80, 300).map("京".__mul__)
)


# RudderStack's own: input, its name, its name with underscoreDivideNumbers.
@pytest.mark.parametrize(
    ("text", "expected", "divided"),
    [
        ("omega v2", "omega_v2", "omega_v_2"),
        ("9mega", "_9mega", "_9_mega"),
        ("9mega________-________90", "_9mega_90", "_9_mega_90"),
        ("CamelCase123Key", "camel_case123_key", "camel_case_123_key"),
        ("&4yasdfa(84224_fs9##_____*3q", "_4yasdfa_84224_fs9_3q", "_4_yasdfa_84224_fs_9_3_q"),
        ("path to $1,00,000", "path_to_1_00_000", "path_to_1_00_000"),
        ("ome$ga", "ome_ga", "ome_ga"),
        ("mega&", "mega", "mega"),
        ("__abc_123_def_456", "__abc_123_def_456", "__abc_123_def_456"),
        ("omega v2 ", "omega_v2", "omega_v_2"),
        ("k3_namespace", "k3_namespace", "k_3_namespace"),
    ],
)
def test_vectors_of_rudderstack(text: str, expected: str, divided: str) -> None:
    assert SNAKE_CASE.identifier(text) == expected
    assert SNAKE_CASE_NUMBERS.identifier(text) == divided


@pytest.mark.parametrize(
    ("text", "rudderstack", "expected"),
    [
        ("Cízǔ", "c_z", "cizu"),  # letters are romanised, not dropped
        ("@#$%", "", "unnamed_1a483835"),  # no column is dropped
        ("___", "stringempty", "unnamed_bda25155"),  # two empty namespaces do not collide
        ("group", "_group", "group"),  # every catalog takes reserved words
        ("timestamp", "_timestamp", "timestamp"),
    ],
)
def test_vectors_of_rudderstack_that_differ_by_decision(text: str, rudderstack: str, expected: str) -> None:
    assert SNAKE_CASE.identifier(text) == SNAKE_CASE_NUMBERS.identifier(text) == expected != rudderstack


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("order", "order"),
        ("streamWithCamelCase", "stream_with_camel_case"),
        ("STREAM_WITH_ALL_CAPS", "stream_with_all_caps"),
        ("HTTPServerID", "http_server_id"),
        ("_id", "_id"),
        ("name_", "name"),
        ("Foo.Bar", "foo_bar"),
        ("stream-with:spécial:character_names", "stream_with_special_character_names"),
        ("99namespace", "_99namespace"),  # Airbyte's S3A-1
        ("Straße", "strasse"),
        ("Łódź", "lodz"),
        ("smørrebrød", "smorrebrod"),
        ("Ğüç", "guc"),
        ("id_ключ", "id_klyuch"),
        ("京都", "jing_dou"),
        ("名前", "ming_qian"),
        ("🎉", "tada"),
    ],
)
def test_snake_case_splits_words_and_romanises_letters(text: str, expected: str) -> None:
    assert SNAKE_CASE.identifier(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "field"),
    [
        ("order", "order", "order"),
        ("streamWithCamelCase", "streamwithcamelcase", "streamwithcamelcase"),
        ("omega v2", "omega_v2", "omega_v2"),
        ("a - b", "a___b", "a___b"),
        ("Foo.Bar", "foo_bar", "foo_bar"),
        ("name_", "name_", "name_"),
        ("$price", "_price", "_price"),
        ("Spécial", "spécial", "spécial"),
        ("spe\u0301cial", "spécial", "spécial"),
        ("Straße", "straße", "straße"),
        ("КЛЮЧ", "ключ", "ключ"),
        ("京都", "京都", "京都"),
        ("m²", "m_", "m_"),
        ("id🎉", "id_", "id_"),
        # Engines that parse a type such as struct<1e5:int> allow less there than in a column's name.
        ("1e5", "1e5", "_1e5"),
        ("हिन्दी", "हिन्दी", "ह_न_द_"),
        ("𠮷野", "𠮷野", "_野"),
    ],
)
def test_preserve_keeps_the_characters_that_catalogs_allow(text: str, column: str, field: str) -> None:
    assert PRESERVE.identifiers([text]) == (column,)
    assert PRESERVE.inside.identifiers([text]) == (field,)


# Names that AWS Datalake 0.1.35 with awswrangler 3.7.1 gave.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("order", "order"),
        ("orderItems", "orderitems"),
        ("größe", "gro_e"),
        ("café", "cafe"),
        ("9mega", "9mega"),
        ("a--b", "a_b"),
        ("a__b", "a__b"),
        ("name_", "name_"),
        ("_id", "_id"),
        ("$price", "_price"),
        ("京都", "_"),
        ("@#$%", "_"),
        ("\u212aelvin", "kelvin"),
    ],
)
def test_aws_datalake_names_are_that_connector_s(text: str, expected: str) -> None:
    assert AWS_DATALAKE.identifier(text) == expected
    assert AWS_DATALAKE.identifiers([text]) == (expected,)


@given(any_text)
def test_aws_datalake_names_are_those_of_awswrangler(text: str) -> None:
    """AWS Datalake named tables and columns with these functions, unchanged since awswrangler 3.7.1."""
    expected = sanitize_table_name(text)
    assert sanitize_column_name(text) == expected
    if expected and len(expected) <= 255:  # Glue allows no others
        assert AWS_DATALAKE.identifier(text) == expected
    else:
        assert 0 < len(AWS_DATALAKE.identifier(text).encode()) <= 255


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        ("shop", "shop"),
        ("Web-Shop", "web-shop"),
        ("WebShop", "webshop"),
        ("público", "público"),
        ("My Shop", "my shop"),
        ("a/b.c#d?e%f", "a_b_c_d_e_f"),
        *((relative, "unnamed_[0-9a-f]{8}") for relative in ("..", ".", "///", "")),
    ],
)
def test_an_aws_datalake_database_is_a_name_that_an_s3_folder_can_have(namespace: str, expected: str) -> None:
    assert re.fullmatch(expected, AWS_DATALAKE.database(namespace))


@own_style
def test_own_styles_name_databases_like_tables(naming: Naming) -> None:
    assert naming.database("Web-Shop 9") == naming.identifier("Web-Shop 9")


@own_style
@pytest.mark.parametrize("text", ["", "@#$%", "___", "\ud800", "\u0301"])
def test_a_name_that_leaves_nothing_is_unnamed_and_stable(naming: Naming, text: str) -> None:
    assert re.fullmatch(r"unnamed_[0-9a-f]{8}", naming.identifier(text))
    assert naming.identifier(text) == naming.identifier(text)


@own_style
def test_unnamed_names_differ_if_their_sources_do(naming: Naming) -> None:
    assert naming.identifier("@#$%") != naming.identifier("$%")
    assert naming.identifier("@#$%") == "unnamed_1a483835"  # the same in every release: tables depend on it


@pytest.mark.parametrize(
    ("naming", "letter"),
    [*((naming, letter) for naming in STYLES[:3] for letter in ("x", "京")), (AWS_DATALAKE, "x")],
)
def test_a_long_name_is_cut_to_255_bytes_and_stays_distinct(naming: Naming, letter: str) -> None:
    first, second = naming.identifier(letter * 300), naming.identifier(letter * 301)
    assert first != second
    assert {len(name.encode()) for name in (first, second)} <= {253, 254, 255}
    assert naming.identifier("x" * 255) == "x" * 255


def test_a_suffix_fits_into_the_bound() -> None:
    assert suffixed("abc", "1234") == "abc_1234"
    assert len(suffixed("x" * 255, "1234")) == 255
    assert suffixed("京" * 85, "1234") == "京" * 83 + "_1234"
    assert bounded("short", "source") == "short"


@given(any_text)
def test_a_snake_case_identifier_needs_no_quotes(text: str) -> None:
    for naming in (SNAKE_CASE, SNAKE_CASE_NUMBERS):
        assert re.fullmatch(r"[a-z_][a-z0-9_]{0,254}", naming.identifier(text))


@given(any_text)
def test_a_preserved_identifier_is_made_of_lower_case_letters_and_digits(text: str) -> None:
    [column], [field] = PRESERVE.identifiers([text]), PRESERVE.inside.identifiers([text])
    for name in (column, field):
        assert name == name.lower() == unicodedata.normalize("NFC", name)
        assert 0 < len(name.encode()) <= 255
    assert {unicodedata.category(c)[0] for c in column} <= set("LNMP")
    assert set("._").intersection(column) <= {"_"}
    # What Hive's type parser takes: Character.isLetterOrDigit of one UTF-16 unit.
    assert all(c == "_" or (c <= "\uffff" and unicodedata.category(c)[0] in "LN") for c in field)
    assert not field[0].isdigit()


@given(any_text)
def test_an_identifier_s_identifier_is_itself(text: str) -> None:
    for naming in (SNAKE_CASE, PRESERVE, AWS_DATALAKE):  # with split_numbers, a hash is split too
        assert naming.identifier(naming.identifier(text)) == naming.identifier(text)


@style
def test_of_colliding_names_the_one_spelled_like_the_identifier_keeps_it(naming: Naming) -> None:
    plain, spaced, dashed = naming.identifiers(["a_b", "a b", "a-b"])
    assert plain == "a_b"
    assert all(re.fullmatch(r"a_b_[0-9a-f]{8}", name) for name in {spaced, dashed})
    assert spaced != dashed
    assert naming.inside.identifiers(["a_b", "a b", "a-b"]) == (plain, spaced, dashed)


@style
def test_names_that_do_not_collide_have_no_suffix(naming: Naming) -> None:
    assert naming.identifiers(["id", "created_at"]) == ("id", "created_at")


@pytest.mark.parametrize(
    ("naming", "names"),
    [
        (SNAKE_CASE, ["plus_1", "minus_1", "klyuch_plus", "klyuch_percent"]),
        (PRESERVE, ["plus_1", "minus_1", "ключ_plus", "ключ_percent"]),
        (PRESERVE.inside, ["plus_1", "minus_1", "ключ_plus", "ключ_percent"]),
        (AWS_DATALAKE.inside, ["_1_c59dc4e4", "_1_1bad6b8c", "ключ__af9b44ff", "ключ__f14ce2e9"]),
    ],
)
def test_names_that_collide_have_words_for_signs_except_in_those_of_aws_datalake(
    naming: Naming, names: list[str]
) -> None:
    assert list(naming.identifiers(["+1", "-1", "ключ+", "ключ%"])) == names


@pytest.mark.parametrize("naming", [SNAKE_CASE, PRESERVE, AWS_DATALAKE])
def test_a_suffixed_name_that_collides_is_suffixed_again(naming: Naming) -> None:
    _, spaced, _ = naming.identifiers(["a_b", "a b", "a-b"])
    names = naming.identifiers(["a_b", "a b", "a-b", spaced])
    assert names[3] == spaced
    assert len(set(names)) == 4


@style
def test_no_column_gets_a_metadata_name(naming: Naming) -> None:
    given_names = naming.identifiers([*METADATA_NAMES, "_airbyte_Meta", "_airbyte_raw-id"])
    assert not set(given_names) & set(METADATA_NAMES)
    assert len(set(given_names)) == 6


@style
@pytest.mark.parametrize(
    "reserved",
    ["_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number", "_change_type"],
)
def test_no_new_column_gets_a_name_that_iceberg_reserves(naming: Naming, reserved: str) -> None:
    [name] = naming.identifiers([reserved])

    assert re.fullmatch(rf"{reserved}_[0-9a-f]{{8}}", name)
    assert continued(naming, ["id", reserved], {name: reserved}) == ("id", name)
    # An existing column keeps its name.
    assert continued(naming, [reserved], {reserved: reserved}) == (reserved,)


@pytest.mark.parametrize(
    ("existing", "sources", "expected"),
    [
        # The first source keeps the name, even if a newer one is spelled like it.
        ({"a_b": "aB"}, ["aB", "a_b"], ("a_b", "a_b_648fa9b3")),
        ({"a_b": "aB"}, ["a b", "aB"], ("a_b_c8687a08", "a_b")),
        # A source with a suffix keeps it when the others are gone.
        ({"a_b": "a_b", "a_b_042ac5b8": "aB"}, ["aB"], ("a_b_042ac5b8",)),
        # A comment that a user has written is not a source.
        ({"a_b": "A and B"}, ["aB"], ("a_b",)),
        ({"a_b": "a-b"}, ["aB"], ("a_b",)),
        ({"a_b": "c"}, ["aB", "c"], ("a_b", "c")),
    ],
)
def test_an_existing_column_stays_with_its_source(
    existing: Mapping[str, str], sources: list[str], expected: tuple[str, ...]
) -> None:
    assert continued(SNAKE_CASE, sources, existing) == expected


colliding = st.lists(st.text("aB_ -", max_size=4), unique=True, max_size=8)


@given(st.lists(colliding, max_size=4))
def test_a_source_keeps_its_column_whatever_others_come_and_go(syncs: list[list[str]]) -> None:
    existing: dict[str, str] = {}
    for sources in syncs:
        before = {source: name for name, source in existing.items() if source in sources}
        names = continued(SNAKE_CASE, sources, existing)
        assert len(set(names)) == len(sources)
        assert {source: name for source, name in zip(sources, names, strict=True) if source in before} == before
        for source, name in zip(sources, names, strict=True):
            existing.setdefault(name, source)


def test_a_duplicate_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="duplicate names: 'a'"):
        SNAKE_CASE.identifiers(["a", "b", "a"])


@given(st.lists(any_text, unique=True), st.randoms(use_true_random=False))
def test_identifiers_are_unique_and_do_not_depend_on_the_order(sources: list[str], random: Random) -> None:
    shuffled = random.sample(sources, len(sources))
    for identifiers in (
        identifiers for naming in STYLES for identifiers in (naming.identifiers, naming.inside.identifiers)
    ):
        names = dict(zip(sources, identifiers(sources), strict=True))
        assert len(set(names.values())) == len(sources)
        assert all(len(name.encode()) <= 255 for name in names.values())
        assert dict(zip(shuffled, identifiers(shuffled), strict=True)) == names


@pytest.mark.parametrize(
    ("source", "comment"),
    [
        ("placedAt", "placedAt"),
        ('"a".b?#%\t🎉', '"a".b?#%\t🎉'),
        ("two\nlines\x00", "two\ufffdlines\ufffd"),
        ("\ud800", "\ufffd"),
        ("x" * 255, "x" * 255),
        ("x" * 256, "x" * 252 + "…"),
        ("京" * 86, "京" * 84 + "…"),
    ],
)
def test_a_comment_is_one_line_of_at_most_255_bytes(source: str, comment: str) -> None:
    assert comment_of(source) == comment
    assert len(comment.encode()) <= 255
