"""Results of batches: what the snapshots of a matcher found, as one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_arrays", "spliced", "without_repeats"]

Csr = tuple[NDArray[np.int64], NDArray[Any]]


def spliced(parts: Sequence[tuple[Any, Any]], rows: int, are_ints: bool) -> Csr:
    """For each row, the ids of all parts."""
    kind: Any = np.int64 if are_ints else object
    if len(parts) == 1:
        return np.asarray(parts[0][0], np.int64), _as_kind(parts[0][1], kind)
    if not parts:
        return np.zeros(rows + 1, np.int64), np.zeros(0, kind)
    offsets = np.sum([starts for starts, _ in parts], axis=0)
    out = np.empty(offsets[-1], kind)
    cursor = offsets[:-1].copy()
    for starts, found in parts:
        starts = np.asarray(starts, np.int64)
        counts = np.diff(starts)
        out[np.arange(len(found)) + np.repeat(cursor - starts[:-1], counts)] = _as_kind(found, kind)
        cursor += counts
    return offsets, out


def without_repeats(offsets: NDArray[np.int64], found: NDArray[Any], parts: int) -> Csr:
    """For each row, what was found in several parts, but once."""
    if parts < 2:
        return offsets, found
    numbers: dict[Any, int] = {}
    codes = np.array([numbers.setdefault(each, len(numbers)) for each in found.tolist()], np.int64)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    _, first = np.unique(rows * max(1, len(numbers)) + codes, return_index=True)
    counts = np.bincount(rows[first], minlength=len(offsets) - 1)
    return np.concatenate(([0], np.cumsum(counts))), found[np.sort(first)]


def as_arrays(offsets: array[int], found: list[Any], are_ints: bool) -> Csr:
    """A result of the pure engine in the form of the compiled one's."""
    return np.array(offsets, np.int64), _as_kind(found, np.int64 if are_ints else object)


def _as_kind(found: Any, kind: Any) -> NDArray[Any]:
    """Ids as an array; a list may have tuples among them."""
    if isinstance(found, np.ndarray):
        return found.astype(kind, copy=False)
    return np.fromiter(found, kind, len(found))
