"""A filter implied by an expression, for routing inside the network.

For every node two filters are derived: one of the events for which it gives true without a fault, one
of those for which it gives false. Each may match too much, never too little. Where filters would grow
beyond `MAX_ALTERNATIVES` or `MAX_LEAVES`, a part of a conjunction is left out, or a disjunction
becomes "everything".

What makes this simple: an event passes only if nothing that was evaluated was at fault. So each
attribute that was read is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

from angelia.broker.cesql.like import LikePattern
from angelia.broker.cesql.tree import (
    REQUIRED,
    Attribute,
    Binary,
    Call,
    Chain,
    Comparison,
    Exists,
    In,
    Like,
    Literal,
    Logic,
    Node,
    Not,
    Step,
)
from angelia.broker.cesql.values import Failure, Value, cast
from angelia.errors import FilterError
from angelia.event import MAX_NAME_LENGTH
from angelia.filter import Filter, attr

__all__ = ["MAX_ALTERNATIVES", "MAX_LEAVES", "Coarse"]

MAX_ALTERNATIVES = 32
MAX_LEAVES = 100

_EVERYTHING = Filter.parse("true")
_NOTHING = Filter.parse("false")

_STRINGS = {"type": "@type", "source": "@source", "subject": "@subject", "id": "@id"}
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_CONTEXT = {**_STRINGS, "time": "@time"}
_UNHELD = frozenset(["specversion", "datacontenttype", "dataschema"])  # no part of an event of ours


class _Ways(NamedTuple):
    """What is implied by a node giving true, and by its giving false."""

    true: Filter
    false: Filter

    def swapped(self, swap: bool = True) -> _Ways:
        return _Ways(self.false, self.true) if swap else self

    def within(self, base: Filter) -> _Ways:
        return _Ways(_both(self.true, base), _both(self.false, base))


_ANYWAY = _Ways(_EVERYTHING, _EVERYTHING)


def _both(left: Filter, right: Filter) -> Filter:
    if left == right or right == _EVERYTHING:
        return left
    fewer = min(left, right, key=lambda part: (part == _EVERYTHING, len(part.conjunctions)))
    if len(left.conjunctions) * len(right.conjunctions) > MAX_ALTERNATIVES:
        return fewer
    try:
        return left & right
    except FilterError:
        return fewer


def _either(left: Filter, right: Filter) -> Filter:
    if _EVERYTHING in (left, right):
        return _EVERYTHING
    either = left | right
    return either if len(either.conjunctions) <= MAX_ALTERNATIVES else _EVERYTHING


class Coarse:
    """Derives filters; `extension` names the event's attribute that holds an extension."""

    def __init__(self, extension: Callable[[str], str] | None = None) -> None:
        self._extension = extension
        self._leaves = 0

    def filter(self, root: Node) -> Filter:
        """A filter implied by the expression giving true without a fault."""
        implied = self._ways(root).true
        try:
            return Filter.parse(str(implied))  # within the limits of the language: it will travel as text
        except FilterError:
            return _EVERYTHING

    # -- nodes

    def _ways(self, node: Node) -> _Ways:
        match node:
            case Literal(value=value):
                return _constant(value)
            case Exists(name=name) if name in REQUIRED:
                return _Ways(_EVERYTHING, _NOTHING)
            case Exists(name=name):
                return self._leaf(self._exists, name)
            case Not(operand=operand):
                return self._ways(operand).swapped()
            case Chain(first=first, steps=steps):
                return self._chain(first, steps)
        base = self._evaluated(node)
        return _Ways(base, base)

    def _chain(self, first: Node, steps: list[Step]) -> _Ways:
        ways, base = self._ways(first), self._evaluated(first)
        for position, step in enumerate(steps):
            base = _both(base, self._evaluated_right(step))
            if isinstance(step, Logic):
                ways = _LOGIC[step.operator](ways, self._ways(step.right)).within(base)
            else:
                ways = (_ANYWAY if position else self._leaf(self._test, first, step)).within(base)
        return ways

    def _evaluated(self, node: Node) -> Filter:
        """What is implied by a node having been evaluated without a fault."""
        match node:
            case Attribute(name=name):
                return self._there(name)
            case Call(function=None):
                return _NOTHING
            case Not() | Call():
                return reduce(_both, map(self._evaluated, node.parts()), _EVERYTHING)
            case Chain(first=first, steps=steps):
                return reduce(_both, map(self._evaluated_right, steps), self._evaluated(first))
        return _EVERYTHING

    def _evaluated_right(self, step: Step) -> Filter:
        match step:
            case Logic(operator="XOR", right=right) | Binary(right=right):
                return self._evaluated(right)
            case In(elements=elements):
                return self._evaluated(elements[0])
        return _EVERYTHING

    # -- leaves: an attribute and literals

    def _leaf(self, derive: Callable[..., _Ways], *parts: object) -> _Ways:
        self._leaves += 1
        if self._leaves > MAX_LEAVES:
            return _ANYWAY
        try:
            return derive(*parts)
        except FilterError:  # a literal that the filter language cannot hold
            return _ANYWAY

    def _test(self, left: Node, step: Step) -> _Ways:
        match left, step:
            case Attribute(name=name), Comparison(operator=operator, right=Literal(value=str(text))):
                return self._equal(name, text).swapped(operator != "=")
            case Literal(value=value), Comparison(operator=operator, right=Attribute(name=name)):
                text = cast(value, str)
                return (self._equal(name, text) if name in _STRINGS else _ANYWAY).swapped(operator != "=")
            case Attribute(name=name), Like(pattern=pattern, negated=negated):
                return self._like(name, pattern).swapped(negated)
            case Attribute(name=name), In(elements=elements, negated=negated) if name in _STRINGS:
                return self._in(name, elements).swapped(negated)
        return _ANYWAY

    def _equal(self, name: str, text: str) -> _Ways:
        if name in _STRINGS:
            held = attr(_STRINGS[name])
            return _Ways(held == text, held != text)
        if name in _CONTEXT or (key := self._name(name)) is None:
            return _ANYWAY
        same = reduce(_either, [attr(key) == value for value in _written(text)])
        return _Ways(same, ~same)

    def _like(self, name: str, pattern: LikePattern) -> _Ways:
        first, *rest = pattern.runs
        if not rest:
            return self._equal(name, first)
        if name not in _STRINGS:
            return _ANYWAY
        held, last = attr(_STRINGS[name]), rest.pop()
        ends = [held.prefix(first)] * bool(first) + [held.suffix(last)] * bool(last)
        asked = ends + [held.contains(text) for text in rest if text]
        exact = pattern.is_plain and len(asked) == 1
        implied = reduce(_both, asked, _EVERYTHING)
        return _Ways(implied, ~implied if exact else _EVERYTHING)

    def _in(self, name: str, elements: list[Node]) -> _Ways:
        if not all(isinstance(element, Literal) for element in elements):
            return _ANYWAY
        texts = [cast(element.value, str) for element in elements if isinstance(element, Literal)]
        listed = attr(_STRINGS[name]).in_(*texts)
        return _Ways(listed, ~listed)

    # -- names

    def _name(self, name: str) -> str | None:
        if name in _CONTEXT:
            return _CONTEXT[name]
        if name in _UNHELD or self._extension is None:
            return None
        key = self._extension(name)
        return key if len(key) <= MAX_NAME_LENGTH else None  # longer ones no event has

    def _exists(self, name: str) -> _Ways:
        """An event may hold, by the name of an extension, what is none: a list, say. Then it lacks it."""
        there = self._there(name)
        return _Ways(there, ~there if name in _CONTEXT else _EVERYTHING)

    def _there(self, name: str) -> Filter:
        key = self._name(name)
        return _EVERYTHING if key is None else attr(key).exists()


def _constant(value: Value) -> _Ways:
    try:
        return _Ways(_EVERYTHING, _NOTHING).swapped(not cast(value, bool))
    except Failure:
        return _Ways(_NOTHING, _NOTHING)


def _written(text: str) -> list[Value]:
    """The values of extensions that read as `text` when they are cast to a String."""
    values: list[Value] = [text]
    if text in ("true", "false"):
        values.append(text == "true")
    if len(text) <= 20 and _INTEGER.fullmatch(text):  # that an event can hold, if it is of 64 bits
        values.append(int(text))
    return values


_LOGIC: dict[str, Callable[[_Ways, _Ways], _Ways]] = {
    "AND": lambda a, b: _Ways(_both(a.true, b.true), _either(a.false, b.false)),
    "OR": lambda a, b: _Ways(_either(a.true, b.true), _both(a.false, b.false)),
    "XOR": lambda a, b: _Ways(
        _either(_both(a.true, b.false), _both(a.false, b.true)),
        _either(_both(a.true, b.true), _both(a.false, b.false)),
    ),
}
