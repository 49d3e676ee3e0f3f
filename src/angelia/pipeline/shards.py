"""The stateful processor of `detect` over streams: Spark's side of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from angelia.pipeline.detection import State, occurrences, seen

__all__ = ["processor"]


def processor(length: int, within: int | None) -> StatefulProcessor:
    """A processor of sequences of some length."""
    return _Shards(length, within)


class _Shards(StatefulProcessor):
    """Each shard has one value of state, and at most one timer, at the time of its earliest event."""

    def __init__(self, length: int, within: int | None) -> None:
        self._length, self._within = length, within

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("shard", "data binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        fresh = [event for frame in rows for event in seen(pa.Table.from_pandas(frame, preserve_index=False))]
        yield from self._advance(fresh, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        yield from self._advance([], timerValues)

    def _advance(self, fresh: list[Any], times: Any) -> Iterator[pd.DataFrame]:
        kept = self._state.get()
        state = State.decode(bytes(kept[0]) if kept else None)
        state.waiting += fresh
        watermark = times.getCurrentWatermarkInMs() * 1000
        found = state.advance(watermark, self._length, self._within)
        self._set_timer(state, watermark)
        self._state.update((state.encode(),))
        if found:
            yield occurrences(found).to_pandas()

    def _set_timer(self, state: State, watermark: int) -> None:
        wanted = state.waiting[0].time // 1000 + 1 if state.waiting else None
        if wanted != state.timer:
            if state.timer is not None and state.timer * 1000 > watermark:
                self._handle.deleteTimer(state.timer)
            if wanted is not None:
                self._handle.registerTimer(wanted)
            state.timer = wanted

    def close(self) -> None:
        pass
