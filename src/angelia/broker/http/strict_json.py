"""JSON from strangers: UTF-8, no name twice, no NaN, not too deep."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from angelia.event import MAX_DEPTH

__all__ = ["JsonError", "dumps", "loads"]


class JsonError(ValueError):
    """A text is not JSON, or not JSON that can be taken."""


def loads(body: bytes | str) -> Any:
    """The value of a JSON document, or a `JsonError`."""
    try:
        text = body if isinstance(body, str) else body.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except UnicodeDecodeError as error:
        raise JsonError(f"not valid UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"not valid JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise _too_deep() from None
    except JsonError:
        raise
    except ValueError:  # Python refuses to read an integer of thousands of digits
        raise JsonError("not usable JSON: a number has too many digits") from None
    _check_depth(value)
    return value


def dumps(value: Any) -> str:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"not usable JSON: an object has the member {twice[:64]!r} twice")
    return found


def _constant(text: str) -> NoReturn:
    raise JsonError(f"not valid JSON: {text} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise JsonError(f"not usable JSON: the number {text[:32]} is too large")
    return value


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH + 2:  # the envelope and a scalar at the bottom come on top
            raise _too_deep()
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]


def _too_deep() -> JsonError:
    return JsonError(f"not usable JSON: nested deeper than {MAX_DEPTH} levels")
