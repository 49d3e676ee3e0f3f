"""The values of CESQL, their casts, and what can go wrong with them (specification 3.1, 3.3, 3.7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "CASTS",
    "MAX_INTEGER",
    "MAX_STRING_LENGTH",
    "MIN_INTEGER",
    "ZEROS",
    "Failure",
    "Fault",
    "FaultKind",
    "Value",
    "cast",
    "primitive",
]

Value = str | int | bool

MIN_INTEGER, MAX_INTEGER = -(2**31), 2**31 - 1
MAX_STRING_LENGTH = 64 * 1024

ZEROS: dict[type, Value] = {str: "", int: 0, bool: False}


class FaultKind(StrEnum):
    """The specification's sorts of errors that an evaluation can meet."""

    MATH = "MathError"
    CAST = "CastError"
    MISSING_ATTRIBUTE = "MissingAttributeError"
    MISSING_FUNCTION = "MissingFunctionError"
    FUNCTION_EVALUATION = "FunctionEvaluationError"


class Fault(NamedTuple):
    """An error of an evaluation: a value beside the result, never raised. `column` counts from 1."""

    kind: FaultKind
    message: str
    column: int

    def __str__(self) -> str:
        return f"{self.kind}: {self.message} (column {self.column})"


class Failure(Exception):  # noqa: N818 - it never leaves the evaluation: a `Fault` does
    """An operator or function failed; `value` is what it returns nevertheless."""

    def __init__(self, kind: FaultKind, message: str, value: Value) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.value = value


def primitive(value: Any) -> Value:
    """The value of an attribute as CESQL sees it: what is no primitive of CESQL is a string."""
    if type(value) is str or type(value) is bool:
        return value
    if type(value) is int and MIN_INTEGER <= value <= MAX_INTEGER:
        return value
    return str(value)


# ---------------------------------------------------------------- casts

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,10})")
_NAMES = {str: "a String", int: "an Integer", bool: "a Boolean"}


def _same(value: Any) -> Value:
    return value  # type: ignore[no-any-return]


def _string_to_integer(text: str) -> int:
    parts = _INTEGER.fullmatch(text)
    if parts is not None:
        number = int(parts[1] + parts[2])
        if MIN_INTEGER <= number <= MAX_INTEGER:
            return number
    raise _refused(text, int)


def _string_to_boolean(text: str) -> bool:
    lowered = text[:6].lower()
    if lowered == "true":
        return True
    if lowered == "false":
        return False
    raise _refused(text, bool)


def _refused(text: str, target: type) -> Failure:
    shown = repr(text[:32]) + ("…" if len(text) > 32 else "")
    return Failure(FaultKind.CAST, f"{shown} is not {_NAMES[target]}", ZEROS[target])


def _boolean_to_string(value: bool) -> str:
    return "true" if value else "false"


CASTS: dict[tuple[type, type], Callable[[Any], Value]] = {
    (str, str): _same,
    (int, int): _same,
    (bool, bool): _same,
    (int, str): str,
    (int, bool): bool,
    (bool, int): int,
    (bool, str): _boolean_to_string,
    (str, int): _string_to_integer,
    (str, bool): _string_to_boolean,
}
"""From and to a type. Only casts from a String can fail."""


def cast(value: Value, target: type) -> Any:
    """`value` as a `target`, or a `Failure` of the kind `CastError`."""
    return value if type(value) is target else CASTS[type(value), target](value)
