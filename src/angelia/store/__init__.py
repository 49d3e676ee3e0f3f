"""The event lake: what was published, for good. `LakeWriter` appends, `Lake` reads."""

from angelia.store.compact import is_owned
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
    "is_owned",
    "pruning_expression",
]
