"""Compiled expressions: evaluated against an event, or turned into a filter for routing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from angelia.broker.cesql.coarse import Coarse
from angelia.broker.cesql.parser import parse
from angelia.broker.cesql.tree import MISSING, Call, Node, Run
from angelia.broker.cesql.values import Fault, Value
from angelia.filter import Filter

__all__ = ["Expression", "compile_expression"]


def compile_expression(text: str) -> Expression:
    """The expression that a text denotes, or a `CesqlError` that points at the column."""
    return Expression(text)


class Expression:
    """A CESQL expression: `compile_expression("sequence > 10").matches({"sequence": "11"})`.

    The attributes given to it are those of a CloudEvent, context and extensions: strings, integers and
    booleans, with timestamps and URIs as strings. An attribute that is None counts as missing.
    """

    __slots__ = ("_root", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._root = parse(text)

    def evaluate(self, attributes: Mapping[str, Value]) -> tuple[Value, Fault | None]:
        """The value and the first error, if any: with one, evaluation stops ("fail fast")."""
        value, faults = self._run(attributes, fail_fast=True)
        return value, faults[0] if faults else None

    def evaluate_completely(self, attributes: Mapping[str, Value]) -> tuple[Value, list[Fault]]:
        """The value and all errors: evaluation goes on with what failed parts return."""
        return self._run(attributes, fail_fast=False)

    def matches(self, attributes: Mapping[str, Value]) -> bool:
        """Whether an event passes, as a filter: the value is the Boolean true, and no error was met."""
        value, faults = self._run(attributes, fail_fast=True)
        return value is True and not faults

    def coarse_filter(self, extension: Callable[[str], str] | None = None) -> Filter:
        """A filter that every event matches which the expression matches, for routing.

        It sees `type`, `source`, `subject`, `id` and whether there is a `time`. `extension` gives the
        name of an event's attribute that holds an extension, if extensions are held so. What the
        filter language cannot say is left out: at worst, the filter matches everything.

        So the door must show an event's context as it is, without inventing a `type`, and of those
        attributes the strings, integers and booleans, as they are.
        """
        return Coarse(extension).filter(self._root)

    @property
    def faults(self) -> list[Fault]:
        """Errors known before any event is seen: calls of functions that do not exist."""
        calls = (node for node in _walk(self._root) if isinstance(node, Call))
        return [call.missing_function() for call in calls if call.function is None]

    def _run(self, attributes: Mapping[str, Value], fail_fast: bool) -> tuple[Value, list[Fault]]:
        run = Run(attributes, fail_fast)
        value = self._root.evaluate(run)
        return (False if value is MISSING else value), run.faults  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"compile_expression({self.text!r})"


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts():
        yield from _walk(part)
