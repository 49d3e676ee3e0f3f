"""Figures 19-25 of SIENA, from the tables of the study, and two of our own.

Lines are means over runs, shades reach from the least to the most that a run has cost. Cost is
relative, as in the paper: 1 is the cost of the cheapest link inside a stub domain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from angelia.sim.experiments.study import Row, Study

__all__ = ["FIGURES", "Curve", "curve", "draw", "select", "spread", "worst_sites"]

matplotlib.rcParams["svg.hashsalt"] = "angelia"  # the same data give the same file
COLORS = {"ce": "#7f7f7f", "hs": "#d1495b", "as": "#00798c", "aa": "#edae49"}
MARKERS = {"ce": "D", "hs": "s", "as": "o", "aa": "^"}
WIDTHS = {"ce": 1.5, "hs": 4, "as": 1.5, "aa": 1.5}  # hs shows below as where they are equal
PARTIES = "interested parties"


class Curve(NamedTuple):
    """Points in order: the mean of runs, the least and the most."""

    x: list[int]
    mean: list[float]
    least: list[float]
    most: list[float]


def select(rows: Iterable[Row], **where: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def curve(rows: Iterable[Row], x: str, y: str, per: str | None = None) -> Curve:
    """One column (divided by another) over a third."""
    points: dict[int, list[float]] = {}
    for row in rows:
        points.setdefault(row[x], []).append(row[y] / (row[per] if per else 1))
    places = sorted(points)
    values = [points[place] for place in places]
    return Curve(places, [fmean(v) for v in values], [min(v) for v in values], [max(v) for v in values])


def worst_sites(study: Study, architecture: str, objects: int) -> Curve:
    """The most that a site bears on average over runs (6.2.2.4), over the number of parties."""
    worst: dict[int, float] = {}
    for row in select(study.sites, architecture=architecture, objects=objects):
        worst[row["parties"]] = max(worst.get(row["parties"], 0.0), row["cost"])
    places = sorted(worst)
    values = [worst[place] for place in places]
    return Curve(places, values, values, values)


def spread(study: Study, architecture: str, objects: int) -> Curve:
    """How much timing alone varies the total cost: standard deviation / mean, for each placement."""
    groups: dict[tuple[int, str], list[float]] = {}
    for row in select(study.runs, study="timing", architecture=architecture, objects=objects):
        groups.setdefault((row["parties"], row["places"]), []).append(row["cost"])
    rows = [{"parties": parties, "cv": pstdev(v) / fmean(v)} for (parties, _), v in groups.items()]
    return curve(rows, "parties", "cv")


# ---------------------------------------------------------------- the figures


def _totals(study: Study, figure: Figure) -> None:
    for axes, objects in _panels(figure, study):
        for name in ("hs", "as", "aa"):
            _plot(axes, name, curve(_sweep(study, name, objects), "parties", "cost"))
        axes.set_ylabel("total cost")
        _logarithmic(axes, PARTIES)
        _show_all(axes)


def _below_saturation(study: Study, figure: Figure) -> None:
    for axes, objects in _panels(figure, study):
        for name in ("hs", "as", "aa"):
            rows = [row for row in _sweep(study, name, objects) if row["parties"] <= 100]
            _plot(axes, name, curve(rows, "parties", "cost"))
        axes.set_xlabel(PARTIES)
        axes.set_ylabel("total cost")
        _show_all(axes)


def _per_service(study: Study, figure: Figure) -> None:
    for axes, objects in _panels(figure, study):
        for name in ("ce", "hs", "as", "aa"):
            _plot(axes, name, curve(_sweep(study, name, objects), "parties", "cost", "requests"))
        axes.set_ylabel("cost per service request")
        _logarithmic(axes, PARTIES)
        _show_all(axes)


def _per_subscription(study: Study, figure: Figure) -> None:
    axes = figure.subplots()
    for name in ("hs", "as"):
        rows = _sweep(study, name, min(row["objects"] for row in study.sites))
        _plot(axes, name, curve(rows, "parties", "subscription_cost", "subscribed"))
    axes.set_ylabel("cost per subscription")
    _logarithmic(axes, PARTIES)


def _per_notification(study: Study, figure: Figure) -> None:
    both = figure.subplots(1, 2)
    few = {name: _sweep(study, name, 1) for name in ("hs", "as")}
    many = {name: select(study.runs, study="ignored", architecture=name) for name in ("hs", "as")}
    for axes, rows in zip(both, (few, many), strict=True):
        for name in ("hs", "as"):
            _plot(axes, name, curve(rows[name], "parties", "notification_cost", "published"))
        axes.set_title(f"{rows['as'][0]['published']:,} notifications published")
        axes.set_ylabel("cost per notification")
        _logarithmic(axes, PARTIES)


def _ignored(study: Study, figure: Figure) -> None:
    titles = {0: "no interested party", 1: "one party, which consumes one notification"}
    for axes, (parties, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        for name in ("hs", "as"):
            rows = select(study.runs, study="lonely", architecture=name, parties=parties)
            _plot(axes, name, curve(rows, "published", "notification_cost", "published"))
        axes.set_title(title)
        axes.set_ylabel("cost per notification")
        _logarithmic(axes, "notifications published")


def _worst(study: Study, figure: Figure) -> None:
    for axes, objects in _panels(figure, study):
        for name in ("hs", "as"):
            _plot(axes, name, worst_sites(study, name, objects))
        axes.set_ylabel("cost at the worst site")
        _logarithmic(axes, PARTIES)
        _show_all(axes)


def _growth(study: Study, figure: Figure) -> None:
    axes = figure.subplots()
    for name in ("hs", "as"):
        rows = select(study.runs, study="growth", architecture=name)
        _plot(axes, name, curve(rows, "sites", "subscription_messages", "subscribed"))
    sites = np.array(sorted({row["sites"] for row in select(study.runs, study="growth")}))
    axes.plot(sites, 2 * (sites - 1), "k:", label="2 (N - 1)")
    axes.plot(sites, 2 * np.log2(sites), "k--", label="2 log₂ N")
    axes.set_yscale("log")
    axes.set_ylabel("messages per subscription\nand its cancellation")
    _logarithmic(axes, "sites (N)")
    axes.set_xticks(sites)
    axes.set_xticks([], minor=True)


def _timing(study: Study, figure: Figure) -> None:
    objects = sorted({row["objects"] for row in select(study.runs, study="timing")})
    for axes, number in zip(_grid(figure, len(objects)), objects, strict=True):
        for name in ("as", "aa"):
            found = spread(study, name, number)
            _plot(
                axes,
                name,
                found._replace(**{f: [100 * v for v in getattr(found, f)] for f in found._fields[1:]}),
            )
        axes.set_title(_objects(number))
        axes.set_ylabel("deviation / mean (%)")
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.0))
        _logarithmic(axes, PARTIES)


FIGURES: Mapping[str, tuple[str, tuple[float, float], Callable[[Study, Figure], None]]] = {
    "figure-19": ("Total cost", (10, 7), _totals),
    "figure-20": ("Total cost below the saturation point", (10, 7), _below_saturation),
    "figure-21": ("Cost per service request", (10, 7), _per_service),
    "figure-22": ("Cost per subscription, one object of interest", (6, 4), _per_subscription),
    "figure-23": ("Cost per notification, one object of interest", (10, 4), _per_notification),
    "figure-24": ("Cost of ignored notifications", (10, 4), _ignored),
    "figure-25": ("Worst-case per-site cost", (10, 7), _worst),
    "growth": ("How far a subscription travels, one interested party", (6, 4), _growth),
    "timing": ("How much timing alone varies the total cost", (12, 7), _timing),
}


def draw(study: Study, directory: Path) -> list[Path]:
    """Draw all figures as SVG and PNG; returns the files."""
    directory.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    for name, (title, size, plot) in FIGURES.items():
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        plot(study, figure)
        for axes in figure.axes:
            if axes.get_yscale() == "linear":
                axes.set_ylim(bottom=0)
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
            axes.grid(alpha=0.3)
        figure.axes[0].legend()
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            files.append(directory / f"{name}.{kind}")
            figure.savefig(files[-1], metadata=metadata, dpi=110)
    return files


# ---------------------------------------------------------------- parts of figures


def _sweep(study: Study, architecture: str, objects: int) -> list[Row]:
    return select(study.runs, study="sweep", architecture=architecture, objects=objects)


def _objects(number: int) -> str:
    return f"{number:,} object{'s' if number > 1 else ''} of interest"


def _grid(figure: Figure, number: int) -> list[Axes]:
    columns = 2 if number <= 4 else 3
    grid = list(figure.subplots(-(-number // columns), columns).flat)
    for unused in grid[number:]:
        unused.remove()
    return grid[:number]


def _panels(figure: Figure, study: Study) -> list[tuple[Axes, int]]:
    """A panel for each number of objects."""
    objects = sorted({row["objects"] for row in study.sites})
    panels = list(zip(_grid(figure, len(objects)), objects, strict=True))
    for axes, number in panels:
        axes.set_title(_objects(number))
    return panels


def _plot(axes: Axes, name: str, points: Curve) -> None:
    width, color = WIDTHS[name], COLORS[name]
    axes.plot(
        points.x,
        points.mean,
        color=color,
        linewidth=width,
        marker=MARKERS[name],
        markersize=3 + width,
        label=name,
    )
    axes.fill_between(points.x, points.least, points.most, color=color, alpha=0.15, linewidth=0)


def _show_all(axes: Axes) -> None:
    """A logarithmic scale for the cost, where on a linear one a curve would lie on the axis."""
    highest = [float(np.max(np.asarray(line.get_ydata()))) for line in axes.lines]
    if max(highest) > 5 * min(highest):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")


def _logarithmic(axes: Axes, label: str) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(label)
