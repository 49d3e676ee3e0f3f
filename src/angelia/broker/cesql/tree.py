# ruff: noqa: D102 - a method that overrides another does what that one says
"""Expressions as trees that evaluate themselves (specification 3.2 to 3.6).

Operators of one precedence are a `Chain`: a first operand and steps from left to right. So the depth
of a tree is that of its parentheses, whatever the length of `a OR b OR …`.

A node gives a value always. What goes wrong on the way is noted in the `Run`; an operator with an
operand that is missing, cannot be cast or (failing fast) was at fault gives the zero value of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from angelia.broker.cesql.functions import Function
from angelia.broker.cesql.like import LikePattern
from angelia.broker.cesql.values import (
    MAX_INTEGER,
    MIN_INTEGER,
    ZEROS,
    Failure,
    Fault,
    FaultKind,
    Value,
    cast,
    primitive,
)

__all__ = [
    "NEGATION",
    "REQUIRED",
    "Arithmetic",
    "Attribute",
    "Binary",
    "Call",
    "Chain",
    "Comparison",
    "Exists",
    "In",
    "Like",
    "Literal",
    "Logic",
    "Node",
    "Not",
    "Ordering",
    "Run",
    "Step",
]

REQUIRED = frozenset(["id", "source", "specversion", "type"])


class _Missing:
    """What an attribute that the event does not have gives to the operator it stands in."""


MISSING = _Missing()
Operand = Value | _Missing


class Run:
    """One evaluation: the event's attributes and the faults met so far."""

    __slots__ = ("attributes", "fail_fast", "faults")

    def __init__(self, attributes: Mapping[str, Any], fail_fast: bool) -> None:
        self.attributes = attributes
        self.fail_fast = fail_fast
        self.faults: list[Fault] = []

    @property
    def stopped(self) -> bool:
        """Whether a fault ended the evaluation."""
        return self.fail_fast and bool(self.faults)

    def failed(self, failure: Failure, column: int) -> Value:
        """Note a failure; the value that it leaves."""
        self.faults.append(Fault(failure.kind, failure.message, column))
        return failure.value

    def truth(self, value: Operand, column: int) -> bool | None:
        """`value` as a Boolean, or None if there is none."""
        if value is MISSING or self.stopped:
            return None
        try:
            return cast(value, bool)  # type: ignore[arg-type,no-any-return]
        except Failure as failure:
            self.failed(failure, column)
            return None


# ---------------------------------------------------------------- nodes


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression; `column` is where it, or its operator, stands."""

    column: int

    def evaluate(self, run: Run) -> Operand:
        """Its value for the event of a run."""
        raise NotImplementedError

    def parts(self) -> Iterator[Node]:
        """The nodes right below."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """An integer, a string, `TRUE` or `FALSE`."""

    value: Value

    def evaluate(self, run: Run) -> Operand:
        return self.value


@dataclass(frozen=True, slots=True)
class Attribute(Node):
    """The value of an attribute."""

    name: str

    def evaluate(self, run: Run) -> Operand:
        value = run.attributes.get(self.name)
        if value is None:
            message = f"the event has no attribute {self.name}"
            run.faults.append(Fault(FaultKind.MISSING_ATTRIBUTE, message, self.column))
            return MISSING
        return primitive(value)


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """`EXISTS name`. Attributes that every CloudEvent has are there always."""

    name: str

    def evaluate(self, run: Run) -> Operand:
        return self.name in REQUIRED or run.attributes.get(self.name) is not None


@dataclass(frozen=True, slots=True)
class Not(Node):
    """`NOT operand`"""

    operand: Node

    def evaluate(self, run: Run) -> Operand:
        truth = run.truth(self.operand.evaluate(run), self.column)
        return False if truth is None else not truth

    def parts(self) -> Iterator[Node]:
        yield self.operand


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function's invocation; `function` is None where there is no such function."""

    name: str
    function: Function | None
    arguments: list[Node]

    def missing_function(self) -> Fault:
        """The fault of a call that cannot be dispatched, whatever the event."""
        count = f"{len(self.arguments)} argument{'' if len(self.arguments) == 1 else 's'}"
        message = f"there is no function {self.name.upper()} of {count}"
        return Fault(FaultKind.MISSING_FUNCTION, message, self.column)

    def evaluate(self, run: Run) -> Operand:
        if self.function is None:
            run.faults.append(self.missing_function())
            return False
        values: list[Any] = []
        for argument in self.arguments:
            values.append(argument.evaluate(run))
            if run.stopped:
                break
        if run.stopped or MISSING in values:
            return ZEROS[self.function.result]
        try:
            return self.function(*values)
        except Failure as failure:
            return self._fallback(run, failure)

    def _fallback(self, run: Run, failure: Failure) -> Value:
        """A function's own failure says what it returns; a cast of an argument does not."""
        assert self.function is not None
        value = run.failed(failure, self.column)
        return ZEROS[self.function.result] if failure.kind is FaultKind.CAST else value

    def parts(self) -> Iterator[Node]:
        yield from self.arguments


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """`first step step …`, evaluated from left to right."""

    first: Node
    steps: list[Step]

    def evaluate(self, run: Run) -> Operand:
        value = self.first.evaluate(run)
        for step in self.steps:
            value = step.apply(value, run)
        return value

    def parts(self) -> Iterator[Node]:
        yield self.first
        for step in self.steps:
            yield from step.parts()


# ---------------------------------------------------------------- steps


@dataclass(frozen=True, slots=True)
class Step:
    """An operator with what stands to its right."""

    column: int

    def apply(self, left: Operand, run: Run) -> Value:
        """The operator's value, given what stands to its left."""
        raise NotImplementedError

    def parts(self) -> Iterator[Node]:
        """The nodes right below."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Logic(Step):
    """`AND`, `OR` and `XOR`. The first two look to their right only where it matters."""

    operator: str
    right: Node

    def apply(self, left: Operand, run: Run) -> Value:
        truth = run.truth(left, self.column)
        if truth is None:
            return False
        if truth is _DECIDED_BY.get(self.operator):
            return truth
        other = run.truth(self.right.evaluate(run), self.column)
        if other is None:
            return False
        return truth is not other if self.operator == "XOR" else other

    def parts(self) -> Iterator[Node]:
        yield self.right


_DECIDED_BY = {"AND": False, "OR": True}


@dataclass(frozen=True, slots=True)
class Binary(Step):
    """An operator that always evaluates both sides."""

    operator: str
    right: Node
    result: ClassVar[type] = bool

    def apply(self, left: Operand, run: Run) -> Value:
        zero = ZEROS[self.result]
        if run.stopped:
            return zero
        right = self.right.evaluate(run)
        if run.stopped or left is MISSING or right is MISSING:
            return zero
        try:
            return self.combine(left, right)
        except Failure as failure:
            run.failed(failure, self.column)
            return zero

    def combine(self, left: Any, right: Any) -> Value:
        """The result for two values, or a `Failure`."""
        raise NotImplementedError

    def parts(self) -> Iterator[Node]:
        yield self.right


class Comparison(Binary):
    """`=`, `!=`, `<>`: of three types, so that the right side decides what the left is cast to."""

    __slots__ = ()

    def combine(self, left: Any, right: Any) -> Value:
        equal: bool = cast(left, type(right)) == right
        return equal is (self.operator == "=")


class Ordering(Binary):
    """`<`, `<=`, `>`, `>=`: of Integers only."""

    __slots__ = ()

    def combine(self, left: Any, right: Any) -> Value:
        return _ORDERINGS[self.operator](cast(left, int), cast(right, int))


class Arithmetic(Binary):
    """`+`, `-`, `*`, `/`, `%`: of Integers only."""

    __slots__ = ()
    result: ClassVar[type] = int

    def combine(self, left: Any, right: Any) -> Value:
        return _ARITHMETIC[self.operator](cast(left, int), cast(right, int))


@dataclass(frozen=True, slots=True)
class Like(Step):
    """`LIKE pattern` and `NOT LIKE pattern`."""

    pattern: LikePattern
    negated: bool

    def apply(self, left: Operand, run: Run) -> Value:
        if run.stopped or left is MISSING:
            return False
        return self.pattern.matches(cast(left, str)) is not self.negated  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class In(Step):
    """`IN (…)` and `NOT IN (…)`: `=` with one element after the other, until one is equal.

    Here it is the left side that decides what the elements are cast to.
    """

    elements: list[Node]
    negated: bool

    def apply(self, left: Operand, run: Run) -> Value:
        if run.stopped or left is MISSING:
            return False
        before = len(run.faults)
        for element in self.elements:
            if self._equals(left, element, run):
                return not self.negated
            if run.stopped:
                break
        return self.negated if len(run.faults) == before else False

    def _equals(self, left: Any, element: Node, run: Run) -> bool:
        value = element.evaluate(run)
        if value is MISSING or run.stopped:
            return False
        try:
            return cast(value, type(left)) == left  # type: ignore[arg-type,no-any-return]
        except Failure as failure:
            run.failed(failure, element.column)
            return False

    def parts(self) -> Iterator[Node]:
        yield from self.elements


# ---------------------------------------------------------------- Integers


def _fits(number: int) -> int:
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        raise Failure(FaultKind.MATH, f"{number} is beyond the 32 bits of an Integer", 0)
    return number


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise Failure(FaultKind.MATH, f"{left} is divided by zero", 0)
    size = abs(left) // abs(right)
    return _fits(size if (left < 0) is (right < 0) else -size)


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise Failure(FaultKind.MATH, f"{left} is divided by zero", 0)
    size = abs(left) % abs(right)
    return -size if left < 0 else size


NEGATION = Function((int,), int, lambda number: _fits(-number))

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: _fits(left + right),
    "-": lambda left, right: _fits(left - right),
    "*": lambda left, right: _fits(left * right),
    "/": _quotient,
    "%": _remainder,
}

_ORDERINGS: dict[str, Callable[[int, int], bool]] = {
    "<": int.__lt__,
    "<=": int.__le__,
    ">": int.__gt__,
    ">=": int.__ge__,
}
