"""The filter dialects of the CloudEvents Subscriptions API, as filters of ours.

A dialect becomes a `Selection`: a filter that the network routes by and, if that filter lets more through
than is asked for, a test of each event. Mostly there is no test: the filter says it all. CESQL needs one,
and so do prefixes and suffixes of what is not a string here.

What is compared is the event as it was published: one without a type has no `type`, although the door must
name one when it gives the event out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import Any

from angelia.broker.cesql import compile_expression
from angelia.broker.http.context import OWN
from angelia.broker.http.mapping import facts_of, text_of
from angelia.broker.http.problem import Problem
from angelia.errors import EventError, FilterError, FilterLimitError
from angelia.event import ENVELOPE, Event, parse_timestamp
from angelia.filter import Filter, attr
from angelia.types import TypeRegistry

__all__ = ["Dialects", "Selection"]

MAX_EXPRESSIONS = 256
MAX_DEPTH = 16

Test = Callable[[Event], bool]

_EVERYTHING = Filter.parse("true")
_NOTHING = Filter.parse("false")
_COMPARE: dict[str, Callable[[str, str], bool]] = {
    "exact": str.__eq__,
    "prefix": str.startswith,
    "suffix": str.endswith,
}


@dataclass(frozen=True)
class Selection:
    """Which events are wanted: those that `filter` matches and, if there is one, `test` accepts."""

    filter: Filter
    test: Test | None = None

    def accepts(self, event: Event) -> bool:
        """Whether an event that the filter matched is wanted."""
        return self.test is None or self.test(event)


class Dialects:
    """Reads what subscriptions ask for, one subscription at a time."""

    def __init__(self, registry: TypeRegistry) -> None:
        self._registry = registry
        self._left = MAX_EXPRESSIONS
        self._parsers: dict[str, Callable[[Any, str, int], Selection]] = {
            **dict.fromkeys(_COMPARE, self._attributes),
            "all": lambda value, where, depth: self._all(self._nested(value, where, depth)),
            "any": lambda value, where, depth: self._any(self._nested(value, where, depth)),
            "not": self._not,
            "sql": self._sql,
            "angelia": self._angelia,
        }

    def select(self, document: Mapping[str, Any]) -> Selection:
        """What the properties `source`, `types` and `filters` ask for together; else a `Problem`."""
        self._left = MAX_EXPRESSIONS
        parts = []
        if (source := document.get("source")) is not None:
            parts.append(_comparison("exact", "source", source, "source"))
        if types := _types(document.get("types")):
            parts.append(self._any([_comparison("exact", "type", one, "types") for one in types]))
        filters = document.get("filters")
        if not isinstance(filters, list | None):
            raise _bad("filters", 'is a list, such as [{"prefix": {"type": "com.example."}}]')
        for index, given in enumerate(filters or []):
            parts.append(self._expression(given, f"filters[{index}]", 1))
        selection = self._within_limits(self._all(parts))
        if not selection.filter.is_satisfiable:
            raise _bad("filters", "no event can match")
        return selection

    def _expression(self, given: Any, where: str, depth: int) -> Selection:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise _bad(where, f"at most {MAX_EXPRESSIONS} expressions, nested {MAX_DEPTH} deep, are allowed")
        if not isinstance(given, dict) or len(given) != 1:
            raise _bad(where, 'is an object with one member, the dialect: {"exact": {"type": "…"}}')
        ((dialect, value),) = given.items()
        if dialect not in self._parsers:
            raise _bad(where, f"there is no dialect {dialect[:64]!r}; there are {', '.join(self._parsers)}")
        try:
            return self._parsers[dialect](value, f"{where}.{dialect}", depth)
        except FilterError as error:
            raise _bad(f"{where}.{dialect}", str(error)) from None

    # ------------------------------------------------ the dialects

    def _attributes(self, value: Any, where: str, depth: int) -> Selection:
        if not isinstance(value, dict) or not value:
            raise _bad(where, "is an object of attribute names and strings, with at least one")
        dialect = where.rpartition(".")[2]
        return self._all([_comparison(dialect, name, text, where) for name, text in value.items()])

    def _nested(self, value: Any, where: str, depth: int) -> list[Selection]:
        if not isinstance(value, list) or not value:
            raise _bad(where, "is a list of at least one filter expression")
        return [self._expression(one, f"{where}[{index}]", depth + 1) for index, one in enumerate(value)]

    def _all(self, parts: list[Selection]) -> Selection:
        try:
            wanted = reduce(and_, [part.filter for part in parts], _EVERYTHING)
        except FilterLimitError:  # the network gets the simplest part, and the rest is tested here
            simplest = min(parts, key=lambda part: len(part.filter.conjunctions))
            return Selection(simplest.filter, self._combined(all, parts))
        return Selection(wanted, None if _need_no_test(parts) else self._combined(all, parts))

    def _any(self, parts: list[Selection]) -> Selection:
        try:
            wanted = reduce(or_, [part.filter for part in parts])
        except FilterLimitError:
            return Selection(_EVERYTHING, self._combined(any, parts))
        return Selection(wanted, None if _need_no_test(parts) else self._combined(any, parts))

    def _not(self, value: Any, where: str, depth: int) -> Selection:
        part = self._expression(value, where, depth + 1)
        test = part.test or self._test(part.filter)
        try:
            return Selection(~part.filter) if part.test is None else Selection(_EVERYTHING, _inverse(test))
        except FilterLimitError:
            return Selection(_EVERYTHING, _inverse(test))

    def _combined(self, combine: Callable[[Any], bool], parts: list[Selection]) -> Test:
        """A test of all parts: those without one are tested by their filters."""
        tests = [part.test or self._test(part.filter) for part in parts]
        return lambda event: combine(test(event) for test in tests)

    def _test(self, wanted: Filter) -> Test:
        return lambda event: wanted.matches(event, self._registry)

    def _within_limits(self, selection: Selection) -> Selection:
        """A selection whose filter can travel as text; what it cannot say then is tested here."""
        try:
            Filter.parse(str(selection.filter))
        except FilterLimitError:
            return Selection(_EVERYTHING, selection.test or self._test(selection.filter))
        return selection

    def _sql(self, value: Any, where: str, depth: int) -> Selection:
        if not isinstance(value, str):
            raise _bad(where, "is a CESQL expression, as a string")
        expression = compile_expression(value)
        if expression.faults:
            raise _bad(where, str(expression.faults[0]))
        return Selection(
            expression.coarse_filter(lambda name: f"{ENVELOPE}{name}"),
            lambda event: expression.matches(facts_of(event)),
        )

    def _angelia(self, value: Any, where: str, depth: int) -> Selection:
        if not isinstance(value, str):
            raise _bad(where, "is a text of the filter language")
        return Selection(Filter.parse(value))


def _need_no_test(parts: list[Selection]) -> bool:
    return all(part.test is None for part in parts)


def _inverse(test: Test) -> Test:
    return lambda event: not test(event)


def _bad(where: str, detail: str) -> Problem:
    return Problem(400, "invalid-subscription", f"{where}: {detail}", attribute=where)


def _types(types: Any) -> list[str]:
    if not isinstance(types, list | None) or not all(isinstance(one, str) for one in types or []):
        raise _bad("types", "is a list of strings")
    return types or []


# ---------------------------------------------------------------- exact, prefix, suffix


def _comparison(dialect: str, name: str, text: Any, where: str) -> Selection:
    if not name or not isinstance(text, str) or not text:
        raise _bad(where, "attribute names and values are non-empty strings")
    compare = _COMPARE[dialect]

    def test(event: Event) -> bool:
        facts = facts_of(event)
        return name in facts and compare(text_of(facts[name]), text)

    if name == "specversion":
        return Selection(_EVERYTHING if compare("1.0", text) else _NOTHING)
    if name == "datacontenttype":
        return Selection(_EVERYTHING, test)  # JSON data has one, although the event does not
    if name == "time":
        return _time(dialect, text, test)
    if name in OWN:
        return Selection(_strings(dialect, f"@{name}", text))
    return _extension(dialect, f"{ENVELOPE}{name}", text, test)


def _strings(dialect: str, name: str, text: str) -> Filter:
    attribute = attr(name)
    if dialect == "exact":
        return attribute == text
    return attribute.prefix(text) if dialect == "prefix" else attribute.suffix(text)


def _time(dialect: str, text: str, test: Test) -> Selection:
    if dialect != "exact":
        return Selection(attr("@time").exists(), test)
    try:
        return Selection(attr("@time") == parse_timestamp(text))
    except EventError:
        return Selection(_NOTHING)


def _extension(dialect: str, name: str, text: str, test: Test) -> Selection:
    """An extension is a string, an integer or a boolean; what is compared is its canonical string."""
    found = _strings(dialect, name, text)
    if dialect != "exact":
        return Selection(found | attr(name).is_("number") | attr(name).is_("boolean"), test)
    if text in ("true", "false"):
        found |= attr(name) == (text == "true")
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 12 and str(int(text)) == text:
        found |= attr(name) == int(text)
    return Selection(found)
