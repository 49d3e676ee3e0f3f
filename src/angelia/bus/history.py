"""A bus with a lake: what is published is kept, and subscriptions may begin in the past."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from angelia.errors import LakeError
from angelia.node import Node

if TYPE_CHECKING:
    from angelia.store import LakeWriter

__all__ = ["CHUNK", "LakeSync", "open_lake"]

LakeSync = Literal["batch", "interval", "none"]

CHUNK = 256  # events of the past that are read at once, at most

_MOST = 1000  # processes with a bus on one lake


def open_lake(
    directory: str | os.PathLike[str], sync: LakeSync, nodes: list[Node], clock: Callable[[], float]
) -> LakeWriter:
    """The lake of a bus: as `bus`, or `bus-2` and so on where other processes share the directory.

    The brokers learn the event types that the lake knows, so that what conflicts with them is refused.
    """
    try:
        from angelia.store.catalog import Catalog, is_owned
        from angelia.store.writer import LakeWriter
    except ModuleNotFoundError as error:
        raise LakeError(f"a lake needs {error.name}: pip install 'angelia[match]'") from None
    known = Catalog(Path(directory)).registry()
    for node in nodes:
        for name in known:
            node.registry.adopt(known.get(name))
    for number in range(1, _MOST):
        name = "bus" if number == 1 else f"bus-{number}"
        if not is_owned(Path(directory), name):
            return LakeWriter(directory, name, nodes[0].registry, fsync=sync, clock=clock)
    raise LakeError(f"{_MOST} processes write to {directory} already")
