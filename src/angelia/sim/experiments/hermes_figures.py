"""Figures 5.5-5.12 of the HERMES thesis, from the tables of the study, and two of our own.

Lines are means over runs, shades reach from the least to the most of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from angelia.sim.experiments.figures import Curve, curve, select
from angelia.sim.experiments.hermes_study import Study

__all__ = ["FIGURES", "crossing", "draw", "line"]

COLORS = {"hermes": "#00798c", "covadv-closest": "#edae49", "covadv-mst": "#d1495b"}
MARKERS = {"hermes": "o", "covadv-closest": "^", "covadv-mst": "s"}
LABELS = {
    "hermes": "Hermes, closest broker",
    "covadv-closest": "CovAdv, closest broker",
    "covadv-mst": "CovAdv, minimum spanning tree",
}
UNCOVERED = {"per_broker": (0, (4, 2)), "per_client": (0, (1, 1))}
DASHES = {"advertisement": "--", "subscription": "-", "publication": ":"}


def line(study: Study, name: str, network: str, x: str, y: str) -> Curve:
    """One column of a study over another, for a network."""
    return curve(select(study.runs, study=name, network=network), x, y)


def crossing(lower: Curve, upper: Curve) -> float | None:
    """Where the first of two lines comes to lie above the second, between two points; None: nowhere."""
    gaps = [one - other for one, other in zip(lower.mean, upper.mean, strict=True)]
    for place in range(1, len(gaps)):
        if gaps[place - 1] <= 0 < gaps[place]:
            share = gaps[place - 1] / (gaps[place - 1] - gaps[place])
            return lower.x[place - 1] + share * (lower.x[place] - lower.x[place - 1])
    return None


# ---------------------------------------------------------------- the figures


def _latency(study: Study, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    for network in COLORS:
        _plot(left, network, line(study, "E1", network, "subscribers", "latency"), scale=1000)
        _plot(right, network, line(study, "E1", network, "subscribers", "delay"), scale=1000)
    left.set_ylabel("latency of all messages / notifications (ms)")
    right.set_ylabel("from publication to notification (ms)")
    for axes in (left, right):
        axes.set_xlabel("event subscribers")


def _hops(study: Study, figure: Figure) -> None:
    axes = figure.subplots()
    for network in COLORS:
        _plot(axes, network, line(study, "E1", network, "subscribers", "hops"))
    axes.set_xlabel("event subscribers")
    axes.set_ylabel("messages / notifications")


def _entries(name: str, x: str) -> Callable[[Study, Figure], None]:
    def plot(study: Study, figure: Figure) -> None:
        axes = figure.subplots()
        for network in ("hermes", "covadv-mst"):
            for kind in ("advertisement", "subscription"):
                _plot(axes, network, line(study, name, network, x, f"{kind}_entries"), kind)
        axes.set_xlabel(f"event {x}")
        axes.set_ylabel("entries of routing tables")

    return plot


def _messages(name: str, x: str) -> Callable[[Study, Figure], None]:
    def plot(study: Study, figure: Figure) -> None:
        for axes, kind in zip(figure.subplots(1, 3), DASHES, strict=True):
            for network in ("hermes", "covadv-mst"):
                _plot(axes, network, line(study, name, network, x, f"{kind}_messages"), kind)
            for who, style in UNCOVERED.items() if kind != "publication" else ():
                uncovered = line(study, name, "hermes", x, f"{kind}_messages_{who}")
                label = f"Hermes without covering, per {who.removeprefix('per_')}"
                axes.plot(
                    uncovered.x, uncovered.mean, linestyle=style, color="#777777", linewidth=1, label=label
                )
            axes.set_xlabel(f"event {x}")
            axes.set_ylabel(f"{kind} messages")
            axes.legend(fontsize="small")

    return plot


def _spread(study: Study, figure: Figure) -> None:
    axes = figure.subplots()
    for place, network in enumerate(("hermes", "covadv-mst")):
        rows = select(study.spread, network=network)
        runs = len({row["run"] for row in rows})
        brokers: dict[int, float] = {}
        for row in rows:
            brokers[row["entries"]] = brokers.get(row["entries"], 0) + row["brokers"] / runs
        places = [entries + 0.4 * place - 0.2 for entries in brokers]
        axes.bar(places, list(brokers.values()), 0.4, color=COLORS[network], label=LABELS[network])
    axes.set_xlabel("entries of a broker's routing tables")
    axes.set_ylabel("brokers")


def _pan(study: Study, figure: Figure) -> None:
    hops, stretch = figure.subplots(1, 2)
    _plot(hops, "hermes", line(study, "pan", "hermes", "brokers", "hops"), label="Pan")
    expected = line(study, "pan", "hermes", "brokers", "expected_hops")
    hops.plot(expected.x, expected.mean, "k--", label="log₁₆ N")
    for column, style in (("stretch", "-"), ("median_stretch", ":")):
        found = line(study, "pan", "hermes", "brokers", column)
        stretch.plot(found.x, found.mean, style, color=COLORS["hermes"], label=column.replace("_", " "))
    hops.set_ylabel("hops of a route")
    stretch.set_ylabel("latency of the route / of the direct way")
    stretch.legend()
    for axes in (hops, stretch):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.set_xlabel("nodes (N)")


def _churn(study: Study, figure: Figure) -> None:
    panels = figure.subplots(1, 3)
    columns = {
        "delivered": "deliveries that came / that were due",
        "delay": "from publication to notification (s)",
        "entries_per_broker": "entries of a broker's routing tables",
    }
    for axes, (column, label) in zip(panels, columns.items(), strict=True):
        found = curve(select(study.runs, study="churn"), "failures_per_minute", column)
        _plot(axes, "hermes", found, label="Hermes")
        axes.set_xlabel("failures and joins a minute")
        axes.set_ylabel(label)


FIGURES: Mapping[str, tuple[str, tuple[float, float], Callable[[Study, Figure], None]]] = {
    "figure-5.5": ("E1: latency per event notification", (11, 4.5), _latency),
    "figure-5.6": ("E1: hop count per event notification", (6.5, 4.5), _hops),
    "figure-5.7": ("E2: entries, by subscribers", (7, 5), _entries("E2 subscribers", "subscribers")),
    "figure-5.8": ("E2: entries, by publishers", (7, 5), _entries("E2 publishers", "publishers")),
    "figure-5.9": ("E2: entries, by brokers", (7, 5), _entries("E2 brokers", "brokers")),
    "figure-5.10": ("E3: entries at brokers", (7, 4.5), _spread),
    "figure-5.11": ("E4: messages, by subscribers", (13, 4.5), _messages("E4 subscribers", "subscribers")),
    "figure-5.12": ("E4: messages, by publishers", (13, 4.5), _messages("E4 publishers", "publishers")),
    "pan": ("Routes in Pan", (10, 4.5), _pan),
    "churn": ("Hermes while brokers fail and join", (13, 4.5), _churn),
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
            axes.set_ylim(0, 1.04 * axes.get_ylim()[1])
            axes.yaxis.set_major_formatter("{x:,.0f}" if axes.get_ylim()[1] > 8 else "{x:g}")
            axes.grid(alpha=0.3)
        figure.axes[0].legend(fontsize="small")
        metadata: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "png": {"Software": None}}
        for kind, told in metadata.items():
            files.append(directory / f"{name}.{kind}")
            figure.savefig(files[-1], metadata=told, dpi=110)
    return files


def _plot(
    axes: Axes, network: str, points: Curve, kind: str = "", scale: float = 1, label: str | None = None
) -> None:
    points = points._replace(**{f: [scale * v for v in getattr(points, f)] for f in points._fields[1:]})
    name = f"{LABELS[network].split(',')[0]}: {kind}s" if kind else LABELS[network]
    style: dict[str, Any] = {"color": COLORS[network], "marker": MARKERS[network], "markersize": 4}
    axes.plot(points.x, points.mean, DASHES.get(kind, "-"), label=label or name, **style)
    axes.fill_between(points.x, points.least, points.most, color=COLORS[network], alpha=0.15, linewidth=0)
