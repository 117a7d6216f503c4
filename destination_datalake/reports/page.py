"""The HTML page about syncs that `report --html` writes: one file, without scripts or external resources.

Charts are SVG images that the browser stretches to the available width. The labels of a chart are HTML, so that the
text keeps its size on small screens. For accessibility, a collapsed table next to each chart contains the values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from destination_datalake.errors import printable
from destination_datalake.reports.health import Finding, TableHealth, by_table, duration

if TYPE_CHECKING:
    from destination_datalake.reports.health import Erasure, Run
    from destination_datalake.reports.report import ReportLine

MAX_BARS = 120
"""The maximum number of syncs that a chart shows as one bar each. With more syncs, each bar represents a day."""

MAX_ERASURES = 25
_MAX_ROWS = 25
"""The maximum number of rows in each HTML table of the page. A lake may contain thousands of streams."""

_MAX_NAMES = 10
"""The maximum number of table names that the page lists with one finding."""

PALETTE: Mapping[str, tuple[str, str]] = {
    "page": ("#f5f6f8", "#0f1216"),
    "card": ("#ffffff", "#181c22"),
    "ink": ("#1a2029", "#e8ebef"),
    "dim": ("#566070", "#a6b0bd"),
    "line": ("#dfe3e8", "#2d343d"),
    "good": ("#17776a", "#4cc2ae"),
    "half": ("#946200", "#e6b450"),
    "bad": ("#bd2c3a", "#ff8a8f"),
    "calm": ("#2f62c4", "#86aef5"),
    "none": ("#737d8c", "#8892a0"),
    "stage1": ("#230741", "#7060b6"),
    "stage2": ("#40255f", "#a777ca"),
    "stage3": ("#5f427e", "#de90d7"),
    "stage4": ("#80609e", "#fdbbd9"),
    "stage5": ("#a37fbf", "#fdf0f1"),
}
"""The colours by name, each for the light and the dark page. On the background `card`, text and marks have the contrast
that WCAG 2.2 requires for level AA.

The stages of a sync have colours of their own, because stages are neither good nor bad. The colour of each stage is
lighter than that of the previous stage, so readers with any kind of colour vision can distinguish the stages.
"""

_CLASSES = {
    **{"finished": "good", "partial": "half", "terminated": "half", "unfinished": "none"},
    **{"erased": "good", "history kept": "half", "not ended": "none"},
}


class Bar(NamedTuple):
    """A bar of a chart.

    `text` describes the values of the bar. `parts` contains the colour class and the value of each part of the bar,
    from the bottom up.
    """

    label: str
    text: str
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A bar chart in the form that the page's template renders.

    - `rectangles`: for each part of a bar, its x, y, width and height in percent of the chart's size, its colour class,
      and the text of the bar.
    - `top` and `middle`: the labels at the upper end and in the middle of the vertical axis.
    - `labels`: the labels of the first, the middle and the last bar.
    - `rows`: the label and the text of each bar, for the table next to the chart.
    """

    title: str
    summary: str
    top: str
    middle: str
    labels: Sequence[str]
    rectangles: Sequence[tuple[float, float, float, float, str, str]]
    rows: Sequence[tuple[str, str]]


class Change(NamedTuple):
    """A change to a table's columns, and the number of syncs that reported the change.

    `first` and `last` are the starts of the first and the last of these syncs. `columns` contains pairs of a column and
    its type. If `kind` is "redirected", the second member is the column that receives the values instead.
    """

    first: str
    last: str
    syncs: int
    table: str
    kind: str
    columns: Sequence[tuple[str, str]]


def page(
    runs: Sequence[Run],
    tables: Sequence[TableHealth],
    place: str,
    days: int,
    now: datetime,
    erasures: Sequence[Erasure] = (),
) -> str:
    """Return the HTML page about syncs, the health of tables, and requests of `delete-rows`.

    `runs` and `erasures` must begin with the newest one. `place` is the S3 URI of the lake. `days` is the number of
    days that the runs cover.
    """
    ended = [run for run in runs if run.status != "unfinished"]
    oldest_first = [*reversed(runs)]
    reported = by_table(run for run in runs if run.has_report)
    lines = [line for run in runs if run.has_report for line in run.streams]
    return (
        templates()
        .get_template("page.html")
        .render(
            place=place,
            days=days,
            created=f"{now:%Y-%m-%d %H:%M} UTC",
            version=version("destination-datalake"),
            runs=runs[:_MAX_ROWS],
            hidden_runs=max(0, len(runs) - _MAX_ROWS),
            cells=[_cell(run) for run in oldest_first[-MAX_BARS:]],
            kpis=_kpis(runs, ended),
            tables=tables,
            unhealthy=sum(bool(table.findings) for table in tables),
            findings=_findings(tables),
            most_names=_MAX_NAMES,
            charts=[*_charts(oldest_first)] if runs else [],
            stages=_stages(runs),
            streams=_streams(reported)[:_MAX_ROWS],
            hidden_streams=max(0, len(reported) - _MAX_ROWS),
            rejects=_rejects(lines)[:_MAX_ROWS],
            changes=_changes(runs)[:_MAX_ROWS],
            files=_files(lines)[:_MAX_ROWS],
            erasures=erasures,
            status_class=_class,
        )
    )


def templates(*folders: Path) -> Environment:
    """Return a Jinja environment with the templates in `folders` and in this module's folder.

    Every page extends the template `frame.html`, which is in this module's folder.
    """
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {
        "sentence": _sentence,
        "count": count,
        "size": size,
        "duration": duration,
        "percent": percent,
    }
    environment.globals["palette"] = PALETTE
    return environment


def _class(status: str) -> str:
    return _CLASSES.get(status, "bad")


def _cell(run: Run) -> tuple[str, str]:
    return _class(run.status), f"{run.sync.start_time[:16]} {run.status}, {run.sync.row_count:,} rows"


def _kpis(runs: Sequence[Run], ended: Sequence[Run]) -> Iterator[tuple[str, str, str]]:
    """Yield the label, the value and a note for each key figure at the top of the page."""
    successful = sum(run.status == "finished" for run in ended)
    seconds = [run.sync.seconds for run in ended if run.sync.seconds is not None]
    rejected = sum(run.sync.rows_rejected + run.sync.values_rejected for run in runs)
    received = sum(run.sync.rows_received for run in runs)
    yield "Syncs", f"{len(runs):,}", f"{len(ended) - successful:,} unsuccessful"
    yield "Successful", percent(successful / len(ended)) if ended else "–", "of ended syncs"
    yield "Rows", count(sum(run.sync.row_count for run in runs)), "committed"
    yield "Written", size(sum(run.sync.bytes_written for run in runs)), "in data files"
    yield "Duration", duration(median(seconds)) if seconds else "–", "median of syncs"
    yield "Rejects", count(rejected), f"{percent(rejected / received) if received else '0 %'} of records"


def _sentence(text: str) -> str:
    """Return the text with a capital first letter and, unless it ends like a sentence, a final period."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…")) else ".")


def _findings(tables: Iterable[TableHealth]) -> list[tuple[Finding, list[str]]]:
    """Return each distinct finding with the names of the tables that it affects.

    One failure often affects all tables, so the page lists it only once. Findings about failures come first.
    """
    tables_of: dict[Finding, list[str]] = {}
    for table in tables:
        for finding in table.findings:
            tables_of.setdefault(finding, []).append(table.table)
    return sorted(tables_of.items(), key=lambda item: item[0].kind != "failing")


# Charts


def _charts(runs: Sequence[Run]) -> Iterator[Chart]:
    groups = _groups(runs)
    yield _chart("Rows", "rows", groups, lambda run: run.sync.row_count, count)
    yield _chart("Data written", "", groups, lambda run: run.sync.bytes_written, size)
    seconds = max((sum(run.sync.seconds or 0.0 for run in group) for _, group in groups), default=0.0)
    scale = next((unit for unit in (86400, 3600, 60) if seconds >= unit), 1)
    yield _chart("Duration", "", groups, lambda run: run.sync.seconds or 0.0, duration, scale=scale)
    yield _chart("Throughput", "rows/s", groups, _throughput, count, total=False)


def _throughput(run: Run) -> float:
    return run.sync.row_count / run.sync.seconds if run.sync.seconds else 0.0


def _groups(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Return the label and the runs of each bar.

    A bar represents one run. If there are more than MAX_BARS runs, a bar represents all runs of a day.
    """
    if len(runs) <= MAX_BARS:
        return [(run.sync.start_time[:16], [run]) for run in runs]
    days: dict[str, list[Run]] = {}
    for run in runs:
        days.setdefault(run.sync.start_time[:10], []).append(run)
    return [*days.items()]


def _chart(
    title: str,
    unit: str,
    groups: Sequence[tuple[str, list[Run]]],
    value_of: Callable[[Run], float],
    show: Callable[[float], str],
    *,
    total: bool = True,
    scale: float = 1.0,
) -> Chart:
    bars = []
    for label, runs in groups:
        parts: Counter[str] = Counter()
        for run in runs:
            parts[_class(run.status)] += value_of(run) if total else value_of(run) / len(runs)  # type: ignore[assignment]
        statuses = ", ".join(f"{number} {status}" for status, number in Counter(run.status for run in runs).items())
        value = sum(parts.values())
        bars.append(Bar(label, f"{show(value)} {unit}".strip() + f" ({statuses})", [*parts.items()]))
    return chart(title, bars, show, unit, scale)


def chart(title: str, bars: Sequence[Bar], show: Callable[[float], str], unit: str = "", scale: float = 1.0) -> Chart:
    """Return a bar chart.

    `show` formats a value as a string. `unit` appears in the title and in the summary. The vertical axis ends at a
    round multiple of `scale`. Every bar with a value above 0 is high enough to be visible.
    """
    heights = [sum(value for _, value in bar.parts) for bar in bars]
    top = scale * nice(max(heights, default=0.0) / scale)
    wide = 100 / max(1, len(bars))
    rectangles = []
    for number, bar in enumerate(bars):
        below = 0.0
        for kind, value in bar.parts:
            tall = max(100 * value / top, 0.8 if value else 0.0)
            if tall:
                x, y = number * wide + wide * 0.1, 100 - below - tall
                rectangles.append((round(x, 3), round(y, 2), round(wide * 0.8, 3), round(tall, 2), kind, bar.text))
            below += tall
    places = sorted({0, len(bars) // 2, len(bars) - 1}) if bars else []
    lowest, highest = show(min(heights, default=0.0)), show(max(heights, default=0.0))
    summary = f"{title}: {len(bars)} bars from {bars[0].label} to {bars[-1].label}" if bars else f"{title}: no data"
    if bars:
        summary += f", between {lowest} and {highest} {unit}".rstrip()
    return Chart(
        title if not unit else f"{title}, {unit}" if unit != title.lower() else title,
        summary,
        show(top),
        show(top / 2),
        [bars[place].label for place in places],
        rectangles,
        [(bar.label, bar.text) for bar in bars],
    )


def nice(value: float) -> float:
    """Round a value up to 1, 2, 4, 5 or 10 times a power of ten. Return 1 for 0."""
    if value <= 0:
        return 1.0
    power = float(10 ** math.floor(math.log10(value)))
    return next((step * power for step in (1, 2, 4, 5, 10) if step * power >= value), 10 * power)


# Tables


def _stages(runs: Sequence[Run]) -> list[tuple[str, float, float, float]]:
    """Return the name, the seconds, the connector's CPU seconds and the fraction of all seconds of each stage."""
    seconds: dict[str, list[float]] = {}
    for run in runs:
        for stage in run.sync.stages:
            sums = seconds.setdefault(stage.stage, [0.0, 0.0])
            sums[0] += stage.seconds
            sums[1] += stage.cpu_seconds
    total = sum(elapsed for elapsed, _ in seconds.values()) or 1.0
    return [(name, elapsed, cpu, elapsed / total) for name, (elapsed, cpu) in seconds.items()]


def _streams(tables: Mapping[str, Sequence[tuple[Run, ReportLine]]]) -> list[dict[str, Any]]:
    """Return the totals of each table, and its rows per sync as the points of an SVG line.

    The tables are in descending order of their rows. `tables` is the result of `by_table`.
    """
    entries: list[dict[str, Any]] = []
    for table, history in tables.items():
        table_lines = [line for _, line in history]
        # A small chart cannot show more points.
        rows = [line.row_count for line in reversed(table_lines)][-60:]
        entries.append(
            {
                "table": table,
                "stream": table_lines[0].stream,
                "mode": table_lines[0].sync_mode or "",
                "rows": sum(line.row_count for line in table_lines),
                "bytes": sum(line.bytes_written for line in table_lines),
                "rejects": sum(line.rows_rejected + line.values_rejected for line in table_lines),
                "failed": sum(line.status == "failed" for line in table_lines),
                "spark": _points(rows),
                "lowest": min(rows),
                "highest": max(rows),
            }
        )
    entries.sort(key=lambda entry: (-entry["rows"], entry["table"]))
    maximum = max((entry["rows"] for entry in entries), default=0) or 1
    return [{**entry, "share": entry["rows"] / maximum} for entry in entries]


def _points(values: Sequence[int]) -> str:
    top, step = max(values, default=0) or 1, 100 / max(1, len(values) - 1)
    if len(values) == 1:
        values = [values[0], values[0]]
        step = 100
    # The chart is 100 wide and 24 high, and y grows downwards. A margin of 2 keeps the line's width inside.
    return " ".join(f"{number * step:.1f},{22 - 20 * value / top:.1f}" for number, value in enumerate(values))


def _rejects(lines: Iterable[ReportLine]) -> list[tuple[str, str, str, int, float]]:
    """Return the number of rejects for each table, column and reason, in descending order.

    The last member of each result is the number divided by the largest number.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        for reject in line.rejects:
            counts[line.table, reject.column_name or "(whole records)", reject.reason] += reject.count
    maximum = max(counts.values(), default=1) or 1
    return [(*key, number, number / maximum) for key, number in counts.most_common()]


def _changes(runs: Iterable[Run]) -> list[Change]:
    """Return the changes to columns, newest first.

    Changes to a table are combined if they are of the same kind and occurred in the same syncs. `runs` must begin with
    the newest run.
    """
    times: dict[tuple[str, str, str, str], list[str]] = {}
    for run in runs:
        for line in run.streams:
            for kind, columns in (
                ("new", line.new_columns),
                ("promoted", line.promoted_columns),
                ("redirected", line.redirected_columns),
            ):
                for column in columns:
                    times.setdefault((line.table, kind, column.name, column.type), []).append(run.sync.start_time[:16])
    groups: dict[tuple[str, str, int, str, str], list[tuple[str, str]]] = {}
    for (table, kind, name, type_), starts in times.items():
        groups.setdefault((starts[-1], starts[0], len(starts), table, kind), []).append((name, type_))
    return [Change(*key, columns) for key, columns in groups.items()]


def _files(lines: Iterable[ReportLine]) -> list[ReportLine]:
    """Return, for each table, the line of the last sync that wrote files. The largest median file size comes first."""
    last: dict[str, ReportLine] = {}
    for line in lines:
        if line.files:
            last.setdefault(line.table, line)
    return sorted(last.values(), key=lambda line: -(line.file_bytes_p50 or 0))


# Formatting of numbers


def count(value: float) -> str:
    """Return a number with three significant digits, such as 950, 12.3k or 4M."""
    return _scaled(value, "k", "M", "G") or (f"{value:.3g}" if value != int(value) else f"{int(value)}")


def size(value: float) -> str:
    """Return a number of bytes with three significant digits, such as 950 B, 12.3 kB or 4 GB."""
    return _scaled(value, " kB", " MB", " GB", " TB") or f"{value:.0f} B"


def _scaled(value: float, *units: str) -> str | None:
    """Return a number in the largest suitable unit, or None if the number is smaller than the smallest unit.

    Each unit in `units` is 1,000 times the previous unit. The first one stands for 1,000.
    """
    scales = ((1000.0**power, unit) for power, unit in reversed([*enumerate(units, start=1)]))
    return next((f"{value / scale:.3g}{unit}" for scale, unit in scales if abs(value) >= scale * 0.9995), None)


def percent(share: float) -> str:
    """Return a ratio from 0 to 1 in percent, such as 99.5 %. Return 0 % and 100 % only for exactly 0 and 1."""
    if 0.999 < share < 1:
        return "> 99.9 %"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.3g} %"
