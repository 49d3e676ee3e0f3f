r"""The patterns of LIKE (specification 3.4.3): `%` any characters, `_` one, `\%` and `\_` themselves.

A pattern without `_` is pieces with anything between them, found one after the other by the string's
own search. With `_`, all positions of the pattern are followed at once, as the bits of one integer
(the "shift-and" automaton): linear in the value, however the pattern was chosen.
"""

from __future__ import annotations

import re

__all__ = ["LikePattern"]

_PART = re.compile(r"%+|_|(?:\\[%_]|[^%_])+", re.DOTALL)
_ESCAPED = re.compile(r"\\([%_])")


class LikePattern:
    """A compiled pattern: `LikePattern("a%b").matches("a to b")`.

    `runs` are the literal texts between wildcards: the first is a prefix of every match (it may be
    empty), the last a suffix, and those between are contained. `is_plain`: no wildcard is a `_`.
    """

    __slots__ = ("_automaton", "is_plain", "runs")

    def __init__(self, text: str) -> None:
        parts = _PART.findall(text)
        self.runs = _runs(parts)
        self.is_plain = "_" not in parts
        self._automaton = None if self.is_plain else _Automaton(parts)

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is as the pattern says."""
        return _in_order(self.runs, text) if self._automaton is None else self._automaton.accepts(text)


def _literal(part: str) -> str:
    return _ESCAPED.sub(r"\1", part)


def _runs(parts: list[str]) -> tuple[str, ...]:
    runs = [""]
    for part in parts:
        if part == "_" or part[0] == "%":
            runs.append("")
        else:
            runs[-1] = _literal(part)
    return tuple(runs)


def _in_order(pieces: tuple[str, ...], text: str) -> bool:
    first, *between = pieces
    if not between:
        return text == first
    last = between.pop()
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in between:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return at <= end


class _Automaton:
    """Bit i of the state: the text so far can be the first i characters that the pattern asks for."""

    __slots__ = ("_any", "_end", "_loops", "_steps")

    def __init__(self, parts: list[str]) -> None:
        self._steps: dict[str, int] = {}  # by character: the places where the pattern asks for it
        self._any = self._loops = 0  # the places of `_`; the places where a `%` lets us stay
        bit = 1
        for part in parts:
            if part == "_":
                self._any |= bit
                bit <<= 1
            elif part[0] == "%":
                self._loops |= bit
            else:
                for character in _literal(part):
                    self._steps[character] = self._steps.get(character, 0) | bit
                    bit <<= 1
        self._end = bit

    def accepts(self, text: str) -> bool:
        state = 1
        for character in text:
            state = (state & (self._steps.get(character, 0) | self._any)) << 1 | (state & self._loops)
            if not state:
                return False
        return bool(state & self._end)
