"""The report: a summary as one HTML page that needs nothing else, with plots as SVG inside."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from angelia.pipeline.summary import Summary

__all__ = ["Facts", "collect", "render"]

COLORS = ("#00798c", "#d1495b", "#edae49", "#66a182", "#2e4057", "#8d96a3")
SHOWN = 20  # rows of a table
LINES = 6  # of a plot

Row = dict[str, Any]

_STYLE = """
:root { --ink: #22303c; --soft: #66758a; --line: #e3e8ee; --fill: #00798c; }
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 1080px; margin: 0 auto; padding: 32px 24px; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 8px; } h3 { font-size: 15px; margin: 20px 0 6px; }
p { margin: 6px 0 12px; } .soft { color: var(--soft); }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0; }
.card { border: 1px solid var(--line); border-radius: 8px; padding: 10px 16px; min-width: 120px; }
.card b { display: block; font-size: 21px; font-variant-numeric: tabular-nums; } .card span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(480px, 100%), 1fr)); gap: 16px; }
figure { margin: 0; max-width: 540px; } figcaption { color: var(--soft); font-size: 13px; } svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--line); white-space: nowrap; }
td, th { padding: 5px 12px 5px 0; vertical-align: top; } td { border-bottom: 1px solid var(--line); }
td.n + td:not(.n), th.n + th:not(.n) { padding-left: 16px; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
code { font: 12px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; display: inline-block; min-width: 9em; } code.w { white-space: nowrap; }
.bar { display: inline-block; height: 9px; background: var(--fill); border-radius: 2px; margin-right: 6px; opacity: .75; }
"""  # noqa: E501 - a style sheet


@dataclass
class Facts:
    """What a report tells, as plain rows."""

    title: str
    volume: list[Row]
    attributes: list[Row]
    subscriptions: list[Row] = field(default_factory=list)
    matches: list[Row] = field(default_factory=list)
    covering: list[Row] = field(default_factory=list)
    merging: list[Row] = field(default_factory=list)
    problems: Sequence[tuple[str, str]] = ()

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(row["events"] for row in self.volume)


def collect(summary: Summary, title: str) -> Facts:
    """Compute a summary, and keep what a report shows of it."""
    volume, attributes = _rows(summary.volume), _rows(summary.attributes)
    if summary.subscriptions is None or summary.matches is None:
        return Facts(title, volume, attributes)
    subscriptions = _rows(summary.subscriptions)
    loudest = [row["subscription_id"] for row in subscriptions[:LINES]]
    matches = summary.matches.where(summary.matches["subscription_id"].isin(loudest))
    assert summary.covering is not None
    assert summary.merging is not None
    return Facts(
        title,
        volume,
        attributes,
        subscriptions,
        _rows(matches.orderBy("start")),
        _rows(summary.covering.limit(SHOWN)),
        _rows(summary.merging),
    )


def _rows(frame: Any) -> list[Row]:
    rows: list[Row] = frame.toArrow().to_pylist()
    return rows


# ---------------------------------------------------------------- the page


def render(facts: Facts) -> str:
    """The page."""
    parts = [_head(facts), _cards(facts), _volume(facts), _attributes(facts)]
    if facts.subscriptions:
        parts += [_subscriptions(facts), _covering(facts)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(facts.title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _head(facts: Facts) -> str:
    times = [row["start"] for row in facts.volume if row["start"] is not None]
    span = f"{min(times):%Y-%m-%d %H:%M} to {max(times):%Y-%m-%d %H:%M}, UTC" if times else "no events"
    problems = "".join(f"<li><code>{escape(path)}</code>: {escape(why)}</li>" for path, why in facts.problems)
    left_out = (
        f"<p>These files could not be read, and are left out:</p><ul>{problems}</ul>" if problems else ""
    )
    return f'<h1>{escape(facts.title)}</h1><p class="soft">{span}</p>{left_out}'


def _cards(facts: Facts) -> str:
    cards: list[tuple[int, str]] = [
        (facts.events, "events"),
        (len({row["type"] for row in facts.volume}), "types"),
        (len({row["source"] for row in facts.volume}), "sources"),
    ]
    if facts.subscriptions:
        verdicts = [row["verdict"] for row in facts.subscriptions]
        cards += [
            (len(verdicts), "subscriptions"),
            (sum(row["matches"] for row in facts.subscriptions), "pairs"),
            (verdicts.count("never"), "never match"),
            (verdicts.count("always"), "always match"),
        ]
    inside = "".join(f'<div class="card"><b>{n:,}</b><span>{_of(n, what)}</span></div>' for n, what in cards)
    return f'<div class="cards">{inside}</div>'


def _of(count: int, what: str) -> str:
    return what.removesuffix("s") if count == 1 and what.endswith("s") else what


def _volume(facts: Facts) -> str:
    def over_time(axes: Axes) -> None:
        _lines(axes, _by(facts.volume, "type", "events"), "events")

    def by_source(axes: Axes) -> None:
        totals = _totals(facts.volume, "source")
        names = [_short(name) for name, _ in totals[:SHOWN]]
        axes.barh(names[::-1], [count for _, count in totals[:SHOWN]][::-1], color=COLORS[0], height=0.6)
        axes.xaxis.set_major_formatter(_NUMBERS)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.grid(axis="y", visible=False)
        axes.set_ylim(len(names) - max(len(names), 3) - 0.5, len(names) - 0.5)  # a lone bar is no block

    totals = _totals(facts.volume, "source")
    height = 1.0 + 0.3 * min(len(totals), SHOWN)
    return (
        "<h2>Volume</h2>"
        f'<div class="plots">{_plot(over_time, "Events over time, by type")}'
        f"{_plot(by_source, 'Events by source', max(2.0, height))}</div>"
    )


def _attributes(facts: Facts) -> str:
    columns: list[Column] = [
        ("type", False, lambda row: escape(row["type"] or "(none)")),
        ("attribute", False, lambda row: f"<code class=w>{escape(row['attribute'])}</code>"),
        ("kind", False, lambda row: escape(row["kind"])),
        ("present", True, lambda row: _percent(row["present"] / row["events"])),
        ("distinct", True, lambda row: f"{row['distinct']:,}"),
        ("least", False, lambda row: escape(_value(row, row["least"]))),
        ("greatest", False, lambda row: escape(_value(row, row["greatest"]))),
        ("mean", True, lambda row: _figure(row["mean"])),
        ("skewness", True, lambda row: _figure(row["skewness"])),
        ("most frequent value", False, _top),
    ]
    return (
        "<h2>Attributes</h2><p class=soft>Distinct values and most frequent ones are estimates. A value with "
        "a large share makes filters on it unselective.</p>" + _table(facts.attributes, columns, 5 * SHOWN)
    )


def _top(row: Row) -> str:
    if not row["top"]:
        return ""
    share = min(1.0, row["top_share"] or 0.0)
    bar = f'<span class="bar" style="width:{round(60 * share)}px"></span>'
    return f"{bar}{_percent(share)} <code class=w>{escape(_value(row, row['top'][0]['value']))}</code>"


def _subscriptions(facts: Facts) -> str:
    rows = facts.subscriptions

    def selectivity(axes: Axes) -> None:
        shares = sorted((row["selectivity"] or 0.0 for row in rows), reverse=True)
        axes.plot(range(1, len(shares) + 1), shares, color=COLORS[0], drawstyle="steps-mid")
        axes.fill_between(range(1, len(shares) + 1), shares, color=COLORS[0], alpha=0.15, step="mid")
        axes.set_yscale("symlog", linthresh=max(1e-6, 1 / max(1, facts.events)))
        axes.set_ylim(0, 1.3)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _percent(y)))
        axes.set_xlabel("subscriptions, the least selective first")

    def over_time(axes: Axes) -> None:
        _lines(axes, _by(facts.matches, "subscription_id", "matches"), "matches")

    columns: list[Column] = [
        ("subscription", False, lambda row: escape(str(row["subscription_id"]))),
        ("filter", False, lambda row: f"<code>{escape(_short(row['filter'], 160))}</code>"),
        ("matches", True, lambda row: f"{row['matches']:,}"),
        ("of events", True, lambda row: _percent(row["selectivity"] or 0.0)),
        ("covers", True, lambda row: f"{row['covers']:,}"),
        ("covered by", True, lambda row: f"{row['covered_by']:,}"),
    ]
    parts = [
        "<h2>Subscriptions</h2>",
        '<div class="plots">',
        _plot(selectivity, "Share of events that each subscription matches"),
        _plot(over_time, "Matches over time, of those that match most"),
        "</div>",
        "<h3>Those that match most</h3>" + _table(rows, columns),
    ]
    for verdict, title in (("never", "Never match"), ("always", "Always match")):
        some = [row for row in rows if row["verdict"] == verdict]
        if some:
            parts.append(f"<h3>{title}</h3>" + _table(some, columns))
    return "".join(parts)


def _covering(facts: Facts) -> str:
    steps = {row["step"]: row["filters"] for row in facts.merging}

    def saved(axes: Axes) -> None:
        names, counts = list(steps)[::-1], list(steps.values())[::-1]
        bars = axes.barh(names, counts, color=COLORS[0], height=0.6)
        axes.bar_label(bars, [f"{count:,}" for count in counts], padding=4, fontsize=9)
        axes.set_xlim(0, max([*counts, 1]) * 1.12)
        axes.grid(visible=False)
        axes.xaxis.set_visible(False)

    texts = {row["subscription_id"]: row["filter"] for row in facts.subscriptions}
    columns: list[Column] = [
        ("subscription", False, lambda row: escape(str(row["subscription_id"]))),
        ("filter", False, lambda row: f"<code>{escape(_short(texts[row['subscription_id']], 90))}</code>"),
        ("covers", False, lambda row: escape(str(row["covers"]))),
        ("filter", False, lambda row: f"<code>{escape(_short(texts[row['covers']], 90))}</code>"),
    ]
    first, last = (next(iter(steps.values()), 0), list(steps.values())[-1] if steps else 0)
    return (
        "<h2>Covering and merging</h2>"
        f"<p>A broker would keep {last:,} of {first:,} filters, and forward exactly the same events: "
        "filters that another one covers need not be kept, and filters that differ in one attribute only can "
        "become one.</p>"
        f'<div class="plots">{_plot(saved, "Filters that a broker has to keep", 2.2)}</div>'
        + ("<h3>Which cover which</h3>" + _table(facts.covering, columns) if facts.covering else "")
    )


# ---------------------------------------------------------------- tables

Column = tuple[str, bool, Callable[[Row], str]]  # a heading, whether it is a number, and a cell


def _table(rows: Sequence[Row], columns: Sequence[Column], most: int = SHOWN) -> str:
    def tag(name: str, is_number: bool, text: str) -> str:
        return f"<{name}{' class=n' if is_number else ''}>{text}</{name}>"

    head = "".join(tag("th", number, escape(title)) for title, number, _ in columns)
    body = "".join(
        "<tr>" + "".join(tag("td", number, cell(row)) for _, number, cell in columns) + "</tr>\n"
        for row in rows[:most]
    )
    more = f'<p class="soft">and {len(rows) - most:,} more</p>' if len(rows) > most else ""
    return f'<div class="scroll"><table><tr>{head}</tr>\n{body}</table></div>{more}'


def _percent(share: float) -> str:
    if share in (0, 1):
        return f"{share:.0%}"
    percent = 100 * share
    return f"{percent:.{1 if percent >= 1 else 3}f}%" if percent >= 0.001 else "<0.001%"


def _figure(value: float | None) -> str:
    return "" if value is None or value != value else f"{value:,.4g}"


def _value(row: Row, text: str | None) -> str:
    """A value of an attribute, floats with the digits that count."""
    is_float = row["kind"] == "double" and text is not None
    return f"{float(text or 0):.6g}" if is_float else "" if text is None else _short(text, 24)


def _short(text: object, length: int = 32) -> str:
    whole = "(none)" if text is None else str(text)
    return whole if len(whole) <= length else f"{whole[: length - 1]}…"


# ---------------------------------------------------------------- plots

_NUMBERS = FuncFormatter(
    lambda y, _: f"{y / 1e6:g}M" if y >= 1e6 else f"{y / 1e3:g}k" if y >= 1e4 else f"{y:g}"
)


def _totals(rows: Iterable[Row], key: str) -> list[tuple[Any, int]]:
    totals: dict[Any, int] = {}
    for row in rows:
        totals[row[key]] = totals.get(row[key], 0) + row["events"]
    return sorted(totals.items(), key=lambda item: (-item[1], str(item[0])))


def _by(rows: Iterable[Row], key: str, value: str) -> dict[str, dict[datetime, int]]:
    """Values over time, for each key; the largest first, and the rest as one."""
    found: dict[str, dict[datetime, int]] = {}
    for row in rows:
        if row["start"] is not None:
            series = found.setdefault(_short(row[key]), {})
            series[row["start"]] = series.get(row["start"], 0) + row[value]
    ranked = sorted(found, key=lambda name: -sum(found[name].values()))
    kept = {name: found[name] for name in ranked[: LINES if len(ranked) <= LINES else LINES - 1]}
    others: dict[datetime, int] = {}
    for name in ranked[len(kept) :]:
        for start, count in found[name].items():
            others[start] = others.get(start, 0) + count
    return kept | ({"others": others} if others else {})


def _lines(axes: Axes, series: dict[str, dict[datetime, int]], what: str) -> None:
    starts = sorted({start for each in series.values() for start in each})
    places = np.array([start.replace(tzinfo=None) for start in starts], "datetime64[us]")
    for (name, values), color in zip(series.items(), COLORS, strict=False):
        counts = [values.get(start, 0) for start in starts]
        axes.plot(places, counts, label=name, color=color, marker="o" if len(starts) < 3 else None)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(what)
    axes.yaxis.set_major_formatter(_NUMBERS)
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    if series:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0, -0.14), ncols=3)


def _plot(draw: Callable[[Axes], None], caption: str, height: float = 3.0) -> str:
    """A plot as SVG, with its caption."""
    settings: dict[Any, Any] = {"svg.hashsalt": "angelia", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=(6.2, height), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(color="#e3e8ee", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0, colors="#66758a")
        draw(axes)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})  # type: ignore[no-untyped-call]
    picture = file.getvalue()
    svg = _own_ids(picture[picture.index("<svg") :], caption)
    return f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def _own_ids(svg: str, caption: str) -> str:
    """Ids that no other picture of the page has."""
    mark = re.sub(r"\W", "", caption)
    svg = re.sub(r'\bid="', f'id="{mark}-', svg)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{mark}-", svg)
