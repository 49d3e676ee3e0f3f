"""The data pipeline: the same filters over everything that was ever published, on Apache Spark.

What is here is loaded when it is asked for: importing this package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from angelia.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from angelia.pipeline.detection import detect
    from angelia.pipeline.matching import match
    from angelia.pipeline.session import open_session

__all__ = ["PipelineError", "detect", "match", "open_session"]

_HOMES = {
    "detect": "detection",
    "match": "matching",
    "open_session": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
