"""WHAT: constraints, filters, the language, covering, overlap, merging and the poset."""

from angelia.filter.advertisement import Advertisement
from angelia.filter.builder import attr
from angelia.filter.conformance import check_filter
from angelia.filter.filter import Explanation, Filter, Verdict
from angelia.filter.merging import Merge, merge
from angelia.filter.poset import Insertion, Place, Poset, advertisement_poset, subscription_poset

__all__ = [
    "Advertisement",
    "Explanation",
    "Filter",
    "Insertion",
    "Merge",
    "Place",
    "Poset",
    "Verdict",
    "advertisement_poset",
    "attr",
    "check_filter",
    "merge",
    "subscription_poset",
]
