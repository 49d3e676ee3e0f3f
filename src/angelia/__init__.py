"""Angelia: an event notification service. Content-based publish/subscribe."""

from angelia.event import Event
from angelia.filter import Advertisement, Filter, attr
from angelia.types import EventType, TypeRegistry, event_type

__version__ = "0.1.0.dev0"

__all__ = ["Advertisement", "Event", "EventType", "Filter", "TypeRegistry", "attr", "event_type"]
