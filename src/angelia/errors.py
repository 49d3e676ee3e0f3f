"""Every error a user can meet.

Each says what was wrong, where, and what would be right. All derive from `AngeliaError`; those
about a value the caller passed are also `ValueError`s, those about a missing thing `LookupError`s.
"""

from __future__ import annotations

__all__ = [
    "AngeliaError",
    "BatchError",
    "BlockedError",
    "BrokerError",
    "CesqlError",
    "ClosedError",
    "ConformanceError",
    "ConnectionLostError",
    "DisconnectedError",
    "EventError",
    "EventLimitError",
    "EventTypeError",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "LakeError",
    "MatcherError",
    "RequestError",
    "RoutingError",
    "UnknownFilterError",
    "UnknownTypeError",
    "WireError",
    "XmlError",
]

_EXCERPT = 60  # characters of the offending text shown on each side of the column


class AngeliaError(Exception):
    """Base of all errors raised by Angelia."""


class EventError(AngeliaError, ValueError):
    """An event, or one of its attributes, is not valid."""


class EventLimitError(EventError):
    """An event is larger than the limits allow."""


class FilterError(AngeliaError, ValueError):
    """A filter, pattern or advertisement is not valid."""


class FilterSyntaxError(FilterError):
    """A text of the filter language does not parse; `column` (from 1) points at the place.

    A filter that was built in Python has no text, and its errors no place in it.
    """

    def __init__(self, message: str, text: str = "", position: int = 0) -> None:
        self.message = message
        self.text = text
        self.column = position + 1
        place = f" (column {self.column})\n{_excerpt(text, position)}" if text else ""
        super().__init__(message + place)

    def __reduce__(self) -> tuple[type[FilterSyntaxError], tuple[str, str, int]]:
        return type(self), (self.message, self.text, self.column - 1)


class FilterLimitError(FilterSyntaxError):
    """A filter is larger or deeper than the limits allow, or would expand beyond them."""


class CesqlError(FilterSyntaxError):
    """A CloudEvents SQL expression does not parse, or is larger than the limits allow."""


class EventTypeError(AngeliaError, ValueError):
    """A definition, change or removal of an event type is not allowed."""


class UnknownTypeError(EventTypeError, LookupError):
    """An event type is not in the registry."""


class MatcherError(AngeliaError, ValueError):
    """A change of a matcher, or a question to it, is not possible."""


class UnknownFilterError(MatcherError, LookupError):
    """A matcher has no filter with this id."""


class BatchError(MatcherError):
    """A batch has a column that cannot be matched, or columns of different lengths."""


class RequestError(AngeliaError, ValueError):
    """A request of a client is not allowed: it says why, and nothing was done."""


class LakeError(AngeliaError):
    """The event lake cannot do what it is asked for: its files say otherwise, or its disk refuses."""


class RoutingError(AngeliaError):
    """A message or a change of the network that a router cannot accept; its state is as before."""


class ClosedError(AngeliaError):
    """The bus, the client or the subscription was closed before."""


class DisconnectedError(AngeliaError):
    """A subscription with the policy `disconnect` was ended, since its queue was full."""


class BlockedError(AngeliaError, TimeoutError):
    """A publisher waited too long, or for itself, for room in a queue with the policy `block`.

    Everybody else has the event; for that subscription it counts as dropped.
    """


class WireError(AngeliaError, ValueError):
    """Bytes that are no frame, or none that has a place here."""


class BrokerError(AngeliaError):
    """A broker cannot start, or cannot be reached, or refuses a connection."""


class ConnectionLostError(AngeliaError, ConnectionError):
    """The connection to a broker was lost with a request under way: it may have been done, or not."""


class ConformanceError(AngeliaError, ValueError):
    """An event or a filter does not conform to its event type.

    `problems` has one line for each attribute at fault.
    """

    def __init__(self, type_name: str, problems: list[str]) -> None:
        self.type_name = type_name
        self.problems = problems
        super().__init__(f"not a valid {type_name}: " + "; ".join(problems))

    def __reduce__(self) -> tuple[type[ConformanceError], tuple[str, list[str]]]:
        return type(self), (self.type_name, self.problems)


class XmlError(AngeliaError, ValueError):
    """An XML document is not well-formed, not safe, beyond the limits, or not what is expected.

    `line` counts from 1; it is 0 where the fault is in what should be written, not in what was read.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        self.message = message
        self.line = line
        super().__init__(f"{message} (line {line})" if line else message)

    def __reduce__(self) -> tuple[type[XmlError], tuple[str, int]]:
        return type(self), (self.message, self.line)


def _excerpt(text: str, position: int) -> str:
    """The line of `text` around `position`, cut to a readable length, with a caret below it."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    left, right = max(start, position - _EXCERPT), min(end, position + _EXCERPT)
    head = "…" if left > start else ""
    tail = "…" if right < end else ""
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[left:right])
    return f"  {head}{line}{tail}\n  {' ' * (len(head) + position - left)}^"
