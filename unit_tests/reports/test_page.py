"""The page: its figures, hostile names in it, the contrast of its colours, and that it needs nothing from elsewhere."""

from __future__ import annotations

import re
from datetime import timedelta
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from destination_datalake.reports.health import Run, health
from destination_datalake.reports.page import PALETTE, Bar, chart, count, nice, page, percent, size
from destination_datalake.reports.report import Named, Rejected
from unit_tests.reports.history import HOSTILE, an_erasure, erasures, history
from unit_tests.reports.lines import BEGAN, a_line, a_stream

NOW = BEGAN + timedelta(hours=1)


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def a_page(runs: list[Run], place: str = "s3://lake/airbyte/") -> str:
    return page(runs, health(runs, NOW), place, 30, NOW)


def test_the_page_of_an_empty_lake_says_what_to_do() -> None:
    assert "No reports yet" in a_page([])


def test_erasures_are_listed_also_where_no_sync_has_a_report() -> None:
    listed = [*erasures("shop.orders", HOSTILE), an_erasure(4, remaining=1, rows=1234, complete=False)]

    text = page([], [], "s3://lake/", 30, NOW, listed)

    rows = [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in text.split("<tr>")[-4:]]
    assert "<script" not in text
    assert rows[0].endswith("– – not ended suppressed")
    assert rows[1].endswith("120 4 history kept")
    assert rows[2].endswith("120 0 erased suppressed")
    assert "20261101T000000Z-00000004 shop.orders 1.23k 1 history kept" in rows[3]
    assert "Erasures" not in a_page(history(1))


def test_figures_are_those_of_the_reports() -> None:
    runs = [
        Run(a_line("b", rows_received=1500, row_count=1490, rows_rejected=10, bytes_written=2_500_000), (), "finished"),
        Run(a_line("a", status="failed", error="No access."), (), "failed"),
    ]

    text = re.sub(r"\s+", " ", Parsed(a_page(runs)).text)

    for shown in (
        "Syncs 2 1 unsuccessful",
        "Successful 50 %",
        "Rows 1.49k",
        "Written 2.5 MB",
        "Rejects 10 0.667 %",
        "No access.",
    ):
        assert shown.replace(" ", "") in text.replace(" ", ""), shown


def test_a_sync_without_a_report_is_none_that_wrote_no_rows() -> None:
    runs = [
        Run(a_line("b", status="started"), (a_stream("orders", "b", status="started"),), "died"),
        Run(a_line("a"), (a_stream("orders", "a", row_count=7),), "finished"),
    ]

    labels = [tag.get("aria-label") for name, tag in Parsed(a_page(runs)).tags if tag.get("class") == "spark"]

    assert labels == ["between 7 and 7 rows"]


def test_hostile_names_are_text() -> None:
    line = a_stream(
        HOSTILE,
        table_name=HOSTILE,
        database=HOSTILE,
        status="failed",
        error=HOSTILE,
        files=1,
        rejects=(Rejected(HOSTILE, HOSTILE, 3),),
        new_columns=(Named(HOSTILE, HOSTILE),),
    )

    text = a_page([Run(a_line(status="failed", error=HOSTILE), (line,), "failed")], HOSTILE)

    parsed = Parsed(text)
    assert "script" not in {tag for tag, _ in parsed.tags}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    assert "49" not in parsed.text, "no template in a name is run"
    assert not set("\x00\u202e") & set(text), "nothing that turns the direction of what follows"
    assert parsed.text.count("<script>alert(1)</script>") >= 5


def test_nothing_is_loaded_and_no_script_may_run() -> None:
    parsed = Parsed(a_page(history(10)))

    assert not [tag for tag, _ in parsed.tags if tag in ("script", "link", "img", "iframe", "object", "form")]
    assert not [attributes for _, attributes in parsed.tags if {"src", "srcset", "data"} & attributes.keys()]
    [policy] = [
        attributes["content"] for tag, attributes in parsed.tags if tag == "meta" and "http-equiv" in attributes
    ]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


@pytest.mark.parametrize("syncs", [1, 2, 119, 121, 400])
def test_each_chart_has_as_many_bars_as_there_is_room_for(syncs: int) -> None:
    text = a_page(history(syncs, streams=("orders",)))

    assert max(map(len, re.findall(r"<rect", text))) == 5
    assert text.count("<rect") <= 4 * 240


def test_every_id_is_the_only_one_and_every_label_leads_to_one() -> None:
    tags = Parsed(a_page(history(130))).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]

    assert len(ids) == len(set(ids))
    assert {attributes["aria-labelledby"] for _, attributes in tags if "aria-labelledby" in attributes} <= {*ids}


def test_a_chart_reaches_up_to_its_highest_bar() -> None:
    bars = [
        Bar("a", "a", [("good", 30.0), ("bad", 20.0)]),
        Bar("b", "b", [("good", 0.0)]),
        Bar("c", "c", [("good", 1)]),
    ]

    drawn = chart("Rows", bars, count)

    assert (drawn.top, drawn.middle, drawn.labels) == ("50", "25", ["a", "b", "c"])
    assert [(rectangle[1], rectangle[3], rectangle[4]) for rectangle in drawn.rectangles] == [
        (40.0, 60.0, "good"),
        (0.0, 40.0, "bad"),
        (98.0, 2.0, "good"),
    ]


def luminance(colour: str) -> float:
    """The relative luminance (WCAG 2.2)."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    lighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", ["card", "page"])
@pytest.mark.parametrize("colour", sorted(PALETTE.keys() - {"card", "page", "line"}))
def test_colours_have_a_contrast_of_aa(colour: str, ground: str, scheme: int) -> None:
    least = 3.0 if colour.startswith("stage") or colour == "none" else 4.5  # Marks, and texts.

    assert contrast(PALETTE[colour][scheme], PALETTE[ground][scheme]) >= least


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_stages_differ_in_lightness_and_have_no_colour_of_a_status(scheme: int) -> None:
    stages = [colours[scheme] for name, colours in sorted(PALETTE.items()) if name.startswith("stage")]

    assert all(luminance(later) > luminance(earlier) for earlier, later in pairwise(stages))
    assert min(contrast(*pair) for pair in pairwise(stages)) >= 1.25
    assert {*stages}.isdisjoint(colours[scheme] for name, colours in PALETTE.items() if not name.startswith("stage"))


def test_changes_of_one_kind_that_come_together_or_again_are_one_row() -> None:
    together = tuple(Named(f"column_{number:02}", "string") for number in range(12))
    repeated = (Named("price", "price__string"),)
    lines = [
        a_stream("orders", run, new_columns=new, redirected_columns=repeated)
        for run, new in (("b", together), ("a", ()))
    ]
    runs = [
        Run(a_line("b", BEGAN), (lines[0],), "finished"),
        Run(a_line("a", BEGAN - timedelta(1)), (lines[1],), "finished"),
    ]

    rows = a_page(runs).partition('id="changes"')[2].partition("</table>")[0].split("<tr>")[2:]

    assert ["12 × new" in rows[0], "and 2 more" in rows[0], "syncs since" in rows[0]] == [True, True, False]
    assert ["redirected" in rows[1], "2 syncs since" in rows[1], "price__string" in rows[1]] == [True, True, True]
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (count(0), "0"),
        (count(999), "999"),
        (count(999_600), "1M"),
        (count(12_345), "12.3k"),
        (count(0.25), "0.25"),
        (size(0), "0 B"),
        (size(999.6), "1 kB"),
        (size(2_500_000_000_000), "2.5 TB"),
        (percent(0), "0 %"),
        (percent(1), "100 %"),
        (percent(0.99999), "> 99.9 %"),
        (percent(0.0000001), "< 0.1 %"),
        (nice(0), 1.0),
        (nice(31), 40),
        (nice(1e9), 1e9),
        (nice(0.03), pytest.approx(0.04)),
    ],
)
def test_numbers_are_for_people(shown: Any, expected: Any) -> None:
    assert shown == expected


def test_what_is_wrong_with_many_tables_is_said_once() -> None:
    streams = tuple(f"stream_{number:02}" for number in range(12))
    runs = history(8, streams=streams)
    shown = page(runs, health(runs, BEGAN + timedelta(days=9)), "s3://lake/", 30, BEGAN)

    assert "12 of 12 tables need attention" in shown
    assert shown.count("No sync ran for 9 d") == 1
    assert "shop.stream_09</strong> and 2 more" in shown
