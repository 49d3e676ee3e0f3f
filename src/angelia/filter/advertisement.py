"""Advertisements: which events somebody may publish (SIENA 3.4), and the relations of 3.5 and 3.6.

An advertisement is a list of constraints that is read the other way round than a filter's: every
attribute of an event must be allowed by a constraint on it, and several constraints on one
attribute are alternatives. With the paper's signs:

| paper                    | here                  |                                          |
|--------------------------|-----------------------|------------------------------------------|
| n ≺ f (N, S)             | `f.matches(n)`        | the subscription matches                 |
| n ≺ a (N, A)             | `a.advertises(n)`     | the advertisement allows the event       |
| f2 ≺ f1 (S, S)           | `f1.covers(f2)`       | all that f2 matches, f1 matches          |
| a2 ≺ a1 (A, A)           | `a1.covers(a2)`       | all that a2 allows, a1 allows            |
| f ≺ a (S, A)             | `a.overlaps(f)`       | some event is allowed and matches        |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NoReturn

from angelia.errors import FilterSyntaxError
from angelia.event import Event
from angelia.filter.conjunction import Condition, Conjunction, is_a, within
from angelia.filter.domain import ANY, Domain, in_any, united
from angelia.filter.filter import Filter
from angelia.filter.parser import And, Constant, Constraint, Node, Typed, parse, print_name
from angelia.filter.printer import constraints

if TYPE_CHECKING:
    from angelia.types import TypeRegistry

__all__ = ["Advertisement"]


class Advertisement:
    """What a publisher may publish: `Advertisement.parse('what = "alarm" and exists level')`.

    `allowed` has the alternatives of each attribute. It is None if every attribute may have any
    value: `flights.Quote: true` advertises all events of a type. A part of the context (`@source`)
    that is not mentioned is free.
    """

    __slots__ = ("_hash", "_united", "allowed", "type")

    type: str | None
    allowed: Mapping[str, tuple[Domain, ...]] | None
    _united: Mapping[str, tuple[Domain, ...]]
    _hash: int

    def __init__(self, constraints: Iterable[Constraint] | None, type: str | None = None) -> None:  # noqa: A002
        alternatives: dict[str, list[Domain]] = {}
        for constraint in constraints or ():
            alternatives.setdefault(constraint.name, []).append(constraint.domain)
        allowed = {name: _maximal(domains) for name, domains in sorted(alternatives.items())}
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "allowed", None if constraints is None else allowed)
        object.__setattr__(self, "_united", {name: united(domains) for name, domains in allowed.items()})
        object.__setattr__(self, "_hash", hash((type, constraints is None, frozenset(self._united.items()))))

    @classmethod
    def parse(cls, text: str) -> Advertisement:
        """An advertisement from constraints joined by `and`, after a type or not."""
        node = parse(text)
        name = None
        if isinstance(node, Typed):
            name, node = node.type, node.part
        if node == Constant(True):
            return cls(None, name)
        parts: tuple[Node, ...] = node.parts if isinstance(node, And) else (node,)
        plain = [part for part in parts if isinstance(part, Constraint)]
        if len(plain) < len(parts):
            raise FilterSyntaxError(
                "an advertisement is a list of constraints joined by and, without or and not; "
                "several constraints on one attribute are alternatives",
                text,
            )
        return cls(plain, name)

    def advertises(self, event: Event, registry: TypeRegistry | None = None) -> bool:
        """Whether every attribute of the event is allowed, with all its values if it is a list."""
        if self.type is not None and not is_a(event.type, self.type, registry):
            return False
        if self.allowed is None:
            return True
        context = [name for name in self.allowed if name.startswith("@")]
        return all(self._allows(name, event) for name in (*event, *context))

    def _allows(self, name: str, event: Event) -> bool:
        value = event.get(name)
        if value is None:
            return True
        values = value if isinstance(value, tuple) else (value,)
        return all(in_any(element, self._alternatives(name)) for element in values)

    def _alternatives(self, name: str) -> tuple[Domain, ...]:
        """What an attribute may be: nothing if it is not mentioned, but anything of the context."""
        free = (ANY,) if self.allowed is None or name.startswith("@") else ()
        return self._united.get(name, free)

    def covers(self, other: Advertisement, registry: TypeRegistry | None = None) -> bool:
        """Whether this allows every event that `other` allows."""
        if self.type is not None and not is_a(other.type, self.type, registry):
            return False
        if self.allowed is None or other.allowed is None:
            return self.allowed is None
        names = {*other.allowed, *(name for name in self.allowed if name.startswith("@"))}
        return all(
            within(domain, self._alternatives(name)) for name in names for domain in other._alternatives(name)
        )

    def overlaps(self, subscription: Filter, registry: TypeRegistry | None = None) -> bool:
        """Whether some event is allowed by this and matched by the subscription."""
        return any(self._meets(wanted, registry) for wanted in subscription.conjunctions)

    def _meets(self, wanted: Conjunction, registry: TypeRegistry | None) -> bool:
        mine = self.type
        for other in wanted.types:  # of most, that is all there is to ask
            if mine is not None and not (is_a(mine, other, registry) or is_a(other, mine, registry)):
                return False
        types = wanted.types | {mine} if mine is not None else wanted.types
        if not Conjunction(types=types, not_types=wanted.not_types).is_possible(registry):
            return False
        return all(
            condition.some is None  # an event without the attribute will do
            or any(
                condition.intersection(Condition(domain)) is not None for domain in self._alternatives(name)
            )
            for name, condition in wanted.conditions.items()
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Advertisement):
            return NotImplemented
        return (self.type, self.allowed is None, self._united) == (
            other.type,
            other.allowed is None,
            other._united,
        )

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an Advertisement is immutable")

    def __reduce__(self) -> tuple[object, ...]:
        flat = (
            None
            if self.allowed is None
            else [Constraint(name, domain) for name, domains in self.allowed.items() for domain in domains]
        )
        return Advertisement, (flat, self.type)

    def __str__(self) -> str:
        """Text that `Advertisement.parse` reads back as an equal one."""
        texts = [
            text
            for name, domains in (self.allowed or {}).items()
            for domain in domains
            for text in constraints(name, Condition(domain))
        ]
        body = " and ".join(texts) or "true"
        return body if self.type is None else f"{print_name(self.type)}: {body}"

    def __repr__(self) -> str:
        return f"Advertisement({str(self)!r})"


def _maximal(domains: list[Domain]) -> tuple[Domain, ...]:
    """The alternatives that are not part of another: as written, since each is one constraint."""
    unique = list(dict.fromkeys(domains))
    return tuple(
        domain for domain in unique if not any(other.covers(domain) and other != domain for other in unique)
    )
