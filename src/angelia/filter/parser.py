"""The filter language: text to syntax tree (`docs/filters.md` is its specification).

    filter      = [ type ":" ] [ or ]          a type alone, "T:", stands for all its events
    or          = and { "or" and }
    and         = not { "and" not }
    not         = "not" not | "(" filter ")" | "true" | "false" | "exists" name | constraint
    constraint  = name operator

A recursive-descent parser over a list of tokens. Text comes from strangers: its length, its depth
and the number of its constraints are limited, and whatever is not a filter is a `FilterSyntaxError`
that points at the column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, NoReturn

from angelia.errors import EventError, FilterError, FilterLimitError, FilterSyntaxError
from angelia.event import CONTEXT, MAX_NAME_LENGTH, Scalar, format_timestamp, parse_timestamp
from angelia.filter.domain import ANY, Domain
from angelia.filter.operators import OPERATORS, between, of_kind, one_of

__all__ = [
    "MAX_CONSTRAINTS",
    "MAX_NESTING",
    "MAX_TEXT_LENGTH",
    "And",
    "Constant",
    "Constraint",
    "Node",
    "Not",
    "Or",
    "Typed",
    "checked_name",
    "parse",
    "print_literal",
    "print_name",
    "split_sequence",
]

MAX_TEXT_LENGTH = 64 * 1024
MAX_NESTING = 50
MAX_CONSTRAINTS = 1_000


# ---------------------------------------------------------------- the syntax tree


@dataclass(frozen=True, slots=True)
class Constraint:
    """A name and the domain that its operator denotes."""

    name: str
    domain: Domain


@dataclass(frozen=True, slots=True)
class Constant:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Not:
    """`not part`"""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """`part and part …`"""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """`part or part …`"""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Typed:
    """`type: part`"""

    type: str
    part: Node


Node = Constraint | Constant | Not | And | Or | Typed


# ---------------------------------------------------------------- tokens


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    value: Scalar | None = None


_KEYWORDS = frozenset(
    [
        "and",
        "or",
        "not",
        "in",
        "is",
        "between",
        "exists",
        "prefix",
        "suffix",
        "contains",
        "matches",
        "true",
        "false",
    ]
)
_WORD = r"[^\W\d][\w-]*(?:\.[\w-]+)*"
_TOKEN = re.compile(
    rf"""\s*(?:
      (?P<timestamp> t"[^"\\]*")
    | (?P<string>    "(?:[^"\\]|\\.)*")
    | (?P<quoted>    `(?:[^`]|``)+`)
    | (?P<number>    [+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])
    | (?P<word>      @?{_WORD})
    | (?P<symbol>    <=|>=|!=|[=<>(),:])
    | (?P<end>       \Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_BARE_NAME = re.compile(_WORD)
_INTEGER = re.compile(r"[+-]?\d+")

# What people write who know another language, and what it is called here.
_HINTS = {
    "'": 'strings are written in double quotes: "…"',
    '"': "this string does not end",
    "`": "this quoted name does not end",
    "&": "write and",
    "|": "write or",
    "!": "write != or not",
    "==": "write = for equality",
    "<>": "write != for inequality",
    "~": 'write matches "…" for a regular expression',
}


_OPERATOR_HINTS = {
    "not": " (write not x in (…))",
    ":": " (a type stands at the start of a filter, or of a part of it in parentheses)",
}


def _tokens(text: str) -> Iterator[_Token]:
    """One after the other: what is wrong at the start is refused without reading the rest."""
    kind, position = "", 0
    while kind != "end":
        match = _TOKEN.match(text, position)
        if match is None:
            _refuse_character(text, position)
        kind = match.lastgroup or ""
        start, position = match.start(kind), match.end()
        yield _Token(kind, match[kind], start, _literal(kind, match[kind], text, start))


def _refuse_character(text: str, position: int) -> NoReturn:
    position += len(text[position:]) - len(text[position:].lstrip())
    hint = _HINTS.get(text[position], "")
    found = f"unexpected character {text[position]!r}"
    raise FilterSyntaxError(f"{found}: {hint}" if hint else found, text, position)


def _literal(kind: str, token: str, text: str, start: int) -> Scalar | None:
    """The value of a literal token."""
    read = _LITERALS.get(kind)
    if read is None:
        return None
    try:
        return read(token)
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, EventError) else f"this {kind} is not valid"
        raise FilterSyntaxError(reason, text, start) from None


def _read_number(token: str) -> int | float:
    return int(token) if _INTEGER.fullmatch(token) else float(token)


def _read_string(token: str) -> str:
    # The escapes are those of JSON, and a raw line break or tab is as good as an escaped one.
    value = json.loads(token, strict=False)
    assert isinstance(value, str)
    value.encode()
    return value


_LITERALS: dict[str, Callable[[str], Scalar]] = {
    "timestamp": lambda token: parse_timestamp(token[2:-1]),
    "string": _read_string,
    "number": _read_number,
    "quoted": lambda token: token[1:-1].replace("``", "`"),
}


# ---------------------------------------------------------------- the parser


def parse(text: str) -> Node:
    """The syntax tree of a filter, or a `FilterSyntaxError`."""
    return _parser(text).parse()


def split_sequence(text: str) -> list[tuple[int, int]]:
    """Where each filter of `filter then filter …` starts and ends, or a `FilterSyntaxError`."""
    return _parser(text).sequence()


def _parser(text: str) -> _Parser:
    if not isinstance(text, str):
        raise FilterError(f"a filter is a text, not {type(text).__name__}")
    if len(text) > MAX_TEXT_LENGTH:
        raise FilterLimitError(
            f"the filter has {len(text)} characters; at most {MAX_TEXT_LENGTH} are allowed",
            text,
            MAX_TEXT_LENGTH,
        )
    return _Parser(text)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.unread = _tokens(text)
        self.tokens = list(islice(self.unread, 2))
        self.index = 0
        self.depth = 0
        self.constraints = 0

    # ------------------------------------------------ moving over tokens

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def advance(self) -> None:
        """Go on to the next token. Of those to come, one is always read."""
        self.index += 1
        if len(self.tokens) < self.index + 2:
            self.tokens.extend(islice(self.unread, 1))

    def take(self) -> _Token:
        token = self.tokens[self.index]
        self.advance()
        return token

    def skip(self, text: str) -> bool:
        """Take the next token if it is this keyword or symbol."""
        if self.token.text == text and self.token.kind in ("word", "symbol"):
            self.advance()
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.skip(text):
            raise self.failure(f"expected {text!r}")

    def failure(self, message: str) -> FilterSyntaxError:
        """The error that says what was expected here and what was found."""
        token = self.token
        found = "the end" if token.kind == "end" else repr(token.text[:40])
        previous = self.tokens[self.index - 1].text if self.index else ""
        hint = _HINTS.get(previous + token.text, "") if previous + token.text in ("==", "<>") else ""
        hint = f"; {hint}" if hint else ""
        return FilterSyntaxError(f"{message}, found {found}{hint}", self.text, token.start)

    # ------------------------------------------------ the grammar

    def parse(self) -> Node:
        if self.token.kind == "end":
            raise self.failure("expected a filter (write true for one that matches every event)")
        node = self.filter()
        if self.token.kind != "end":
            raise self.failure("expected and, or, or the end of the filter")
        return node

    def sequence(self) -> list[tuple[int, int]]:
        """A filter that is complete can be followed by `then`; elsewhere that is a name like others."""
        spans: list[tuple[int, int]] = []
        while not spans or self.skip("then"):
            if self.token.kind == "end":
                raise self.failure("expected a filter")
            start = self.token.start
            self.filter()
            spans.append((start, self.token.start))
        if self.token.kind != "end":
            raise self.failure("expected and, or, then, or the end of the pattern")
        return spans

    def filter(self) -> Node:
        following = self.tokens[self.index + 1] if self.token.kind != "end" else self.token
        if following.text != ":" or following.kind != "symbol":
            return self.alternatives()
        if self.token.text.startswith("@"):
            raise self.failure("expected an event type")
        self.count()
        name = self.name("an event type")
        self.expect(":")
        if self.token.kind == "end" or self.token.text == ")" or self.at_then():
            return Typed(name, Constant(True))
        return Typed(name, self.alternatives())

    def at_then(self) -> bool:
        """Whether the next token is the word between the filters of a sequence, not an attribute's name."""
        if self.token.text != "then" or self.token.kind != "word":
            return False
        following = self.tokens[self.index + 1].text
        return following not in ("between", "in", "is", *OPERATORS)

    def alternatives(self) -> Node:
        parts = [self.conjunction()]
        while self.skip("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def conjunction(self) -> Node:
        parts = [self.negation()]
        while self.skip("and"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def negation(self) -> Node:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise FilterLimitError(
                f"the filter is nested deeper than {MAX_NESTING} levels", self.text, self.token.start
            )
        try:
            if self.skip("not"):
                return Not(self.negation())
            if self.skip("("):
                node = self.filter()
                self.expect(")")
                return node
            return self.primary()
        finally:
            self.depth -= 1

    def primary(self) -> Node:
        if self.skip("true"):
            return Constant(True)
        if self.skip("false"):
            return Constant(False)
        self.count()
        if self.skip("exists"):
            return Constraint(self.name(), ANY)
        return Constraint(self.name(), self.operator())

    def count(self) -> None:
        self.constraints += 1
        if self.constraints > MAX_CONSTRAINTS:
            raise FilterLimitError(
                f"a filter has at most {MAX_CONSTRAINTS} constraints; "
                "use in (…) for several values of one attribute, or several filters",
                self.text,
                self.token.start,
            )

    def name(self, wanted: str = "an attribute name") -> str:
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.text not in _KEYWORDS):
            name = self.take().value if token.kind == "quoted" else self.take().text
            assert isinstance(name, str)
            if token.kind == "word" and name.startswith("@") and name[1:] not in CONTEXT:
                known = ", ".join(f"@{context}" for context in CONTEXT)
                raise FilterSyntaxError(
                    f"{name} is not part of an event's context ({known})", self.text, token.start
                )
            try:
                return checked_name(name) if token.kind == "quoted" or name[0] != "@" else name
            except FilterSyntaxError as error:
                raise type(error)(error.message, self.text, token.start) from None
        hint = " (in backquotes if it is a keyword)" if token.text in _KEYWORDS else ""
        raise self.failure(f"expected {wanted}{hint}")

    def operator(self) -> Domain:
        token = self.token
        try:
            if self.skip("between"):
                low = self.value()
                self.expect("and")
                return between(low, self.value())
            if self.skip("in"):
                return one_of(self.values())
            if self.skip("is"):
                return of_kind(self.word())
            if token.kind in ("word", "symbol") and token.text in OPERATORS:
                self.advance()
                return OPERATORS[token.text](self.value())
        except FilterSyntaxError:
            raise
        except FilterError as error:
            last = self.tokens[self.index - 1]
            at = last if last.kind in _LITERALS else token
            raise FilterSyntaxError(str(error), self.text, at.start) from None
        hint = _OPERATOR_HINTS.get(token.text, "")
        raise self.failure(
            f"expected an operator (= != < <= > >= between in is prefix suffix contains matches){hint}"
        )

    def word(self) -> str:
        if self.token.kind != "word":
            raise self.failure("expected a kind of value (string, number, boolean or timestamp)")
        return self.take().text

    def values(self) -> list[Scalar]:
        self.expect("(")
        values = [self.value()]
        while self.skip(","):
            values.append(self.value())
        self.expect(")")
        return values

    def value(self) -> Scalar:
        token = self.token
        if token.kind in ("string", "number", "timestamp"):
            self.advance()
            assert token.value is not None
            return token.value
        if token.kind == "word" and token.text in ("true", "false"):
            self.advance()
            return token.text == "true"
        raise self.failure('expected a value: "text", a number, true, false, or t"2026-01-01T00:00:00Z"')


# ---------------------------------------------------------------- and back


def checked_name(name: object) -> str:
    """A name, of an attribute or a type, that can be written in a filter; else a `FilterSyntaxError`."""
    if not isinstance(name, str):
        raise FilterSyntaxError(f"a name is a string, not {type(name).__name__}")
    if len(name) > MAX_NAME_LENGTH:
        raise FilterLimitError(f"a name has at most {MAX_NAME_LENGTH} characters, not {len(name)}")
    if not name or name.startswith("@") or not name.isprintable():
        raise FilterSyntaxError(f"{name!r} cannot be a name")
    return name


def print_name(name: str) -> str:
    """A name as the language writes it, in backquotes if it must be."""
    bare = name[1:] if name.startswith("@") else name
    if _BARE_NAME.fullmatch(bare) and name not in _KEYWORDS:
        return name
    return "`" + name.replace("`", "``") + "`"


def print_literal(value: Scalar) -> str:
    """A value as the language writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(value)
    return f't"{format_timestamp(value)}"'
