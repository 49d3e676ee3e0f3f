"""The options of the data source `angelia`, checked in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from angelia.errors import AngeliaError, LakeError
from angelia.event import parse_timestamp
from angelia.filter import Filter
from angelia.pipeline.errors import PipelineError
from angelia.store import Lake, Snapshot
from angelia.store.scan import wanted_types

__all__ = ["MODES", "Query", "known_options", "query_of"]

MODES = ("report", "fail")  # what happens to files that cannot be read

READING = (
    "lake",
    "broker",
    "type",
    "filter",
    "since",
    "until",
    "mode",
    "maxfilespertrigger",
    "client",
    "spool",
)
SPARKS = ("checkpointlocation", "queryname", "path")  # that Spark passes on
WRITING = ("lake", "broker", "sink", "batch", "spool")


@dataclass(frozen=True)
class Query:
    """What is to be read of a lake; it goes to the workers."""

    lake: str
    type: str | None
    filter: Filter | None
    since: datetime | None
    until: datetime | None
    fails: bool = False

    def open(self) -> Lake:
        """The lake."""
        return Lake(self.lake)

    def types(self, lake: Lake) -> set[str] | None:
        """The types whose events are wanted; None: all."""
        return wanted_types(lake, self.type, self.filter, lake.registry())

    def snapshot(self) -> Snapshot:
        """What there is to read now."""
        lake = self.open()
        return lake.snapshot(types=self.types(lake), since=self.since, until=self.until)


def query_of(options: Mapping[str, str]) -> Query:
    """The query that options ask for."""
    mode = options.get("mode", MODES[0])
    if mode not in MODES:
        raise PipelineError(f"the option mode is {' or '.join(MODES)}, not {mode!r}")
    path = options.get("lake", "")
    if Path(path).exists() and not Path(path).is_dir():
        raise LakeError(f"{path} is not a directory")
    text = options.get("filter")
    return Query(
        str(Path(path).absolute()),
        options.get("type"),
        None if text is None else Filter.parse(text),
        _time("since", options),
        _time("until", options),
        mode == "fail",
    )


def _time(name: str, options: Mapping[str, str]) -> datetime | None:
    text = options.get(name)
    try:
        return None if text is None else parse_timestamp(text)
    except AngeliaError as error:
        raise PipelineError(f"the option {name}: {error}") from None


def known_options(options: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Refuse options that nobody looks at, and a source that is neither a lake nor a broker, or both."""
    odd = [name for name in options if name.lower() not in (*known, *SPARKS)]
    if odd:
        raise PipelineError(f"there is no option {odd[0]!r}; there are {', '.join(known)}")
    if ("lake" in options) == ("broker" in options):
        raise PipelineError(
            "give the option lake (a directory) or the option broker (tcp://host:port), one of them"
        )
