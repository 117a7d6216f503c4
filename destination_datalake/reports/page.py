"""The page of `report --html`: one file that shows what the syncs did, with no script, and nothing from elsewhere.

Charts are SVG without text, stretched to the width that there is: their labels are HTML beside them, and so as large
on a telephone. What a chart shows is also in a table that can be opened, for those who do not see it.
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
from destination_datalake.reports.health import Finding, TableHealth, duration

if TYPE_CHECKING:
    from destination_datalake.reports.reading import Erasure, Run
    from destination_datalake.reports.report import ReportLine

MOST_BARS = 120
"""With more syncs, a bar is for all syncs of a day."""

MOST_ERASURES = 25
_MOST_ROWS = 25
"""Rows of a table on the page, at most: a lake may have thousands of streams."""

_MOST_NAMES = 10
"""Of tables that have the same finding."""

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
"""The colours, for light and for dark pages. Those of texts and of marks have a contrast of AA (WCAG 2.2) to `card`.

Stages have colours of their own, as they are neither good nor bad; each is lighter than the one before, which readers
with any colour vision can see.
"""

_CLASSES = {
    **{"finished": "good", "partial": "half", "terminated": "half", "unfinished": "none"},
    **{"erased": "good", "history kept": "half", "not ended": "none"},
}


class Bar(NamedTuple):
    """A bar of a chart: its text for people, and its parts from below, each a class of colours and a value."""

    label: str
    text: str
    parts: Sequence[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of bars. `rectangles` are (x, y, width, height, class, text) in units of a hundredth of its size.

    `top` is the value of the upper edge, as text; `labels` are those of the first, the middle and the last bar.
    """

    title: str
    summary: str
    top: str
    middle: str
    labels: Sequence[str]
    rectangles: Sequence[tuple[float, float, float, float, str, str]]
    rows: Sequence[tuple[str, str]]


class Change(NamedTuple):
    """A change of a table's columns, each with its type or where its values go, that so many syncs have reported."""

    first: str
    last: str
    syncs: int
    table: str
    what: str
    columns: Sequence[tuple[str, str]]


def page(
    runs: Sequence[Run],
    tables: Sequence[TableHealth],
    place: str,
    days: int,
    now: datetime,
    erasures: Sequence[Erasure] = (),
) -> str:
    """Return the page of these runs and erasures, the newest of which are first, and of the tables' health.

    `place` is where they write to, and `days` is how far back runs were looked for.
    """
    ended = [run for run in runs if run.status != "unfinished"]
    oldest_first = [*reversed(runs)]
    lines = [line for run in runs if run.has_report for line in run.streams]
    return (
        templates()
        .get_template("page.html")
        .render(
            place=place,
            days=days,
            made=f"{now:%Y-%m-%d %H:%M} UTC",
            version=version("destination-datalake"),
            runs=runs[:_MOST_ROWS],
            hidden_runs=max(0, len(runs) - _MOST_ROWS),
            cells=[_cell(run) for run in oldest_first[-MOST_BARS:]],
            kpis=_kpis(runs, ended),
            tables=tables,
            unhealthy=sum(bool(table.findings) for table in tables),
            findings=_findings(tables),
            most_names=_MOST_NAMES,
            charts=[*_charts(oldest_first)] if runs else [],
            stages=_stages(runs),
            streams=_streams(lines)[:_MOST_ROWS],
            hidden_streams=max(0, len({line.table for line in lines}) - _MOST_ROWS),
            rejects=_rejects(lines)[:_MOST_ROWS],
            changes=_changes(runs)[:_MOST_ROWS],
            files=_files(lines)[:_MOST_ROWS],
            erasures=erasures,
            status_class=_class,
        )
    )


def templates(*folders: Path) -> Environment:
    """Return the templates of these folders, and those here: `frame.html` is what is around each page's content."""
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
    """Yield the main figures: what, the figure, and a note."""
    good = sum(run.status == "finished" for run in ended)
    seconds = [run.sync.seconds for run in ended if run.sync.seconds is not None]
    rejected = sum(run.sync.rows_rejected + run.sync.values_rejected for run in runs)
    received = sum(run.sync.rows_received for run in runs)
    yield "Syncs", f"{len(runs):,}", f"{len(ended) - good:,} not good"
    yield "Good", percent(good / len(ended)) if ended else "–", "of those that ended"
    yield "Rows", count(sum(run.sync.row_count for run in runs)), "committed"
    yield "Written", size(sum(run.sync.bytes_written for run in runs)), "in data files"
    yield "Took", duration(median(seconds)) if seconds else "–", "the median sync"
    yield "Rejects", count(rejected), f"{percent(rejected / received) if received else '0 %'} of records"


def _sentence(text: str) -> str:
    """Return a text as a sentence. An error message may be one already."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "…")) else ".")


def _findings(tables: Iterable[TableHealth]) -> list[tuple[Finding, list[str]]]:
    """Return each finding once with its tables, the failures first: what stops one table often stops all."""
    found: dict[Finding, list[str]] = {}
    for table in tables:
        for finding in table.findings:
            found.setdefault(finding, []).append(table.table)
    return sorted(found.items(), key=lambda each: each[0].kind != "failing")


# Charts


def _charts(runs: Sequence[Run]) -> Iterator[Chart]:
    groups = _groups(runs)
    yield _chart("Rows", "rows", groups, lambda run: run.sync.row_count, count)
    yield _chart("Data written", "", groups, lambda run: run.sync.bytes_written, size)
    seconds = max((sum(run.sync.seconds or 0.0 for run in each) for _, each in groups), default=0.0)
    scale = next((unit for unit in (86400, 3600, 60) if seconds >= unit), 1)
    yield _chart("Duration", "", groups, lambda run: run.sync.seconds or 0.0, duration, scale=scale)
    yield _chart("Throughput", "rows/s", groups, _throughput, count, total=False)


def _throughput(run: Run) -> float:
    return run.sync.row_count / run.sync.seconds if run.sync.seconds else 0.0


def _groups(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Return the runs of each bar with its label: one, or those of a day if there are many."""
    if len(runs) <= MOST_BARS:
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
    """Return a chart of the bars, whose axis is in units of `scale`. A value that is not 0 is at least visible."""
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
    summary = f"{title}: {len(bars)} bars from {bars[0].label} to {bars[-1].label}" if bars else f"{title}: nothing"
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
    """Return the smallest of 1, 2, 4, 5, 10, … times a power of ten that is not below the value; 1 for nothing."""
    if value <= 0:
        return 1.0
    power = float(10 ** math.floor(math.log10(value)))
    return next((step * power for step in (1, 2, 4, 5, 10) if step * power >= value), 10 * power)


# Tables


def _stages(runs: Sequence[Run]) -> list[tuple[str, float, float, float]]:
    """Return each stage with its seconds, the connector's CPU seconds, and its share of all stages' seconds."""
    seconds: dict[str, list[float]] = {}
    for run in runs:
        for stage in run.sync.stages:
            spent = seconds.setdefault(stage.stage, [0.0, 0.0])
            spent[0] += stage.seconds
            spent[1] += stage.cpu_seconds
    total = sum(spent for spent, _ in seconds.values()) or 1.0
    return [(name, spent, cpu, spent / total) for name, (spent, cpu) in seconds.items()]


def _streams(lines: Iterable[ReportLine]) -> list[dict[str, Any]]:
    """Return the tables, those with the most rows first, with their totals, and their rows as a line of points."""
    tables: dict[str, list[ReportLine]] = {}
    for line in lines:
        tables.setdefault(line.table, []).append(line)
    found: list[dict[str, Any]] = []
    for table, of_table in tables.items():
        rows = [line.row_count for line in reversed(of_table)][-60:]
        found.append(
            {
                "table": table,
                "stream": of_table[0].stream,
                "mode": of_table[0].sync_mode or "",
                "rows": sum(line.row_count for line in of_table),
                "bytes": sum(line.bytes_written for line in of_table),
                "rejects": sum(line.rows_rejected + line.values_rejected for line in of_table),
                "failed": sum(line.status == "failed" for line in of_table),
                "spark": _points(rows),
                "lowest": min(rows),
                "highest": max(rows),
            }
        )
    found.sort(key=lambda each: (-each["rows"], each["table"]))
    most = max((each["rows"] for each in found), default=0) or 1
    return [{**each, "share": each["rows"] / most} for each in found]


def _points(values: Sequence[int]) -> str:
    top, step = max(values, default=0) or 1, 100 / max(1, len(values) - 1)
    if len(values) == 1:
        values = [values[0], values[0]]
        step = 100
    return " ".join(f"{number * step:.1f},{22 - 20 * value / top:.1f}" for number, value in enumerate(values))


def _rejects(lines: Iterable[ReportLine]) -> list[tuple[str, str, str, int, float]]:
    """Return tables, columns and reasons with their numbers of rejects, and each as a share of the most."""
    found: Counter[tuple[str, str, str]] = Counter()
    for line in lines:
        for each in line.rejects:
            found[line.table, each.column_name or "(whole records)", each.reason] += each.count
    most = max(found.values(), default=1) or 1
    return [(*key, number, number / most) for key, number in found.most_common()]


def _changes(runs: Iterable[Run]) -> list[Change]:
    """Return schema changes, the newest first; those that a table's syncs made together, or again, are one."""
    times: dict[tuple[str, str, str, str], list[str]] = {}
    for run in runs:
        for line in run.streams:
            for what, columns in (
                ("new", line.new_columns),
                ("promoted", line.promoted_columns),
                ("redirected", line.redirected_columns),
            ):
                for column in columns:
                    times.setdefault((line.table, what, column.name, column.type), []).append(run.sync.start_time[:16])
    together: dict[tuple[str, str, int, str, str], list[tuple[str, str]]] = {}
    for (table, what, name, type_), when in times.items():
        together.setdefault((when[-1], when[0], len(when), table, what), []).append((name, type_))
    return [Change(*key, columns) for key, columns in together.items()]


def _files(lines: Iterable[ReportLine]) -> list[tuple[str, int, int, int, int, int]]:
    """Return for each table the files of its last sync that wrote any: how many, and their sizes."""
    found: dict[str, tuple[str, int, int, int, int, int]] = {}
    for line in lines:
        if line.files and line.table not in found:
            sizes = (line.file_bytes_min, line.file_bytes_p50, line.file_bytes_p90, line.file_bytes_max)
            found[line.table] = (line.table, line.files, *(each or 0 for each in sizes))  # type: ignore[assignment]
    return sorted(found.values(), key=lambda each: -each[3])


# Numbers for people


def count(value: float) -> str:
    """Return a number with three figures: 950, 12.3k, 4M."""
    return _scaled(value, "k", "M", "G") or (f"{value:.3g}" if value != int(value) else f"{int(value)}")


def size(value: float) -> str:
    """Return a number of bytes with three figures: 950 B, 12.3 kB, 4 GB."""
    return _scaled(value, " kB", " MB", " GB", " TB") or f"{value:.0f} B"


def _scaled(value: float, *units: str) -> str | None:
    """Return a number in the largest of the units, each a thousand of the one before, that it has; None below all."""
    scales = ((1000.0**power, unit) for power, unit in reversed([*enumerate(units, start=1)]))
    return next((f"{value / scale:.3g}{unit}" for scale, unit in scales if abs(value) >= scale * 0.9995), None)


def percent(share: float) -> str:
    """Return a share: 99.5 %. What is not quite all or nothing is not shown as such."""
    if 0.999 < share < 1:
        return "> 99.9 %"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.3g} %"
