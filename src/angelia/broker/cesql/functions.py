"""The built-in functions (specification 3.5): name and arity to signature and meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from angelia.broker.cesql.values import (
    MAX_INTEGER,
    MAX_STRING_LENGTH,
    MIN_INTEGER,
    Failure,
    FaultKind,
    Value,
    cast,
)

__all__ = ["Function", "find_function"]

# The White_Space property of Unicode. Python's `strip()` takes more: the separators U+001C to U+001F.
_WHITESPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


@dataclass(frozen=True, slots=True)
class Function:
    """A function: the types of its parameters (None takes any), of its result, and what it does.

    `rest` is the type of further arguments, if it is variadic.
    """

    parameters: tuple[type | None, ...]
    result: type
    call: Callable[..., Value]
    rest: type | None = None

    def takes(self, arguments: int) -> bool:
        """Whether it can be called with so many arguments."""
        fixed = len(self.parameters)
        return arguments == fixed or (self.rest is not None and arguments > fixed)

    def __call__(self, *arguments: Value) -> Value:
        """The result for arguments of any types, cast to the parameters'; or a `Failure`."""
        return self.call(
            *[
                argument if target is None else cast(argument, target)
                for argument, target in zip(arguments, self._types(len(arguments)), strict=True)
            ]
        )

    def _types(self, arguments: int) -> tuple[type | None, ...]:
        return self.parameters + (self.rest,) * (arguments - len(self.parameters))


def find_function(name: str, arguments: int) -> Function | None:
    """The built-in function of that name (in any case) that takes so many arguments."""
    return next((f for f in FUNCTIONS.get(name.upper(), ()) if f.takes(arguments)), None)


def _failed(message: str, value: Value) -> Failure:
    return Failure(FaultKind.FUNCTION_EVALUATION, message, value)


def _bounded(text: str) -> str:
    if len(text) > MAX_STRING_LENGTH:
        raise _failed(f"the result is longer than {MAX_STRING_LENGTH} characters", "")
    return text


def _join(delimiter: str, *texts: str) -> str:
    length = sum(map(len, texts)) + len(delimiter) * max(len(texts) - 1, 0)
    if length > MAX_STRING_LENGTH:
        raise _failed(f"the result has {length} characters, more than {MAX_STRING_LENGTH}", "")
    return delimiter.join(texts)


def _left(text: str, count: int) -> str:
    if count < 0:
        raise _failed(f"LEFT cannot take {count} characters", text)
    return text[:count]


def _right(text: str, count: int) -> str:
    if count < 0:
        raise _failed(f"RIGHT cannot take {count} characters", text)
    return text[len(text) - count :] if count < len(text) else text


def _substring(text: str, position: int, length: int = MAX_INTEGER) -> str:
    if length < 0:
        raise _failed(f"SUBSTRING cannot take {length} characters", "")
    if abs(position) > len(text):
        raise _failed(f"SUBSTRING cannot begin at {position} in {len(text)} characters", "")
    if position == 0:
        return ""
    start = position - 1 if position > 0 else len(text) + position
    return text[start : start + length]


def _abs(number: int) -> int:
    if number == MIN_INTEGER:
        raise Failure(FaultKind.MATH, f"the absolute value of {number} is not an Integer", MAX_INTEGER)
    return abs(number)


def _can_be(target: type) -> Callable[[Value], bool]:
    def check(value: Value) -> bool:
        try:
            cast(value, target)
        except Failure:
            return False
        return True

    return check


def _as(target: type) -> Callable[[Any], Value]:
    return lambda value: cast(value, target)


FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "LENGTH": (Function((str,), int, len),),
    "CONCAT": (Function((), str, lambda *texts: _join("", *texts), rest=str),),
    "CONCAT_WS": (Function((str,), str, _join, rest=str),),
    "LOWER": (Function((str,), str, lambda text: _bounded(text.lower())),),
    "UPPER": (Function((str,), str, lambda text: _bounded(text.upper())),),
    "TRIM": (Function((str,), str, lambda text: text.strip(_WHITESPACE)),),
    "LEFT": (Function((str, int), str, _left),),
    "RIGHT": (Function((str, int), str, _right),),
    "SUBSTRING": (Function((str, int), str, _substring), Function((str, int, int), str, _substring)),
    "ABS": (Function((int,), int, _abs),),
    "INT": (Function((None,), int, _as(int)),),
    "BOOL": (Function((None,), bool, _as(bool)),),
    "STRING": (Function((None,), str, _as(str)),),
    "IS_INT": (Function((None,), bool, _can_be(int)),),
    "IS_BOOL": (Function((None,), bool, _can_be(bool)),),
}
