"""Whether the values of an event are what its type says (Hermes thesis, Definition 3.2).

Every problem is one line for `ConformanceError`: the attribute, what it has, and what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from difflib import get_close_matches

from angelia.errors import EventError
from angelia.event import ENVELOPE, Datatype, Value, parse_timestamp
from angelia.types.model import Attribute

__all__ = ["did_you_mean", "problems", "value_problem", "with_timestamps"]

_DATATYPES: dict[type, Datatype] = {
    str: Datatype.STRING,
    int: Datatype.INTEGER,
    float: Datatype.FLOAT,
    bool: Datatype.BOOLEAN,
    datetime: Datatype.TIMESTAMP,
}
_CLASSES: dict[Datatype, frozenset[type]] = {
    datatype: frozenset({cls}) for cls, datatype in _DATATYPES.items()
} | {Datatype.FLOAT: frozenset({int, float})}

# Finding what a stranger may have meant costs far more than finding that it is wrong.
_MAX_HINTS = 3
_MAX_HINT_LENGTH = 48
_MAX_CANDIDATES = 256
_MAX_MISSPELLING = 2  # characters left out or added


def problems(attributes: Mapping[str, Attribute], values: Mapping[str, Value]) -> Iterator[str]:
    """What is wrong with `values` as those of an event with `attributes`, one line each."""
    for name, attribute in attributes.items():
        if problem := value_problem(name, attribute, values.get(name)):
            yield problem
    unknown = [name for name in values if name not in attributes and not name.startswith(ENVELOPE)]
    for position, name in enumerate(unknown):
        hint = did_you_mean(name, attributes) if position < _MAX_HINTS else ""
        yield f"unknown attribute {name!r}{hint}"


def value_problem(name: str, attribute: Attribute, value: Value | None) -> str | None:
    """What is wrong with the value of one attribute (`None`: absent), or `None`."""
    if value is None:
        return None if attribute.optional else f"missing attribute {name!r}, expected {_expected(attribute)}"
    allowed = _CLASSES[attribute.datatype]
    if not attribute.repeated:
        if type(value) in allowed:
            return None
        got = "a list" if isinstance(value, tuple) else _DATATYPES[type(value)]
    elif isinstance(value, tuple):
        wrong = next((i for i, element in enumerate(value) if type(element) not in allowed), None)
        if wrong is None:
            return None
        got = f"{_DATATYPES[type(value[wrong])]} at position {wrong} of the list"
    else:
        got = _DATATYPES[type(value)]
    return f"attribute {name!r}: expected {_expected(attribute)}, got {got}"


def with_timestamps(
    attributes: Mapping[str, Attribute], values: Mapping[str, Value], found: list[str]
) -> dict[str, Value]:
    """`values` with the strings of timestamp attributes parsed; adds to `found` what does not parse."""
    parsed = dict(values)
    for name, value in values.items():
        if name in attributes and attributes[name].datatype is Datatype.TIMESTAMP:
            try:
                parsed[name] = _parse(value)
            except EventError as error:
                found.append(f"attribute {name!r}: {error}")
    return parsed


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint to add to an error about an unknown `name`, or nothing."""
    if len(name) > _MAX_HINT_LENGTH:
        return ""
    candidates = [other for other in known if abs(len(other) - len(name)) <= _MAX_MISSPELLING]
    close = get_close_matches(name, candidates[:_MAX_CANDIDATES], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _expected(attribute: Attribute) -> str:
    return f"a list of {attribute.datatype}" if attribute.repeated else str(attribute.datatype)


def _parse(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple([parse_timestamp(one) if isinstance(one, str) else one for one in value])
    return parse_timestamp(value) if isinstance(value, str) else value
