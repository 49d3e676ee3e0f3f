"""WHAT: constraints, filters, the language, covering, overlap, merging and the poset."""

from angelia.filter.builder import attr
from angelia.filter.filter import Explanation, Filter, Verdict

__all__ = ["Explanation", "Filter", "Verdict", "attr"]
