"""Spark's Python workers, and what they need not do after each task.

After each task a worker collects garbage, and looks at everything that it has loaded: Numba, PyArrow and the
rest are half a million objects, which take a tenth of a second, as long as matching 100,000 events. What
modules have brought stays anyway, so that it is taken out of what is looked at.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["task"]

_modules = 0  # that this process had when it last spared them


@contextmanager
def task() -> Iterator[None]:
    """Around what a task does in a worker: what is loaded in it is spared from then on."""
    global _modules
    yield
    if len(sys.modules) != _modules:  # seldom: what is not a module's shall be found when it is garbage
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)
