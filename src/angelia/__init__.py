"""Angelia: an event notification service. Content-based publish/subscribe."""

from angelia.bus import Bus, SyncBus
from angelia.client import connect, connect_sync
from angelia.event import Event
from angelia.filter import Advertisement, Filter, attr
from angelia.matching import Matcher
from angelia.pattern import Pattern
from angelia.types import EventType, TypeRegistry, event_type

__version__ = "0.1.0.dev0"

__all__ = [
    "Advertisement",
    "Bus",
    "Event",
    "EventType",
    "Filter",
    "Matcher",
    "Pattern",
    "SyncBus",
    "TypeRegistry",
    "attr",
    "connect",
    "connect_sync",
    "event_type",
]
