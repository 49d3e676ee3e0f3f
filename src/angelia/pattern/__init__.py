"""WHEN: patterns over several events."""

from angelia.pattern.matcher import SequenceMatcher
from angelia.pattern.pattern import MAX_FILTERS, Pattern

__all__ = ["MAX_FILTERS", "Pattern", "SequenceMatcher"]
