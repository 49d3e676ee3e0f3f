"""What can go wrong with a matcher."""

from __future__ import annotations

from angelia.errors import AngeliaError

__all__ = ["BatchError", "MatcherError", "UnknownFilterError"]


class MatcherError(AngeliaError, ValueError):
    """A change of a matcher, or a question to it, is not possible."""


class UnknownFilterError(MatcherError, LookupError):
    """A matcher has no filter with this id."""


class BatchError(MatcherError):
    """A batch has a column that cannot be matched, or columns of different lengths."""
