"""WHICH: the compiled index: one event, or a column batch, against many filters."""

from angelia.errors import BatchError, MatcherError, UnknownFilterError
from angelia.matching.matcher import Matcher, Stats

__all__ = ["BatchError", "Matcher", "MatcherError", "Stats", "UnknownFilterError"]
