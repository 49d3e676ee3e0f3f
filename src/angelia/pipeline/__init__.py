"""The data pipeline: the same filters over everything that was ever published, on Apache Spark.

What is here is loaded when it is asked for: importing this package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from angelia.pipeline.detection import detect
    from angelia.pipeline.journals import read_journal, traffic
    from angelia.pipeline.matching import match, match_lake
    from angelia.pipeline.replaying import replay
    from angelia.pipeline.session import open_session
    from angelia.pipeline.streams import keep
    from angelia.pipeline.summary import summarise
    from angelia.pipeline.sweeping import sweep

__all__ = [
    "PipelineError",
    "detect",
    "keep",
    "match",
    "match_lake",
    "open_session",
    "read_journal",
    "replay",
    "summarise",
    "sweep",
    "traffic",
]

_HOMES = {
    "detect": "detection",
    "keep": "streams",
    "match": "matching",
    "match_lake": "matching",
    "open_session": "session",
    "read_journal": "journals",
    "replay": "replaying",
    "summarise": "summary",
    "sweep": "sweeping",
    "traffic": "journals",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
