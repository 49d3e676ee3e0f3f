"""The event lake: what was published, for good. `LakeWriter` appends, `Lake` reads.

What is imported waits until it is asked for: a broker that only writes need not wait for what readers need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from angelia.store.lake import Lake, Problem, Snapshot
    from angelia.store.layout import UNTYPED, LakeFile, Segment
    from angelia.store.pruning import pruning_expression
    from angelia.store.writer import Fsync, LakeWriter, Limits, Position

__all__ = [
    "UNTYPED",
    "Fsync",
    "Lake",
    "LakeFile",
    "LakeWriter",
    "Limits",
    "Position",
    "Problem",
    "Segment",
    "Snapshot",
    "pruning_expression",
]

_PLACES = {
    "lake": ("Lake", "Problem", "Snapshot"),
    "layout": ("UNTYPED", "LakeFile", "Segment"),
    "pruning": ("pruning_expression",),
    "writer": ("Fsync", "LakeWriter", "Limits", "Position"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
