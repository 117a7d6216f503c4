from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from destination_datalake.schema.names import METADATA_NAMES, bounded, identifier, suffixed, unique_identifiers

any_text = st.text() | st.text(alphabet=st.characters(), max_size=5) | st.text("aB_9 é-", max_size=6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("order", "order"),
        ("timestamp", "timestamp"),
        ("omega v2", "omega_v2"),
        ("9mega", "_9mega"),
        ("9mega________-________90", "_9mega_90"),
        ("CamelCase123Key", "camel_case123_key"),
        ("streamWithCamelCase", "stream_with_camel_case"),
        ("STREAM_WITH_ALL_CAPS", "stream_with_all_caps"),
        ("HTTPServerID", "http_server_id"),
        ("&4yasdfa(84224_fs9##_____*3q", "_4yasdfa_84224_fs9_3q"),
        ("path to $1,00,000", "path_to_1_00_000"),
        ("ome$ga", "ome_ga"),
        ("mega&", "mega"),
        ("__abc_123_def_456", "__abc_123_def_456"),
        ("_id", "_id"),
        ("name_", "name"),
        ("Foo.Bar", "foo_bar"),
        ("stream-with:spécial:character_names", "stream_with_special_character_names"),
        ("Cízǔ", "cizu"),
        ("Straße", "strasse"),
        ("Łódź", "lodz"),
        ("smørrebrød", "smorrebrod"),
        ("Ğüç", "guc"),
        ("id_ключ", "id_klyuch"),
        ("京都", "jing_dou"),
        ("名前", "ming_qian"),
    ],
)
def test_a_name_becomes_snake_case(text: str, expected: str) -> None:
    assert identifier(text) == expected


@pytest.mark.parametrize("text", ["", "@#$%", "___", "\ud800"])
def test_a_name_that_leaves_nothing_gets_a_stable_one(text: str) -> None:
    assert re.fullmatch(r"unnamed_[0-9a-f]{8}", identifier(text))
    assert identifier(text) == identifier(text)


def test_unnamed_names_differ_like_their_sources() -> None:
    assert identifier("@#$%") != identifier("$%")
    assert identifier("@#$%") == "unnamed_1a483835"  # the same in every release: tables depend on it


def test_a_long_name_is_cut_to_255_bytes_and_told_from_its_like() -> None:
    one, other = identifier("x" * 300), identifier("x" * 301)
    assert len(one) == len(other) == 255
    assert one != other
    assert identifier("x" * 255) == "x" * 255


def test_a_suffix_fits_into_the_bound() -> None:
    assert suffixed("abc", "1234") == "abc_1234"
    assert len(suffixed("x" * 255, "1234")) == 255
    assert bounded("short", "source") == "short"


@given(any_text)
def test_an_identifier_is_one_that_every_catalog_takes(text: str) -> None:
    assert re.fullmatch(r"[a-z_][a-z0-9_]{0,254}", identifier(text))


@given(any_text)
def test_an_identifier_stays_what_it_is(text: str) -> None:
    assert identifier(identifier(text)) == identifier(text)


def test_of_colliding_names_the_one_spelled_so_keeps_the_identifier() -> None:
    plain, camel, spaced = unique_identifiers(["a_b", "aB", "a b"])
    assert plain == "a_b"
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", camel)
    assert re.fullmatch(r"a_b_[0-9a-f]{8}", spaced)
    assert camel != spaced


def test_names_that_collide_with_no_other_have_no_suffix() -> None:
    assert unique_identifiers(["id", "createdAt"]) == ("id", "created_at")


def test_a_suffixed_name_that_somebody_else_spells_out_is_suffixed_again() -> None:
    _, camel, _ = unique_identifiers(["a_b", "aB", "a b"])
    names = unique_identifiers(["a_b", "aB", "a b", camel])
    assert names[3] == camel
    assert len(set(names)) == 4


def test_metadata_names_are_never_given_away() -> None:
    given_names = unique_identifiers([*METADATA_NAMES, "_airbyteMeta", "_airbyte-raw-id"])
    assert not set(given_names) & set(METADATA_NAMES)
    assert len(set(given_names)) == 6


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="the same name is given twice: 'a'"):
        unique_identifiers(["a", "b", "a"])


@given(st.lists(any_text, unique=True), st.randoms(use_true_random=False))
def test_identifiers_are_unique_and_do_not_depend_on_the_order(sources: list[str], random: Random) -> None:
    names = dict(zip(sources, unique_identifiers(sources), strict=True))
    assert len(set(names.values())) == len(sources)
    shuffled = random.sample(sources, len(sources))
    assert dict(zip(shuffled, unique_identifiers(shuffled), strict=True)) == names
