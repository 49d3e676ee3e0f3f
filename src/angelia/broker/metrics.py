"""Metrics of a broker, for Prometheus.

What happens to events is counted in plain dictionaries; the families that Prometheus reads are made when
it asks. Event types come from strangers: only so many are counted by name, the others together.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

__all__ = ["MAX_LABELS", "OTHER", "Metrics"]

log = logging.getLogger("angelia.broker")

MAX_LABELS = 500  # event types that are counted by name
MAX_LABEL_LENGTH = 255
OTHER = "(other)"
UNTYPED = "(none)"

# Seconds to match an event; from a microsecond to a tenth of a second.
BUCKETS = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 1e-1)

Reading = float | Mapping[str, float]


class _Gauge(NamedTuple):
    name: str
    text: str
    read: Callable[[], Reading]
    label: str


class Metrics:
    """What a broker counts. Counting is cheap enough for every event; `exposition` is for scrapes."""

    def __init__(self) -> None:
        self._in: dict[str | None, int] = {}
        self._out: dict[str | None, int] = {}
        self._filtered: dict[str | None, int] = {}
        self._drops: dict[str, int] = {}
        self._requests: dict[tuple[str, str, int], int] = {}
        self._matches = [0] * (len(BUCKETS) + 1)
        self._match_seconds = 0.0
        self._gauges: dict[str, _Gauge] = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    # ------------------------------------------------ counting

    def count_in(self, event_type: str | None, n: int = 1) -> None:
        """Events were published here, or came from a peer."""
        counts = self._in
        if event_type in counts:
            counts[event_type] += n
        else:
            _count_new(counts, event_type, n)

    def count_out(self, event_type: str | None, n: int = 1) -> None:
        """Events went to a client or a peer."""
        counts = self._out
        if event_type in counts:
            counts[event_type] += n
        else:
            _count_new(counts, event_type, n)

    def count_filtered(self, event_type: str | None, n: int = 1) -> None:
        """Events that nobody wanted went nowhere."""
        counts = self._filtered
        if event_type in counts:
            counts[event_type] += n
        else:
            _count_new(counts, event_type, n)

    def count_drop(self, reason: str, n: int = 1) -> None:
        """Events were dropped; `reason` is one of a few words, such as `queue` or `webhook`."""
        self._drops[reason] = self._drops.get(reason, 0) + n

    def count_request(self, method: str, route: str, status: int) -> None:
        """The HTTP door answered a request."""
        key = (method, route, status)
        self._requests[key] = self._requests.get(key, 0) + 1

    def observe_match(self, seconds: float, events: int = 1) -> None:
        """Matching `events` events took `seconds` in all."""
        if events > 0:
            self._matches[bisect_left(BUCKETS, seconds / events)] += events
            self._match_seconds += seconds

    def gauge(self, name: str, text: str, read: Callable[[], Reading], label: str = "") -> None:
        """Show what `read` returns: a number, or with `label` one for each of its values."""
        self._gauges[name] = _Gauge(name, text, read, label)

    # ------------------------------------------------ telling

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """The page that Prometheus reads, and its content type."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        """All families (what a collector of prometheus-client does)."""
        yield _by_type("angelia_events_in", "Events published here or received from peers", self._in)
        yield _by_type("angelia_events_out", "Events sent to clients and peers", self._out)
        yield _by_type("angelia_events_filtered", "Events that nobody wanted", self._filtered)
        drops = CounterMetricFamily("angelia_dropped_events", "Events dropped", labels=["reason"])
        for reason, count in sorted(self._drops.items()):
            drops.add_metric([reason], count)
        yield drops
        yield self._match_histogram()
        requests = CounterMetricFamily(
            "angelia_http_requests",
            "Requests answered by the HTTP door",
            labels=["method", "route", "status"],
        )
        for (method, route, status), count in sorted(self._requests.items()):
            requests.add_metric([method, route, str(status)], count)
        yield requests
        for gauge in self._gauges.values():
            yield from _read(gauge)

    def _match_histogram(self) -> Metric:
        total, buckets = 0, []
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._matches, strict=True):
            total += count
            buckets.append((bound, float(total)))
        family = HistogramMetricFamily("angelia_match_seconds", "Time to match an event")
        family.add_metric([], buckets, self._match_seconds)
        return family


def _count_new(counts: dict[str | None, int], key: str | None, n: int) -> None:
    """Count what was not seen before: by its name while there is room, else with the others."""
    if len(counts) >= MAX_LABELS or (key is not None and len(key) > MAX_LABEL_LENGTH):
        key = OTHER
    counts[key] = counts.get(key, 0) + n


def _by_type(name: str, text: str, counts: Mapping[str | None, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=["type"])
    for event_type, count in sorted(counts.items(), key=lambda item: item[0] or ""):
        family.add_metric([event_type or UNTYPED], count)
    return family


def _read(gauge: _Gauge) -> Iterator[Metric]:
    try:
        reading = gauge.read()
    except Exception:  # a gauge that fails must not hide the others
        log.exception("the gauge %s cannot be read", gauge.name)
        return
    family = GaugeMetricFamily(gauge.name, gauge.text, labels=[gauge.label] if gauge.label else None)
    if isinstance(reading, Mapping):
        for value, number in reading.items():
            family.add_metric([value], number)
    else:
        family.add_metric([], reading)
    yield family
