"""Angelia: an event notification service."""

from angelia.event import Event
from angelia.filter import Filter, attr

__version__ = "0.1.0.dev0"

__all__ = ["Event", "Filter", "attr"]
