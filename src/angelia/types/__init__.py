"""Event types: what an event of a type must have, how types inherit, and the Python classes they are."""

from angelia.types.binding import class_of, event_type, from_event, to_event, type_of
from angelia.types.model import Attribute, EventType
from angelia.types.registry import TypeRegistry
from angelia.types.schema import from_json_schema, to_json_schema

__all__ = [
    "Attribute",
    "EventType",
    "TypeRegistry",
    "class_of",
    "event_type",
    "from_event",
    "from_json_schema",
    "to_event",
    "to_json_schema",
    "type_of",
]
