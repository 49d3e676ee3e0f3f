"""Filters: which events somebody wants (SIENA 3.2), and how two filters relate (3.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from angelia.errors import EventError, FilterError, FilterLimitError
from angelia.event import Event, Value
from angelia.filter.conjunction import Condition, Conjunction, is_a
from angelia.filter.normal import FALSE, TRUE, Disjunction, complement, expand, product, union
from angelia.filter.parser import (
    MAX_CONSTRAINTS,
    MAX_TEXT_LENGTH,
    checked_name,
    parse,
    print_literal,
    print_name,
)
from angelia.filter.printer import constraints, count_constraints, print_conjunction

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Explanation", "Filter", "Verdict"]


class Filter:
    """An immutable filter: `Filter.parse('airline = "UA" and price < 500')`.

    It is held as a disjunction of conjunctions in canonical form: filters with the same
    alternatives are equal, in whatever order they were written. Combine filters with `&`, `|` and
    `~`. Questions about event types take the registry that knows the hierarchy; without one, a
    type has no descendants.
    """

    __slots__ = ("_hash", "_text", "conjunctions")

    conjunctions: Disjunction
    _hash: int
    _text: str | None

    def __init__(self, conjunctions: Disjunction = TRUE) -> None:
        if isinstance(conjunctions, str):
            raise FilterError("a filter is made of a text with Filter.parse(text)")
        object.__setattr__(self, "conjunctions", conjunctions)
        object.__setattr__(self, "_hash", hash(conjunctions))
        object.__setattr__(self, "_text", None)

    @classmethod
    def parse(cls, text: str) -> Filter:
        """The filter that a text of the filter language denotes, or a `FilterSyntaxError`."""
        tree = parse(text)
        try:
            parsed = cls(expand(tree))
            if len(text) * len(parsed.conjunctions) > _SURELY_SMALL:
                _check_text(parsed)
            return parsed
        except FilterLimitError as error:
            raise FilterLimitError(error.message, text) from None

    @classmethod
    def of_type(cls, name: str) -> Filter:
        """The filter that matches all events of a type and its descendants."""
        return cls((Conjunction(types=frozenset((checked_name(name),))),))

    @property
    def is_satisfiable(self) -> bool:
        """Whether some event may match. `x > 5 and x < 3` is not satisfiable."""
        return bool(self.conjunctions)

    def matches(self, event: Event | Mapping[str, Any], registry: TypeRegistry | None = None) -> bool:
        """Whether an event matches; attributes alone may be given as a mapping."""
        asked = event if isinstance(event, Event) else _event_of(event)
        return any(conjunction.matches(asked, registry) for conjunction in self.conjunctions)

    def covers(self, other: Filter, registry: TypeRegistry | None = None) -> bool:
        """Whether every event that `other` matches, this filter matches (SIENA 3.6).

        Sound always; complete between single alternatives, but for `contains` and `matches`.
        """
        mine, theirs = self.conjunctions, _alternatives(other)
        if len(mine) == 1 and len(theirs) == 1:  # nearly always
            return mine[0].covers(theirs[0], registry)
        return all(any(a.covers(b, registry) for a in mine) for b in theirs)

    def overlaps(self, other: Filter, registry: TypeRegistry | None = None) -> bool:
        """Whether some event, with one value an attribute, is matched by both."""
        pairs = (a.intersection(b) for a in self.conjunctions for b in _alternatives(other))
        return any(pair is not None and pair.is_possible(registry) for pair in pairs)

    def explain(self, event: Event | Mapping[str, Any], registry: TypeRegistry | None = None) -> Explanation:
        """Which constraints an event satisfies and which not, for each alternative."""
        asked = event if isinstance(event, Event) else _event_of(event)
        alternatives = tuple(
            tuple(_verdicts(conjunction, asked, registry)) for conjunction in self.conjunctions
        )
        return Explanation(self, self.matches(asked, registry), alternatives)

    def attributes(self) -> frozenset[str]:
        """The names that the filter is about, the context's as `@type`, `@source`, …"""
        return frozenset(name for conjunction in self.conjunctions for name in conjunction.conditions)

    def __and__(self, other: Filter) -> Filter:
        return (
            Filter(product(self.conjunctions, other.conjunctions))
            if isinstance(other, Filter)
            else NotImplemented
        )

    def __or__(self, other: Filter) -> Filter:
        return (
            Filter(union(self.conjunctions, other.conjunctions))
            if isinstance(other, Filter)
            else NotImplemented
        )

    def __invert__(self) -> Filter:
        return Filter(complement(self.conjunctions))

    def __bool__(self) -> NoReturn:
        raise FilterError(
            "a filter is neither true nor false; combine filters with &, | and ~, not and, or, not"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self._hash == other._hash and self.conjunctions == other.conjunctions

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Filter is immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return Filter, (self.conjunctions,)

    def __str__(self) -> str:
        """Canonical text: `Filter.parse(str(f)) == f`."""
        if self._text is None:
            object.__setattr__(self, "_text", _print(self.conjunctions))
        assert self._text is not None
        return self._text

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"


def _event_of(given: object) -> Event:
    if not isinstance(given, Mapping):
        raise EventError(f"a filter is asked about an Event or a mapping, not {type(given).__name__}")
    return Event(given)


def _alternatives(other: Filter) -> Disjunction:
    if not isinstance(other, Filter):
        raise FilterError(f"a filter is compared with a Filter, not {type(other).__name__}; see Filter.parse")
    return other.conjunctions


_SURELY_SMALL = 4096  # characters of text times alternatives: canonical text is a few times longer at most


def _check_text(parsed: Filter) -> None:
    """Refuse a filter whose canonical text, expanded, is beyond the limits of the language."""
    size = sum(map(count_constraints, parsed.conjunctions))
    if size > MAX_CONSTRAINTS:
        raise FilterLimitError(
            f"the filter expands to {size} constraints; at most {MAX_CONSTRAINTS} are allowed"
        )
    if len(str(parsed)) > MAX_TEXT_LENGTH:
        raise FilterLimitError(
            f"the filter expands to {len(str(parsed))} characters; at most {MAX_TEXT_LENGTH} are allowed"
        )


def _print(disjunction: Disjunction) -> str:
    if not disjunction:
        return "false"
    if len(disjunction) == 1:
        return print_conjunction(disjunction[0])
    return " or ".join(
        f"({print_conjunction(conjunction)})" if conjunction.types else print_conjunction(conjunction)
        for conjunction in disjunction
    )


# ---------------------------------------------------------------- explanations


@dataclass(frozen=True, slots=True)
class Verdict:
    """A constraint, whether it held, and the value it was held against (None: missing)."""

    constraint: str
    held: bool
    value: Value | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why an event matches a filter or does not: verdicts for each alternative of the filter."""

    filter: Filter
    matched: bool
    alternatives: tuple[tuple[Verdict, ...], ...]

    def __str__(self) -> str:
        lines = [f"{'matches' if self.matched else 'does not match'}: {self.filter}"]
        if not self.alternatives:
            lines.append("  ✗ no event can match this filter")
        for number, verdicts in enumerate(self.alternatives, 1):
            if len(self.alternatives) > 1:
                lines.append(f"  alternative {number}:")
            lines += [_line(verdict) for verdict in verdicts]
        return "\n".join(lines)


def _line(verdict: Verdict) -> str:
    if verdict.value is None:
        shown = "missing"
    elif isinstance(verdict.value, tuple):
        shown = f"[{', '.join(map(print_literal, verdict.value))}]"
    else:
        shown = print_literal(verdict.value)
    return f"  {'✓' if verdict.held else '✗'} {verdict.constraint}    (value: {shown})"


def _verdicts(conjunction: Conjunction, event: Event, registry: TypeRegistry | None) -> Iterator[Verdict]:
    for name in sorted(conjunction.types):
        yield Verdict(f"{print_name(name)}:", is_a(event.type, name, registry), event.type)
    for name in sorted(conjunction.not_types):
        yield Verdict(f"not ({print_name(name)}: true)", not is_a(event.type, name, registry), event.type)
    for name in sorted(conjunction.conditions):
        yield from _condition_verdicts(name, conjunction.conditions[name], event.get(name))


def _condition_verdicts(name: str, condition: Condition, value: Value | None) -> Iterator[Verdict]:
    some = [] if condition.some is None else constraints(name, Condition(condition.some))
    if isinstance(value, tuple) and len(some) > 1:
        some = [" and ".join(some)]  # all of the same element: one verdict
    for text in (*some, *constraints(name, Condition(None, condition.none))):
        (only,) = expand(parse(text))
        yield Verdict(text, only.conditions[name].holds(value), value)


EVERYTHING = Filter(TRUE)
NOTHING = Filter(FALSE)
